use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::{FromRef, Path, State};
use redlock_axum::{LockManager, redis_lock};
use tokio::sync::Mutex;

/// Charges an order once. Its route is `/orders/{order}/payment`.
#[redis_lock(key = "payment:{order}", detached)]
async fn pay(State(shop): State<Shop>, Path(order): Path<u64>) -> String {
    if let Some(receipt) = shop.receipts.lock().await.get(&order) {
        return receipt.clone();
    }
    let receipt = shop.charge(order).await;
    shop.receipts.lock().await.insert(order, receipt.clone());
    receipt
}

#[derive(Clone, FromRef)]
struct Shop {
    locks: LockManager,
    /// Stands for a table of the database.
    receipts: Arc<Mutex<BTreeMap<u64, String>>>,
    charges: Arc<AtomicU32>,
}

impl Shop {
    async fn charge(&self, order: u64) -> String {
        tokio::time::sleep(Duration::from_secs(3)).await; // the work of the bank
        let charge = self.charges.fetch_add(1, Ordering::SeqCst) + 1;
        format!("order {order} is paid by charge {charge}")
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::routing::post;
    use redlock_axum::test_util::TestLocks;
    use tokio::task::JoinHandle;
    use tower::ServiceExt;

    use super::*;

    struct Test {
        locks: TestLocks,
        shop: Shop,
    }

    impl Test {
        fn new() -> Self {
            let locks = TestLocks::new(1);
            let (receipts, charges) = (Arc::default(), Arc::default());
            let shop = Shop { locks: locks.manager(), receipts, charges };
            Self { locks, shop }
        }

        /// Sends a payment, and returns its status and its text.
        fn pay(&self) -> JoinHandle<(u16, String)> {
            let app = Router::new().route("/orders/{order}/payment", post(pay));
            let app = app.with_state(self.shop.clone());
            tokio::spawn(async move {
                let request = Request::post("/orders/42/payment").body(Body::empty()).unwrap();
                let response = app.oneshot(request).await.unwrap();
                let status = response.status().as_u16();
                let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
                (status, String::from_utf8(text.to_vec()).unwrap())
            })
        }

        async fn advance(&self, seconds: u64) {
            self.locks.clock().advance(Duration::from_secs(seconds)).await;
        }
    }

    const PAID: &str = "order 42 is paid by charge 1";

    #[tokio::test]
    async fn a_repeated_payment_gets_409_and_later_the_stored_receipt() {
        let test = Test::new();
        let first = test.pay();
        test.advance(1).await;
        assert_eq!(test.pay().await.unwrap().0, 409);
        assert_eq!(first.await.unwrap(), (200, PAID.to_owned()));
        assert_eq!(test.pay().await.unwrap(), (200, PAID.to_owned()));
        assert_eq!(test.shop.charges.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_payment_whose_client_leaves_is_charged_once_and_releases_its_lock() {
        let test = Test::new();
        let client = test.pay();
        test.advance(1).await;
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(test.pay().await.unwrap().0, 409);
        test.advance(3).await;
        assert!(test.locks.nodes()[0].is_empty());
        assert_eq!(test.pay().await.unwrap(), (200, PAID.to_owned()));
        assert_eq!(test.shop.charges.load(Ordering::SeqCst), 1);
    }
}
