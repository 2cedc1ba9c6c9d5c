//! The fencing token of a handler's lock.

use axum::extract::{FromRequestParts, OptionalFromRequestParts, Request};
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get as on_get;
use axum::{Extension, RequestPartsExt, Router};
use redlock_axum::{FencedLock, HeldLock, LockPolicy, LockRejection, UnderLock, redis_lock};
use redlock_logs::Logs;

use crate::support::{app, get, layer, memory, until_logged};

/// An extractor of the application that reads the number of the lock.
struct Number(i64);

impl<S: Sync> FromRequestParts<S> for Number {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        let lock: FencedLock = parts.extract().await?;
        Ok(Self(lock.fencing_token().number()))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Number {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, LockRejection> {
        let lock: Option<FencedLock> = parts.extract().await?;
        Ok(lock.map(|lock| Self(lock.fencing_token().number())))
    }
}

/// A number that is read before the lock is acquired would be the number of no holder.
#[tokio::test]
async fn nothing_reads_the_number_before_the_lock_is_acquired() {
    type Alias = FencedLock;

    #[redis_lock(key = "a", fenced)]
    async fn early(_number: Number) {
        unreachable!("the handler has begun");
    }
    #[redis_lock(key = "a", fenced)]
    async fn early_option(_number: Option<Number>) {
        unreachable!("the handler has begun");
    }
    #[redis_lock(key = "a", fenced)]
    async fn alias(_lock: Alias) {
        unreachable!("the handler has begun");
    }
    #[redis_lock(key = "a", fenced)]
    async fn in_tuple(_locks: (HeldLock, FencedLock)) {
        unreachable!("the handler has begun");
    }

    let (locks, node) = memory().await;
    let router = Router::new()
        .route("/early", on_get(early))
        .route("/early-option", on_get(early_option))
        .route("/alias", on_get(alias))
        .route("/in-tuple", on_get(in_tuple));
    let app = app(router, &locks);
    let logs = Logs::collect();
    for path in ["/early", "/early-option", "/alias", "/in-tuple"] {
        until_logged(
            &logs,
            "ERROR",
            "write the parameter as `UnderLock<MyExtractor>`",
            async || {
                assert_eq!(get(&app, path).await.status, 500, "{path}");
            },
        )
        .await;
        assert!(node.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn under_the_lock_everything_reads_the_same_number() {
    #[redis_lock(key = "a", fenced)]
    async fn handler(
        UnderLock(Number(number)): UnderLock<Number>,
        UnderLock(alike): UnderLock<(HeldLock, Option<FencedLock>)>,
        lock: FencedLock,
        perhaps: Option<redlock_axum::FencedLock>,
        held: Option<HeldLock>,
        by_path: ::redlock_axum::HeldLock,
    ) -> String {
        let token = lock.fencing_token();
        assert!(number > 0);
        assert_eq!((token.number(), alike.0.fencing_token()), (number, Some(token)));
        for fenced in [alike.1, perhaps] {
            assert_eq!(fenced.map(|lock| lock.fencing_token()), Some(token));
        }
        assert_eq!(held.and_then(|lock| lock.fencing_token()), Some(token));
        by_path.keys()[0].to_string()
    }

    let (locks, _node) = memory().await;
    let app = app(Router::new().route("/", on_get(handler)), &locks);
    assert_eq!(get(&app, "/").await.body, "a");
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
