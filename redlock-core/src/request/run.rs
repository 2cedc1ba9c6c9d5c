//! Running work under a lock, from the acquisition to the release.

use super::{LockRequest, scope};
use crate::error::{LostError, RunError};
use crate::guard::{AbortOnLoss, LockGuard, LockHandle, LossWatcher};
use crate::options::OnLost;

impl LockRequest {
    /// Sets what happens to the work of [`run`](Self::run) if its lock is lost while the work runs. Defaults to
    /// [`OnLost::KeepGoing`].
    ///
    /// A guard does not stop work, so [`acquire`](Self::acquire) and [`try_acquire`](Self::try_acquire) ignore
    /// this option.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Acquires the lock, runs the work, and releases the lock. Returns the result of the work.
    ///
    /// The lock is acquired as by [`acquire`](Self::acquire): without a [`wait_time`](Self::wait_time), `run`
    /// makes one attempt. If the lock is not acquired, the closure is not called. The closure gets a
    /// [`LockHandle`], with which the work checks the lock and extends its lease.
    ///
    /// `run` awaits the release before it returns, even if the work returns an error, so that the caller's
    /// next request does not meet its own lock. If the release fails, a warning is logged, and the result of
    /// the work is returned. If the work panics, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// The result of the work may be a `Result` with an error type of its own. Then the first `?` is for the
    /// lock, and the second one for the work.
    ///
    /// ```
    /// use std::num::ParseIntError;
    /// use std::time::Duration;
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let stock = String::from("41");
    ///
    /// let request = locks.lock("stock").wait_time(Duration::from_secs(1));
    /// let stock = request
    ///     .run(async |lock| -> Result<u32, ParseIntError> {
    ///         assert!(lock.is_valid());
    ///         Ok(stock.parse::<u32>()? + 1)
    ///     })
    ///     .await??;
    /// assert_eq!(stock, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Spawning
    ///
    /// The future of `run` is `Send` if the closure and its future are `Send`. A closure `async |lock| { .. }`
    /// borrows the local variables that it uses. A spawned future must own its variables: write
    /// `async move |lock| { .. }` or `|lock| async move { .. }`, or call `run` inside of an `async move` block.
    ///
    /// ```
    /// # use redlock_core::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = LockManager::in_memory();
    /// let report = String::from("report");
    /// let run = locks.lock("report").run(async move |_lock| report.len());
    /// assert_eq!(tokio::spawn(run).await??, 6);
    ///
    /// let mut report = String::from("report");
    /// let task = tokio::spawn(async move {
    ///     locks.lock("report").run(async |_lock| report.push('s')).await?;
    ///     locks.lock("report").run(async |_lock| report.len()).await
    /// });
    /// assert_eq!(task.await??, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Loss
    ///
    /// By default the work goes on if its lock is lost, and its result is returned: work that is stopped may
    /// be half done, which is often worse than work that is done twice. With
    /// [`on_lost(OnLost::Abort)`](Self::on_lost), the work is dropped at its current `await`, and `run` returns
    /// [`RunError::Lost`]. The attribute and the layers of `redlock-axum` have the same option and the same
    /// default.
    ///
    /// # Scope
    ///
    /// `run` opens a [`scope`](crate::scope()): a second acquisition of the same key inside of the work fails
    /// at once with [`LockError::AlreadyHeld`](crate::LockError::AlreadyHeld) instead of waiting for itself, or
    /// joins the lock if it is [reentrant](Self::reentrant). If the caller has a scope already, such as the
    /// one of an axum handler under a lock, `run` belongs to that scope.
    ///
    /// # Errors
    ///
    /// * [`RunError::Acquire`] if the lock was not acquired. The closure was not called.
    /// * [`RunError::Lost`] if the lock was lost and the work was stopped. Only with [`OnLost::Abort`].
    ///
    /// An error of the work is part of its result: `run` then returns `Ok(Err(..))`.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point. This drops the work first, and then releases the lock in the
    /// background. The work is as cancel safe as its own code.
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(LockHandle) -> Fut,
        Fut: Future,
    {
        let on_lost = self.on_lost;
        // Boxed, because the work may run other work, and each level would enlarge the future.
        let run = Box::pin(async {
            let guard = self.acquire().await?;
            let handle = guard.handle();
            let watch = LossWatcher::new(&handle, on_lost);
            let result = AbortOnLoss::new(watch, work(handle)).await;
            end(guard, result).await
        });
        scope::scope(run).await
    }
}

/// Ends the holding after the work was finished or stopped.
async fn end<T>(guard: LockGuard, result: Result<T, LostError>) -> Result<T, RunError> {
    // A lost lock has no release to wait for: dropping the guard cleans up the nodes in the background.
    let output = result?;
    guard.release_or_log().await;
    Ok(output)
}
