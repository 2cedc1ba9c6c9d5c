//! The waiters of one queue.

use std::collections::VecDeque;
use std::sync::Arc;

use super::entry::QueueEntry;
use super::outage::Outage;
use super::release_signal::ReleaseSignal;

/// The waiters for one lock in this process, in the order in which they get it.
///
/// Most locks are held without waiters, so what only waiters need is allocated when the first one comes.
#[derive(Debug, Default)]
pub(super) struct Waiters(Option<Box<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Arc<QueueEntry>>,
    /// Present from the first waiter that subscribes until there are no waiters.
    release_signal: Option<Arc<ReleaseSignal>>,
    /// The outage in which the waiters are, until a quorum of nodes answers again.
    outage: Option<Outage>,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.entries.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<QueueEntry>> {
        self.0.iter().flat_map(|inner| &inner.entries)
    }

    pub(super) fn get(&self, place: usize) -> Option<&Arc<QueueEntry>> {
        self.0.as_ref()?.entries.get(place)
    }

    pub(super) fn first(&self) -> Option<&Arc<QueueEntry>> {
        self.get(0)
    }

    pub(super) fn is_first(&self, entry: &Arc<QueueEntry>) -> bool {
        self.first().is_some_and(|first| Arc::ptr_eq(first, entry))
    }

    /// Adds a waiter behind the waiters that have waited for longer. Only a caller that has waited in another queue
    /// overtakes others, but not the first waiter while it asks the nodes.
    ///
    /// A reader behind a reader that asks the nodes asks them, too.
    pub(super) fn add(&mut self, entry: &Arc<QueueEntry>) {
        let since = entry.options.since;
        let is_before = |other: &Arc<QueueEntry>| other.options.since <= since || other.is_asking();
        let entries = &mut self.0.get_or_insert_default().entries;
        let place = entries.iter().rposition(is_before).map_or(0, |before| before + 1);
        if place.checked_sub(1).is_some_and(|before| entries[before].leads_readers()) {
            entry.call();
        }
        entries.insert(place, Arc::clone(entry));
    }

    /// Adds a waiter before all others.
    pub(super) fn add_first(&mut self, entry: &Arc<QueueEntry>) {
        self.0.get_or_insert_default().entries.push_front(Arc::clone(entry));
    }

    pub(super) fn remove(&mut self, entry: &Arc<QueueEntry>) {
        if let Some(inner) = &mut self.0 {
            // Most waiters that leave are near the front.
            if let Some(place) = inner.entries.iter().position(|other| Arc::ptr_eq(other, entry)) {
                inner.entries.remove(place);
            }
        }
    }

    pub(super) fn remove_at(&mut self, place: usize) {
        if let Some(inner) = &mut self.0 {
            inner.entries.remove(place);
        }
    }

    pub(super) fn release_signal(&self) -> Option<&Arc<ReleaseSignal>> {
        self.0.as_ref()?.release_signal.as_ref()
    }

    pub(super) fn set_release_signal(&mut self, signal: &Arc<ReleaseSignal>) {
        self.0.get_or_insert_default().release_signal = Some(Arc::clone(signal));
    }

    pub(super) fn outage(&self) -> Option<&Outage> {
        self.0.as_ref()?.outage.as_ref()
    }

    pub(super) fn set_outage(&mut self, outage: Outage) {
        self.0.get_or_insert_default().outage = Some(outage);
    }

    /// Ends the outage. Returns whether there was one.
    pub(super) fn end_outage(&mut self) -> bool {
        self.0.as_mut().is_some_and(|inner| inner.outage.take().is_some())
    }

    /// Ends the subscription and the outage if there are no waiters.
    pub(super) fn end_if_empty(&mut self) {
        if self.is_empty() {
            self.0 = None;
        }
    }
}
