//! Locks that stay on the nodes after the work (`min_hold`, `keep`), and calls by holders of lost locks.

use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use redlock_axum::{HeldLock, LockLayer, LockPolicy, redis_lock};
use redlock_core::{HoldError, LockManager, LockState, ReleaseError};
use redlock_tests::{Nodes, eventually, held_briefly, on_each_kind_of_nodes};
use tower::ServiceExt;

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
/// A lease whose end a test can wait for, but long enough to act before it ends, even on a busy machine.
const SHORT: Duration = Duration::from_secs(2);
/// A lease that ends almost at once.
const BRIEF: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "order:42";

on_each_kind_of_nodes! {
    [
        memory_x3: Nodes::memory(3),
        redis_x3: Nodes::redis(3).await,
        sentinel_x3: Nodes::sentinel(3).await,
        redis_x1_redisson: Nodes::redis(1).await.redisson(),
    ]
    if_all_kinds [cluster: Nodes::cluster().await,]
    [
        a_released_lock_stays_for_its_min_hold_or_its_lease,
        a_lock_with_keep_stays_after_its_handler,
        a_lost_lock_stays_lost_after_any_call,
    ]
}

mod thorough {
    use super::*;

    on_each_kind_of_nodes! {
        [
            postgres_x1: Nodes::postgres(1, 0).await,
            postgres_x3: Nodes::postgres(3, 0).await,
            postgres_beside_two_redis: Nodes::postgres(1, 2).await,
        ]
        [
            a_released_lock_stays_for_its_min_hold_or_its_lease,
            a_lock_with_keep_stays_after_its_handler,
            a_lost_lock_stays_lost_after_any_call,
        ]
    }

    // A lock ends with the session of its process, so none is kept.
    on_each_kind_of_nodes! {
        [zookeeper_x1: Nodes::zookeeper().await,]
        [a_lost_lock_stays_lost_after_any_call,]
    }
}

/// Checks that each node has the lock for at most `at_most`, and that another manager is refused.
async fn is_kept(nodes: &Nodes, other: &LockManager, at_most: Duration) {
    for left in nodes.remaining(KEY).await {
        assert!(left.is_some_and(|left| left <= at_most), "{left:?} left of {at_most:?}");
    }
    let refused = other.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
    assert!(refused.is_contended(), "{refused}");
}

/// Checks that a waiter gets the lock when its lease ends, and not before `until`.
async fn is_free_after(nodes: &Nodes, other: &LockManager, until: Instant) {
    let guard = other.lock(KEY).expire(LONG).wait_time(SOON).acquire().await.unwrap();
    // The lease on the servers begins after the caller's request.
    assert!(Instant::now() >= until, "{:?} too early", until - Instant::now());
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_released_lock_stays_for_its_min_hold_or_its_lease(nodes: Nodes) {
    let (locks, other) = (nodes.manager().await, nodes.manager().await);
    let min_hold = locks.lock(KEY).expire(LONG).min_hold(SHORT);
    for request in [min_hold.clone(), locks.lock(KEY).expire(SHORT).keep(true)] {
        let begun = Instant::now();
        let guard = request.try_acquire().await.unwrap();
        nodes.all_hold(KEY).await;
        guard.release().await.unwrap();
        eventually("each node has the shortened lease", SOON, async || {
            let times = nodes.remaining(KEY).await;
            times.iter().all(|left| left.is_none_or(|left| left <= SHORT)).then_some(())
        })
        .await;
        is_kept(&nodes, &other, SHORT).await;
        is_free_after(&nodes, &other, begun + SHORT).await;
    }

    // A lock held for longer than its `min_hold` is released at once.
    let guard = min_hold.min_hold(BRIEF).try_acquire().await.unwrap();
    tokio::time::sleep(BRIEF).await;
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

#[redis_lock(key = KEY, expire = "2s", reentrant, keep)]
async fn keeps() -> &'static str {
    "done"
}

async fn extends(lock: HeldLock) {
    lock.extend(LONG).await.unwrap();
}

async fn a_lock_with_keep_stays_after_its_handler(nodes: Nodes) {
    let (locks, other) = (nodes.manager().await, nodes.manager().await);
    let policy = || LockPolicy::new(KEY).expire(SHORT);
    let layer = |policy| LockLayer::new(&locks, policy).unwrap();
    let app = Router::new()
        .route("/inner", post(keeps).route_layer(layer(policy())))
        .route(
            "/renewed",
            post(async || "done").route_layer(layer(policy().renew(true).keep(true))),
        )
        .route("/extended", post(extends).route_layer(layer(policy().keep(true))))
        .with_state(locks.clone());
    for path in ["/inner", "/renewed"] {
        let request = || axum::http::Request::post(path).body(axum::body::Body::empty()).unwrap();
        let begun = Instant::now();
        let response = app.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(body, "done");
        is_kept(&nodes, &other, SHORT).await;
        assert_eq!(app.clone().oneshot(request()).await.unwrap().status(), 409, "{path}");
        is_free_after(&nodes, &other, begun + SHORT).await;
    }
    // The handler extends its lease: the lock stays for the extended lease, not for the first one.
    let request = axum::http::Request::post("/extended").body(axum::body::Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), 200);
    eventually("each node has the extended lease", SOON, async || {
        let times = nodes.remaining(KEY).await;
        times.iter().all(|left| left.is_some_and(|left| left > SHORT)).then_some(())
    })
    .await;
    is_kept(&nodes, &other, LONG).await;
}

/// The lock is lost because its lease ends or because it is deleted (only the owner releases; loss is never
/// silent).
async fn a_lost_lock_stays_lost_after_any_call(nodes: Nodes) {
    let (locks, other) = (nodes.manager().await, nodes.manager().await);
    for is_deleted in [false, true] {
        let acquire = async || {
            let expire = if is_deleted { LONG } else { BRIEF };
            let guard = held_briefly(|| locks.lock(KEY).expire(expire).try_acquire()).await;
            if is_deleted {
                nodes.all_hold(KEY).await;
                assert!(nodes.delete(KEY).await);
            } else {
                tokio::time::timeout(SOON, guard.lost()).await.unwrap();
            }
            // No call of the late holder may release this lock of the next holder.
            let next = other.lock(KEY).expire(LONG).wait_time(SOON).acquire().await.unwrap();
            // A node that removed the lost lock late has refused the next one. `extend` adds it there.
            eventually("each node has the next lock", SOON, async || {
                next.extend(LONG).await.unwrap();
                let left = nodes.remaining(KEY).await;
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
        let handle = guard.handle();
        for _ in 0..2 {
            let error = guard.extend(LONG).await.unwrap_err();
            assert!(matches!(error, HoldError::Lost(_)), "{error}");
            assert!(matches!(handle.extend(LONG).await, Err(HoldError::Lost(_))));
            assert_eq!((guard.state(), handle.state()), (LockState::Lost, LockState::Lost));
            assert!(!guard.is_valid() && guard.remaining().is_zero());
            tokio::time::timeout(SOON, handle.lost()).await.unwrap();
        }
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
        assert_eq!(handle.state(), LockState::Lost, "a loss never changes again");
        still_held(next).await;

        let (guard, next) = acquire().await;
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
        still_held(next).await;

        let (guard, next) = acquire().await;
        drop(guard);
        still_held(next).await;

        let (guard, next) = acquire().await;
        guard.keep_until_expiry();
        still_held(next).await;
    }
}

/// A minority grants the lock, so the attempt fails and its locks are released at once: `min_hold` and `keep`
/// apply only to acquired locks (an abandoned attempt leaves nothing behind).
#[tokio::test]
async fn a_refused_attempt_leaves_no_lock_despite_min_hold_or_keep() {
    for nodes in [Nodes::memory(3), Nodes::redis(3).await] {
        let one: Vec<LockManager> = {
            let mut managers = Vec::new();
            for index in 1..3 {
                managers.push(nodes.builder_of(index).connect().await.unwrap());
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
            assert!(refused.is_split(), "two callers have one of the other nodes each: {refused}");
            eventually("the minority's grant is released", SOON, async || {
                (nodes.locks().await == guards.len()).then_some(())
            })
            .await;
        }
    }
}
