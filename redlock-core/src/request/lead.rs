//! Leaders: work that runs in one process at a time, again and again.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt;

use super::{LockRequest, run_under, scope};
use crate::error::{InvalidOption, LockError, RunError};
use crate::fencing_token::FencingToken;
use crate::guard::LockHandle;
use crate::options::OnLost;

/// A request to lead. Returned by [`LockManager::lead`](crate::LockManager::lead), and used by [`run`](Self::run).
#[derive(Clone)]
#[must_use = "a request to lead does nothing until `run` is awaited"]
pub struct LeadRequest {
    request: LockRequest,
}

/// The leader, as its work sees it. Dereferences to the [`LockHandle`] of its lock.
///
/// A clone may be passed on to other code. It does not keep the lock.
#[derive(Debug, Clone)]
pub struct Leader {
    handle: LockHandle,
    token: FencingToken,
}

/// How a term of a leader has ended.
enum Term<T> {
    Returned(T),
    Panicked(Box<dyn Any + Send>),
    Resigned,
}

impl LeadRequest {
    pub(crate) fn new(request: LockRequest) -> Self {
        let request = request.wait_forever().fenced(true).renew(true);
        Self { request: request.on_lost(OnLost::Abort) }
    }

    /// Sets the lease. It is renewed while the leader works, after every third of it. If the leader is killed or cut off,
    /// the next one leads when the lease is over. Defaults to the manager's
    /// [`expire`](crate::LockManagerBuilder::expire), 30 s unless it is set. From 10 ms to 7 days.
    pub fn expire(self, expire: Duration) -> Self {
        Self { request: self.request.expire(expire) }
    }

    /// Sets the [name](LockRequest::named) of the lock. Defaults to `other`.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { request: self.request.named(name) }
    }

    /// Waits until this process leads, runs the work, and returns its result. If the lock is lost, stops the work, and
    /// begins again: waits, and runs the work anew.
    ///
    /// One caller of all processes leads at a time. The others wait for ever, as by
    /// [`wait_forever`](LockRequest::wait_forever): also while no quorum of nodes answers.
    ///
    /// * The work is dropped at its current `await` when the lock is lost, and when a [drain](crate::LockManager::drain)
    ///   begins. Work that blocks its thread cannot be stopped. The lock of a process that is stopped or suspended may be
    ///   lost before the process notices, so pass the [fencing token](Leader::fencing_token) on with each write.
    /// * Each term runs a clone of the closure. A closure `async |leader| { .. }` borrows the variables that it uses, and
    ///   `async move |leader| { .. }` needs variables that are `Clone`, such as an `Arc`.
    /// * When the work returns, or a drain begins, `run` releases the lock and awaits the release, so that the next caller
    ///   leads at once. If the work panics, the panic resumes after the release.
    /// * The work runs in a [`scope`](crate::scope()), as that of [`LockRequest::run`] does.
    ///
    /// The future is `Send` if the closure and its future are `Send`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlock_core::{FencingToken, LockError, LockManager};
    ///
    /// async fn send_reminders(token: FencingToken) {
    ///     // ... with a condition on the number of the token, such as `where fence <= $1` ...
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let leading = locks.clone();
    /// let task = tokio::spawn(async move {
    ///     let lead = leading.lead("reminders").expire(Duration::from_secs(10));
    ///     lead.run(async |leader| {
    ///         loop {
    ///             send_reminders(leader.fencing_token()).await;
    ///             tokio::time::sleep(Duration::from_secs(60)).await;
    ///         }
    ///     })
    ///     .await
    /// });
    /// # while locks.lock("reminders").try_acquire().await.is_ok() { tokio::task::yield_now().await; }
    ///
    /// // When the process stops:
    /// locks.drain();
    /// let ended: Result<(), LockError> = task.await?;
    /// assert!(matches!(ended, Err(LockError::Draining)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the reason for which the caller does not lead any more:
    ///
    /// * [`LockError::Draining`], [`LockError::ShutDown`] or [`LockError::RuntimeEnded`] when the process stops;
    /// * [`LockError::InvalidKey`] or [`LockError::InvalidOption`] at once, also if a [node](crate::node) has no fencing
    ///   tokens;
    /// * the other errors that end a wait [for ever](LockRequest::wait_forever).
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point. This drops the work first, and then releases the lock in the background.
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, LockError>
    where
        F: FnOnce(Leader) -> Fut + Clone,
        Fut: Future,
    {
        loop {
            // Boxed, as the work of `LockRequest::run`.
            let term = Box::pin(self.term(work.clone()));
            match scope::scope(term).await {
                Ok(Term::Returned(output)) => return Ok(output),
                Ok(Term::Panicked(payload)) => resume_unwind(payload),
                Ok(Term::Resigned) => return Err(LockError::Draining),
                Err(RunError::Lost(_) | RunError::Acquire(LockError::Lost(_))) => {}
                Err(RunError::Acquire(error)) => return Err(error),
            }
        }
    }

    /// Waits for the lock, and runs the work until it ends, the lock is lost, or a drain begins.
    async fn term<F, Fut>(&self, work: F) -> Result<Term<Fut::Output>, RunError>
    where
        F: FnOnce(Leader) -> Fut,
        Fut: Future,
    {
        let drain = &self.request.context.home.drain;
        let guard = tokio::select! {
            biased;
            // Also if the task holds another lock, whose holders a drain serves.
            () = drain.begun() => return Ok(Term::Resigned),
            guard = self.request.clone().acquire() => guard.map_err(of_leader)?,
        };
        let key = guard.keys()[0].clone();
        let Some(token) = guard.fencing_token() else {
            // A fenced lock has a token.
            return Err(guard.loss().into());
        };
        let _term = self.request.context.home.term();
        tracing::info!(lock = %key, %token, "this process leads");
        let term = run_under(guard, OnLost::Abort, |handle| async {
            let work = AssertUnwindSafe(work(Leader { handle, token }));
            tokio::select! {
                biased;
                () = drain.begun() => Term::Resigned,
                output = work.catch_unwind() => output.map_or_else(Term::Panicked, Term::Returned),
            }
        });
        let term = term.await;
        tracing::info!(lock = %key, %token, "this process does not lead any more");
        term
    }
}

/// Explains the only option of a leader that its caller has not chosen.
fn of_leader(error: LockError) -> LockError {
    match error {
        LockError::InvalidOption(error) if error.option() == "fenced" => {
            let message = format!("a leader has a fencing token, but {error}");
            InvalidOption::conflict("fenced", message).into()
        }
        error => error,
    }
}

impl Leader {
    /// Returns the number of this term. It is greater than the numbers of all terms before, so that a database can refuse a
    /// late step of a former leader: see [`FencingToken`].
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }
}

impl Deref for Leader {
    type Target = LockHandle;

    fn deref(&self) -> &LockHandle {
        &self.handle
    }
}

impl fmt::Debug for LeadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeadRequest").field("request", &self.request).finish()
    }
}
