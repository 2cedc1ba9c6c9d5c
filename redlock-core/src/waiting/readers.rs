//! The readers of one key in this process that join the lock of another one.
//!
//! A reader whose lock was granted opens a window: until it is over, further readers join the lock. A writer of this process
//! closes the window at once, and a join never prolongs it. While a reader asks the nodes, other readers wait for its
//! answer, as long as they could join the lock then.
//!
//! The lock of the nodes is one, and the guards of this process are counted here. All of it is decided under the lock of the
//! lines, so a lock whose last guard has left is never joined. No clock, no node, no task: the model of `tests/model` compiles
//! this file, too.

use std::collections::BTreeMap;
use std::time::Duration;

use super::roles::{LineHolder, LineWaiter};
use super::{Instant, JOIN_WINDOW};

/// The readers of one line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Readers<W, H> {
    /// The lock that further readers may join.
    open: Option<H>,
    /// The number of holders that each lock has beside its first one. A lock without an entry has one holder.
    further: BTreeMap<usize, usize>,
    /// The readers that ask the nodes, each with the time at which it has begun. Mostly one.
    askers: Vec<(W, Instant)>,
    /// The readers in no line that wait for an answer, in their order.
    followers: Vec<W>,
}

impl<W, H> Default for Readers<W, H> {
    fn default() -> Self {
        let (askers, followers) = (Vec::new(), Vec::new());
        Self { open: None, further: BTreeMap::new(), askers, followers }
    }
}

impl<W: LineWaiter, H: LineHolder> Readers<W, H> {
    pub(super) fn is_empty(&self) -> bool {
        let Self { open, further, askers, followers } = self;
        open.is_none() && further.is_empty() && askers.is_empty() && followers.is_empty()
    }

    /// Opens the window of a lock that the nodes have granted.
    pub(super) fn open(&mut self, held: &H) {
        self.open = Some(held.clone());
    }

    /// Closes the window.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Returns a further holder of the open lock, which `make` makes, if a reader that asks for this lease may join it.
    pub(super) fn join(
        &mut self,
        lease: Duration,
        now: Instant,
        make: impl FnOnce(&H) -> H,
    ) -> Option<H> {
        let open = self.open.as_ref().filter(|open| open.may_be_joined(lease, now))?;
        let held = make(open);
        *self.further.entry(open.entry()).or_default() += 1;
        Some(held)
    }

    /// Records that a holder leaves its lock. Returns whether it was the last one, so that the nodes have to release the
    /// lock: its window is closed then.
    pub(super) fn leave(&mut self, held: &H) -> bool {
        let entry = held.entry();
        if let Some(further) = self.further.get_mut(&entry) {
            *further -= 1;
            if *further == 0 {
                self.further.remove(&entry);
            }
            return false;
        }
        if self.open.as_ref().is_some_and(|open| open.entry() == entry) {
            self.close();
        }
        true
    }

    /// Returns until when a reader waits for the answer of another one, whose lock it could join. `None` if it asks itself.
    pub(super) fn follows(&self, waiter: &W, now: Instant) -> Option<Instant> {
        let lease = waiter.joins()?;
        let is_of_use = |asker: &W| !asker.is(waiter) && asker.joins() >= Some(lease);
        let askers = self.askers.iter().filter(|(asker, _)| is_of_use(asker));
        // Afterwards, it could not join the lock any more.
        let until = askers.map(|(_, begun)| *begun + JOIN_WINDOW).max();
        until.filter(|until| *until > now)
    }

    /// Adds a reader in no line that waits for the answer.
    pub(super) fn follow(&mut self, waiter: &W) {
        self.followers.push(waiter.clone());
    }

    /// Removes a reader that waits for the answer no longer.
    pub(super) fn unfollow(&mut self, waiter: &W) {
        self.followers.retain(|follower| !follower.is(waiter));
    }

    /// Records that a reader asks the nodes. Readers that come from now on wait for its answer.
    pub(super) fn begin_question(&mut self, waiter: &W, now: Instant) {
        if waiter.joins().is_some() {
            self.askers.push((waiter.clone(), now));
        }
    }

    /// Records that a reader asks no longer. Returns whether readers may have waited for its answer, and calls `wake` for
    /// those in no line: they ask themselves now.
    pub(super) fn end_question(&mut self, waiter: &W, wake: impl FnMut(&W)) -> bool {
        let index = self.askers.iter().position(|(asker, _)| asker.is(waiter));
        if let Some(index) = index {
            self.askers.swap_remove(index);
            self.followers.drain(..).collect::<Vec<_>>().iter().for_each(wake);
        }
        index.is_some()
    }

    /// Takes the readers in no line that may join the open lock now.
    pub(super) fn take_followers(&mut self, now: Instant) -> Vec<W> {
        let Some(open) = &self.open else { return Vec::new() };
        let joins =
            |follower: &mut W| follower.joins().is_some_and(|lease| open.may_be_joined(lease, now));
        self.followers.extract_if(.., joins).collect()
    }

    /// Returns whether a reader that waits may join the open lock now.
    pub(super) fn admits(&self, waiter: &W, now: Instant) -> bool {
        let open = self.open.as_ref();
        waiter.joins().is_some_and(|lease| open.is_some_and(|open| open.may_be_joined(lease, now)))
    }
}
