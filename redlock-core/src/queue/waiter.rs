//! One caller's place in a line.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::outage::Outage;
use super::queues::Queues;
use super::release_signal::{Bell, quorum_ready};
use super::wait_queue::{Ticket, TicketState};
use crate::ballot::Ballot;
use crate::error::Votes;
use crate::lease::Held;
use crate::node::LockName;

/// A server removes a key up to a millisecond after its time to live.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

/// One caller's place in a line. Dropping it leaves the line; a lock that was handed to it and not
/// taken goes on to the next.
#[derive(Debug)]
pub(crate) struct Place {
    queues: Arc<Queues>,
    name: LockName,
    ticket: Arc<Ticket>,
    /// How the caller found the line.
    arrival: Arrival,
}

/// How a caller found the line of its key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arrival {
    /// Nobody else of this process holds the lock or waits for it.
    First,
    /// It waits behind other callers of this process since then.
    Queued(Instant),
    /// The callers before it wait through an outage.
    InOutage,
}

/// What a caller's turn is.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It has been handed the lock.
    Handed(Arc<Held>),
    /// It is the first, and has to ask the nodes.
    Ask,
    /// Its own scope has come to hold the lock.
    Own(Arc<Held>),
}

enum Wait {
    UntilWoken,
    For(Duration),
    /// Until another caller of this process lets go, loses the lock, or overruns its lease.
    Behind(Arc<Held>),
}

impl Place {
    pub(super) fn new(
        queues: Arc<Queues>,
        name: LockName,
        ticket: Arc<Ticket>,
        arrival: Arrival,
    ) -> Self {
        Self { queues, name, ticket, arrival }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// Waits for this caller's turn. Cancel safe.
    pub(crate) async fn turn(&self) -> Turn {
        loop {
            let changed = self.ticket.changed.notified();
            let wait = match self.look() {
                Ok(turn) => return turn,
                Err(wait) => wait,
            };
            match wait {
                Wait::UntilWoken => changed.await,
                Wait::For(duration) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = sleep(duration) => {}
                    }
                }
                Wait::Behind(held) => {
                    let over = held.remaining() + AFTER_EXPIRY;
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = held.lost() => {}
                        () = sleep(over) => {}
                    }
                }
            }
        }
    }

    fn look(&self) -> Result<Turn, Wait> {
        let mut lines = self.queues.lines.lock();
        let mut state = self.ticket.state.lock();
        if matches!(*state, TicketState::Handed(_)) {
            let taken = std::mem::replace(&mut *state, TicketState::Waiting);
            if let TicketState::Handed(held) = taken {
                return Ok(Turn::Handed(held));
            }
        }
        if self.queues.is_closed() {
            return Ok(Turn::Ask);
        }
        let Some(line) = lines.get_mut(&self.name) else { return Err(Wait::UntilWoken) };
        if let Some(own) = line.held_by_scope_of(&self.ticket) {
            return Ok(Turn::Own(Arc::clone(own)));
        }
        let is_first = line.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &self.ticket));
        if !is_first {
            return Err(Wait::UntilWoken);
        }
        // A holder of this process may overrun its lease.
        if let Some(holder) = line.holder.as_ref().filter(|holder| holder.held.is_valid()) {
            return Err(Wait::Behind(Arc::clone(&holder.held)));
        }
        if let Some(until) = line.gives_way_until.take() {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                line.gives_way_until = Some(until);
                return Err(Wait::For(left));
            }
        }
        *state = TicketState::Asking;
        Ok(Turn::Ask)
    }

    /// Goes back to the head of the line, after what was handed over has turned out to be lost.
    pub(crate) fn rejoin(&self) {
        self.queues.rejoin(&self.name, &self.ticket);
    }

    /// When the caller came, if it had to wait behind another caller of this process.
    pub(super) fn queued_since(&self) -> Option<Instant> {
        match self.arrival {
            Arrival::Queued(since) => Some(since),
            Arrival::First | Arrival::InOutage => None,
        }
    }

    /// Whether the callers before this one waited through an outage when it came.
    pub(crate) fn came_in_outage(&self) -> bool {
        matches!(self.arrival, Arrival::InOutage)
    }

    pub(super) fn outage_grace(&self) -> Duration {
        self.queues.outage_grace
    }

    pub(super) fn ballot(&self) -> &Ballot {
        &self.queues.ballot
    }

    /// Resolves when another caller, or a shutdown, wakes this one.
    pub(super) async fn woken(&self) {
        self.ticket.changed.notified().await;
    }

    /// Notes that a ballot, which began at `begun`, had no quorum; returns since when that is so.
    pub(super) fn note_outage(&self, begun: Instant, votes: &Votes) -> Instant {
        let mut lines = self.queues.lines.lock();
        let Some(line) = lines.get_mut(&self.name) else { return begun };
        let since = line.outage.as_ref().map_or(begun, |outage| outage.since);
        line.outage = Some(Outage { since, votes: votes.clone() });
        since
    }

    /// Notes that a quorum of nodes answers. The first in line need not pause any longer.
    pub(crate) fn note_quorum(&self) {
        let mut lines = self.queues.lines.lock();
        if let Some(line) = lines.get_mut(&self.name)
            && line.outage.take().is_some()
        {
            line.wake_first();
        }
    }

    /// The last votes of the outage that the callers of this key wait through, if they do.
    pub(crate) fn outage_votes(&self) -> Option<Votes> {
        let lines = self.queues.lines.lock();
        lines.get(&self.name)?.outage.as_ref().map(|outage| outage.votes.clone())
    }

    /// The bell of this line, if somebody has begun to listen.
    pub(crate) fn bell(&self) -> Option<Arc<Bell>> {
        self.queues.lines.lock().get(&self.name)?.bell.clone()
    }

    /// Begins to listen, and waits until no release is missed any more, at most for `timeout`.
    pub(crate) async fn listen(&self, timeout: Duration) -> Arc<Bell> {
        let (bell, ready) = Bell::listen(&self.queues.ballot.nodes, &self.name);
        let bell = Arc::new(bell);
        if let Some(line) = self.queues.lines.lock().get_mut(&self.name) {
            line.bell = Some(Arc::clone(&bell));
        }
        quorum_ready(ready, timeout).await;
        bell
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queues.leave(&self.name, &self.ticket);
    }
}
