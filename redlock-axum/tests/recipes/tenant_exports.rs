use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use redlock_axum::{LockManager, redis_lock};

/// At most three exports of a tenant run at the same time. A fourth one is answered with 409.
#[redis_lock(key = "export:{tenant}", permits = 3, expire = 30, renew)]
async fn export(Path(tenant): Path<u64>) -> String {
    format!("the data of tenant {tenant}")
}

/// Waits for the exports of the tenant, and keeps further ones out.
#[redis_lock(key = "export:{tenant}", wait_time = "1m", expire = 30, renew)]
async fn relocate(Path(tenant): Path<u64>) -> String {
    format!("tenant {tenant} is in its new database")
}

fn app(locks: LockManager) -> Router {
    Router::new()
        .route("/tenants/{tenant}/exports", post(export))
        .route("/tenants/{tenant}/relocation", post(relocate))
        .with_state(locks)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn three_exports_run_and_a_relocation_waits_for_all_of_them() {
        let locks = LockManager::in_memory();
        let app = app(locks.clone());
        let status = async |path: &str| {
            let request = Request::post(path).body(Body::empty()).unwrap();
            app.clone().oneshot(request).await.unwrap().status()
        };
        let running = async || locks.lock("export:7").permits(3).try_acquire().await.unwrap();
        let (first, second) = (running().await, running().await);
        assert_eq!(status("/tenants/7/exports").await, 200);
        let third = running().await;
        assert_eq!(status("/tenants/7/exports").await, 409);
        assert_eq!(status("/tenants/8/exports").await, 200);

        let mut relocation = pin!(status("/tenants/7/relocation"));
        for export in [first, second, third] {
            let waits = tokio::time::timeout(Duration::from_millis(20), &mut relocation);
            assert!(waits.await.is_err(), "the relocation did not wait");
            export.release().await.unwrap();
        }
        assert_eq!(relocation.await, 200);
    }
}
