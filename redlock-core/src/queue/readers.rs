//! Readers: the callers of this process that share one lock on the nodes.
//!
//! The first reader acquires the lock. The others share it without asking the nodes, as long as the nodes have
//! confirmed the lease a moment ago. Later, one reader extends the lease first, and the reply says whether an exclusive
//! caller waits in another process. Then no further reader shares the lock, so that the exclusive caller gets its turn.
//! An exclusive caller that waits in this process stops further readers too.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::hand_over::is_long_enough;
use super::holders::Holder;
use super::queues::Queues;
use super::wait_queue::WaitQueue;
use crate::clock::Moment;
use crate::lease::{Currency, Held};
use crate::lock::{LockSpec, Mode, QueueKey};

/// The way in which the locks of this process let a reader in.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The reader shares this lock from now on.
    Joined(Arc<Held>),
    /// The lease of this lock has to be extended before the reader may share it.
    Extend(Arc<Held>),
    /// The reader has to ask the nodes for a lock of its own.
    AskNodes,
}

/// The next step of a reader that makes one attempt.
#[derive(Debug)]
pub(crate) enum TryAdmission {
    /// The reader shares this lock from now on.
    Joined(Arc<Held>),
    /// The lease of this lock has to be extended before the reader may share it.
    Extend(Arc<Held>, Option<ReaderEnquiry>),
    /// The reader has to ask the nodes for a lock of its own.
    AskNodes(Option<ReaderEnquiry>),
    /// Another reader asks the nodes. The token is cancelled when that reader has its reply.
    Await(CancellationToken),
    /// An exclusive caller of this process holds the lock, or an exclusive caller of any process waits for it. With
    /// the time until the present holder ends.
    Refused(Duration),
}

/// Shows other readers that a reader asks the nodes, so that they wait for its reply instead of asking the nodes too. A
/// key has one at most.
#[derive(Debug)]
pub(crate) struct ReaderEnquiry {
    queues: Arc<Queues>,
    key: QueueKey,
    ended: CancellationToken,
}

impl WaitQueue {
    /// Returns what the next reader can do. Adds it as a holder if it may share a lock.
    pub(super) fn admit(&mut self, expire: Duration, scope: Option<u64>) -> Admission {
        let holders = self.holders.iter().map(|holder| &holder.held);
        let Some(shared) =
            self.holders.last().into_iter().chain(holders).find(|held| held.is_joinable())
        else {
            return Admission::AskNodes;
        };
        match shared.currency() {
            Currency::WriterWaits => Admission::AskNodes,
            Currency::Fresh if is_long_enough(shared.lease_remaining(), expire) => {
                let held = shared.another();
                // Readers do not hand their lock over, so the time of the grant does not matter.
                self.holders.push(Holder::new(Arc::clone(&held), scope, Moment::default()));
                Admission::Joined(held)
            }
            // A holder of its own, because the others may end before the extension is confirmed.
            Currency::Fresh | Currency::Stale => Admission::Extend(shared.another()),
        }
    }

    /// Lets the readers that wait next to each other share the lock that the nodes have just granted to the first of them.
    /// It stays held for them even if the first one releases it at once. A fair reader is not among them: whether its
    /// process is next of all is known only when the ticket before it has left.
    pub(super) fn admit_waiting_readers(&mut self) {
        // The new holder is still in the queue.
        let next = usize::from(self.waiting.first().is_some_and(|first| first.is_asking()));
        while let Some(reader) =
            self.waiting.get(next).filter(|reader| reader.is_unordered_reader())
        {
            let reader = Arc::clone(reader);
            // Its scope shares the lock when it takes it.
            let Admission::Joined(held) = self.admit(reader.options.expire, None) else { return };
            self.waiting.remove_at(next);
            reader.assign(held);
        }
    }

    fn has_waiting_writer(&self) -> bool {
        self.waiting.iter().any(|entry| entry.spec.mode() != Mode::SHARED)
    }
}

impl Queues {
    /// Returns the next step of a reader that makes one attempt. With `may_await`, it can also wait until another reader has
    /// asked the nodes.
    pub(crate) fn try_admit(
        self: &Arc<Self>,
        spec: &LockSpec,
        expire: Duration,
        scope: Option<u64>,
        may_await: bool,
    ) -> TryAdmission {
        let key = spec.queue_key();
        let mut by_key = self.by_key.lock();
        let queue = by_key.entry(key.clone()).or_default();
        if let Some(remaining) = queue.local_conflict_remaining(spec.mode()) {
            return TryAdmission::Refused(remaining);
        }
        let holder = queue.holders.last();
        let knows_of_writer = || {
            let of_other_process =
                |held: &Arc<Held>| held.is_joinable() && held.currency() == Currency::WriterWaits;
            queue.has_waiting_writer() || holder.is_some_and(of_other_process)
        };
        if let Some(held) = holder.filter(|_| knows_of_writer()) {
            return TryAdmission::Refused(held.remaining());
        }
        if let Some(ended) = queue.reader_enquiry.as_ref().filter(|_| may_await) {
            return TryAdmission::Await(ended.clone());
        }
        let admission = queue.admit(expire, scope);
        let mut enquiry = || {
            let is_first = queue.reader_enquiry.is_none();
            is_first.then(|| {
                let ended = CancellationToken::new();
                queue.reader_enquiry = Some(ended.clone());
                ReaderEnquiry { queues: Arc::clone(self), key: key.clone(), ended }
            })
        };
        match admission {
            Admission::Joined(held) => TryAdmission::Joined(held),
            Admission::Extend(held) => TryAdmission::Extend(held, enquiry()),
            Admission::AskNodes => TryAdmission::AskNodes(enquiry()),
        }
    }

    /// Shares a lock of this process after its lease was extended; `None` if it cannot be shared.
    pub(crate) fn admit(
        &self,
        spec: &LockSpec,
        expire: Duration,
        scope: Option<u64>,
    ) -> Option<Arc<Held>> {
        match self.by_key.lock().get_mut(spec.queue_key())?.admit(expire, scope) {
            Admission::Joined(held) => Some(held),
            Admission::Extend(_) | Admission::AskNodes => None,
        }
    }
}

impl Drop for ReaderEnquiry {
    fn drop(&mut self) {
        self.queues.end_enquiry(&self.key);
        self.ended.cancel();
    }
}
