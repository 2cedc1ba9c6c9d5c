//! The service under test. It gets its locks as an argument, so that tests can pass their own.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use redlock_axum::{LockManager, redis_lock};
use tracing::info;

pub(crate) fn app(locks: LockManager) -> Router {
    Router::new()
        .route("/orders/{id}/pay", post(pay))
        .route("/report", post(report))
        .with_state(locks)
}

#[redis_lock(key = "order:{id}", expire = 10)]
async fn pay(Path(id): Path<u64>) -> String {
    format!("order {id} is paid\n")
}

/// Takes longer than its lease, and must not go on without its lock.
#[redis_lock(key = "report", expire = 5, renew, on_lost = abort)]
async fn report() -> &'static str {
    info!("the report begins");
    tokio::time::sleep(Duration::from_secs(8)).await;
    "the report is sent\n"
}
