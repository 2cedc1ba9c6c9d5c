use axum::extract::State;
use axum::http::StatusCode;
use redlock_axum::LockManager;

async fn ready(State(locks): State<LockManager>) -> StatusCode {
    if locks.is_granting() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::http::Request;
    use axum::routing::get;
    use redlock_axum::test_util::TestLocks;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_service_is_ready_while_a_quorum_of_nodes_is_available() {
        let test = TestLocks::new(3);
        let app = Router::new().route("/ready", get(ready)).with_state(test.manager());
        let status = async || {
            let request = Request::get("/ready").body(Body::empty()).unwrap();
            app.clone().oneshot(request).await.unwrap().status()
        };
        test.nodes()[0].fail();
        assert_eq!(status().await, 200);
        test.nodes()[1].fail();
        assert_eq!(status().await, 503);
        test.nodes()[1].recover();
        assert_eq!(status().await, 200);
    }
}
