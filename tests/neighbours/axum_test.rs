//! Requests without a socket, by axum-test.

use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use axum_test::TestServer;
use redlock_axum::test_util::TestLocks;
use redlock_axum::{LockManager, redis_lock};

#[redis_lock(key = "order:{id}")]
async fn pay(Path(id): Path<u64>) -> String {
    format!("order {id} is paid")
}

fn app(locks: LockManager) -> Router {
    Router::new().route("/orders/{id}/pay", post(pay)).with_state(locks)
}

#[tokio::test]
async fn a_payment_is_refused_while_another_copy_works() {
    let test = TestLocks::new(1);
    let other_copy = test.builder().connect().await.unwrap();
    let guard = other_copy.lock("order:42").acquire().await.unwrap();
    let server = TestServer::new(app(test.manager()));
    let response = server.post("/orders/42/pay").await;
    response.assert_status_conflict();
    response.assert_contains_header("retry-after");
    guard.release().await.unwrap();
    server.post("/orders/42/pay").await.assert_text("order 42 is paid");
}
