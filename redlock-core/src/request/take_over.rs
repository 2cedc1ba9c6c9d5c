//! Taking over a lock that another caller of this process held.

use std::sync::Arc;

use tokio::time::Instant;

use super::acquisition::Acquisition;
use super::scope;
use crate::error::{HoldError, LockError};
use crate::guard::LockGuard;
use crate::lease::{Held, HoldState};
use crate::log_limit::LogLimit;
use crate::queue::needs_extension;

impl Acquisition<'_> {
    /// Takes over a lock that another caller of this process held. Returns `None` if the lock is lost
    /// before the caller has it.
    pub(super) async fn take_over(&self, held: Arc<Held>) -> Result<Option<LockGuard>, LockError> {
        let ballot = &self.context.ballot;
        let (context, renewal) = (Arc::clone(self.context), self.options.renewal());
        let (now, remaining) = (Instant::now(), held.remaining());
        let guard = LockGuard::new(context, Arc::clone(&held), renewal, now, remaining);
        if self.fenced
            && guard.is_valid()
            && let Some(token) = held.attempt().next_token()
        {
            let (attempt, expire) = (held.attempt(), self.options.expire);
            match ballot.confirm(attempt, token, expire, held.remaining(), None).await {
                Ok(()) => held.set_token(token),
                Err(LockError::Contended { .. } | LockError::ForeignKey { .. }) => held.discard(),
                Err(error) => {
                    // The next waiter could not confirm the lock either.
                    attempt.abandon();
                    return Err(error);
                }
            }
        }
        // The lease may have run out before this caller took the lock over, or while it confirmed its
        // number (no work without the lock).
        if !guard.is_valid() {
            held.discard();
            return Ok(None);
        }
        self.context.queues.record_take_over(&held, scope::current());
        scope::record(&self.context.queues, &held);
        self.extend_after_hand_over(&guard, held);
        Ok(Some(guard))
    }

    /// Extends the lease to the length that the new holder requested, in the background.
    fn extend_after_hand_over(&self, guard: &LockGuard, held: Arc<Held>) {
        let ballot = &self.context.ballot;
        let expire = self.options.expire;
        if needs_extension(guard.remaining(), expire) {
            // Until the extension is confirmed, the guard has the rest of the old lease.
            let (handle, ballot) = (guard.handle(), ballot.clone());
            let log_limit = Arc::clone(&self.context.log_limit);
            self.context.ballot.home.spawn(async move {
                if held.is_left_to_expire() {
                    // The new holder has ended already, and its lock stays on the nodes until the lease
                    // runs out: for as long as if the lock were still held.
                    ballot.extend(held.attempt(), expire).await;
                } else if let Err(error) = handle.extend(expire).await
                    // A lock that was released or handed over meanwhile needs no extension.
                    && held.state() == HoldState::Held
                {
                    log_failed_extension(&error, &log_limit);
                }
            });
        }
    }
}

/// Logs that a lock keeps only the rest of its old lease after a hand-over.
fn log_failed_extension(error: &HoldError, log_limit: &LogLimit) {
    const MESSAGE: &str = "the lease of a lock that was handed over was not extended";
    let node = error.votes().map_or("", LogLimit::failed_node);
    let error = error.diagnostics();
    if let Some(suppressed) = log_limit.admit("hand-over", node) {
        tracing::warn!(%error, suppressed, "{MESSAGE}");
    } else {
        tracing::debug!(%error, "{MESSAGE}");
    }
}
