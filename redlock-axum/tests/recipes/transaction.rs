use std::time::Duration;

use axum::Router;
use redlock_axum::{LockLayer, LockManager, LockPolicy, SetupError};

/// Locks routes that have the middleware with the transaction already.
fn lock(locks: &LockManager, routes: Router) -> Result<Router, SetupError> {
    let policy = LockPolicy::new("stock:{sku}").wait_time(Duration::from_secs(5));
    Ok(routes.route_layer(LockLayer::new(locks, policy)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::extract::{Extension, FromRef, Path, Request, State};
    use axum::middleware::{Next, from_fn_with_state};
    use axum::response::Response;
    use axum::routing::post;
    use redlock_axum::redis_lock;
    use redlock_axum::test_util::TestLocks;
    use tokio::sync::Mutex;
    use tokio::task::JoinSet;
    use tower::ServiceExt;

    use super::*;

    /// Begins a transaction for each request, and commits it after the handler.
    async fn transaction(State(table): State<Table>, mut request: Request, next: Next) -> Response {
        let transaction = table.begin();
        request.extensions_mut().insert(transaction.clone());
        let response = next.run(request).await;
        if response.status().is_success() {
            transaction.commit().await;
        }
        response
    }

    async fn reserve(
        Extension(transaction): Extension<Transaction>,
        Path(sku): Path<String>,
    ) -> String {
        let left = transaction.read().await;
        transaction.write(left - 1).await;
        format!("one {sku} is reserved")
    }

    fn routes(shop: &Shop) -> Router {
        Router::new()
            .route("/stock/{sku}", post(reserve))
            .route_layer(from_fn_with_state(shop.clone(), transaction))
            .with_state(shop.clone())
    }

    #[derive(Clone, FromRef)]
    struct Shop {
        locks: LockManager,
        table: Table,
    }

    /// Stands for a table of the database, with the stock of one article.
    #[derive(Clone)]
    struct Table(Arc<Mutex<u32>>);

    /// A transaction, whose write the others see after its commit.
    #[derive(Clone)]
    struct Transaction {
        table: Table,
        written: Arc<Mutex<Option<u32>>>,
    }

    impl Table {
        fn begin(&self) -> Transaction {
            Transaction { table: self.clone(), written: Arc::default() }
        }
    }

    impl Transaction {
        async fn read(&self) -> u32 {
            *self.table.0.lock().await
        }

        async fn write(&self, left: u32) {
            *self.written.lock().await = Some(left);
        }

        async fn commit(&self) {
            tokio::time::sleep(Duration::from_millis(5)).await; // the way to the database
            if let Some(left) = self.written.lock().await.take() {
                *self.table.0.lock().await = left;
            }
        }
    }

    /// The lock inside of the transaction, which ends before the commit.
    #[redis_lock(key = "stock:{sku}", wait_time = "forever")]
    async fn reserve_too_late(
        transaction: Extension<Transaction>,
        Path(sku): Path<String>,
    ) -> String {
        reserve(transaction, Path(sku)).await
    }

    fn with_the_attribute(shop: Shop) -> Router {
        Router::new()
            .route("/stock/{sku}", post(reserve_too_late))
            .route_layer(from_fn_with_state(shop.clone(), transaction))
            .with_state(shop)
    }

    fn shop(test: &TestLocks) -> Shop {
        Shop { locks: test.manager(), table: Table(Arc::new(Mutex::new(30))) }
    }

    fn reservation() -> axum::http::Request<Body> {
        axum::http::Request::post("/stock/hat").body(Body::empty()).unwrap()
    }

    /// The clock of the test moves when all tasks wait. So all reservations have come when the first commit ends.
    async fn left_after_30_reservations(app: Router, table: &Table) -> u32 {
        let mut requests = JoinSet::new();
        for _ in 0..30 {
            requests.spawn(app.clone().oneshot(reservation()));
        }
        while let Some(response) = requests.join_next().await {
            assert_eq!(response.unwrap().unwrap().status(), 200);
        }
        *table.0.lock().await
    }

    #[tokio::test]
    async fn a_lock_outside_of_the_transaction_loses_no_reservation() {
        let test = TestLocks::new(1);
        let shop = shop(&test);
        let app = lock(&shop.locks, routes(&shop)).unwrap();
        assert_eq!(left_after_30_reservations(app, &shop.table).await, 0);
        assert!(test.nodes()[0].is_empty());
    }

    #[tokio::test]
    async fn a_lock_inside_of_the_transaction_loses_reservations() {
        let test = TestLocks::new(1);
        let shop = shop(&test);
        let app = with_the_attribute(shop.clone());
        assert!(left_after_30_reservations(app, &shop.table).await > 0);
    }
}
