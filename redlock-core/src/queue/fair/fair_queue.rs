//! The part of a fair queue that belongs to this process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::REFRESH;
use super::shared::FairShared;
use super::state::{Entry, FairState, FairWaiter};
use crate::error::{NodeError, Votes};
use crate::lock::LockSpec;
use crate::node::{FirstTicket, QueueAction, QueueOp, QueueReply, Ticket};

/// Added to the rest of a presence, so that it is over when the store is asked.
const AFTER_PRESENCE: Duration = Duration::from_millis(2);

/// A reply that is older than another one by less than this has been overtaken. A greater difference is a step of the
/// store's clock.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// The tickets of this process in the fair queue of one lock.
pub(crate) struct FairQueue {
    /// Distinguishes the queues of a manager, in the order of their creation.
    id: u64,
    pub(super) shared: Arc<FairShared>,
    pub(super) spec: LockSpec,
    pub(super) state: Mutex<FairState>,
    /// Notified when the turn of this process may have come, or the keeper has failed to find a conductor.
    changed: Notify,
    pub(super) this: Weak<Self>,
}

/// Whether a waiter may ask the nodes for the lock.
#[derive(Debug)]
pub(super) enum Turn {
    /// The first ticket belongs to this process.
    Now,
    /// The conductor has replied, at this time, that another process is first.
    Behind(Instant),
    /// The order is not known at the moment.
    Later,
    /// No node keeps the order. The keeper has searched for one so many times.
    NoConductor(u64, Votes),
}

impl FairQueue {
    pub(super) fn new(shared: &Arc<FairShared>, spec: &LockSpec) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            id: shared.next_ticket(),
            shared: Arc::clone(shared),
            spec: spec.clone(),
            state: Mutex::new(FairState::new(shared.first_up())),
            changed: Notify::new(),
            this: Weak::clone(this),
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn spec(&self) -> &LockSpec {
        &self.spec
    }

    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Notifies the waiters that their position may have changed.
    pub(super) fn notify(&self) {
        self.state.lock().version += 1;
        self.changed.notify_waiters();
    }

    /// Returns how often the waiters were notified.
    pub(super) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// Returns whether the first ticket of all is a ticket of this process.
    pub(crate) fn is_first(&self) -> bool {
        self.state.lock().first.is_some()
    }

    /// Returns whether the ticket of a waiter is in the queue of a node, as far as this process knows.
    pub(super) fn is_entered(&self, number: u64) -> bool {
        let state = self.state.lock();
        state.waiters.get(&number).is_some_and(|waiter| matches!(waiter.entry, Entry::At(_)))
    }

    /// Adds a waiter. Returns how often the keeper has looked for a conductor in vain.
    pub(super) fn add(&self, number: &Arc<AtomicU64>) -> u64 {
        let (arrived, number) = (Instant::now(), Arc::clone(number));
        let key = number.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        state.waiters.insert(key, FairWaiter { arrived, number, entry: Entry::Pending });
        state.failed_searches
    }

    /// Enters the ticket of a new waiter. If the conductor fails, the keeper looks for another one.
    pub(super) async fn enter(&self, number: u64) {
        if self.shared.is_closed() {
            return;
        }
        let index = {
            let mut state = self.state.lock();
            let Ok(index) = state.conductor else {
                // The keeper enters the ticket when it has found a conductor.
                state.set_entry(number, Entry::Missing);
                return;
            };
            index
        };
        if let Err(error) = self.enter_at(index, vec![number], false).await {
            let mut state = self.state.lock();
            state.set_entry(number, Entry::Missing);
            // A runtime that is not driven says nothing about the conductor.
            if state.is_conductor(index) && error != NodeError::RuntimeIdle {
                state.failure = Some(error);
            }
            drop(state);
            self.wake_keeper();
        }
    }

    /// Enters tickets on a node. If the caller is the keeper, which has chosen this node, the node is the conductor from
    /// now on.
    pub(super) async fn enter_at(
        &self,
        index: usize,
        numbers: Vec<u64>,
        is_chosen: bool,
    ) -> Result<(), NodeError> {
        let tickets: Arc<[Ticket]> = {
            let state = self.state.lock();
            let waiting =
                numbers.iter().filter_map(|number| Some((number, state.waiters.get(number)?)));
            waiting.map(|(number, waiter)| Ticket::new(*number, waiter.arrived.elapsed())).collect()
        };
        let reply = self.shared.call(index, self.op(QueueAction::Enter { tickets })).await?;
        let mut state = self.state.lock();
        if !reply.was_present {
            // The tickets that this process had are gone.
            state.forget_entries(index);
        }
        let is_conductor = state.is_conductor(index);
        if !is_conductor && !is_chosen {
            // The keeper has moved to another node meanwhile.
            for number in &numbers {
                state.set_entry(*number, Entry::Missing);
            }
            drop(state);
            self.leave_at(index, numbers);
            self.wake_keeper();
            return Ok(());
        }
        let gone = numbers.into_iter().filter(|number| !state.set_entry(*number, Entry::At(index)));
        let gone: Vec<u64> = gone.collect();
        if !is_conductor {
            state.conductor = Ok(index);
            state.latest_conductor = index;
            state.replied_at = Duration::ZERO;
            (state.first, state.behind) = (None, None);
        }
        drop(state);
        self.shared.record_conductor(index);
        self.apply(index, &reply);
        if is_chosen {
            // The waiters whose tickets the keeper has entered may be behind those of other processes now.
            self.notify();
        }
        if !gone.is_empty() {
            self.leave_at(index, gone);
        }
        Ok(())
    }

    /// Evaluates a reply of the conductor.
    pub(super) fn apply(&self, index: usize, reply: &QueueReply) {
        let mut state = self.state.lock();
        let late_by = state.replied_at.saturating_sub(reply.time);
        let is_late = !late_by.is_zero() && late_by < CLOCK_STEP;
        if !state.is_conductor(index) || is_late {
            return;
        }
        state.replied_at = reply.time;
        let now = Instant::now();
        let mut unknown = None;
        let mut due = now + REFRESH;
        let mut first = None;
        match reply.first {
            Some(ticket) if ticket.process == self.shared.process => {
                if state.waiters.contains_key(&ticket.number) {
                    let since = state.first.map_or(now, |(_, since)| since);
                    first = Some((ticket.number, since));
                } else if !state.waiters.is_empty() && !state.leaving.contains(&ticket.number) {
                    // After the last waiter of this queue has left, the ticket may belong to the next queue of the same
                    // lock, in which further waiters of this process have entered.
                    unknown = Some(ticket.number);
                }
            }
            Some(FirstTicket { present_for, .. }) => {
                due = due.min(now + present_for + AFTER_PRESENCE);
            }
            None => state.forget_entries(index),
        }
        let was_behind = state.behind.is_some();
        state.behind =
            matches!(&reply.first, Some(ticket) if ticket.process != self.shared.process)
                .then_some(now);
        let is_news = first.is_some() || state.behind.is_some() && !was_behind;
        let was_first = state.first.is_some();
        state.first = first;
        if !was_first && first.is_some() {
            state.last_turn = now;
        }
        let is_missing = state.waiters.values().any(|waiter| waiter.entry == Entry::Missing);
        let subscribes = matches!(state.subscription, Some((node, _)) if node == index);
        let is_urgent = (first.is_none() && !subscribes) || is_missing;
        state.due = due;
        let has_waiters = !state.waiters.is_empty();
        drop(state);
        if is_news {
            self.notify();
        }
        if let Some(number) = unknown {
            // Its removal was lost.
            self.leave_at(index, vec![number]);
        }
        if is_urgent && has_waiters {
            self.wake_keeper();
        }
    }

    /// Removes a waiter. Returns whether it was the last one.
    pub(super) fn remove(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        state.waiters.remove(&number);
        state.first.take_if(|(first, _)| *first == number);
        let is_last = state.waiters.is_empty();
        if is_last {
            state.subscription = None;
        }
        is_last
    }

    /// Removes tickets from the queue of the latest conductor, in the background.
    pub(super) fn leave(&self, numbers: Vec<u64>) {
        let index = self.state.lock().latest_conductor;
        self.leave_at(index, numbers);
    }

    /// Removes the tickets of all waiters, because the manager is shut down. The waiters are woken.
    pub(super) fn close(&self) {
        self.leave(self.numbers());
        self.notify();
    }

    /// Removes tickets from the queue of a node, in the background. If that fails, they are removed when one of them is
    /// the first, or with the presence of this process.
    pub(super) fn leave_at(&self, index: usize, numbers: Vec<u64>) {
        let Some(this) = self.this.upgrade() else { return };
        self.state.lock().leaving.extend(&numbers);
        let op = self.op(QueueAction::Leave { numbers: numbers.clone().into() });
        let leaving = Leaving { queue: this, numbers };
        self.shared.call_in_background(index, op, move |reply| {
            let queue = Arc::clone(&leaving.queue);
            drop(leaving);
            if let Ok(reply) = reply {
                queue.apply(index, &reply);
            }
        });
    }

    /// Gives a waiter that has the lock the first ticket, if that is the ticket of another waiter of this process. That
    /// waiter gets the ticket `number`. Waiters of one process get the lock in the order of this process, and their tickets
    /// may have overtaken each other.
    pub(super) fn exchange_for_first(&self, number: u64) {
        let mut state = self.state.lock();
        let Some((first, _)) = state.first else { return };
        if first == number {
            return;
        }
        let [own, other] = [number, first].map(|number| state.waiters.remove(&number));
        for (waiter, number) in [(own, first), (other, number)] {
            if let Some(waiter) = waiter {
                waiter.number.store(number, Ordering::Relaxed);
                state.waiters.insert(number, waiter);
            }
        }
    }

    /// Returns whether a waiter may ask the nodes for the lock, and how often the waiters were notified so far.
    pub(super) fn turn(&self) -> (Turn, u64) {
        let mut state = self.state.lock();
        let version = state.version;
        if self.shared.is_closed() {
            // The attempt fails, because the manager is shut down.
            return (Turn::Now, version);
        }
        state.last_turn = Instant::now();
        if std::mem::take(&mut state.is_stalled) {
            // The places may be lost. The keeper enters again if they are.
            (state.first, state.behind) = (None, None);
            drop(state);
            self.wake_keeper();
            return (Turn::Later, version);
        }
        let turn = match (&state.conductor, state.behind) {
            (Err(votes), _) => Turn::NoConductor(state.failed_searches, votes.clone()),
            (Ok(_), _) if state.first.is_some() => Turn::Now,
            (Ok(_), Some(since)) => Turn::Behind(since),
            (Ok(_), None) => Turn::Later,
        };
        (turn, version)
    }

    pub(super) fn wake_keeper(&self) {
        self.shared.wake_keeper(self.spec.queue_key());
    }

    pub(super) fn due(&self) -> Instant {
        self.state.lock().due
    }

    /// Returns the numbers of all tickets.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.state.lock().waiters.keys().copied().collect()
    }

    pub(super) fn op(&self, action: QueueAction) -> QueueOp {
        QueueOp::new(&self.spec, self.shared.process, action)
    }
}

/// Tickets whose removal is in progress. When it has ended, by a reply or without one, a ticket that is still in the queue
/// is removed again.
struct Leaving {
    queue: Arc<FairQueue>,
    numbers: Vec<u64>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.leaving.retain(|number| !self.numbers.contains(number));
    }
}

impl fmt::Debug for FairQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("FairQueue")
            .field("waiters", &state.waiters.len())
            .field("is_first", &state.first.is_some())
            .finish_non_exhaustive()
    }
}
