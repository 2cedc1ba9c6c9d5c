//! The part of a fair queue that belongs to this process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::shared::FairShared;
use super::{REFRESH, STALL};
use crate::error::{NodeError, Vote, Votes};
use crate::lock::LockSpec;
use crate::node::{
    FirstTicket, NodeStatus, QueueAction, QueueOp, QueueReply, Subscription, Ticket,
};

/// Added to the rest of a presence, so that it is over when the store is asked.
const AFTER_PRESENCE: Duration = Duration::from_millis(2);

/// A reply that is older than another one by less than this has been overtaken. A greater difference is a step of the
/// store's clock.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// The tickets of this process in the fair queue of one lock.
pub(crate) struct FairQueue {
    /// Distinguishes the queues of a manager, in the order of their creation.
    id: u64,
    shared: Arc<FairShared>,
    spec: LockSpec,
    state: Mutex<FairState>,
    /// Notified when the turn of this process may have come, or the keeper has failed to find a conductor.
    changed: Notify,
    this: Weak<Self>,
}

struct FairState {
    /// The index of the node that keeps the order; or the reasons why no node does.
    conductor: Result<usize, Votes>,
    /// The error of the conductor since the keeper was here.
    failure: Option<NodeError>,
    /// The waiters of this process by the numbers of their tickets.
    waiters: BTreeMap<u64, FairWaiter>,
    /// The tickets that are being removed.
    leaving: BTreeSet<u64>,
    /// The number of the first ticket of all, and since when, if it is a ticket of this process.
    first: Option<(u64, Instant)>,
    /// The time of the newest reply on the clock of the conductor.
    replied_at: Duration,
    /// When a waiter of this process last began to ask for the lock, or began to wait for its turn.
    last_turn: Instant,
    /// Whether the presence is not refreshed, because the first waiter does not ask for the lock.
    is_stalled: bool,
    subscription: Option<(usize, Subscription)>,
    /// When the keeper has to look after this queue.
    due: Instant,
    /// How often the keeper has looked for a conductor in vain.
    failed_searches: u64,
}

struct FairWaiter {
    arrived: Instant,
    /// The number of the ticket, which the waiter reads when it leaves.
    number: Arc<AtomicU64>,
    entry: Entry,
}

/// Where the ticket of a waiter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The waiter enters it.
    Pending,
    /// In the queue of this node.
    At(usize),
    /// In no queue. The keeper enters it.
    Missing,
}

/// Whether a waiter may ask the nodes for the lock.
#[derive(Debug)]
pub(super) enum Turn {
    /// The first ticket belongs to this process.
    Now,
    /// Another process is first.
    Later,
    /// No node keeps the order. The keeper has searched for one so many times.
    NoConductor(u64, Votes),
}

impl FairQueue {
    pub(super) fn new(shared: &Arc<FairShared>, spec: &LockSpec) -> Arc<Self> {
        let now = Instant::now();
        let state = FairState {
            conductor: Ok(shared.first_up()),
            failure: None,
            waiters: BTreeMap::new(),
            leaving: BTreeSet::new(),
            first: None,
            replied_at: Duration::ZERO,
            last_turn: now,
            is_stalled: false,
            subscription: None,
            due: now + REFRESH,
            failed_searches: 0,
        };
        Arc::new_cyclic(|this| Self {
            id: shared.next_ticket(),
            shared: Arc::clone(shared),
            spec: spec.clone(),
            state: Mutex::new(state),
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

    /// Returns whether the first ticket of all is a ticket of this process.
    pub(crate) fn is_first(&self) -> bool {
        self.state.lock().first.is_some()
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
            match state.conductor {
                Ok(index) => index,
                Err(_) => {
                    // The keeper enters the ticket when it has found a conductor.
                    state.set_entry(number, Entry::Missing);
                    return;
                }
            }
        };
        if let Err(error) = self.enter_at(index, vec![number], false).await {
            let mut state = self.state.lock();
            state.set_entry(number, Entry::Missing);
            if state.is_conductor(index) {
                state.failure = Some(error);
            }
            drop(state);
            self.wake_keeper();
        }
    }

    /// Enters tickets on a node. If the caller is the keeper, which has chosen this node, the node is the conductor from
    /// now on.
    async fn enter_at(
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
            state.replied_at = Duration::ZERO;
            state.first = None;
        }
        drop(state);
        self.shared.record_conductor(index);
        self.apply(index, &reply);
        if !gone.is_empty() {
            self.leave_at(index, gone);
        }
        Ok(())
    }

    /// Evaluates a reply of the conductor.
    fn apply(&self, index: usize, reply: &QueueReply) {
        let mut state = self.state.lock();
        let is_late = reply.time < state.replied_at && state.replied_at - reply.time < CLOCK_STEP;
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
                } else if !state.leaving.contains(&ticket.number) {
                    unknown = Some(ticket.number);
                }
            }
            Some(FirstTicket { present_for, .. }) => {
                due = due.min(now + present_for + AFTER_PRESENCE)
            }
            None => state.forget_entries(index),
        }
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
        if first.is_some() {
            self.changed.notify_waiters();
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
        // Until the ticket has left, it may still be the first one.
        state.leaving.insert(number);
        state.first.take_if(|(first, _)| *first == number);
        let is_last = state.waiters.is_empty();
        if is_last {
            state.subscription = None;
        }
        is_last
    }

    /// Removes tickets from the queue of the conductor, in the background.
    pub(super) fn leave(&self, numbers: Vec<u64>) {
        let conductor = self.state.lock().conductor.as_ref().ok().copied();
        if let Some(index) = conductor {
            self.leave_at(index, numbers);
        }
    }

    /// Removes the tickets of all waiters, because the manager is shut down. The waiters are woken.
    pub(super) fn close(&self) {
        self.leave(self.numbers());
        self.changed.notify_waiters();
    }

    /// Removes tickets from the queue of a node, in the background. If that fails, they are removed when one of them is
    /// the first, or with the presence of this process.
    fn leave_at(&self, index: usize, numbers: Vec<u64>) {
        let Some(this) = self.this.upgrade() else { return };
        self.state.lock().leaving.extend(&numbers);
        let op = self.op(QueueAction::Leave { numbers: numbers.clone().into() });
        self.shared.call_in_background(index, op, move |reply| {
            let mut state = this.state.lock();
            state.leaving.retain(|number| !numbers.contains(number));
            drop(state);
            if let Ok(reply) = reply {
                this.apply(index, &reply);
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

    /// Returns whether the caller may ask the nodes for the lock.
    pub(super) fn turn(&self) -> Turn {
        if self.shared.is_closed() {
            // The attempt fails, because the manager is shut down.
            return Turn::Now;
        }
        let mut state = self.state.lock();
        state.last_turn = Instant::now();
        if std::mem::take(&mut state.is_stalled) {
            // The places may be lost. The keeper enters again if they are.
            state.first = None;
            drop(state);
            self.wake_keeper();
            return Turn::Later;
        }
        match &state.conductor {
            Err(votes) => Turn::NoConductor(state.failed_searches, votes.clone()),
            Ok(_) if state.first.is_some() => Turn::Now,
            Ok(_) => Turn::Later,
        }
    }

    pub(super) fn wake_keeper(&self) {
        self.shared.wake_keeper(self.spec.queue_key());
    }

    pub(super) fn due(&self) -> Instant {
        self.state.lock().due
    }

    /// Refreshes the presence of this process, enters missing tickets, and moves to another conductor if the conductor has
    /// failed or a node before it is back. `is_held_here` returns whether this process holds the lock.
    pub(super) async fn look_after(&self, is_held_here: impl FnOnce() -> bool) {
        let now = Instant::now();
        let (current, failure) = {
            let mut state = self.state.lock();
            state.due = now + REFRESH;
            let has_stalled =
                |since: Instant| now.duration_since(since.max(state.last_turn)) >= STALL;
            if state.is_stalled
                || state.first.is_some_and(|(_, since)| has_stalled(since)) && !is_held_here()
            {
                state.is_stalled = true;
                state.first = None;
                return;
            }
            (state.conductor.as_ref().ok().copied(), state.failure.take())
        };
        if let Some(index) = current
            && failure.is_none()
        {
            self.subscribe(index).await;
        }
        self.settle(current, failure).await;
    }

    /// Subscribes to the notifications of a node, and waits until the subscription is in effect.
    async fn subscribe(&self, index: usize) {
        if matches!(self.state.lock().subscription, Some((node, _)) if node == index) {
            return;
        }
        let this = Weak::clone(&self.this);
        let notify = Arc::new(move || {
            if let Some(queue) = this.upgrade() {
                queue.wake_keeper();
            }
        });
        let node = &self.shared.ballot.nodes[index];
        let mut subscription = node.subscribe_queue(&self.spec, self.shared.process, notify);
        let ready = subscription.take_ready();
        {
            let mut state = self.state.lock();
            if state.waiters.is_empty() {
                return;
            }
            state.subscription = Some((index, subscription));
        }
        if let Some(ready) = ready {
            let _ = timeout(self.shared.ballot.node_timeout, ready).await;
        }
    }

    /// Asks the nodes in their order until one of them keeps the order.
    async fn settle(&self, current: Option<usize>, mut failure: Option<NodeError>) {
        let ballot = &self.shared.ballot;
        let mut votes = Vec::new();
        for (index, status) in ballot.statuses.iter().enumerate() {
            let is_current = current == Some(index);
            let attempt = match (is_current.then(|| failure.take()).flatten(), status.get()) {
                (Some(failure), _) => Err(failure),
                (None, NodeStatus::Down(reason)) if !is_current => Err(reason),
                _ => self.settle_at(index, is_current).await,
            };
            match attempt {
                Ok(()) => {
                    if let Some(former) = current.filter(|_| !is_current) {
                        self.leave_at(former, self.numbers());
                    }
                    return;
                }
                Err(error) => votes.push(Some(Vote::Failed(error))),
            }
        }
        let names = ballot.nodes.iter().map(|node| Arc::clone(node.name()));
        let mut state = self.state.lock();
        state.conductor = Err(names.zip(votes).collect());
        state.first = None;
        state.failed_searches += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Refreshes the presence on a node, and enters the tickets that it does not have.
    async fn settle_at(&self, index: usize, is_current: bool) -> Result<(), NodeError> {
        if is_current {
            let reply = self.shared.call(index, self.op(QueueAction::Refresh)).await?;
            if reply.was_present {
                self.apply(index, &reply);
            } else {
                self.state.lock().forget_entries(index);
            }
        }
        let missing: Vec<u64> = {
            let state = self.state.lock();
            let missing = state.waiters.iter().filter(|(_, waiter)| match waiter.entry {
                Entry::Missing => true,
                Entry::Pending => !is_current,
                Entry::At(node) => node != index,
            });
            missing.map(|(number, _)| *number).collect()
        };
        if missing.is_empty() && is_current {
            return Ok(());
        }
        self.enter_at(index, missing, true).await
    }

    /// Returns the numbers of all tickets.
    fn numbers(&self) -> Vec<u64> {
        self.state.lock().waiters.keys().copied().collect()
    }

    fn op(&self, action: QueueAction) -> QueueOp {
        QueueOp::new(&self.spec, self.shared.process, action)
    }
}

impl FairState {
    fn is_conductor(&self, index: usize) -> bool {
        matches!(self.conductor, Ok(conductor) if conductor == index)
    }

    /// Records that a node does not have the tickets of this process any more.
    fn forget_entries(&mut self, index: usize) {
        self.first = None;
        for waiter in self.waiters.values_mut().filter(|waiter| waiter.entry == Entry::At(index)) {
            waiter.entry = Entry::Missing;
        }
    }

    /// Records where the ticket of a waiter is. Returns whether the waiter is there.
    fn set_entry(&mut self, number: u64, entry: Entry) -> bool {
        self.waiters.get_mut(&number).map(|waiter| waiter.entry = entry).is_some()
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
