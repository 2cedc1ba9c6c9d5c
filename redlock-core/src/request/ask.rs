//! Asking the nodes for a lock, and making the guard of a granted lock.

use std::sync::Arc;

use super::acquisition::Acquisition;
use super::scope;
use crate::ballot::{Attempt, Grant, Refusal};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::lease::Held;

impl Acquisition<'_> {
    /// Asks the nodes once. With `skip_ttl_lookup`, a refusal does not report how long the other
    /// holder's lease lasts. Asks them again if the connections moved to another runtime meanwhile.
    pub(super) async fn ask_nodes(&self, skip_ttl_lookup: bool) -> Result<LockGuard, LockError> {
        let context = self.context;
        let _shutdown_waits = context.cleanup_tasks.delay_shutdown();
        loop {
            let moves = context.wait_after_move().await;
            let result = self.ask_once(skip_ttl_lookup).await;
            let is_unavailable = matches!(result, Err(LockError::Unavailable { .. }));
            if !is_unavailable || context.runtimes.moves() == moves {
                return result;
            }
        }
    }

    /// Makes one attempt, with a token of its own.
    async fn ask_once(&self, skip_ttl_lookup: bool) -> Result<LockGuard, LockError> {
        self.context.check_not_shut_down()?;
        let attempt = self.new_attempt(skip_ttl_lookup);
        match self.context.ballot.acquire(&attempt, self.options.expire).await {
            Ok(grant) => self.make_guard(&attempt, &grant),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    /// Makes the state of a new attempt. A function of its own, so that it does not enlarge the caller's
    /// future.
    fn new_attempt(&self, skip_ttl_lookup: bool) -> Arc<Attempt> {
        let mut attempt = Attempt::new(&self.spec, self.keys.clone());
        if self.fenced {
            attempt = attempt.fenced();
        }
        if skip_ttl_lookup {
            attempt = attempt.without_ttl_lookup();
        }
        Arc::new(attempt)
    }

    fn make_guard(&self, attempt: &Arc<Attempt>, grant: &Grant) -> Result<LockGuard, LockError> {
        let Self { context, options, .. } = self;
        let clock = Arc::clone(&context.ballot.clock);
        let held =
            Held::new(Arc::clone(attempt), clock, grant.since, grant.decided, options.expire);
        let held = Arc::new(held.with_log_limit(&context.log_limit));
        if let Some(token) = grant.token {
            held.set_token(token);
        }
        if let Some(min_hold) = options.min_hold {
            held.set_min_hold(min_hold, grant.since);
        }
        context.queues.add_holder(&held, scope::current());
        scope::record(&context.queues, &held);
        let guard = LockGuard::new(Arc::clone(context), held, options.renewal(), grant.validity);
        // If the manager was shut down meanwhile, the shutdown did not see this guard. The guard
        // releases the lock when it is dropped: at once, even if the lock was to stay on the nodes (an
        // abandoned attempt leaves nothing behind).
        context.check_not_shut_down().inspect_err(|_| attempt.cancel_min_hold())?;
        Ok(guard)
    }

    /// Returns the error of an attempt that the nodes refused.
    pub(super) fn refused(&self, refusal: Refusal) -> LockError {
        let expire = self.options.expire;
        let refused_key = match &refusal {
            Refusal::Contended { key, .. } | Refusal::Foreign { key, .. } => *key,
            Refusal::Unavailable(_) | Refusal::TimedOut { .. } => 0,
        };
        let key = self.keys.at(refused_key).clone();
        match refusal {
            Refusal::Contended { key: _, remaining, votes } => {
                LockError::Contended { key, remaining, votes }
            }
            Refusal::Unavailable(votes) => LockError::Unavailable { key, votes },
            Refusal::TimedOut { elapsed, votes } => {
                LockError::TimedOut { key, elapsed, expire, votes }
            }
            Refusal::Foreign { key: _, votes } => LockError::ForeignKey { key, votes },
        }
    }
}
