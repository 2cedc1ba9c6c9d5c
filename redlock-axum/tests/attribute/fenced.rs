//! The fencing token of a handler's lock.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get as on_get;
use axum::{Extension, Router};
use redlock_axum::{FencedLock, LockPolicy, redis_lock};
use redlock_logs::Logs;

use crate::support::{app, get, layer, memory, until_logged};

/// The key is made before the lock is acquired. The number is 0 then, which is less than the number
/// of any holder.
#[tokio::test]
async fn before_the_lock_is_taken_the_number_is_zero() {
    #[redis_lock(key("a:{}", lock.fencing_token().number()), fenced)]
    async fn early(lock: FencedLock) -> String {
        lock.keys()[0].to_string()
    }

    let (locks, _) = memory().await;
    let app = app(Router::new().route("/", on_get(early)), &locks);
    assert_eq!(get(&app, "/").await.body, "a:0");
}

/// The number must belong to the lock of the handler, not to an outer lock.
#[tokio::test]
async fn a_handler_gets_the_number_of_its_innermost_lock() {
    #[redis_lock(key = "a", reentrant, fenced)]
    async fn shares(lock: FencedLock, Extension(outer): Extension<FencedLock>) -> String {
        assert_eq!(lock.fencing_token(), outer.fencing_token());
        format!("{} {}", lock.keys()[0], lock.fencing_token().number() > 0)
    }
    #[redis_lock(key = "b", fenced)]
    async fn another(lock: FencedLock) -> String {
        format!("{} {}", lock.keys()[0], lock.fencing_token().number() > 0)
    }
    #[redis_lock(key = "a", reentrant)]
    async fn shares_without(_lock: FencedLock) {}
    #[redis_lock(key = "b")]
    async fn another_without(_lock: FencedLock) {}
    async fn show(lock: FencedLock, mut request: Request, next: Next) -> Response {
        request.extensions_mut().insert(lock);
        next.run(request).await
    }

    let (locks, _) = memory().await;
    let router = Router::new()
        .route("/shares", on_get(shares))
        .route("/another", on_get(another))
        .route("/shares-without", on_get(shares_without))
        .route("/another-without", on_get(another_without))
        .route_layer(from_fn(show))
        .route_layer(layer(&locks, LockPolicy::new("a").fenced(true)));
    let app = app(router, &locks);
    assert_eq!(get(&app, "/shares").await.body, "a true");
    assert_eq!(get(&app, "/another").await.body, "b true");
    for path in ["/shares-without", "/another-without"] {
        let logs = Logs::collect();
        until_logged(&logs, "ERROR", "has no fencing token", async || {
            assert_eq!(get(&app, path).await.status, 500, "{path}");
        })
        .await;
        assert_eq!(
            logs.count("ERROR", "a reentrant lock inside a fenced one needs it"),
            1,
            "{path}"
        );
    }
}
