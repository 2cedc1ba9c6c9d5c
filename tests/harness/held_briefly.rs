//! Locks whose lease ends while a test runs.

use std::time::{Duration, Instant};

use redlock_core::LockError;

/// The longest time for an acquisition, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Acquires a lock with a lease that ends while the test runs. Repeats an acquisition that takes longer than its lease on
/// a busy machine.
///
/// The lease may have ended when the caller gets the guard.
///
/// # Panics
///
/// If an acquisition fails for another reason, or each one does for twenty seconds.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redlock_core::LockManager;
/// # use redlock_tests::held_briefly;
/// # tokio_test(async {
/// # let locks = LockManager::in_memory();
/// let brief = Duration::from_millis(50);
/// let guard = held_briefly(|| locks.lock("order:42").expire(brief).try_acquire()).await;
/// guard.lost().await;
/// # });
/// # fn tokio_test(test: impl Future<Output = ()>) {
/// #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
/// # }
/// ```
pub async fn held_briefly<T>(mut acquire: impl AsyncFnMut() -> Result<T, LockError>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match acquire().await {
            Ok(guard) => return guard,
            Err(error) => error,
        };
        // A node may still have the lock of the attempt before.
        let may_be_late = error.is_contended()
            || matches!(error, LockError::TimedOut { .. } | LockError::Unavailable { .. });
        assert!(may_be_late && Instant::now() < deadline, "{}", error.diagnostics());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
