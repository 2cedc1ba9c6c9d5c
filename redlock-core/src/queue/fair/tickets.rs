//! The tickets of this process in the fair queue of one lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::prompt_task::PromptTask;
use crate::error::Votes;
use crate::node::{ProcessId, QueueReply, Ticket};

/// Added to the rest of a presence, so that it is over when the store is asked.
const AFTER_PRESENCE: Duration = Duration::from_millis(2);

/// The tickets of this process in the fair queue of one lock. The waiters and the attendant share them.
#[derive(Debug)]
pub(crate) struct Tickets {
    state: Mutex<State>,
    /// Notifies the waiters that their position has changed.
    pub(super) changed: Notify,
    /// Wakes the attendant.
    pub(super) wake: Notify,
    /// Present from the first waiter that has entered the queue.
    pub(super) attendant: OnceLock<Arc<PromptTask>>,
}

#[derive(Debug)]
struct State {
    /// The waiters by the numbers of their tickets.
    waiters: BTreeMap<u64, FairWaiter>,
    /// The tickets that the attendant has to remove.
    gone: Vec<u64>,
    position: FairPosition,
    /// How often the position has changed.
    version: u64,
    /// How often the attendant has searched for a conductor in vain.
    failed_searches: u64,
    /// When a waiter last looked at the position.
    looked_at: Instant,
    /// Whether the attendant has stopped refreshing the presence, because the first waiter does not ask for the lock.
    is_stalled: bool,
}

/// A waiter of this process.
#[derive(Debug)]
struct FairWaiter {
    arrived: Instant,
    /// The number of the ticket, which the waiter reads when it leaves.
    number: Arc<AtomicU64>,
    /// Whether the ticket may be in the queue of a node.
    was_sent: bool,
    /// Whether the ticket is in the queue of the conductor.
    is_entered: bool,
}

/// Where this process stands in a fair queue.
#[derive(Debug, Clone)]
pub(crate) enum FairPosition {
    /// The ticket with this number is the first of all, and has been since this time.
    First(u64, Instant),
    /// The conductor has replied, at this time, that the first ticket belongs to another process.
    Behind(Instant),
    /// Not known at the moment.
    Unknown,
    /// No node keeps the order, for these reasons.
    NoConductor(Votes),
}

/// The part of the waiters.
impl Tickets {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                waiters: BTreeMap::new(),
                gone: Vec::new(),
                position: FairPosition::Unknown,
                version: 0,
                failed_searches: 0,
                looked_at: Instant::now(),
                is_stalled: false,
            }),
            changed: Notify::new(),
            wake: Notify::new(),
            attendant: OnceLock::new(),
        })
    }

    pub(super) fn wake_attendant(&self) {
        self.wake.notify_one();
    }

    /// Adds a waiter. Returns how often the attendant has searched for a conductor in vain.
    pub(super) fn add(&self, number: &Arc<AtomicU64>) -> u64 {
        let (arrived, key) = (Instant::now(), number.load(Ordering::Relaxed));
        let number = Arc::clone(number);
        let waiter = FairWaiter { arrived, number, was_sent: false, is_entered: false };
        let mut state = self.state.lock();
        state.waiters.insert(key, waiter);
        state.failed_searches
    }

    /// Removes a waiter, and lets the attendant remove its ticket.
    pub(super) fn remove(&self, number: &AtomicU64) {
        let mut state = self.state.lock();
        // Read under the lock under which tickets are exchanged.
        let number = number.load(Ordering::Relaxed);
        if state.waiters.remove(&number).is_some_and(|waiter| waiter.was_sent) {
            state.gone.push(number);
        }
        // Otherwise the lock could be handed over before a waiter of another process.
        if matches!(state.position, FairPosition::First(first, _) if first == number) {
            state.position = FairPosition::Unknown;
        }
        drop(state);
        self.wake_attendant();
    }

    /// Returns whether the first ticket of all is a ticket of this process.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.state.lock().position, FairPosition::First(..))
    }

    /// Returns the position for the waiter with this ticket, how often it has changed, and how often the attendant has
    /// searched for a conductor in vain.
    pub(super) fn look(&self, number: &AtomicU64) -> (FairPosition, u64, u64) {
        let mut state = self.state.lock();
        let number = number.load(Ordering::Relaxed);
        state.looked_at = Instant::now();
        if std::mem::take(&mut state.is_stalled) {
            self.wake_attendant();
        }
        let is_entered = state.waiters.get(&number).is_some_and(|waiter| waiter.is_entered);
        let position = match &state.position {
            FairPosition::Behind(_) if !is_entered => FairPosition::Unknown,
            position => position.clone(),
        };
        (position, state.version, state.failed_searches)
    }

    /// Returns how often the position has changed.
    pub(super) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// Gives a waiter that has the lock the first ticket, if that is the ticket of another waiter of this process. That
    /// waiter gets the ticket `number`. Waiters of one process get the lock in the order of this process, and their tickets
    /// may have overtaken each other.
    pub(super) fn exchange_for_first(&self, number: &AtomicU64) {
        let mut state = self.state.lock();
        let number = number.load(Ordering::Relaxed);
        let FairPosition::First(first, _) = state.position else { return };
        if first == number || ![first, number].iter().all(|key| state.waiters.contains_key(key)) {
            return;
        }
        let [own, other] = [number, first].map(|number| state.waiters.remove(&number));
        if let (Some(mut own), Some(mut other)) = (own, other) {
            // The number of a ticket says whether it is in the queue, and not its waiter.
            std::mem::swap(&mut own.was_sent, &mut other.was_sent);
            std::mem::swap(&mut own.is_entered, &mut other.is_entered);
            for (waiter, number) in [(own, first), (other, number)] {
                waiter.number.store(number, Ordering::Relaxed);
                state.waiters.insert(number, waiter);
            }
        }
    }
}

/// The part of the attendant.
impl Tickets {
    pub(super) fn has_waiters(&self) -> bool {
        !self.state.lock().waiters.is_empty()
    }

    /// Returns whether there is neither a waiter nor a ticket to remove.
    pub(super) fn are_unused(&self) -> bool {
        let state = self.state.lock();
        state.waiters.is_empty() && state.gone.is_empty()
    }

    /// Returns the tickets to remove from the conductor. With `all`, those of all waiters too.
    pub(super) fn take_gone(&self, all: bool) -> Vec<u64> {
        let mut state = self.state.lock();
        let mut gone = std::mem::take(&mut state.gone);
        if all {
            let sent = state.waiters.iter_mut().filter(|(_, waiter)| waiter.was_sent);
            gone.extend(sent.map(|(number, waiter)| {
                waiter.was_sent = false;
                *number
            }));
        }
        gone
    }

    /// Returns the numbers of all tickets that a former conductor may have.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let state = self.state.lock();
        state.waiters.keys().chain(&state.gone).copied().collect()
    }

    /// Returns the tickets to enter on the conductor, or, with `all`, on another node.
    pub(super) fn take_missing(&self, all: bool) -> Vec<Ticket> {
        let mut state = self.state.lock();
        let missing = state.waiters.iter_mut().filter(|(_, waiter)| all || !waiter.is_entered);
        let ticket = |(number, waiter): (&u64, &mut FairWaiter)| {
            waiter.was_sent = true;
            Ticket::new(*number, waiter.arrived.elapsed())
        };
        missing.map(ticket).collect()
    }

    /// Records that these tickets are in the queue of the conductor. Without `has_others`, the other tickets are not. Returns
    /// whether tickets are missing.
    pub(super) fn record_entered(&self, entered: &[Ticket], has_others: bool) -> bool {
        let mut state = self.state.lock();
        if !has_others {
            state.forget_entries();
        }
        for ticket in entered {
            if let Some(waiter) = state.waiters.get_mut(&ticket.number) {
                waiter.is_entered = true;
            }
        }
        state.waiters.values().any(|waiter| !waiter.is_entered)
    }

    /// Records that the conductor has no tickets of this process, so that the attendant enters them again.
    pub(super) fn forget_entries(&self) {
        self.state.lock().forget_entries();
        self.wake_attendant();
    }

    /// Evaluates a reply of the conductor. Returns when to ask it again at the latest, if that is known.
    pub(super) fn apply(&self, process: ProcessId, reply: &QueueReply) -> Option<Instant> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let mut due = None;
        let position = match reply.first {
            Some(first) if first.process == process => {
                if state.waiters.contains_key(&first.number) {
                    let since = match state.position {
                        FairPosition::First(_, since) => since,
                        _ => now,
                    };
                    FairPosition::First(first.number, since)
                } else {
                    // Its removal was lost, or is next.
                    if !state.gone.contains(&first.number) {
                        state.gone.push(first.number);
                    }
                    self.wake_attendant();
                    FairPosition::Unknown
                }
            }
            Some(first) => {
                due = Some(now + first.present_for + AFTER_PRESENCE);
                FairPosition::Behind(now)
            }
            None => {
                state.forget_entries();
                FairPosition::Unknown
            }
        };
        let is_news = match (&state.position, &position) {
            (FairPosition::Behind(_), FairPosition::Behind(_)) => false,
            (FairPosition::First(former, _), FairPosition::First(first, _)) => former != first,
            _ => true,
        };
        if is_news && matches!(position, FairPosition::First(..)) {
            state.looked_at = now;
        }
        self.set(&mut state, position, is_news);
        due
    }

    /// Records that no node keeps the order.
    pub(super) fn record_failed_search(&self, votes: Votes) {
        let mut state = self.state.lock();
        state.failed_searches += 1;
        self.set(&mut state, FairPosition::NoConductor(votes), true);
    }

    /// Notifies the waiters that have just entered.
    pub(super) fn notify(&self) {
        self.state.lock().version += 1;
        self.changed.notify_waiters();
    }

    fn set(&self, state: &mut State, position: FairPosition, is_news: bool) {
        state.position = position;
        if is_news {
            state.version += 1;
            self.changed.notify_waiters();
        }
    }

    /// Returns whether a waiter has the first ticket, and none has looked at the position for this time. The process then
    /// loses its places when the presence is over. It enters them again when a waiter looks again.
    pub(super) fn has_stalled(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        let is_stale = matches!(
            state.position,
            FairPosition::First(_, since) if since.max(state.looked_at).elapsed() >= time
        );
        if is_stale {
            state.is_stalled = true;
            state.forget_entries();
        }
        state.is_stalled
    }
}

impl State {
    fn forget_entries(&mut self) {
        self.position = FairPosition::Unknown;
        self.waiters.values_mut().for_each(|waiter| waiter.is_entered = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FirstTicket;

    /// The simulation found a ticket that stayed for 3 s: a waiter whose own ticket was not sent yet had it.
    #[test]
    fn a_ticket_is_removed_whoever_has_it() {
        let tickets = Tickets::new();
        let [first, second] = [0, 1].map(|number| Arc::new(AtomicU64::new(number)));
        tickets.add(&first);
        let entered = tickets.take_missing(false);
        assert!(!tickets.record_entered(&entered, false));
        tickets.add(&second);
        let process = ProcessId::random();
        let own = FirstTicket { process, number: 0, present_for: Duration::from_secs(3) };
        tickets.apply(process, &QueueReply::new(Duration::ZERO, true).with_first(own));
        assert!(tickets.is_first());

        tickets.exchange_for_first(&second);
        let numbers = [&first, &second].map(|number| number.load(Ordering::Relaxed));
        assert_eq!(numbers, [1, 0]);
        tickets.remove(&second);
        assert!(!tickets.is_first());
        assert_eq!(tickets.take_gone(false), [0]);
        let missing: Vec<_> =
            tickets.take_missing(false).iter().map(|ticket| ticket.number).collect();
        assert_eq!(missing, [1]);
    }
}
