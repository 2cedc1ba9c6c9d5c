//! The limits of bodies: of one, and of all together.

use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use http_body_util::Limited;
use redlock_axum::{BodyMode, LockLayer, LockManager, MemoryNode};
use redlock_logs::Logs;

use super::{Client, counting, order, slow_body, start, upload};
use crate::front_ends::stage::Stage;
use crate::support::{answer, memory};

/// Returns the status of a body of this length: announced and sent at once, and sent in pieces.
async fn statuses(app: &axum::Router, length: usize) -> [u16; 2] {
    let whole = answer(app, upload(Body::from(vec![b'x'; length]))).await.status;
    let (client, body) = slow_body(None);
    for _ in 0..2 {
        client.send(vec![b'x'; length / 2]);
    }
    client.send(vec![b'x'; length % 2]);
    drop(client);
    [whole.as_u16(), answer(app, upload(body)).await.status.as_u16()]
}

#[tokio::test]
async fn a_body_that_is_too_long_is_answered_with_413() {
    const MIB: usize = 1 << 20;
    let (locks, node) = memory().await;
    let stage = Stage::new();
    stage.leave(100);
    let app = |policy| counting(&locks, &stage, policy);
    let with_axum = |policy, limit: DefaultBodyLimit| app(policy).layer(limit);
    let disabled = DefaultBodyLimit::disable();
    for (name, app, longest) in [
        ("body_limit", app(order().body_limit(11)), 11),
        ("axum's default", app(order()), 2 * MIB),
        ("axum's limit of a layer", with_axum(order(), DefaultBodyLimit::max(21)), 21),
        ("both", with_axum(order().body_limit(3 * MIB), disabled), 3 * MIB),
    ] {
        assert_eq!(statuses(&app, longest).await, [200, 200], "{name}");
        assert_eq!(statuses(&app, longest + 1).await, [413, 413], "{name}");
        assert!(node.is_empty());
    }
    assert_eq!(statuses(&with_axum(order(), disabled), 3 * MIB).await, [200, 200]);
}

#[tokio::test]
async fn an_announced_length_or_a_limit_outside_of_the_lock_refuses_a_body() {
    let (locks, _node) = memory().await;
    let app = counting(&locks, &Stage::new(), order().body_limit(10));
    let (client, body) = slow_body(Some(11));
    let refused = answer(&app, upload(body)).await;
    assert_eq!(refused.status, 413);
    assert!(refused.body.contains(r#""code":"body_too_large""#), "{}", refused.body);
    assert!(!client.was_polled());
    assert!(refused.headers.get("retry-after").is_none());
    assert!(refused.body.contains("the request body is too long"), "{}", refused.body);
    let limited = Body::new(Limited::new(Body::from("12345678"), 7));
    assert_eq!(answer(&app, upload(limited)).await.status, 413);
}

/// Bodies that have arrived in part count by the memory that they use.
#[tokio::test]
async fn the_bodies_of_a_manager_share_their_space() {
    let locks = LockManager::builder().memory_node(&MemoryNode::new()).body_buffers(100);
    let locks = locks.connect().await.unwrap();
    let stage = Stage::new();
    let app = counting(&locks, &stage, order().wait_forever());
    let other = counting(&locks, &stage, order());
    let send = async |bytes: usize| -> (Client, _) {
        let (mut client, body) = slow_body(None);
        let request = start(&app, body);
        client.send(vec![b'x'; bytes]);
        client.until_polled(2).await;
        (client, request)
    };
    let (one, first) = send(60).await;
    let (two, second) = send(40).await;
    let logs = Logs::collect();
    let refused = answer(&other, upload(Body::from("x"))).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.body.contains("too many request bodies"), "{}", refused.body);
    assert_eq!(logs.count("WARN", "fill the `body_buffers` of the lock manager, 100 bytes"), 1);

    // A client that leaves, and a handler that has read its body, make room.
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    drop(two);
    let (three, third) = send(40).await;
    drop(one);
    stage.until_inside(1).await;
    let (four, fourth) = send(60).await;
    stage.leave(3);
    drop((three, four));
    for (request, length) in [(first, "60"), (third, "40"), (fourth, "60")] {
        assert_eq!(request.await.unwrap().body, length);
    }
    // Nothing has leaked.
    stage.leave(1);
    assert_eq!(answer(&app, upload(Body::from(vec![b'x'; 100]))).await.body, "100");
    assert_eq!(answer(&app, upload(Body::from(vec![b'x'; 101]))).await.status, 413);
}

#[test]
fn a_limit_out_of_its_range_is_a_mistake_in_the_policy() {
    let locks = LockManager::in_memory();
    let message = |policy| LockLayer::new(&locks, policy).unwrap_err().to_string();
    let range = "but must be from 1 to 67108864 bytes, the body_buffers of the manager";
    assert_eq!(
        message(order().body_limit(0)),
        format!("lock policy 1 (order): body_limit is 0, {range}")
    );
    assert_eq!(
        message(order().body_limit((64 << 20) + 1)),
        format!("lock policy 1 (order): body_limit is 67108865, {range}")
    );
    let both = message(order().body(BodyMode::Stream).body_limit(7));
    assert!(both.contains("body_limit is 7, but must be unset beside"), "{both}");
}
