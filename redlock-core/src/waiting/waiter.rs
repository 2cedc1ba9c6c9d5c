//! A waiter of this process, and the types in its line.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::fair::FairQueue;
use super::line::{Line, LineHolder, LineSignal, LineWaiter};
use super::release_signal::{ReleaseCounts, ReleaseSignal};
use super::waiting_keys::ListedKey;
use super::{Instant, Mode};
use crate::caller_id::CallerId;
use crate::error::Votes;
use crate::lease::Holding;
use crate::lock::{LockSpec, OwnerLabel};
use crate::options::JoinTerms;
use crate::telemetry::Named;

/// The line of one key.
pub(super) type KeyLine = Line<Arc<Waiter>, Arc<Holding>, Arc<ReleaseSignal>, Shared>;

/// The requirements of one waiter.
#[derive(Debug, Clone)]
pub(crate) struct WaiterOptions {
    /// The lease that the waiter requests.
    pub(crate) expire: Duration,
    /// Whether the waiter may take a lock that another caller acquired.
    pub(crate) accepts_hand_over: bool,
    /// Whether the waiter needs a fencing token.
    pub(crate) fenced: bool,
    /// The terms on which the waiter joins the lock of another reader; `None` if it does not.
    pub(crate) joins: Option<JoinTerms>,
    /// Whether the waiter waits for ever, also while no quorum of nodes answers.
    pub(crate) is_endless: bool,
    pub(crate) caller: CallerId,
    /// The name of the lock, which the caller has given to it.
    pub(crate) name: Named,
    /// When the caller began to wait. A lock of several keys may have waited in other lines before.
    pub(crate) since: Instant,
    /// The fair queue in which the caller waits, if any.
    pub(crate) fair: Option<Arc<FairQueue>>,
}

/// The part of a waiter that other callers see. Its line has its state.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The lock that the waiter requests. Its other keys have other lines.
    pub(super) spec: LockSpec,
    pub(super) options: WaiterOptions,
    /// The lock that was handed over to the waiter, or that it has joined, until the waiter takes it. Changes only under the lock of the lines.
    handed_over: Mutex<Option<Arc<Holding>>>,
    /// Notified at each change that concerns the waiter.
    pub(super) changed: Notify,
}

impl Waiter {
    pub(super) fn new(spec: LockSpec, options: WaiterOptions) -> Self {
        Self { spec, options, handed_over: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn wake(waiter: &Arc<Self>) {
        waiter.changed.notify_one();
    }

    /// Hands a lock over to the waiter, and wakes it.
    pub(super) fn assign(&self, held: Arc<Holding>) {
        *self.handed_over.lock() = Some(held);
        self.changed.notify_one();
    }

    /// Returns the holding of the waiter, which joins a lock of another reader.
    pub(super) fn joined(&self, open: &Arc<Holding>) -> Arc<Holding> {
        let WaiterOptions { caller, name, joins, .. } = &self.options;
        // A waiter without terms does not join.
        let lasts = joins.map_or(Some(Duration::ZERO), |terms| terms.lasts());
        open.for_reader(*caller, name, lasts)
    }

    pub(super) fn was_handed_over(&self) -> bool {
        self.handed_over.lock().is_some()
    }

    /// Takes the lock that was handed over to the waiter.
    pub(super) fn take(&self) -> Option<Arc<Holding>> {
        self.handed_over.lock().take()
    }
}

impl LineWaiter for Arc<Waiter> {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }

    fn since(&self) -> Instant {
        self.options.since
    }

    fn mode(&self) -> Mode {
        self.spec.mode()
    }

    fn is_reader(&self) -> bool {
        self.spec.mode() == Mode::SHARED && self.options.fair.is_none()
    }

    fn joins(&self) -> Option<Duration> {
        self.options.joins.map(|terms| terms.expire)
    }
}

/// The validity is compared with the clock of the lease (every lock has a deadline).
impl LineHolder for Arc<Holding> {
    fn id(&self) -> usize {
        Arc::as_ptr(self).addr()
    }

    fn entry(&self) -> usize {
        Arc::as_ptr(self.attempt()).addr()
    }

    fn mode(&self) -> Mode {
        self.attempt().spec().mode()
    }

    /// Compared with the clock of the lease, which counts the time of a suspension.
    fn may_be_joined(&self, lease: Duration, _now: Instant) -> bool {
        Holding::may_be_joined(self, lease)
    }

    fn remaining(&self, _now: Instant) -> Duration {
        Holding::remaining(self)
    }

    fn index(&self) -> usize {
        Holding::index(self)
    }

    fn set_index(&self, index: usize) {
        Holding::set_index(self, index);
    }
}

impl LineSignal for Arc<ReleaseSignal> {
    type Counts = ReleaseCounts;

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }

    fn is_in_effect(&self) -> bool {
        ReleaseSignal::is_in_effect(self)
    }

    fn serves(&self, mode: Mode) -> bool {
        ReleaseSignal::serves(self, mode)
    }

    fn counts(&self) -> ReleaseCounts {
        ReleaseSignal::counts(self)
    }
}

/// Whatever else the waiters of one key share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The entry of the key among those for which callers wait.
    _listed: ListedKey,
    /// The label of the holder that the nodes have last named to a waiter.
    pub(super) holder: Option<OwnerLabel>,
    /// The votes of the last round without a quorum.
    pub(super) votes: Votes,
}

impl Shared {
    pub(super) fn new(listed: ListedKey) -> Self {
        Self { _listed: listed, holder: None, votes: Votes::default() }
    }
}
