//! Makes the guard of a lock that the nodes, or another caller of this process, have granted.

use std::sync::Arc;

use tokio::time::Instant;

use super::acquisition::Acquisition;
use super::scope;
use crate::ballot::{Attempt, Grant};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::lease::{HoldState, Holding};
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::waiting::needs_extension;

impl Acquisition {
    pub(super) fn make_guard(
        &self,
        attempt: &Arc<Attempt>,
        grant: &Grant,
    ) -> Result<LockGuard, LockError> {
        let Self { context, options, name, .. } = self;
        let counters = &context.home.counters;
        let (caller, log_limit) = (scope::caller(), &context.log_limit);
        let held = match options.joins() {
            Some(terms) => {
                Holding::of_reader(attempt, caller, name, log_limit, counters, terms.lasts())
            }
            None => Holding::new(attempt, caller, name, log_limit, counters),
        };
        if let Some(token) = grant.token {
            held.set_token(token);
        }
        if let Err(conflict) = context.queues.admit(&held, held.caller().scope) {
            context.ballot.release_in_background(attempt, held.latest_expiry(), |_| {});
            return Err(conflict);
        }
        if let Some(min_hold) = options.min_hold {
            held.set_min_hold(min_hold, attempt.lease().since);
        }
        scope::record(&context.queues, &held);
        let (context, renewal) = (Arc::clone(context), options.renewal());
        let guard = LockGuard::new(context, held, renewal, grant.begun, grant.validity);
        // If the manager was shut down meanwhile, the shutdown did not see this guard. The guard
        // releases the lock when it is dropped: at once, even if the lock was to stay on the nodes (an
        // abandoned attempt leaves nothing behind).
        self.context.home.check_open().inspect_err(|_| attempt.cancel_min_hold())?;
        Ok(guard)
    }

    /// Joins the lock of another reader of this process, if the request and the lock allow it.
    pub(super) fn join_readers(&self) -> Result<Option<LockGuard>, LockError> {
        let Self { context, options, name, .. } = self;
        let Some(terms) = options.joins() else { return Ok(None) };
        let joined = context.queues.join(&self.spec, &terms, scope::caller, name);
        joined.map(|held| self.make_joined_guard(held)).transpose()
    }

    fn make_joined_guard(&self, held: Arc<Holding>) -> Result<LockGuard, LockError> {
        scope::record(&self.context.queues, &held);
        let (context, renewal) = (Arc::clone(&self.context), self.options.renewal());
        let (now, remaining) = (Instant::now(), held.remaining());
        let guard = LockGuard::new(context, held, renewal, now, remaining);
        self.trace.record("joined", true);
        // As for a lock of its own: a shutdown did not see this guard.
        self.context.home.check_open()?;
        Ok(guard)
    }

    /// Takes a lock that another caller of this process has handed over, or that the caller has joined. Returns `None` if the lock is lost
    /// before the caller has it.
    pub(super) async fn take_over(
        &self,
        held: Arc<Holding>,
    ) -> Result<Option<LockGuard>, LockError> {
        let ballot = &self.context.ballot;
        let (context, renewal) = (Arc::clone(&self.context), self.options.renewal());
        let (now, remaining) = (Instant::now(), held.remaining());
        let guard = LockGuard::new(context, Arc::clone(&held), renewal, now, remaining);
        if self.options.fenced
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
        // The lease may have run out before this caller took the lock, or while it confirmed its
        // number (no work without the lock).
        if !guard.is_valid() {
            held.discard();
            return Ok(None);
        }
        // If the manager was shut down meanwhile, the shutdown has released the lock.
        self.context.home.check_open()?;
        self.context.queues.record_taken(&held, scope::current());
        scope::record(&self.context.queues, &held);
        if held.has_joined() {
            self.trace.record("joined", true);
        } else {
            self.extend_after_hand_over(&guard, held);
        }
        Ok(Some(guard))
    }

    /// Extends the lease to the length that the new holder requested, in the background.
    fn extend_after_hand_over(&self, guard: &LockGuard, held: Arc<Holding>) {
        let expire = self.options.expire;
        if !needs_extension(guard.remaining(), expire) {
            return;
        }
        // Until the extension is confirmed, the guard has the rest of the old lease.
        let (handle, context) = (guard.handle(), Arc::clone(&self.context));
        self.context.home.spawn(async move {
            if held.is_left_to_expire() {
                // The new holder has ended already, and its lock stays on the nodes until the lease
                // runs out: for as long as if the lock were still held.
                let _ = context.ballot.extend(held.attempt(), expire).await;
            } else if let Err(error) = handle.extend(expire).await
                // A lock that was released or handed over meanwhile needs no extension.
                && held.state() == HoldState::Held
            {
                let node = error.votes().map_or("", LogLimit::failed_node);
                log_limited!(
                    context.log_limit, "hand-over", node, warn, lock = %held.attempt().key(),
                    error = %error.diagnostics(),
                    "the lease of a lock that was handed over was not extended"
                );
            }
        });
    }
}
