//! Running work under a lock, from the acquisition to the release.

use super::{LockRequest, scope};
use crate::error::{LostError, RunError};
use crate::fencing_token::FencingToken;
use crate::guard::{AbortOnLoss, FencedGuard, LockGuard, LockHandle, LossWatcher};
use crate::options::OnLost;

impl<G> LockRequest<G> {
    /// Sets what happens to the work of [`run`](Self::run) if its lock is lost while the work runs. Defaults to
    /// [`OnLost::KeepGoing`].
    ///
    /// A guard does not stop work, so [`acquire`](Self::acquire) and [`try_acquire`](Self::try_acquire) ignore
    /// this option.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }
}

impl LockRequest {
    /// Acquires the lock, runs the work, and releases the lock. Returns the result of the work.
    ///
    /// The lock is acquired as by [`acquire`](Self::acquire): without a [`wait_time`](Self::wait_time), `run`
    /// makes one attempt. If the lock is not acquired, the closure is not called. The closure gets a
    /// [`LockHandle`], by which the work checks or extends the lock.
    ///
    /// The release is awaited before `run` returns, whatever the result of the work is, so that the caller's
    /// next request does not meet its own lock. A failed release is logged as a warning, and the result of
    /// the work is still returned. If the work panics, the lock is released in the background.
    ///
    /// # Examples
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
    /// let parsed = request
    ///     .run(async |lock| -> Result<u32, ParseIntError> {
    ///         assert!(lock.is_valid());
    ///         Ok(stock.parse::<u32>()? + 1)
    ///     })
    ///     .await??; // the first `?` is for the lock, the second one for the work
    /// assert_eq!(parsed, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Spawning
    ///
    /// The future of `run` is `Send` if the closure and its future are. `async |lock| ..` borrows the local
    /// variables that it uses, as above. To spawn the future of `run`, write `async move |lock| ..`, or
    /// `|lock| async move { .. }`, which take the variables, or spawn an `async move` block that owns the
    /// variables and calls `run`:
    ///
    /// ```
    /// # use redlock_core::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = LockManager::in_memory();
    /// let name = String::from("report");
    /// let work = locks.lock("report").run(async move |_| name.len());
    /// assert_eq!(tokio::spawn(work).await??, 6);
    /// # Ok(()) }
    /// ```
    ///
    /// # Loss
    ///
    /// By default the work goes on if its lock is lost, and its result is returned. With
    /// [`on_lost(OnLost::Abort)`](Self::on_lost), the work is dropped at its current `await`, and `run` returns
    /// [`RunError::Lost`]. These are the option and the default of the attribute and the layers of
    /// `redlock-axum`. Stopping is not the default, because work that is stopped may be done in part, and
    /// many kinds of work bear a second holder better than that.
    ///
    /// # Scope
    ///
    /// `run` opens a [`scope`](crate::scope()): an acquisition of the same key inside the work fails at once
    /// with [`LockError::AlreadyHeld`](crate::LockError::AlreadyHeld) instead of waiting for itself, or shares
    /// the lock if it is [reentrant](Self::reentrant). Inside of another scope, such as the request of an axum
    /// handler, `run` belongs to that scope.
    ///
    /// # Errors
    ///
    /// * [`RunError::Acquire`] if the lock was not acquired. The closure was not called.
    /// * [`RunError::Lost`] if the lock was lost and the work was stopped. Only with [`OnLost::Abort`].
    ///
    /// An error of the work is part of its result: `run` returns `Ok(Err(..))`.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point. The work is then dropped, and after it the lock is released in
    /// the background. Whether the work itself may be dropped, only the work can say.
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(LockHandle) -> Fut,
        Fut: Future,
    {
        let on_lost = self.on_lost;
        scope::scope(async {
            let guard = self.acquire().await?;
            let handle = guard.handle();
            let watch = LossWatcher::new(&handle, on_lost);
            let result = AbortOnLoss::new(watch, work(handle)).await;
            end(guard, result).await
        })
        .await
    }
}

impl LockRequest<FencedGuard> {
    /// Acquires the lock, runs the work, and releases the lock, as [`LockRequest::run`] does. The closure also
    /// gets the number of this holder.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{LockManager, RunError};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), RunError> {
    /// let locks = LockManager::in_memory();
    /// let next = || locks.lock("report").fenced().run(async |_lock, token| token);
    /// let first = next().await?;
    /// assert!(first < next().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LockRequest::run`], and as the [`acquire`](Self::acquire) of a fenced request.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::run`].
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(LockHandle, FencingToken) -> Fut,
        Fut: Future,
    {
        let on_lost = self.on_lost;
        scope::scope(async {
            let guard = self.acquire().await?;
            let (handle, token) = (guard.handle(), guard.fencing_token());
            let watch = LossWatcher::new(&handle, on_lost);
            let result = AbortOnLoss::new(watch, work(handle, token)).await;
            end(guard.into_guard(), result).await
        })
        .await
    }
}

/// Ends the holding after the work was finished or stopped.
async fn end<T>(guard: LockGuard, result: Result<T, LostError>) -> Result<T, RunError> {
    // A lost lock has no release to wait for: dropping the guard cleans up the nodes in the background.
    let output = result?;
    guard.release_or_log().await;
    Ok(output)
}
