//! The holders of one key in this process.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::hand_over::HandOverStreak;
use crate::clock::Moment;
use crate::lease::Held;
use crate::lock::Mode;

/// A holder of a lock in this process.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) held: Arc<Held>,
    /// The scope that shares the lock. `None` without a scope, or until the new holder has accepted a
    /// hand-over.
    pub(super) scope: Option<u64>,
    pub(super) streak: HandOverStreak,
}

impl Holder {
    /// Returns a holder whose lock the nodes granted at `granted`.
    pub(super) fn new(held: Arc<Held>, scope: Option<u64>, granted: Moment) -> Self {
        Self { held, scope, streak: HandOverStreak::start(granted) }
    }
}

/// The holders of one key in this process. Several if the modes of their locks are compatible, so that a thousand
/// readers may be among them: each knows its place.
#[derive(Debug, Default)]
pub(super) struct Holders(SmallVec<[Holder; 1]>);

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Holder> + Clone {
        self.0.iter()
    }

    /// Returns the lock of one of the holders.
    #[inline]
    pub(super) fn last(&self) -> Option<&Arc<Held>> {
        self.0.last().map(|holder| &holder.held)
    }

    #[inline]
    pub(super) fn push(&mut self, holder: Holder) {
        holder.held.set_place(self.0.len());
        self.0.push(holder);
    }

    /// Removes the holders whose locks conflict with a lock of this mode.
    #[inline]
    pub(super) fn remove_incompatible(&mut self, mode: Mode) {
        if !self.0.is_empty() {
            self.0.retain(|holder| holder.held.attempt().spec().mode().compatible(mode));
            self.renumber();
        }
    }

    fn renumber(&self) {
        for (place, holder) in self.0.iter().enumerate() {
            holder.held.set_place(place);
        }
    }

    #[inline]
    fn place(&self, held: &Arc<Held>) -> Option<usize> {
        let is_it = |holder: &Holder| Arc::ptr_eq(&holder.held, held);
        let place = held.place();
        // The holder of several keys is among the holders of each, and knows only one of its places.
        let is_there = self.0.get(place).is_some_and(is_it);
        if is_there { Some(place) } else { self.0.iter().position(is_it) }
    }

    pub(super) fn get_mut(&mut self, held: &Arc<Held>) -> Option<&mut Holder> {
        let place = self.place(held)?;
        self.0.get_mut(place)
    }

    /// Removes a holder.
    #[inline]
    pub(super) fn remove(&mut self, held: &Arc<Held>) -> Option<Holder> {
        let place = self.place(held)?;
        let removed = self.0.swap_remove(place);
        if let Some(moved) = self.0.get(place) {
            moved.held.set_place(place);
        }
        Some(removed)
    }

    /// Returns whether a lock of this mode does not have to wait for the holders. Only the nodes count the holders of
    /// permits.
    pub(super) fn are_compatible(&self, mode: Mode) -> bool {
        // The modes of all holders are compatible.
        self.last().is_none_or(|held| held.attempt().spec().mode().compatible(mode))
    }

    /// Returns the holder for whose end a lock of this mode has to wait, and the rest of its validity.
    pub(super) fn conflicting(&self, mode: Mode) -> Option<(&Arc<Held>, Duration)> {
        // Each holder's rest is calculated once, because reading the clock is most of the work.
        fn valid(holder: &Holder) -> Option<(&Arc<Held>, Duration)> {
            let remaining = holder.held.remaining();
            (!remaining.is_zero()).then_some((&holder.held, remaining))
        }

        if self.are_compatible(mode) {
            return None;
        }
        self.0.iter().filter_map(valid).max_by_key(|(_, rest)| *rest)
    }
}
