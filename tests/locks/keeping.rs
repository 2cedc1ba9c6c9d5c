//! What stays on the nodes after the work, and what a holder can do that has lost its lock.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use axum::routing::post;
use axum::{Extension, Router};
use redlock_axum::{HeldLock, LockLayer, redis_lock};
use redlock_core::{ExtendError, LockManager, LockState, ReleaseError};
use redlock_tests::{Nodes, eventually, on_each_kind_of_nodes};
use tower::ServiceExt;

/// Longer than any test: what is gone before was released.
const LONG: Duration = Duration::from_secs(300);
/// Short enough to wait for, long enough to do something before.
const SHORT: Duration = Duration::from_millis(700);
/// Over as soon as it is waited for.
const BRIEF: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

on_each_kind_of_nodes! {
    [
        memory_x3: Nodes::memory(3),
        redis_x3: Nodes::redis(3).await,
        redis_x1_redisson: Nodes::redis(1).await.redisson(),
    ]
    [
        a_released_lock_stays_for_its_min_hold_or_its_lease,
        a_handler_that_keeps_the_lock_of_its_layer_keeps_it,
        a_lost_lock_is_lost_whatever_its_holder_does,
    ]
}

/// Somebody else is refused, and the lock is there, with what is left of its time.
async fn is_kept(nodes: &Nodes, at_most: Duration) {
    for left in nodes.times_to_live(KEY).await {
        assert!(left.is_some_and(|left| left <= at_most), "{left:?} left of {at_most:?}");
    }
    let other = nodes.manager().await;
    let refused = other.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
    assert!(refused.is_contended(), "{refused}");
}

/// Without anybody's help: who waits gets it when the time is over, and not before.
async fn is_free_after(nodes: &Nodes, until: Instant) {
    let other = nodes.manager().await;
    let guard = other.lock(KEY).expire(LONG).wait_time(SOON).acquire().await.unwrap();
    // The servers' lease begins later than the caller asks for it.
    assert!(Instant::now() >= until, "{:?} too early", until - Instant::now());
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_released_lock_stays_for_its_min_hold_or_its_lease(nodes: Nodes) {
    let locks = nodes.manager().await;
    let min_hold = locks.lock(KEY).expire(LONG).min_hold(SHORT);
    for request in [min_hold.clone(), locks.lock(KEY).expire(SHORT).keep(true)] {
        let begun = Instant::now();
        let guard = request.try_acquire().await.unwrap();
        nodes.all_hold(KEY).await;
        guard.release().await.unwrap();
        eventually("each node has the shorter time", SOON, async || {
            let times = nodes.times_to_live(KEY).await;
            times.iter().all(|left| left.is_none_or(|left| left <= SHORT)).then_some(())
        })
        .await;
        is_kept(&nodes, SHORT).await;
        is_free_after(&nodes, begun + SHORT).await;
    }

    // Held for longer than that, it is released at once.
    let guard = min_hold.try_acquire().await.unwrap();
    tokio::time::sleep(SHORT).await;
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

#[redis_lock(key = KEY, expire = "700ms", reentrant, keep)]
async fn keeps() -> &'static str {
    "done"
}

async fn extends(lock: HeldLock) {
    lock.extend(LONG).await.unwrap();
    tokio::time::sleep(BRIEF * 3).await;
}

async fn a_handler_that_keeps_the_lock_of_its_layer_keeps_it(nodes: Nodes) {
    let locks = nodes.manager().await;
    let layer = || LockLayer::new(KEY).expire(SHORT);
    let app = Router::new()
        .route("/inner", post(keeps).route_layer(layer()))
        .route("/renewed", post(async || "done").route_layer(layer().renew(true).keep(true)))
        .route("/extended", post(extends).route_layer(layer().expire(BRIEF * 2).keep(true)))
        .layer(Extension(locks));
    for path in ["/inner", "/renewed"] {
        let request = || axum::http::Request::post(path).body(axum::body::Body::empty()).unwrap();
        let begun = Instant::now();
        let response = app.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(body, "done");
        is_kept(&nodes, SHORT).await;
        assert_eq!(app.clone().oneshot(request()).await.unwrap().status(), 409, "{path}");
        is_free_after(&nodes, begun + SHORT).await;
    }
    // Longer than its first lease; it is the last one that is kept.
    let request = axum::http::Request::post("/extended").body(axum::body::Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), 200);
    nodes.all_hold(KEY).await;
    is_kept(&nodes, LONG).await;
}

/// Deletes a lock as an operator would, or a server that forgets.
async fn delete(nodes: &Nodes) {
    match nodes {
        Nodes::Memory(_) | Nodes::Actor(_) | Nodes::Unordered(_) => {
            unreachable!("a node in memory does not forget")
        }
        Nodes::Redis(servers) => {
            for server in servers.iter() {
                let _: i64 = server.probe().await.command(["DEL", KEY]).await;
            }
        }
        Nodes::Redisson(nodes) => Box::pin(delete(nodes)).await,
    }
}

/// Invariants 2 and 8, by each way in which a lock can be lost.
async fn a_lost_lock_is_lost_whatever_its_holder_does(nodes: Nodes) {
    let (locks, other) = (nodes.manager().await, nodes.manager().await);
    let in_memory = matches!(nodes, Nodes::Memory(_));
    for is_deleted in [false, true] {
        if is_deleted && in_memory {
            continue;
        }
        let acquire = async || {
            let expire = if is_deleted { LONG } else { BRIEF };
            let guard = locks.lock(KEY).expire(expire).try_acquire().await.unwrap();
            if is_deleted {
                nodes.all_hold(KEY).await;
                delete(&nodes).await;
            } else {
                tokio::time::timeout(SOON, guard.lost()).await.unwrap();
            }
            // Whoever comes next has the lock, whatever the late holder does.
            let next = other.lock(KEY).expire(LONG).wait_time(SOON).acquire().await.unwrap();
            // A node that had the lost lock for a moment longer than the others has refused.
            eventually("each node has the next lock", SOON, async || {
                next.extend(LONG).await.unwrap();
                let left = nodes.times_to_live(KEY).await;
                left.iter().all(|left| left.is_some_and(|left| left > BRIEF)).then_some(())
            })
            .await;
            (guard, next)
        };
        let still_held = async |next: redlock_core::LockGuard| {
            nodes.all_hold(KEY).await;
            next.extend(LONG).await.unwrap();
            next.release().await.unwrap();
            nodes.become_empty().await;
        };

        let (guard, next) = acquire().await;
        let lease = guard.handle();
        for _ in 0..2 {
            let error = guard.extend(LONG).await.unwrap_err();
            assert!(matches!(error, ExtendError::Lost { .. }), "{error}");
            assert!(matches!(lease.extend(LONG).await, Err(ExtendError::Lost { .. })));
            assert_eq!((guard.state(), lease.state()), (LockState::Lost, LockState::Lost));
            assert!(!guard.is_valid() && guard.remaining().is_zero());
            tokio::time::timeout(SOON, lease.lost()).await.unwrap();
        }
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Expired { .. }), "{error}");
        assert_eq!(lease.state(), LockState::Lost, "a loss never changes again");
        still_held(next).await;

        let (guard, next) = acquire().await;
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Expired { .. }), "{error}");
        still_held(next).await;

        let (guard, next) = acquire().await;
        drop(guard);
        still_held(next).await;

        let (guard, next) = acquire().await;
        guard.keep_until_expiry();
        still_held(next).await;
    }
}

/// Invariant 6: an attempt that got the lock on a minority keeps nothing there, although it would have
/// kept it had it got the rest.
#[tokio::test]
async fn an_attempt_that_is_refused_leaves_nothing_for_the_time_it_would_have_held() {
    for nodes in [Nodes::memory(3), Nodes::redis(3).await] {
        let one: Vec<LockManager> = {
            let mut managers = Vec::new();
            for index in 1..3 {
                let builder = LockManager::builder().node_timeout(SOON / 5);
                let builder = match &nodes {
                    Nodes::Memory(nodes) => builder.memory_node(&nodes[index]),
                    Nodes::Redis(servers) => builder.url(servers[index].url()),
                    _ => unreachable!("no other nodes"),
                };
                managers.push(builder.connect().await.unwrap());
            }
            managers
        };
        let mut guards = Vec::new();
        for locks in &one {
            guards.push(locks.lock(KEY).expire(LONG).try_acquire().await.unwrap());
        }
        let locks = nodes.manager().await;
        let request = || locks.lock(KEY).expire(LONG);
        for request in [request().min_hold(LONG), request().keep(true)] {
            let refused = request.try_acquire().await.unwrap_err();
            assert!(refused.is_contended(), "{refused}");
            eventually("the minority's grant is given back", SOON, async || {
                (nodes.locks().await == guards.len()).then_some(())
            })
            .await;
        }
    }
}
