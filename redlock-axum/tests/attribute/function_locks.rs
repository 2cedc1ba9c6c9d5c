//! How a function with `manager = ..` holds and releases its lock.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::State;
use axum::routing::get as on_get;
use axum::{Extension, Router};
use redlock_axum::{LockError, LockManager, MemoryNode, RunError, redis_lock};
use tokio::time::timeout;

use crate::support::{eventually, get, installed, memory};

#[tokio::test]
async fn a_function_releases_before_it_returns() {
    #[redis_lock(key = "a", manager = locks)]
    async fn count(locks: &LockManager, node: &MemoryNode) -> Result<usize, LockError> {
        Ok(node.len())
    }

    #[redis_lock(key = "a", manager = locks)]
    async fn hangs(locks: &LockManager) -> Result<(), LockError> {
        pending().await
    }

    let (locks, node) = memory().await;
    assert_eq!(count(&locks, &node).await.unwrap(), 1);
    assert!(node.is_empty());

    let mut dropped = Box::pin(hangs(&locks));
    let poll = poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context))).await;
    assert!(poll.is_pending());
    assert_eq!(node.len(), 1);
    drop(dropped);
    eventually("the lock is free", || node.is_empty()).await;
}

#[tokio::test]
async fn the_lock_of_a_function_with_keep_stays_until_its_lease_ends() {
    #[redis_lock(key = "a", expire = 60, keep, manager = locks)]
    async fn keeping(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }

    let (locks, node) = memory().await;
    keeping(&locks).await.unwrap();
    // `shutdown` waits for a release in the background.
    locks.shutdown().await;
    assert!(node.time_to_live("a").unwrap() > Duration::from_secs(50));
}

/// The handler calls a service that locks the same key.
#[tokio::test]
async fn a_service_that_locks_the_key_of_its_handler_fails_at_once_or_shares_the_lock() {
    struct Service(LockManager);

    impl Service {
        #[redis_lock(key = "a", wait_time = "forever", manager = self.0)]
        async fn strict(&self) -> Result<(), LockError> {
            unreachable!("the body ran although the handler held its lock");
        }

        #[redis_lock(key = "a", wait_time = "forever", reentrant, manager = self.0)]
        async fn sharing(&self, node: &MemoryNode) -> Result<usize, LockError> {
            Ok(node.len())
        }
    }

    #[redis_lock(key = "a", installed)]
    async fn handler(
        Extension(locks): Extension<LockManager>,
        State(node): State<MemoryNode>,
    ) -> String {
        let service = Service(locks);
        let refused = timeout(Duration::from_secs(10), service.strict()).await.expect("at once");
        assert!(matches!(refused, Err(LockError::AlreadyHeld { .. })), "{refused:?}");
        let shared =
            timeout(Duration::from_secs(10), service.sharing(&node)).await.expect("at once");
        assert_eq!(shared.unwrap(), 1);
        // The service shared the lock, so its end does not release the lock of the handler.
        node.len().to_string()
    }

    let (locks, node) = memory().await;
    let app = installed(Router::new().route("/", on_get(handler)).with_state(node.clone()), &locks);
    assert_eq!(get(&app, "/").await.body, "1");
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_function_that_is_aborted_returns_its_own_error_type() {
    struct Job {
        locks: LockManager,
        steps: u32,
    }

    impl Job {
        #[redis_lock(key = "job", expire = "400ms", on_lost = abort, manager = self.locks)]
        async fn run(&mut self, _dropped: Arc<()>) -> Result<&u32, RunError> {
            self.steps += 1;
            pending().await
        }

        #[redis_lock(
            key = "job", expire = "400ms", on_lost = abort, manager = self.locks, error = describe
        )]
        async fn described(&self) -> Result<(), String> {
            pending().await
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the attribute passes a value")]
    fn describe(error: RunError) -> String {
        error.to_string()
    }

    let (locks, node) = memory().await;
    let dropped = Arc::new(());
    let mut job = Job { locks, steps: 0 };
    let error = job.run(Arc::clone(&dropped)).await.unwrap_err();
    assert!(matches!(error, RunError::Lost(_)), "{error:?}");
    assert!(Arc::strong_count(&dropped) == 1 && node.is_empty());
    assert_eq!(job.steps, 1);
    let text = job.described().await.unwrap_err();
    assert_eq!(text, "the lock was lost, and the work under it was stopped: its lease ended");
}
