//! The state of a fair queue in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::Instant;

use super::REFRESH;
use crate::error::{NodeError, Votes};
use crate::node::Subscription;

/// The state of a fair queue in this process.
pub(super) struct FairState {
    /// The index of the node that keeps the order; or the reasons why no node does.
    pub(super) conductor: Result<usize, Votes>,
    /// The index of the latest conductor, which may still have tickets of this process.
    pub(super) latest_conductor: usize,
    /// The error of the conductor since the keeper was here.
    pub(super) failure: Option<NodeError>,
    /// The waiters of this process by the numbers of their tickets.
    pub(super) waiters: BTreeMap<u64, FairWaiter>,
    /// The tickets that are being removed.
    pub(super) leaving: BTreeSet<u64>,
    /// The number of the first ticket of all, and since when, if it is a ticket of this process.
    pub(super) first: Option<(u64, Instant)>,
    /// When the conductor last replied that the first ticket belongs to another process, as long as that is its latest reply.
    pub(super) behind: Option<Instant>,
    /// How often the waiters were notified.
    pub(super) version: u64,
    /// The time of the newest reply on the clock of the conductor.
    pub(super) replied_at: Duration,
    /// When a waiter of this process last began to ask for the lock, or began to wait for its turn.
    pub(super) last_turn: Instant,
    /// Whether the presence is not refreshed, because the first waiter does not ask for the lock.
    pub(super) is_stalled: bool,
    pub(super) subscription: Option<(usize, Subscription)>,
    /// When the keeper has to look after this queue.
    pub(super) due: Instant,
    /// How often the keeper has looked for a conductor in vain.
    pub(super) failed_searches: u64,
}

/// A waiter of this process.
pub(super) struct FairWaiter {
    pub(super) arrived: Instant,
    /// The number of the ticket, which the waiter reads when it leaves.
    pub(super) number: Arc<AtomicU64>,
    pub(super) entry: Entry,
}

/// Where the ticket of a waiter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// The waiter enters it.
    Pending,
    /// In the queue of this node.
    At(usize),
    /// In no queue. The keeper enters it.
    Missing,
}

impl FairState {
    pub(super) fn new(conductor: usize) -> Self {
        let now = Instant::now();
        Self {
            conductor: Ok(conductor),
            latest_conductor: conductor,
            failure: None,
            waiters: BTreeMap::new(),
            leaving: BTreeSet::new(),
            first: None,
            behind: None,
            version: 0,
            replied_at: Duration::ZERO,
            last_turn: now,
            is_stalled: false,
            subscription: None,
            due: now + REFRESH,
            failed_searches: 0,
        }
    }

    pub(super) fn is_conductor(&self, index: usize) -> bool {
        matches!(self.conductor, Ok(conductor) if conductor == index)
    }

    /// Records that a node does not have the tickets of this process any more.
    pub(super) fn forget_entries(&mut self, index: usize) {
        (self.first, self.behind) = (None, None);
        for waiter in self.waiters.values_mut().filter(|waiter| waiter.entry == Entry::At(index)) {
            waiter.entry = Entry::Missing;
        }
    }

    /// Records where the ticket of a waiter is. Returns whether the waiter is there.
    pub(super) fn set_entry(&mut self, number: u64, entry: Entry) -> bool {
        self.waiters.get_mut(&number).map(|waiter| waiter.entry = entry).is_some()
    }
}
