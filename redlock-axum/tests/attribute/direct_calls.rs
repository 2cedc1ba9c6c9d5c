//! Unit tests that call a handler as a function, without a router.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get as on_get;
use redlock_axum::{LockError, LockManager, redis_lock};

use crate::support::{app, get, held_by_another, memory};

#[derive(Clone)]
struct App {
    locks: LockManager,
}

#[expect(clippy::needless_pass_by_value, reason = "the attribute passes a value")]
fn busy(error: LockError) -> StatusCode {
    assert!(error.is_contended());
    StatusCode::LOCKED
}

#[redis_lock(key = "order:{id}", manager = locks, error = busy)]
async fn pay(State(locks): State<LockManager>, Path(id): Path<u64>) -> Result<String, StatusCode> {
    assert!(locks.lock("order:7").try_acquire().await.is_err());
    Ok(format!("{id} is paid"))
}

#[redis_lock(key = "order:{id}", manager = app.locks, error = busy)]
async fn sell(State(app): State<App>, Path(id): Path<u64>) -> Result<u64, StatusCode> {
    assert!(app.locks.lock("order:7").try_acquire().await.is_err());
    Ok(id)
}

/// The attribute does not change the signature of a handler with `manager`.
#[tokio::test]
async fn a_handler_with_a_manager_may_be_called_as_a_function() {
    let (locks, node) = memory().await;
    let state = App { locks: locks.clone() };
    assert_eq!(pay(State(locks.clone()), Path(7)).await.unwrap(), "7 is paid");
    assert_eq!(sell(State(state.clone()), Path(7)).await.unwrap(), 7);
    assert!(node.is_empty());

    let _other = held_by_another(&node, "order:7").await;
    assert_eq!(pay(State(locks), Path(7)).await, Err(StatusCode::LOCKED));
    assert_eq!(sell(State(state), Path(7)).await, Err(StatusCode::LOCKED));
}

#[tokio::test]
async fn the_same_handler_works_in_a_router() {
    let (locks, _) = memory().await;
    let app = app(Router::new().route("/{id}", on_get(pay)), &locks);
    assert_eq!(get(&app, "/7").await.body, "7 is paid");
}
