//! Sharing a lock with the other readers of this process.

use std::sync::Arc;

use tokio::time::Instant;

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
        let mut may_await = true;
        loop {
            match self.try_admit(may_await) {
                TryAdmission::Joined(held) => return Ok(self.guard_of_reader(held)),
                TryAdmission::Refused(remaining) => return Err(self.contended(0, Some(remaining))),
                // The other reader's reply makes it a holder, whose lock this reader then shares. A refusal of the
                // other reader may be outdated by now, so this reader then asks the nodes itself.
                TryAdmission::Await(ended) => {
                    ended.cancelled().await;
                    may_await = false;
                }
                TryAdmission::Extend(held, _enquiry) => {
                    if let Some(guard) = self.extend_and_join(&held).await {
                        return Ok(guard);
                    }
                    return self.ask_nodes(&mut AskState::default()).await;
                }
                TryAdmission::AskNodes(_enquiry) => {
                    return self.ask_nodes(&mut AskState::default()).await;
                }
            }
        }
    }

    fn try_admit(&self, may_await: bool) -> TryAdmission {
        let (queues, expire) = (&self.context.queues, self.options.expire);
        queues.try_admit(&self.spec, expire, scope::current(), may_await)
    }

    /// Extends the lease of a lock that other readers of this process hold, and then shares the lock. Returns `None`
    /// if an exclusive caller waits for the lock, or if the lease was not extended.
    pub(super) async fn extend_and_join(&self, held: &Arc<Held>) -> Option<LockGuard> {
        let (context, expire) = (self.context, self.options.expire);
        match held.extend(&context.ballot, expire).await {
            Extension::Extended(extended) => {
                held.record_extension(extended, expire);
            }
            // This reader holds nothing yet. If the last holder has released the lock meanwhile, no holder loses it.
            Extension::Lost(_) => context.keeper.deny(held.attempt()),
            Extension::Unavailable(_) => held.record_unconfirmed(),
        }
        self.join_readers()
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

    /// Makes the guard of a reader that shares the lock of other readers.
    pub(super) fn guard_of_reader(&self, held: Arc<Held>) -> LockGuard {
        scope::record(&self.context.queues, &held);
        let (context, renewal) = (Arc::clone(self.context), self.options.renewal());
        let (now, remaining) = (Instant::now(), held.limit_to(self.options.expire));
        LockGuard::new(context, held, renewal, now, remaining)
    }
}
