//! A function with the attribute is one holder, also outside of a request.

use std::pin::Pin;
use std::time::Duration;

use axum::extract::{FromRef, Path, State};
use axum::routing::post as on_post;
use axum::{Router, http};
use redlock_axum::{LockError, LockManager, redis_lock};
use tokio::time::timeout;

use crate::support::{hold, memory, post};

struct Shop {
    locks: LockManager,
}

impl Shop {
    #[redis_lock(key = "stock:{sku}", wait_time = "forever", manager = self.locks)]
    async fn reserve(&self, sku: &str) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "stock:{sku}", manager = self.locks)]
    async fn order(&self, sku: &str) -> Result<(), LockError> {
        self.reserve(sku).await
    }

    #[redis_lock(key = "stock:{sku}", manager = self.locks)]
    fn refill<'a>(
        &'a self,
        sku: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), LockError>> + Send + 'a>> {
        Box::pin(self.reserve(sku))
    }
}

#[redis_lock(key = "stock:{sku}", manager = shop.locks)]
async fn sell(shop: &Shop, sku: &str) -> Result<(), LockError> {
    shop.reserve(sku).await
}

/// Without a scope, the inner call would wait for the outer one for ever.
#[tokio::test]
async fn a_function_outside_of_a_request_never_waits_for_itself() {
    let (locks, node) = memory().await;
    let shop = Shop { locks };
    let patience = Duration::from_secs(10);
    for result in [
        timeout(patience, shop.order("a")).await,
        timeout(patience, shop.refill("a")).await,
        timeout(patience, sell(&shop, "a")).await,
    ] {
        let error = result.expect("the call must not wait for itself").unwrap_err();
        assert!(matches!(error, LockError::AlreadyHeld { .. }), "{error:?}");
        assert_eq!(node.len(), 0);
    }
}

#[tokio::test]
async fn two_calls_in_one_task_are_two_holders() {
    let (locks, _) = memory().await;
    let shop = Shop { locks };
    let (first, second) = tokio::join!(shop.reserve("a"), shop.reserve("a"));
    first.unwrap();
    second.unwrap();
}

#[derive(Clone)]
struct App {
    locks: LockManager,
}

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.locks.clone()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the attribute passes a value")]
fn status(error: LockError) -> http::StatusCode {
    match error {
        LockError::AlreadyHeld { .. } => http::StatusCode::LOOP_DETECTED,
        _ => http::StatusCode::CONFLICT,
    }
}

/// The router has no `ScopeLayer`, and nothing else opens a scope.
#[tokio::test]
async fn a_handler_with_a_manager_never_waits_for_itself() {
    #[redis_lock(key = "stock:{sku}", manager = app.locks, error = status)]
    async fn order(
        State(app): State<App>,
        Path(sku): Path<String>,
    ) -> Result<(), http::StatusCode> {
        let shop = Shop { locks: app.locks };
        shop.reserve(&sku).await.map_err(status)
    }

    let (locks, _) = memory().await;
    let app = App { locks: locks.clone() };
    let router = Router::new().route("/{sku}/order", on_post(order)).with_state(app);
    let response = timeout(Duration::from_secs(10), post(&router, "/a/order")).await;
    assert_eq!(response.expect("the handler must not wait for itself"), 508);

    let _guard = hold(&locks, "stock:a").await;
    assert_eq!(post(&router, "/a/order").await, 409);
}
