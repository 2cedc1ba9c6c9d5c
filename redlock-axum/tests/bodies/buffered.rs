//! Bodies that are read before the lock is requested.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::routing::post as on_post;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use redlock_axum::LockPolicy;

use super::{counting, order, slow_body, start, upload};
use crate::front_ends::stage::Stage;
use crate::support::{
    answer, eventually, held_by_another, hold, layer, memory, request, table, text,
};

/// The client decides when its body has arrived, but not how long the lock is held.
#[tokio::test]
async fn a_slow_upload_holds_no_lock() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    stage.leave(2);
    for policy in [order(), order().detached(true), order().wait_time(Duration::from_secs(5))] {
        let app = counting(&locks, &stage, policy);
        let (mut client, body) = slow_body(None);
        let slow = start(&app, body);
        client.send("one");
        client.until_polled(2).await;
        assert!(node.is_empty(), "the upload holds the lock");
        assert_eq!(answer(&app, upload(Body::from("quick"))).await.body, "5");
        client.send("two");
        client.until_polled(3).await;
        assert_eq!(stage.inside(), 0);
        drop(client);
        assert_eq!(slow.await.unwrap().body, "6");
        stage.leave(2);
    }
}

/// Today's refusal of 0.3 us: a client that is refused anyway need not send its body.
#[tokio::test]
async fn a_request_that_this_process_refuses_is_answered_before_its_body_is_read() {
    let (locks, _node) = memory().await;
    let app = counting(&locks, &Stage::new(), order());
    let by_id = Router::new().route("/{id}", on_post(|_: Bytes| async {}));
    let by_id = by_id.route_layer(layer(&locks, "order:{id:u64}"));
    let twice = counting(&locks, &Stage::new(), order()).layer(layer(&locks, order()));
    let guard = hold(&locks, "order").await;
    for (app, path, status) in [(&app, "/", 409), (&by_id, "/seven", 400), (&twice, "/", 409)] {
        let (client, body) = slow_body(None);
        let request = Request::post(path).body(body).unwrap();
        assert_eq!(answer(app, request).await.status, status, "{path}");
        assert!(!client.was_polled(), "{path}");
    }
    drop(guard);
    // The outer lock is free, and the inner one would wait for it.
    let (mut client, body) = slow_body(None);
    let twice = start(&twice, body);
    client.until_polled(1).await;
    drop(client);
    assert_eq!(twice.await.unwrap().status, 500);
    locks.shutdown().await;
    let (client, body) = slow_body(None);
    assert_eq!(answer(&app, upload(body)).await.status, 503);
    assert!(!client.was_polled());
}

#[tokio::test]
async fn a_request_that_waits_for_its_lock_has_read_its_body() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    stage.leave(1);
    let app = counting(&locks, &stage, order().wait_forever());
    let guard = held_by_another(&node, "order").await;
    let (mut client, body) = slow_body(None);
    let waiting = start(&app, body);
    client.send("body");
    client.until_polled(2).await;
    drop(client);
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().body, "4");
}

/// A request without a body has nothing to wait for, also while its connection is open.
#[tokio::test]
async fn a_request_without_a_body_is_served_as_before() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route("/", on_post(|body: Bytes| async move { body.len().to_string() }).get(|| async {}))
        .route_layer(layer(&locks, order()));
    for method in [Method::GET, Method::HEAD, Method::POST] {
        assert_eq!(answer(&app, request(method, "/")).await.status, 200);
    }
    let (client, body) = slow_body(None);
    drop(client);
    assert_eq!(answer(&app, upload(body)).await.body, "0");
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_body_and_its_trailers_reach_the_handler_unchanged() {
    let (locks, _node) = memory().await;
    let echo = |body: Body| async move {
        let hint = body.size_hint().exact();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned();
        let sum = trailers
            .map_or_else(String::new, |trailers| trailers["sum"].to_str().unwrap().to_owned());
        ([("sum", sum), ("length", format!("{hint:?}"))], body.to_bytes())
    };
    let app = Router::new().route("/", on_post(echo)).route_layer(layer(&locks, order()));
    let whole: String = ('a'..='z').cycle().take(3000).collect();
    for step in [1, 7, 1000, 3000] {
        let (client, body) = slow_body(None);
        let mut rest = whole.as_str();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(step.min(rest.len()));
            client.send(piece.to_owned());
            client.send("");
            rest = after;
        }
        client.send_trailers(HeaderMap::from_iter([(
            http::HeaderName::from_static("sum"),
            http::HeaderValue::from_static("26"),
        )]));
        drop(client);
        let answer = answer(&app, upload(body)).await;
        assert_eq!(answer.body, whole, "pieces of {step} bytes");
        assert_eq!(
            (&answer.headers["sum"], &answer.headers["length"]),
            (&"26".parse().unwrap(), &"Some(3000)".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_answered_with_400_and_takes_no_lock() {
    let (locks, node) = memory().await;
    let app = counting(&locks, &Stage::new(), order());
    let (client, body) = slow_body(Some(9));
    client.send("half");
    client.break_off();
    let answer = answer(&app, upload(body)).await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains(r#""code":"body_unreadable""#), "{}", answer.body);
    assert!(answer.body.contains("the request body could not be read"), "{}", answer.body);
    assert!(node.is_empty());
}

/// A client that leaves while its lock is requested or its body arrives leaves nothing behind.
#[tokio::test]
async fn a_detached_handler_does_not_begin_for_a_client_that_leaves_during_its_upload() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    let app = counting(&locks, &stage, order().detached(true));
    let (mut client, body) = slow_body(None);
    let request = start(&app, body);
    client.until_polled(1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    eventually("the body is dropped", || client.pieces.is_closed()).await;
    assert!(node.is_empty());
    assert_eq!(stage.inside(), 0);
}

/// A request without a policy gets its body as it comes.
#[tokio::test]
async fn an_unlocked_request_of_a_table_is_not_read() {
    let (locks, _node) = memory().await;
    let table = table(&locks, [LockPolicy::new("k").route("/locked")]);
    let first = |body: Body| async move {
        let mut body = body;
        String::from_utf8_lossy(&body.frame().await.unwrap().unwrap().into_data().unwrap())
            .into_owned()
    };
    let app = Router::new().route("/", on_post(first)).layer(table);
    let (client, body) = slow_body(None);
    client.send("first");
    let response = tower::ServiceExt::oneshot(app, upload(body)).await.unwrap();
    assert_eq!(text(response).await, "first");
}

/// The server could not end its connections otherwise, for as long as one client likes.
#[tokio::test]
async fn a_drain_answers_a_request_in_the_middle_of_its_upload() {
    let (locks, node) = memory().await;
    let stage = Stage::new();
    let app = counting(&locks, &stage, order().wait_forever());
    let (mut client, body) = slow_body(None);
    let request = start(&app, body);
    client.send("half of it, ");
    client.until_polled(2).await;
    drop(locks.drain());
    // The client never ends its body.
    let answer = request.await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(stage.inside(), 0);
    assert!(node.is_empty());
    drop(client);
}
