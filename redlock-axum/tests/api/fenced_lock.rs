//! The methods of a [`FencedLock`] in a handler.

use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use redlock_axum::{FencedLock, HeldLock, HoldError, LockLayer, LockManager, LockPolicy};
use tokio::time::timeout;

use crate::support::{layer, post};

const LONG: Duration = Duration::from_secs(60);
/// A test fails if it waits for longer.
const PATIENCE: Duration = Duration::from_secs(30);

fn lock(expire: Duration) -> LockLayer {
    let policy = LockPolicy::new("order:42").expire(expire).fenced(true);
    layer(&LockManager::in_memory(), policy)
}

#[tokio::test]
async fn a_fenced_lock_reports_the_state_of_its_held_lock() {
    async fn pay(lock: FencedLock) {
        assert_eq!(lock.keys()[0].as_str(), "order:42");
        assert!(lock.is_valid());
        assert!(lock.fencing_token().number() > 0);
        assert!(lock.remaining() > Duration::ZERO && lock.remaining() < Duration::from_secs(5));
        lock.extend(LONG).await.unwrap();
        assert!(lock.remaining() > LONG / 2, "{:?}", lock.remaining());
        let held: &HeldLock = &lock;
        assert_eq!(held.fencing_token(), Some(lock.fencing_token()));
    }

    let app = Router::new().route("/", on_post(pay).route_layer(lock(Duration::from_secs(5))));
    assert_eq!(post(&app, "/").await, 200);
}

#[tokio::test]
async fn a_fenced_lock_reports_its_loss() {
    async fn pay(lock: FencedLock) {
        timeout(PATIENCE, lock.lost()).await.unwrap();
        assert!(!lock.is_valid());
        assert_eq!(lock.remaining(), Duration::ZERO);
        let error = lock.extend(LONG).await.unwrap_err();
        assert!(matches!(error, HoldError::Lost(_)), "{error}");
    }

    let app = Router::new().route("/", on_post(pay).route_layer(lock(Duration::from_millis(500))));
    assert_eq!(post(&app, "/").await, 200);
}
