use axum::extract::{FromRef, Path, State};
use redlock_axum::{LockManager, LockRejection, redis_lock};

/// The state of the service. Handlers without `manager` use `locks`.
#[derive(Clone, FromRef)]
struct App {
    locks: LockManager,
    permits: Permits,
}

/// A type of its own, because the state has one `LockManager`.
#[derive(Clone)]
struct Permits(LockManager);

/// At most three exports of a tenant run at the same time, counted on one server.
#[redis_lock(key = "export:{tenant}", permits = 3, manager = permits.0)]
async fn export(
    State(permits): State<Permits>,
    Path(tenant): Path<u64>,
) -> Result<String, LockRejection> {
    Ok(format!("the data of tenant {tenant}"))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::http::Request;
    use axum::routing::post;
    use redlock_axum::test_util::TestLocks;
    use tower::ServiceExt;

    use super::*;

    /// Locked on a majority of five servers.
    #[redis_lock(key = "order:{id}")]
    async fn pay(Path(id): Path<u64>) -> String {
        format!("order {id} is paid")
    }

    fn app(state: App) -> Router {
        Router::new()
            .route("/orders/{id}/pay", post(pay))
            .route("/tenants/{tenant}/export", post(export))
            .with_state(state)
    }

    #[tokio::test]
    async fn locks_are_on_five_nodes_and_permits_on_one() {
        let test = TestLocks::new(5);
        let permits = LockManager::in_memory();
        let app = app(App { locks: test.manager(), permits: Permits(permits.clone()) });
        let status = async |path: &str| {
            let request = Request::post(path).body(Body::empty()).unwrap();
            app.clone().oneshot(request).await.unwrap().status()
        };
        let _payment = test.manager().lock("order:42").try_acquire().await.unwrap();
        assert_eq!(status("/orders/42/pay").await, 409);
        assert_eq!(status("/orders/43/pay").await, 200);

        let mut exports = Vec::new();
        for _ in 0..3 {
            assert_eq!(status("/tenants/7/export").await, 200);
            exports.push(permits.lock("export:7").permits(3).try_acquire().await.unwrap());
        }
        assert_eq!(status("/tenants/7/export").await, 409);
        for node in test.nodes() {
            node.fail();
        }
        assert_eq!(status("/tenants/8/export").await, 200);
        assert_eq!(status("/orders/43/pay").await, 503);
    }
}
