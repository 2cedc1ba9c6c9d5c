//! Asking the nodes for a lock, and making the guard of a granted lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout_at};

use super::acquisition::Acquisition;
use super::ask_state::{AskState, OwnMark};
use super::scope;
use crate::ballot::{Attempt, Enquiry, Grant};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::lease::Held;

impl Acquisition<'_> {
    /// Asks the nodes. Asks them once more if it has met the first node that takes marks at the lock.
    pub(super) async fn ask_nodes(&self, state: &mut AskState<'_>) -> Result<LockGuard, LockError> {
        self.context.enter();
        let _shutdown_waits = self.context.ballot.home.delay_shutdown();
        let had_met_marks = state.met_marks;
        let result = self.ask_once(state).await;
        if state.met_marks && !had_met_marks && (!self.fenced || state.mark.is_some()) {
            return self.ask_once(state).await;
        }
        result
    }

    /// Leaves the mark of a caller that waits until other callers of this process stop sharing the lock, so that the
    /// nodes admit no further callers. Returns a guard if these callers have stopped meanwhile and the nodes have granted
    /// the lock. A failure of the nodes has no effect.
    pub(super) async fn leave_mark(
        &self,
        state: &mut AskState<'_>,
        deadline: Option<Instant>,
    ) -> Option<LockGuard> {
        let _shutdown_waits = self.context.ballot.home.delay_shutdown();
        self.context.enter();
        state.met_marks = true;
        let asked = self.ask_once(state);
        match deadline {
            Some(deadline) => timeout_at(deadline, asked).await.ok()?.ok(),
            None => asked.await.ok(),
        }
    }

    /// Makes one attempt, with a token of its own.
    async fn ask_once(&self, state: &mut AskState<'_>) -> Result<LockGuard, LockError> {
        self.context.check_open()?;
        let attempt = self.new_attempt(state);
        match self.context.ballot.acquire(&attempt, self.options.expire).await {
            Ok(grant) => {
                let guard = self.make_guard(&attempt, &grant)?;
                state.mark.as_mut().map(OwnMark::acquired);
                Ok(guard)
            }
            Err(refused) => {
                state.met_marks |= attempt.met_marks.load(Ordering::SeqCst);
                Err(refused)
            }
        }
    }

    /// Makes the state of a new attempt. A function of its own, so that it does not enlarge the caller's
    /// future.
    fn new_attempt(&self, state: &mut AskState<'_>) -> Arc<Attempt> {
        let AskState { skip_ttl_lookup, met_marks, mark } = state;
        let enquiry = Enquiry {
            ttl_lookup: !*skip_ttl_lookup,
            // A fenced lock is acquired by a script, which distinguishes shared holders in any case.
            met_marks: *met_marks || self.fenced,
            mark: mark.as_mut().filter(|_| *met_marks).map(OwnMark::set),
        };
        Attempt::new(&self.spec, self.keys.clone(), self.fenced, enquiry)
    }

    fn make_guard(&self, attempt: &Arc<Attempt>, grant: &Grant) -> Result<LockGuard, LockError> {
        let Self { context, options, .. } = self;
        let clock = Arc::clone(&context.ballot.clock);
        let log_limit = Some(Arc::clone(&context.log_limit));
        let held = Held::new(Arc::clone(attempt), clock, grant.lease, log_limit);
        if let Some(token) = grant.token {
            held.set_token(token);
        }
        if let Err(conflict) = context.queues.admit(&held, scope::current(), grant.decided) {
            let (attempt, until) = (Arc::clone(attempt), grant.lease.latest_expiry);
            context.ballot.release_in_background(attempt, until);
            return Err(self.contended_locally(conflict));
        }
        if let Some(min_hold) = options.min_hold {
            held.set_min_hold(min_hold, grant.lease.since);
        }
        scope::record(&context.queues, &held);
        let (context, renewal) = (Arc::clone(context), options.renewal());
        let guard = LockGuard::new(context, held, renewal, grant.begun, grant.validity);
        // If the manager was shut down meanwhile, the shutdown did not see this guard. The guard
        // releases the lock when it is dropped: at once, even if the lock was to stay on the nodes (an
        // abandoned attempt leaves nothing behind).
        self.context.check_open().inspect_err(|_| attempt.cancel_min_hold())?;
        Ok(guard)
    }
}
