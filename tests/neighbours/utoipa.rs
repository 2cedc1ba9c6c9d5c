//! A document of `utoipa`. `cargo test utoipa -- --nocapture` prints it.

use axum::extract::Path;
use axum::routing::post;
use redlock_axum::{LockManager, LockRejection, redis_lock};
use utoipa::OpenApi;

#[utoipa::path(post, path = "/orders/{id}/pay", responses((status = 200, body = String), LockRejection))]
#[redis_lock(key = "order:{id}")]
async fn pay(Path(id): Path<u64>) -> String {
    format!("order {id} is paid")
}

#[derive(OpenApi)]
#[openapi(paths(pay))]
struct Document;

#[test]
fn a_locked_handler_documents_its_success_and_its_refusals() {
    let document = serde_json::to_value(Document::openapi()).unwrap();
    println!("{document:#}");
    let responses = &document["paths"]["/orders/{id}/pay"]["post"]["responses"];
    assert!(responses["200"].is_object());
    for status in ["409", "503"] {
        assert!(
            responses[status]["content"]["application/problem+json"].is_object(),
            "{responses:#}"
        );
    }
    let _: axum::Router<LockManager> = axum::Router::new().route("/orders/{id}/pay", post(pay));
}
