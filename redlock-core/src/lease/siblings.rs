//! The holders of this process that share one lock on the nodes: readers that have joined the lock of another one.
//!
//! # Invariants
//!
//! **No guard outlives its lock.** Readers of one process share a lock of the nodes, which has one token and one lease. Each
//! reader has a `Holding` of its own, whose validity is that of the lease, and never longer. The lines count the holders: under
//! their lock, a reader joins and the last holder leaves, so a lock that is released has no holder, and gets none. A loss ends
//! all holders before the nodes are asked to release the lock.
//!
//! Tests that fail without it, among others: `readers_join_the_lock_of_another_one` (the model),
//! `readers_share_one_lock_of_the_nodes_until_the_last_has_left`, `a_loss_ends_all_guards`,
//! `a_shutdown_ends_all_guards_before_it_releases_their_lock`, `tests/simulation`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;

/// How long after the begin of its acquisition a lock of readers may be joined.
///
/// A joined reader has at most this much and a round trip less validity than it would have got from the nodes. A writer of
/// another process waits at most this much longer, because the next reader asks the nodes, where the writer's mark keeps it
/// out. 20 ms limit a process to 50 acquisitions a second on each node. A window of 40 ms would save 25 of them, and let each
/// writer wait for 20 ms more.
pub(crate) const JOIN_WINDOW: Duration = Duration::from_millis(20);

/// The part that a reader has in a lock which other readers of its process may share.
#[derive(Debug)]
pub(super) struct Part<H> {
    /// When it ends, although other readers may renew the lock. [`Moment::MAX`] if it ends with the lease only.
    pub(super) ends: Mutex<Moment>,
    /// The holders that share the lock on the nodes, once a reader has joined it.
    pub(super) siblings: OnceLock<Arc<Siblings<H>>>,
    /// Whether the reader has joined the lock of another one.
    pub(super) is_joined: bool,
    /// Whether the holder has left the lock that it shares. It changes only under the lock of the queues.
    pub(super) has_left: AtomicBool,
}

impl<H> Part<H> {
    /// Returns the part of the reader to which the nodes have granted the lock. It lasts for `lasts` from `since`; `None` if it
    /// ends with the lease only.
    pub(super) fn first(since: Moment, lasts: Option<Duration>) -> Self {
        Self {
            ends: Mutex::new(lasts.map_or(Moment::MAX, |lasts| since.plus(lasts))),
            siblings: OnceLock::new(),
            is_joined: false,
            has_left: AtomicBool::new(false),
        }
    }

    /// Returns the part of a reader that joins the lock.
    pub(super) fn joined(
        since: Moment,
        lasts: Option<Duration>,
        siblings: Arc<Siblings<H>>,
    ) -> Self {
        let siblings = OnceLock::from(siblings);
        Self { siblings, is_joined: true, ..Self::first(since, lasts) }
    }
}

/// The holders that share one lock on the nodes, and who of them renews it.
#[derive(Debug)]
pub(super) struct Siblings<H> {
    holders: Mutex<Vec<Weak<H>>>,
    renewal: Mutex<TurnState>,
}

#[derive(Debug, Default)]
struct TurnState {
    is_taken: bool,
    /// No holder repeats a failed renewal before.
    not_before: Moment,
}

/// The turn of one holder to renew the lock for all of them.
#[derive(Debug)]
pub(super) struct RenewalTurn<'a>(&'a Mutex<TurnState>);

impl<H> Default for Siblings<H> {
    fn default() -> Self {
        Self { holders: Mutex::default(), renewal: Mutex::default() }
    }
}

impl<H> Siblings<H> {
    /// Adds a holder. The entries of holders that have ended stay only as long as they are few.
    pub(super) fn add(&self, held: &Arc<H>) {
        let mut holders = self.holders.lock();
        if holders.len() == holders.capacity() {
            holders.retain(|held| held.strong_count() > 0);
        }
        holders.push(Arc::downgrade(held));
    }

    /// Returns the holders.
    pub(super) fn all(&self) -> Vec<Arc<H>> {
        self.holders.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Begins a renewal. Returns `None` while another holder renews the lock, or shortly after a renewal has failed.
    pub(super) fn begin_renewal(&self, now: Moment) -> Option<RenewalTurn<'_>> {
        let mut turn = self.renewal.lock();
        if turn.is_taken || !now.has_reached(turn.not_before) {
            return None;
        }
        turn.is_taken = true;
        drop(turn);
        Some(RenewalTurn(&self.renewal))
    }
}

impl RenewalTurn<'_> {
    /// Records that the renewal has failed.
    pub(super) fn fail(&self, not_before: Moment) {
        self.0.lock().not_before = not_before;
    }
}

impl Drop for RenewalTurn<'_> {
    /// Lets another holder renew the lock.
    fn drop(&mut self) {
        self.0.lock().is_taken = false;
    }
}
