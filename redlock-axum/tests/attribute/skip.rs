//! Functions that return a value instead of an error while another holder has the lock.

use axum::http::StatusCode;
use redlock_axum::{LockError, LockManager, RunError, redis_lock};

use crate::support::{hold, memory};

#[derive(Debug, PartialEq)]
enum Report {
    Made(u32),
    Skipped(u32),
}

#[redis_lock(key = "job", manager = locks, skip)]
async fn nightly(locks: &LockManager) -> Result<Option<u32>, LockError> {
    Ok(Some(1))
}

#[redis_lock(key = "job", manager = locks, skip = Report::Skipped(*number))]
async fn report(locks: &LockManager, number: u32) -> Result<Report, LockError> {
    Ok(Report::Made(number))
}

#[redis_lock(key = "job", manager = locks, skip, error = unavailable, on_lost = abort)]
async fn with_error(locks: &LockManager) -> Result<Option<u32>, StatusCode> {
    Ok(Some(1))
}

#[expect(clippy::needless_pass_by_value, reason = "the attribute passes a value")]
fn unavailable(error: RunError) -> StatusCode {
    assert!(!matches!(error, RunError::Acquire(LockError::Contended { .. })));
    StatusCode::SERVICE_UNAVAILABLE
}

#[tokio::test]
async fn a_skipped_call_returns_none_or_the_given_value() {
    let (locks, node) = memory().await;
    assert_eq!(nightly(&locks).await.unwrap(), Some(1));
    assert_eq!(report(&locks, 7).await.unwrap(), Report::Made(7));
    assert_eq!(with_error(&locks).await, Ok(Some(1)));

    let guard = hold(&locks, "job").await;
    assert_eq!(nightly(&locks).await.unwrap(), None);
    assert_eq!(report(&locks, 7).await.unwrap(), Report::Skipped(7));
    assert_eq!(with_error(&locks).await, Ok(None));
    guard.release().await.unwrap();
    assert!(node.is_empty());
}

/// Only another holder is a reason to skip. Any other failure must not look like a skipped run.
#[tokio::test]
async fn an_error_other_than_contention_is_returned() {
    let (locks, _node) = memory().await;
    locks.shutdown().await;
    assert!(matches!(nightly(&locks).await, Err(LockError::ShutDown)));
    assert!(matches!(report(&locks, 7).await, Err(LockError::ShutDown)));
    assert_eq!(with_error(&locks).await, Err(StatusCode::SERVICE_UNAVAILABLE));
}
