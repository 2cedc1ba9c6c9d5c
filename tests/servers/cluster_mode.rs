//! Locks on a real server in cluster mode. There a script may access keys of one slot only, and a fenced lock
//! has two keys: the lock and the fencing counter.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use redlock_axum::{FencedLock, LockError, LockManager, redis_lock};
use redlock_core::Dialect;
use redlock_tests::{RedisServer, eventually};
use tower::ServiceExt;

use super::{SOON, builder};

const SLOTS: usize = 16_384;

/// A server in cluster mode that has all slots.
async fn start() -> RedisServer {
    let server = RedisServer::options().directive("cluster-enabled", "yes").start().await;
    let slots: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
    let words: Vec<&str> =
        ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
    server.probe().await.command::<()>(words).await;
    eventually("the cluster serves", SOON, async || {
        let mut probe = server.probe().await;
        let info: String = probe.command(["CLUSTER", "INFO"]).await;
        info.contains("cluster_state:ok").then_some(())
    })
    .await;
    server
}

async fn connect(server: &RedisServer, prefix: &str) -> LockManager {
    builder([server.url()]).prefix(prefix).connect().await.unwrap()
}

/// Each fencing counter lies in the slot of its lock, so the script accesses one slot only.
#[tokio::test]
async fn fenced_locks_work_in_cluster_mode() {
    let server = start().await;
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        for prefix in ["", "shop:", "{locks}:", "shop:{locks}", "{{}:"] {
            let locks = connect(&server, prefix).await;
            for key in ["order:42", "order:43", "{other}", "{}:order"] {
                let mut last = 0;
                for _ in 0..3 {
                    let guard =
                        locks.lock(key).dialect(dialect).fenced(true).try_acquire().await.unwrap();
                    assert!(guard.fencing_token().unwrap().number() > last, "{prefix}{key}");
                    last = guard.fencing_token().unwrap().number();
                    guard.release().await.unwrap();
                }
            }
            locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
        }
    }
}

/// The counter's name begins with the prefix, so a brace there would decide the counter's slot.
#[tokio::test]
async fn a_prefix_with_a_brace_and_no_hash_tag_is_refused_for_fenced_locks() {
    let server = RedisServer::start().await;
    for prefix in ["{locks:", "{}:", "{}{locks}:"] {
        let locks = connect(&server, prefix).await;
        let refused = locks.lock("order:42").fenced(true).try_acquire().await.unwrap_err();
        let LockError::InvalidOption(error) = &refused else { panic!("{prefix}: {refused}") };
        assert_eq!(error.option(), "prefix");
        assert!(error.to_string().contains("{locks}:"), "{error}");
        let waiting =
            locks.lock("order:42").wait_time(SOON).fenced(true).acquire().await.unwrap_err();
        assert!(matches!(waiting, LockError::InvalidOption(_)), "{waiting}");
        // A lock without a fencing number is a single key.
        locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
    }
}

/// A retry cannot succeed, so the response has no `Retry-After`.
#[tokio::test]
async fn a_fenced_handler_with_a_brace_in_the_prefix_is_misconfigured() {
    #[redis_lock(key = "order:42", fenced)]
    async fn pay(_lock: FencedLock) {}

    let server = start().await;
    for (prefix, expected) in [("{}:", StatusCode::INTERNAL_SERVER_ERROR), ("", StatusCode::OK)] {
        let locks = connect(&server, prefix).await;
        let app = Router::new().route("/", post(pay)).with_state(locks);
        let request = Request::post("/").body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        assert_eq!(response.status(), expected, "{prefix}");
        assert!(!response.headers().contains_key("retry-after"));
    }
}

/// A script may access keys of one slot only. A common hash tag gives the keys one slot.
#[tokio::test]
async fn in_cluster_mode_the_keys_of_a_lock_need_a_common_slot() {
    let server = start().await;
    let locks = connect(&server, "").await;
    let guard = locks.lock_all(["{shop}:a", "{shop}:b"]).fenced(true).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    let error = locks.lock_all(["a", "b"]).wait_time(SOON).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(error.diagnostics().to_string().contains("slot"), "{}", error.diagnostics());
    let locks = connect(&server, "{locks}:").await;
    locks.lock_all(["a", "b"]).try_acquire().await.unwrap().release().await.unwrap();
}
