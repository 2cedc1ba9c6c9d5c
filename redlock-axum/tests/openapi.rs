//! Locked handlers in documents of `OpenAPI`. `cargo test -p redlock-axum --all-features openapi -- --nocapture` prints them.

use serde_json::Value;

fn assert_refusals_are_in(responses: &Value) {
    for status in ["409", "503"] {
        let response = &responses[status];
        let problem = &response["content"]["application/problem+json"]["schema"];
        assert_eq!(problem["properties"]["code"]["type"], "string", "{status}: {responses:#}");
        assert_eq!(response["headers"]["Retry-After"]["schema"]["minimum"], 1, "{status}");
    }
}

#[cfg(feature = "aide")]
mod aide {
    use ::aide::axum::ApiRouter;
    use ::aide::axum::routing::{get, post};
    use ::aide::openapi::OpenApi;
    use axum::body::Bytes;
    use axum::extract::{FromRequestParts, State};
    use axum::http::request::Parts;
    use redlock_axum::{FencedLock, HeldLock, LockManager, LockRejection, UnderLock, redis_lock};

    use super::{Value, assert_refusals_are_in};

    /// An extractor of the application, which reads an order.
    struct Order;

    impl FromRequestParts<LockManager> for Order {
        type Rejection = LockRejection;

        async fn from_request_parts(_: &mut Parts, _: &LockManager) -> Result<Self, LockRejection> {
            Ok(Self)
        }
    }

    impl ::aide::OperationInput for Order {}

    #[redis_lock(key = "report")]
    async fn without_parameters() -> &'static str {
        "report"
    }

    #[redis_lock(key("body:{}", body.len()))]
    async fn with_a_body(body: Bytes) -> String {
        body.len().to_string()
    }

    #[redis_lock(key = "order", fenced, detached)]
    async fn with_its_lock(
        _: State<LockManager>,
        lock: FencedLock,
        held: HeldLock,
        UnderLock(_): UnderLock<Order>,
        body: String,
    ) -> String {
        format!("{} {} {body}", lock.fencing_token().number(), held.is_valid())
    }

    async fn by_hand(State(locks): State<LockManager>) -> Result<String, LockRejection> {
        Ok(locks.lock("order").run(async |_| "paid".to_owned()).await?)
    }

    #[test]
    fn a_locked_handler_documents_its_refusals() {
        let mut document = OpenApi::default();
        let router: ApiRouter<LockManager> = ApiRouter::new()
            .api_route("/report", get(without_parameters))
            .api_route("/body", post(with_a_body))
            .api_route("/order", post(with_its_lock))
            .api_route("/by-hand", post(by_hand));
        let _ = router.finish_api(&mut document);
        let document = serde_json::to_value(&document).unwrap();
        println!("{document:#}");
        for (path, method) in
            [("/report", "get"), ("/body", "post"), ("/order", "post"), ("/by-hand", "post")]
        {
            let operation: &Value = &document["paths"][path][method];
            assert_refusals_are_in(&operation["responses"]);
            // The hidden extractors document what their parameters read.
            assert_eq!(operation["requestBody"].is_object(), matches!(path, "/body" | "/order"));
        }
    }
}

#[cfg(feature = "utoipa")]
mod utoipa {
    use ::utoipa::IntoResponses;
    use redlock_axum::LockRejection;

    use super::assert_refusals_are_in;

    #[test]
    fn a_rejection_documents_its_responses() {
        let document = serde_json::to_value(LockRejection::responses()).unwrap();
        println!("{document:#}");
        assert_refusals_are_in(&document);
    }
}
