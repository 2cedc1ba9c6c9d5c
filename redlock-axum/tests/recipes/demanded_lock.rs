use axum::Router;
use axum::extract::Path;
use axum::routing::put;
use redlock_axum::{HeldLock, LockLayer, LockManager, LockPolicy, SetupError};

/// Never runs without its lock: the extractor answers a request without one with 500.
async fn change(_lock: HeldLock, Path(sku): Path<String>) -> String {
    format!("the stock of {sku} is changed")
}

fn app(locks: &LockManager, policies: Vec<LockPolicy>) -> Result<Router, SetupError> {
    let layer = LockLayer::table(locks, policies)?;
    Ok(Router::new().route("/stock/{sku}", put(change)).layer(layer))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use tower::ServiceExt;

    use super::*;

    async fn status(policies: Vec<LockPolicy>) -> StatusCode {
        let app = app(&LockManager::in_memory(), policies).unwrap();
        let request = Request::put("/stock/shoe").body(Body::empty()).unwrap();
        app.oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn a_handler_that_demands_its_lock_does_not_run_without_its_policy() {
        assert_eq!(status(vec![LockPolicy::new("stock:{sku}").route("/stock/{sku}")]).await, 200);
        assert_eq!(status(vec![LockPolicy::new("stock").route("/stock")]).await, 500);
    }
}
