//! All lines of a manager.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::line::{Holder, Line, Ticket, TicketState, Wanted};
use super::place::{Arrival, Place};
use crate::ballot::Ballot;
use crate::error::LockError;
use crate::key::LockKey;
use crate::lease::Held;
use crate::node::LockName;

/// How long the first in line lets other processes go before, when they wait too: enough for an
/// announcement to reach them and their question to come back.
const GIVE_WAY: Duration = Duration::from_millis(2);

/// Who holds and who waits in this process, for every key.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(super) lines: Mutex<HashMap<LockName, Line>>,
    pub(super) ballot: Ballot,
    max_waiters: usize,
    /// How long waiters keep their places while no quorum of nodes answers.
    pub(super) outage_grace: Duration,
    closed: AtomicBool,
}

/// A lock that was not handed over: whoever holds this has to release it on the nodes. Lets the
/// next in line go when dropped, released or not.
#[must_use]
pub(crate) struct Freed<'a> {
    queues: &'a Queues,
    held: &'a Arc<Held>,
}

impl Queues {
    pub(crate) fn new(ballot: Ballot, max_waiters: usize, outage_grace: Duration) -> Self {
        let (lines, closed) = (Mutex::default(), AtomicBool::new(false));
        Self { lines, ballot, max_waiters, outage_grace, closed }
    }

    /// What is left of the validity of a lock that this process holds.
    pub(crate) fn held_for(&self, name: &LockName) -> Option<Duration> {
        self.lines.lock().get(name)?.held_for()
    }

    /// Ends all waiting; returns what is held in this process, also what was handed over and has not
    /// been taken yet.
    pub(crate) fn close(&self) -> Vec<Arc<Held>> {
        self.closed.store(true, Ordering::SeqCst);
        let lines = self.lines.lock();
        for line in lines.values() {
            line.waiting.iter().for_each(|ticket| ticket.changed.notify_one());
        }
        let holders = lines.values().filter_map(|line| line.holder.as_ref());
        holders.map(|holder| Arc::clone(&holder.held)).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Notes that this process holds a lock.
    pub(crate) fn hold(&self, held: &Arc<Held>, scope: Option<u64>) {
        let mut lines = self.lines.lock();
        let line = lines.entry(held.claim().name().clone()).or_default();
        line.holder = Some(Holder::new(Arc::clone(held), scope));
        // A quorum has granted it.
        line.outage = None;
        line.wake_first();
        line.wake_scope();
    }

    /// Notes that a lock that was handed over is held by now, and that its scope shares it from now
    /// on. Not before: whoever was handed it may go without having taken it.
    pub(crate) fn take_over(&self, held: &Arc<Held>, scope: Option<u64>) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(held.claim().name()) else { return };
        if let Some(holder) = line.holder.as_mut().filter(|holder| holder.is(held)) {
            holder.scope = scope;
            line.wake_scope();
        }
    }

    /// Puts a caller at the end of the line.
    pub(crate) fn join(
        self: &Arc<Self>,
        name: LockName,
        key: &LockKey,
        wanted: Wanted,
    ) -> Result<Place, LockError> {
        let ticket = Arc::new(Ticket::new(wanted));
        let mut lines = self.lines.lock();
        let line = lines.entry(name.clone()).or_default();
        if line.waiting.len() >= self.max_waiters {
            return Err(LockError::TooManyWaiters { key: key.clone(), limit: self.max_waiters });
        }
        let arrival = self.arrival(line);
        line.waiting.push_back(Arc::clone(&ticket));
        drop(lines);
        Ok(Place::new(Arc::clone(self), name, ticket, arrival))
    }

    fn arrival(&self, line: &Line) -> Arrival {
        if line.held_for().is_some() {
            Arrival::Queued(Instant::now())
        } else if line.waiting.is_empty() {
            Arrival::First
        } else if line.outage.is_some() || !self.ballot.has_quorum() {
            Arrival::InOutage
        } else {
            Arrival::Queued(Instant::now())
        }
    }

    /// Puts a caller back to the head of the line: what it was handed has turned out to be lost.
    pub(super) fn rejoin(&self, name: &LockName, ticket: &Arc<Ticket>) {
        let mut lines = self.lines.lock();
        lines.entry(name.clone()).or_default().waiting.push_front(Arc::clone(ticket));
    }

    /// Gives a lock that is no longer held to the next in line; `None` says that it was handed
    /// over and nothing is left to do.
    pub(crate) fn pass_on<'a>(&'a self, held: &'a Arc<Held>) -> Option<Freed<'a>> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get_mut(held.claim().name()) {
            let is_holder = line.holder.as_ref().is_some_and(|holder| holder.is(held));
            if is_holder && line.pass_on(self.ballot.node_timeout) {
                return None;
            }
        }
        Some(Freed { queues: self, held })
    }

    /// A caller leaves its place, with or without the lock.
    pub(super) fn leave(&self, name: &LockName, ticket: &Arc<Ticket>) {
        let mut lines = self.lines.lock();
        if let Entry::Occupied(mut entry) = lines.entry(name.clone()) {
            let line = entry.get_mut();
            let was_first = line.waiting.front().is_some_and(|first| Arc::ptr_eq(first, ticket));
            line.waiting.retain(|other| !Arc::ptr_eq(other, ticket));
            if was_first {
                line.wake_first();
            }
            tidy(entry);
        }
        drop(lines);
        let state = std::mem::replace(&mut *ticket.state.lock(), TicketState::Waiting);
        if let TicketState::Handed(held) = state {
            self.give_up(&held);
        }
    }

    /// Notes that a lock is not held any more, and stays on the nodes until it runs out.
    pub(crate) fn keep(&self, held: &Arc<Held>) {
        held.claim().give_up();
        drop(Freed { queues: self, held });
    }

    /// Gives up a lock without waiting for it.
    pub(crate) fn give_up(&self, held: &Arc<Held>) {
        if let Some(freed) = self.pass_on(held) {
            self.ballot.release_in_background(Arc::clone(held.claim()), held.runs_out());
            drop(freed);
        }
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines() == 0
    }

    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn lines(&self) -> usize {
        self.lines.lock().len()
    }
}

/// Removes a line that nobody stands in, and stops listening where nobody waits.
fn tidy(mut entry: OccupiedEntry<'_, LockName, Line>) {
    let line = entry.get_mut();
    if line.waiting.is_empty() {
        line.bell = None;
        line.outage = None;
    }
    if line.is_empty() {
        entry.remove();
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        let name = self.held.claim().name();
        let mut lines = self.queues.lines.lock();
        let Entry::Occupied(mut entry) = lines.entry(name.clone()) else { return };
        let line = entry.get_mut();
        let is_holder = line.holder.as_ref().is_some_and(|holder| holder.is(self.held));
        if is_holder {
            line.holder = None;
        }
        // This process may be among those who listen.
        let own = usize::from(line.bell.is_some());
        line.crowded = self.held.claim().listeners() > own;
        if line.crowded {
            line.gives_way_until = Some(Instant::now() + GIVE_WAY);
        }
        line.wake_first();
        tidy(entry);
    }
}
