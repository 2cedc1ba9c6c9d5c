//! Sharing a lock with the other readers of this process.

use std::sync::Arc;

use tokio::time::{Instant, timeout};

use super::acquisition::Acquisition;
use super::ask_state::AskState;
use super::scope;
use crate::ballot::Extension;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::lease::Held;
use crate::lock::Mode;
use crate::queue::TryAdmission;

impl Acquisition<'_> {
    /// Makes one attempt to share the lock.
    pub(super) async fn try_read(&self) -> Result<LockGuard, LockError> {
        let mut admission = self.try_admit(true);
        if let TryAdmission::Await(ended) = &admission {
            // The other reader's reply makes it a holder, whose lock this reader then shares. A refusal of the other
            // reader may be outdated by now, so this reader then asks the nodes itself. The wait has a limit, because the
            // other reader's future may not be polled.
            let _ = timeout(self.context.ballot.node_timeout, ended.cancelled()).await;
            admission = self.try_admit(false);
        }
        if let TryAdmission::Extend(held, enquiry) = admission {
            self.extend_lease_of_readers(&held).await;
            // Other readers can share the lock now, or have to ask the nodes themselves.
            drop(enquiry);
            admission = self.try_admit(false);
        }
        let _enquiry = match admission {
            TryAdmission::Joined(held) => return Ok(self.guard_of_reader(held)),
            TryAdmission::Refused(remaining) => {
                return Err(self.contended(0, Some(remaining)));
            }
            TryAdmission::AskNodes(enquiry) => enquiry,
            TryAdmission::Extend(_, enquiry) => {
                // The lease was not extended. Readers that arrive now try that again instead of waiting for this one.
                drop(enquiry);
                None
            }
            TryAdmission::Await(_) => None,
        };
        self.ask_nodes(&mut AskState::default()).await
    }

    fn try_admit(&self, may_await: bool) -> TryAdmission {
        let (queues, expire) = (&self.context.queues, self.options.expire);
        queues.try_admit(&self.spec, expire, scope::current(), may_await)
    }

    /// Extends the lease of a lock that other readers of this process hold, and then shares the lock. Returns `None`
    /// if an exclusive caller waits for the lock, or if the lease was not extended.
    pub(super) async fn extend_and_join(&self, held: &Arc<Held>) -> Option<LockGuard> {
        self.extend_lease_of_readers(held).await;
        self.join_readers()
    }

    async fn extend_lease_of_readers(&self, held: &Arc<Held>) {
        let (context, expire) = (self.context, self.options.expire);
        match held.extend(&context.ballot, expire).await {
            Extension::Extended(extended) => {
                held.record_extension(extended, expire);
            }
            // This reader holds nothing yet. If the last holder has released the lock meanwhile, no holder loses it.
            Extension::Lost(_) => context.keeper.deny(held.attempt()),
            Extension::Unavailable(_) => held.record_unconfirmed(),
        }
    }

    /// Shares the lock of other readers of this process, if it is current; `None` for an exclusive request.
    pub(super) fn join_readers(&self) -> Option<LockGuard> {
        if self.spec.mode() != Mode::SHARED {
            return None;
        }
        let (queues, expire) = (&self.context.queues, self.options.expire);
        let held = queues.admit(&self.spec, expire, scope::current())?;
        Some(self.guard_of_reader(held))
    }

    /// Takes the share of a lock that this reader got while it waited. Its task may run late: the lock may be lost by
    /// then, and the result is `None`.
    pub(super) fn take_share(&self, held: &Arc<Held>) -> Result<Option<LockGuard>, LockError> {
        let guard = self.guard_of_reader(Arc::clone(held));
        // If the manager was shut down meanwhile, the shutdown has released the lock.
        self.context.check_not_shut_down()?;
        if guard.is_valid() {
            return Ok(Some(guard));
        }
        // The lease of all readers is over, or was denied (no work without the lock).
        held.discard();
        Ok(None)
    }

    /// Makes the guard of a reader that shares the lock of other readers.
    pub(super) fn guard_of_reader(&self, held: Arc<Held>) -> LockGuard {
        scope::record(&self.context.queues, &held);
        let (context, renewal) = (Arc::clone(self.context), self.options.renewal());
        let (now, remaining) = (Instant::now(), held.limit_to(self.options.expire));
        LockGuard::new(context, held, renewal, now, remaining)
    }
}
