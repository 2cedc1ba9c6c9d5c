use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use redlock_axum::{KeyPart, LockManager, LockRejection};

/// Processes requests with the same `Idempotency-Key` one after another. A request without it is not locked.
async fn one_at_a_time(
    State(locks): State<LockManager>,
    request: Request,
    next: Next,
) -> Result<Response, LockRejection> {
    let Some(key) = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok())
    else {
        return Ok(next.run(request).await);
    };
    // Values from outside are escaped.
    let lock = locks.lock(format!("idempotency:{}", KeyPart(key)));
    let lock = lock.expire(Duration::from_secs(10)).wait_time(Duration::from_secs(2));
    Ok(lock.run(async |_lock| next.run(request).await).await?)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use redlock_axum::ScopeLayer;
    use redlock_axum::test_util::TestLocks;
    use tower::ServiceExt;

    use super::*;

    fn app(locks: &LockManager) -> Router {
        Router::new()
            .route("/orders", post(|| async { "ordered" }))
            .layer(from_fn_with_state(locks.clone(), one_at_a_time))
            .layer(ScopeLayer::new(locks))
    }

    async fn send(app: &Router, key: Option<&str>) -> StatusCode {
        let mut request = Request::post("/orders");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
    }

    #[tokio::test]
    async fn requests_with_the_same_header_run_one_after_another() {
        let test = TestLocks::new(1);
        let app = app(&test.manager());
        let held = test.manager().lock("idempotency:a%3Ab").try_acquire().await.unwrap();
        assert_eq!(send(&app, None).await, 200);
        assert_eq!(send(&app, Some("a")).await, 200);
        assert_eq!(send(&app, Some("")).await, 400);
        assert_eq!(send(&app, Some("a:b")).await, 409);
        let (status, released) = tokio::join!(send(&app, Some("a:b")), async {
            test.clock().advance(Duration::from_secs(1)).await;
            held.release().await
        });
        released.unwrap();
        assert_eq!(status, 200);
        assert!(test.nodes()[0].is_empty());
    }
}
