//! A flood of requests writes only a few lines into the log.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::routing::post as on_post;
use axum::{Extension, Router};
use redlock_axum::{
    HeldLock, LockManager, LockPolicy, LockRejection, MemoryNode, OnLost, redis_lock,
};
use redlock_logs::Logs;
use support::{layer, memory, post};
use tokio::task::JoinSet;

/// The number of log lines for which `flood` sends requests.
const LINES: usize = 2;

/// Sends requests until the log has two lines of this level and text. Each line has the number of similar
/// events since the line before it. Those events are logged at debug level.
async fn flood(app: &Router, status: u16, level: &str, text: &str) {
    let logs = Logs::collect();
    let (begun, mut sent) = (Instant::now(), 0);
    while logs.count(level, text) < LINES {
        assert!(begun.elapsed() < Duration::from_secs(60), "{text}: {sent} requests");
        let mut requests = JoinSet::new();
        for _ in 0..20 {
            let (app, path) = (app.clone(), format!("/{sent}"));
            requests.spawn(async move { post(&app, &path).await });
            sent += 1;
        }
        assert_eq!(requests.join_all().await, [status; 20], "{text}");
    }
    let elapsed = begun.elapsed();
    let (mut limited, mut suppressed) = (0, 0);
    for line in logs.lines().iter().filter(|line| line.contains(text)) {
        if line.trim_start().starts_with(level) {
            let field = format!(" suppressed={suppressed} ");
            assert!(format!("{line} ").contains(&field), "{suppressed}: {line}");
            (limited, suppressed) = (limited + 1, 0);
        } else {
            assert!(line.starts_with("DEBUG"), "{line}");
            suppressed += 1;
        }
    }
    assert!(limited <= usize::try_from(elapsed.as_secs()).unwrap() + 1, "{limited} in {elapsed:?}");
    assert!(logs.count("DEBUG", text) > 0);
    let events = logs.lines().iter().filter(|line| line.contains(text)).count();
    assert_eq!(events, sent, "one event per request: {text}");
}

async fn shut_down() -> LockManager {
    let (locks, _node) = memory().await;
    locks.shutdown().await;
    locks
}

#[tokio::test]
async fn requests_that_a_layer_refuses_share_a_line_per_second() {
    let layer = layer(&shut_down().await, "order:{id}");
    let app = Router::new().route("/{id}", on_post(async || {}).route_layer(layer));
    flood(&app, 503, "WARN", "a request was rejected: the lock manager was shut down").await;
}

#[tokio::test]
async fn requests_that_the_attribute_refuses_share_a_line_per_second() {
    #[redis_lock(key = "order:{id}")]
    async fn pay(Path(id): Path<u64>) {
        unreachable!("the body of {id} ran without the lock");
    }

    let app = Router::new().route("/{id}", on_post(pay)).with_state(shut_down().await);
    flood(&app, 503, "WARN", "a request was rejected: the lock manager was shut down").await;
}

#[tokio::test]
async fn requests_that_a_handler_refuses_share_a_line_per_second() {
    async fn settle(State(locks): State<LockManager>) -> Result<(), LockRejection> {
        let guard = locks.lock("settlement").try_acquire().await?;
        unreachable!("got {guard:?}");
    }

    let app = Router::new().route("/{id}", on_post(settle)).with_state(shut_down().await);
    flood(&app, 503, "WARN", "a request was rejected: the lock manager was shut down").await;
}

#[tokio::test]
async fn requests_without_a_manager_share_a_line_per_second() {
    #[redis_lock(key = "k", installed)]
    async fn locked() {}

    let app = Router::new().route("/{id}", on_post(locked));
    flood(&app, 500, "ERROR", "no LockManager is installed").await;
}

#[tokio::test]
async fn requests_without_a_lock_share_a_line_per_second() {
    let app = Router::new().route("/{id}", on_post(|_: HeldLock| async {}));
    flood(&app, 500, "ERROR", "no lock was taken for the request").await;
}

/// The messages of these events differ by the key.
#[tokio::test]
async fn requests_that_lock_their_own_key_again_share_a_line_per_second() {
    let (locks, _node) = memory().await;
    let layer = layer(&locks, "order:{id}");
    let router = Router::new().route("/{id}", on_post(async || {}).route_layer(layer.clone()));
    let app = router.route_layer(layer);
    flood(&app, 500, "ERROR", "is already held by the same request").await;
}

/// The diagnostics of these events differ by the key.
#[tokio::test]
async fn requests_with_an_invalid_option_share_a_line_per_second() {
    async fn pay(
        Path(id): Path<u64>,
        State(locks): State<LockManager>,
    ) -> Result<(), LockRejection> {
        let guard = locks.lock(format!("order:{id}")).expire(Duration::ZERO).try_acquire().await?;
        unreachable!("got {guard:?}");
    }

    let (locks, _node) = memory().await;
    let app = Router::new().route("/{id}", on_post(pay)).with_state(locks);
    flood(&app, 500, "ERROR", "expire is 0ns, but must be").await;
}

#[tokio::test]
async fn requests_that_are_aborted_share_a_line_per_second() {
    let (locks, _node) = memory().await;
    let policy = LockPolicy::new("order:{id}").expire(EXPIRE).on_lost(OnLost::Abort);
    let router = Router::new().route("/{id}", on_post(std::future::pending::<()>));
    let app = router.route_layer(layer(&locks, policy));
    flood(&app, 503, "WARN", "a request was stopped").await;
}

/// A time that is long enough to acquire every lock on a busy machine.
const EXPIRE: Duration = Duration::from_millis(500);

/// A handler whose lease runs out before it ends.
async fn too_slow(lock: HeldLock, Extension(node): Extension<MemoryNode>) {
    while node.time_to_live(lock.keys()[0].as_str()).is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn slow_app() -> Router {
    let (locks, node) = memory().await;
    let layer = layer(&locks, LockPolicy::new("order:{id}").expire(EXPIRE));
    let router = Router::new().route("/{id}", on_post(too_slow).route_layer(layer));
    router.layer(Extension(node))
}

/// One event per lost lock (loss is never silent), and one warning per second.
#[tokio::test]
async fn requests_that_lose_their_locks_share_a_line_per_second() {
    flood(&slow_app().await, 200, "WARN", "a lock was lost").await;
}

#[tokio::test]
async fn releases_that_fail_share_a_line_per_second() {
    flood(&slow_app().await, 200, "WARN", "the release of a lock failed").await;
}
