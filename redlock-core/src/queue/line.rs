//! The callers of one key in this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bell::Bell;
use super::outage::Outage;
use crate::lease::Held;

/// How often a lock is handed over in this process before others get their turn: often while none
/// are known to wait, as that saves their round trips; seldom while some do, as the longest wait
/// grows with it.
const LONGEST_CHAIN: u32 = 16;
const LONGEST_CROWDED_CHAIN: u32 = 4;
/// For how long.
const CHAIN_TIME: Duration = Duration::from_millis(100);

/// Who holds one lock in this process, and who waits for it, first come first served.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) holder: Option<Holder>,
    pub(super) waiting: VecDeque<Arc<Ticket>>,
    /// Kept for as long as somebody waits.
    pub(super) bell: Option<Arc<Bell>>,
    /// Whether other processes were waiting when the lock was released last.
    pub(super) crowded: bool,
    /// Until when the first lets other processes go before.
    pub(super) gives_way_until: Option<Instant>,
    /// The outage that the waiters have met, until a quorum of nodes answers again.
    pub(super) outage: Option<Outage>,
}

/// The holder of a lock in this process.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) held: Arc<Held>,
    /// The scope that shares it; none has what was handed over and not been taken yet.
    pub(super) scope: Option<u64>,
    chain: Chain,
}

/// How long a lock has been in this process without others having had a chance.
#[derive(Debug, Clone, Copy)]
struct Chain {
    turns: u32,
    since: Instant,
}

/// What a caller waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The lease it asks for.
    pub(crate) expire: Duration,
    /// Whether it may take over a lock that another caller acquired.
    pub(crate) takes_over: bool,
    /// Whether its lock has to be numbered.
    pub(crate) fenced: bool,
    /// The scope that it waits in, if any.
    pub(crate) scope: Option<u64>,
}

/// One waiting caller.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) wanted: Wanted,
    pub(super) state: Mutex<TicketState>,
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) enum TicketState {
    /// It waits for its turn.
    Waiting,
    /// It is the first, and asks the nodes.
    Asking,
    /// It was handed the lock, and has not taken it yet.
    Handed(Arc<Held>),
}

impl Ticket {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self { wanted, state: Mutex::new(TicketState::Waiting), changed: Notify::new() }
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), TicketState::Waiting)
    }
}

impl Holder {
    pub(super) fn new(held: Arc<Held>, scope: Option<u64>) -> Self {
        Self { held, scope, chain: Chain { turns: 1, since: Instant::now() } }
    }

    pub(super) fn is(&self, held: &Arc<Held>) -> bool {
        Arc::ptr_eq(&self.held, held)
    }
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.waiting.is_empty()
    }

    /// What is left of the validity of this process's own lock.
    pub(super) fn held_for(&self) -> Option<Duration> {
        let remaining = self.holder.as_ref()?.held.remaining();
        (!remaining.is_zero()).then_some(remaining)
    }

    pub(super) fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.changed.notify_one();
        }
    }

    /// Wakes those who wait for what their own scope holds now: they would wait for themselves.
    pub(super) fn wake_scope(&self) {
        let Some(Holder { scope: Some(scope), .. }) = self.holder else { return };
        let own = self.waiting.iter().filter(|ticket| ticket.wanted.scope == Some(scope));
        own.for_each(|ticket| ticket.changed.notify_one());
    }

    /// What the scope of a caller holds.
    pub(super) fn held_by_scope_of(&self, ticket: &Ticket) -> Option<&Arc<Held>> {
        let holder = self.holder.as_ref()?;
        let own = holder.scope.is_some() && holder.scope == ticket.wanted.scope;
        (own && holder.held.is_valid()).then_some(&holder.held)
    }

    /// Hands the lock over to the first that waits, if it may be. The lease goes on: the new
    /// holder has what is left of it.
    pub(super) fn pass_on(&mut self, node_timeout: Duration) -> bool {
        let Some(Holder { held, chain, .. }) = self.holder.take() else { return false };
        let Some(first) = self.waiting.front() else { return false };
        let longest = if self.crowded { LONGEST_CROWDED_CHAIN } else { LONGEST_CHAIN };
        let may_go_on = chain.turns < longest && chain.since.elapsed() < CHAIN_TIME;
        // It gets nearly the lease that it asks for, and no longer one: otherwise it had better get
        // a lease of its own.
        let Wanted { expire, takes_over, fenced, .. } = first.wanted;
        let fits = held.expire() <= expire
            // An extension may have been granted although nobody has heard of it.
            && held.runs_out_within(expire + node_timeout)
            && held.lease_remaining() >= expire * 3 / 4
            && takes_over
            && (!fenced || held.claim().counter().is_some())
            && held.claim().stays_for().is_none()
            && !held.claim().stays_until_expiry();
        if !(may_go_on && fits && first.is_waiting()) {
            return false;
        }
        let Some(passed_on) = held.pass_on() else { return false };
        let chain = Chain { turns: chain.turns + 1, ..chain };
        self.holder = Some(Holder { held: Arc::clone(&passed_on), scope: None, chain });
        *first.state.lock() = TicketState::Handed(passed_on);
        first.changed.notify_one();
        self.waiting.pop_front();
        // The next one is the first now, and has to watch the new holder.
        self.wake_first();
        true
    }
}
