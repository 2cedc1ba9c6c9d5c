//! A document of `aide`. `cargo test aide -- --nocapture` prints it.

use aide::axum::ApiRouter;
use aide::axum::routing::post_with;
use aide::openapi::OpenApi;
use axum::Json;
use axum::extract::State;
use redlock_axum::{LockManager, redis_lock};

#[redis_lock(key("order:{}", order))]
async fn pay(State(_): State<LockManager>, Json(order): Json<u64>) -> Json<String> {
    Json(format!("order {order} is paid"))
}

#[test]
fn a_locked_handler_documents_its_body_its_success_and_its_refusals() {
    let mut document = OpenApi::default();
    let router: ApiRouter<LockManager> = ApiRouter::new()
        .api_route("/orders/pay", post_with(pay, |doc| doc.response::<200, Json<String>>()));
    let _ = router.finish_api(&mut document);
    let document = serde_json::to_value(&document).unwrap();
    println!("{document:#}");
    let operation = &document["paths"]["/orders/pay"]["post"];
    assert_eq!(
        operation["requestBody"]["content"]["application/json"]["schema"]["type"],
        "integer"
    );
    assert_eq!(
        operation["responses"]["200"]["content"]["application/json"]["schema"]["type"],
        "string"
    );
    for status in ["409", "503"] {
        assert!(operation["responses"][status]["content"]["application/problem+json"].is_object());
    }
}
