//! The line of one key in this process: its holders, and its waiters, first come, first served.
//!
//! No clock, no node, no task. The model of `tests/model` compiles this file, too, and has waiters, holders and signals of its
//! own. A method that wakes waiters calls `wake` for each of them.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use super::fairness::Fairness;
use super::readers::Readers;
pub(super) use super::roles::{LineHolder, LineSignal, LineWaiter};
use super::{Instant, Mode};

/// So many holders are asked for the rest of their validity.
const FEW: usize = 8;

/// The state of a waiter, as far as other callers change it or read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WaiterState {
    /// The waiter stands behind another one.
    Queued,
    /// The waiter may ask the nodes, unless something is in its way. The first waiter of a line never stays `Queued`.
    /// Readers behind it are called together.
    Called,
    /// The waiter asks the nodes, or has just got the lock and leaves the line next.
    Asking,
    /// The nodes have refused the first waiter, or no quorum has answered it. It pauses.
    Refused,
}

/// The holders of one lock in this process, and the waiters for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Line<W, H, G, S> {
    /// Several if the modes of their locks are compatible, so that a thousand readers may be among them: each knows its
    /// place.
    holders: SmallVec<[H; 1]>,
    pub(super) fairness: Fairness,
    /// Most locks are held without waiters, so what only waiters need is allocated when the first one comes.
    waiting: Option<Box<Waiting<W, G, S>>>,
    /// Allocated when the first reader comes that others may join.
    readers: Option<Box<Readers<W, H>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Waiting<W, G, S> {
    waiters: VecDeque<Entry<W>>,
    /// Present from the first waiter that subscribes until there are no waiters, or until an outage ends.
    signal: Option<G>,
    /// When the first round without a quorum began, until a quorum of nodes answers again. The callers of one key share the
    /// outage, so that its grace is spent once and not once per waiter.
    outage: Option<Instant>,
    shared: S,
}

/// A waiter in its line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Entry<W> {
    pub(super) waiter: W,
    state: WaiterState,
    /// Whether the waiter asks the nodes alone, although readers stand behind it: they have refused it, a holder of this
    /// process was in its way, or another waiter was put before it.
    asks_alone: bool,
    /// The holder for whose end the waiter waits.
    watched: Option<usize>,
}

impl<W, H, G, S> Default for Line<W, H, G, S> {
    fn default() -> Self {
        let (holders, fairness) = (SmallVec::new(), Fairness::default());
        Self { holders, fairness, waiting: None, readers: None }
    }
}

/// The holders.
impl<W: LineWaiter, H: LineHolder, G: LineSignal, S> Line<W, H, G, S> {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.is_idle() && self.readers.is_none()
    }

    pub(super) fn holders(&self) -> &[H] {
        &self.holders
    }

    /// Adds a holder. Removes holders whose locks conflict with it, and are no longer valid.
    #[inline]
    pub(super) fn add_holder(&mut self, held: H) {
        if !self.is_compatible(held.mode()) {
            self.holders.clear();
            self.close_window();
        }
        held.set_index(self.holders.len());
        self.holders.push(held);
    }

    /// Removes a holder. Returns whether it was one.
    #[inline]
    pub(super) fn remove_holder(&mut self, held: &H) -> bool {
        let is_it = |holder: &H| holder.id() == held.id();
        // The holder of several keys is among the holders of each, and knows only one of its indices.
        let index = match held.index() {
            index if self.holders.get(index).is_some_and(is_it) => Some(index),
            _ => self.holders.iter().position(is_it),
        };
        let Some(index) = index else { return false };
        self.holders.swap_remove(index);
        if let Some(moved) = self.holders.get(index) {
            moved.set_index(index);
        }
        true
    }

    /// Returns whether a lock of this mode does not have to wait for the holders. Only the nodes count the holders of
    /// permits.
    fn is_compatible(&self, mode: Mode) -> bool {
        // The modes of all holders are compatible.
        self.holders.last().is_none_or(|held| held.mode().compatible(mode))
    }

    /// Returns the holder for whose end a lock of this mode has to wait, and the rest of its validity. Of many readers, it is
    /// one of those that came last: a thousand readers must not cost a writer a thousand readings of the clock.
    pub(super) fn conflict(
        &self,
        mode: Mode,
        now: impl FnOnce() -> Instant,
    ) -> Option<(&H, Duration)> {
        if self.is_compatible(mode) {
            return None;
        }
        let now = now();
        let rests = |holders: &'_ [H]| {
            // Each holder's rest is calculated once, because reading the clock is most of the work.
            let rests = holders.iter().enumerate().map(|(at, held)| (at, held.remaining(now)));
            rests.filter(|(_, rest)| !rest.is_zero()).max_by_key(|(_, rest)| *rest)
        };
        let (others, last) = self.holders.split_at(self.holders.len().saturating_sub(FEW));
        let longest = rests(last).map(|(at, rest)| (others.len() + at, rest));
        // All of the last ones have overrun their leases.
        let (at, rest) = longest.or_else(|| rests(others))?;
        Some((self.holders.get(at)?, rest))
    }

    /// Returns the holder of this process because of which its callers keep out a caller that does not queue, and for how long.
    /// No reader joins the lock of another one any more, if the caller is a writer.
    pub(super) fn keeps_out(
        &mut self,
        mode: Mode,
        now: impl Fn() -> Instant,
    ) -> Option<(&H, Duration)> {
        if mode != Mode::SHARED {
            self.close_window();
        }
        self.conflict(mode, &now).or_else(|| {
            // A writer that waits for the readers of this process keeps further readers out, too.
            let is_kept_out = mode == Mode::SHARED
                && self.entries().any(|entry| entry.waiter.mode() != Mode::SHARED);
            // The readers are in the way of that writer.
            if is_kept_out { self.conflict(Mode::Exclusive, now) } else { None }
        })
    }

    /// Removes a holder, and hands its lock over to the first waiter, which then leaves the line. `pass` returns the lock of
    /// the waiter, or `None` if a rule forbids the hand-over.
    pub(super) fn hand_over(
        &mut self,
        held: &H,
        pass: impl FnOnce(&W, &Fairness) -> Option<H>,
        wake: impl FnMut(&W),
    ) -> Option<(W, H)> {
        if !self.remove_holder(held) {
            return None;
        }
        // A waiter that asks the nodes does not take another lock meanwhile.
        let next = self.first().filter(|first| first.may_take())?.waiter.clone();
        let held = pass(&next, &self.fairness)?;
        self.add_holder(held.clone());
        self.remove_at(0, wake);
        Some((next, held))
    }
}

/// The readers that join the lock of another one.
impl<W: LineWaiter, H: LineHolder, G: LineSignal, S> Line<W, H, G, S> {
    /// Lets further readers join the lock of a holder, which the nodes have granted just now, unless a caller waits that is no
    /// reader.
    pub(super) fn open_window(&mut self, held: &H) {
        if self.entries().all(|entry| entry.waiter.is_reader()) {
            self.readers.get_or_insert_default().open(held);
        }
    }

    /// Lets no further reader join a lock.
    pub(super) fn close_window(&mut self) {
        self.with_readers(Readers::close);
    }

    /// Adds a further holder of the open lock, which `make` makes, if a reader that asks for this lease may join it.
    pub(super) fn join(
        &mut self,
        lease: Duration,
        now: Instant,
        make: impl FnOnce(&H) -> H,
    ) -> Option<H> {
        let held = self.readers.as_mut()?.join(lease, now, make)?;
        self.add_holder(held.clone());
        Some(held)
    }

    /// Lets the readers join the open lock that wait for nothing else. `make` makes the holder of each, and `joined` gets
    /// it, with whether the reader has left the line by that.
    pub(super) fn join_waiting(
        &mut self,
        now: Instant,
        make: impl Fn(&H, &W) -> H,
        mut joined: impl FnMut(&W, H, bool),
        mut wake: impl FnMut(&W),
    ) {
        let Some(readers) = &mut self.readers else { return };
        let mut waiters: SmallVec<[(W, bool); 4]> = SmallVec::new();
        if let Some(waiting) = &mut self.waiting {
            waiting.waiters.retain(|entry| {
                let joins =
                    entry.state != WaiterState::Asking && readers.admits(&entry.waiter, now);
                if joins {
                    waiters.push((entry.waiter.clone(), true));
                }
                !joins
            });
        }
        waiters.extend(readers.take_followers(now).into_iter().map(|follower| (follower, false)));
        for (waiter, was_in_line) in waiters {
            let lease = waiter.joins().unwrap_or_default();
            if let Some(held) = self.join(lease, now, |open| make(open, &waiter)) {
                joined(&waiter, held, was_in_line);
            }
        }
        if let Some(first) = self.waiting.as_mut().and_then(|waiting| waiting.waiters.front_mut()) {
            first.call(&mut wake);
        }
    }

    /// Records that a holder leaves its lock. Returns whether it is the last one. Otherwise, the holder is removed.
    pub(super) fn leave(&mut self, held: &H, wake: impl FnMut(&W)) -> bool {
        let is_last = self.with_readers(|readers| readers.leave(held)).unwrap_or(true);
        if !is_last && self.remove_holder(held) {
            self.wake_first_after(held, wake);
        }
        is_last
    }

    /// Returns until when a reader waits for the answer of another one, whose lock it could join. `None` if it asks itself.
    pub(super) fn follows(&self, waiter: &W, now: Instant) -> Option<Instant> {
        self.readers.as_ref()?.follows(waiter, now)
    }

    /// Records that a reader asks the nodes.
    pub(super) fn begin_question(&mut self, waiter: &W, now: Instant) {
        if waiter.joins().is_some() {
            self.readers.get_or_insert_default().begin_question(waiter, now);
        }
    }

    /// Records that a reader asks no longer. Wakes the readers that have waited for its answer: they ask themselves now.
    pub(super) fn end_question(&mut self, waiter: &W, mut wake: impl FnMut(&W)) {
        let was_asker = self.with_readers(|readers| readers.end_question(waiter, &mut wake));
        if was_asker == Some(true) {
            let called = self.entries().take_while(|entry| entry.waiter.is_reader());
            let called = called.filter(|entry| entry.state == WaiterState::Called);
            called.for_each(|entry| wake(&entry.waiter));
        }
    }

    /// Calls `f` with the readers, and removes them if that leaves nothing.
    pub(super) fn with_readers<T>(&mut self, f: impl FnOnce(&mut Readers<W, H>) -> T) -> Option<T> {
        let readers = self.readers.as_mut()?;
        let result = f(readers);
        if readers.is_empty() {
            self.readers = None;
        }
        Some(result)
    }

    /// Adds a reader in no line that waits for the answer of another one.
    pub(super) fn follow(&mut self, waiter: &W) {
        self.readers.get_or_insert_default().follow(waiter);
    }

    /// Removes a reader in no line that waits for the answer of another one.
    pub(super) fn unfollow(&mut self, waiter: &W) {
        self.with_readers(|readers| readers.unfollow(waiter));
    }
}

/// The waiters.
impl<W: LineWaiter, H: LineHolder, G: LineSignal, S> Line<W, H, G, S> {
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.waiters.is_empty())
    }

    /// Returns the waiters in their order.
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry<W>> {
        self.waiting.iter().flat_map(|waiting| &waiting.waiters)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.waiters.len())
    }

    /// Returns whether a line of at most this number of waiters has room for one more.
    pub(super) fn has_room(&self, max_waiters: usize) -> bool {
        self.len() < max_waiters
    }

    pub(super) fn first(&self) -> Option<&Entry<W>> {
        self.waiting.as_ref()?.waiters.front()
    }

    pub(super) fn is_first(&self, waiter: &W) -> bool {
        self.first().is_some_and(|first| first.waiter.is(waiter))
    }

    /// Returns the entry of a waiter. A waiter that may do anything is near the front.
    fn entry(&mut self, waiter: &W) -> Option<&mut Entry<W>> {
        self.waiting.as_mut()?.waiters.iter_mut().find(|entry| entry.waiter.is(waiter))
    }

    /// Returns the state of a waiter; `None` if it is not in the line.
    pub(super) fn state(&self, waiter: &W) -> Option<WaiterState> {
        self.entries().find(|entry| entry.waiter.is(waiter)).map(|entry| entry.state)
    }

    pub(super) fn is_queued(&self, waiter: &W) -> bool {
        self.state(waiter) == Some(WaiterState::Queued)
    }

    pub(super) fn set(&mut self, waiter: &W, state: WaiterState) {
        if let Some(entry) = self.entry(waiter) {
            entry.set(state);
        }
    }

    /// Sets the state of the first waiter. Every other waiter waits in its place again. Returns whether the waiter is the
    /// first; `None` if it is not in the line: a lock was handed over to it while it paused.
    pub(super) fn set_if_first(&mut self, waiter: &W, state: WaiterState) -> Option<bool> {
        if state == WaiterState::Refused {
            // A writer of another process may wait, and the nodes let no reader overtake it.
            self.close_window();
        }
        let is_first = self.is_first(waiter);
        self.entry(waiter)?.set(if is_first { state } else { WaiterState::Queued });
        Some(is_first)
    }

    /// Records for the end of which holder the waiter waits.
    pub(super) fn watch(&mut self, waiter: &W, held: usize) {
        if let Some(entry) = self.entry(waiter) {
            entry.asks_alone = true;
            entry.watched = Some(held);
        }
    }

    /// Adds a waiter behind the waiters that have waited for longer. Only a caller that has waited in another line
    /// overtakes others, but not the first waiter while it asks the nodes. `shared` is called for the first waiter.
    pub(super) fn insert(&mut self, waiter: &W, shared: impl FnOnce() -> S) {
        let since = waiter.since();
        let is_before = |other: &Entry<W>| other.waiter.since() <= since || other.is_asking();
        let waiters = self.waiting.as_ref().map(|waiting| &waiting.waiters);
        let before = waiters.and_then(|waiters| waiters.iter().rposition(is_before));
        self.insert_at(before.map_or(0, |before| before + 1), waiter, shared);
    }

    /// Returns a waiter to the head of the line after the lock that was handed over to it turned out to be lost.
    pub(super) fn insert_first(&mut self, waiter: &W, shared: impl FnOnce() -> S) {
        self.insert_at(0, waiter, shared);
    }

    fn insert_at(&mut self, index: usize, waiter: &W, shared: impl FnOnce() -> S) {
        if !waiter.is_reader() {
            self.close_window();
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            let waiters = VecDeque::new();
            Box::new(Waiting { waiters, signal: None, outage: None, shared: shared() })
        });
        let waiters = &mut waiting.waiters;
        let leads = waiters.front().is_some_and(Entry::leads_readers);
        if !(waiter.is_reader() && (leads || index > 0)) {
            // Only the first waiter and the readers of its run ask the nodes.
            let behind = waiters.iter_mut().enumerate().skip(index);
            let run = behind.take_while(|(at, other)| *at == 0 || other.waiter.is_reader());
            run.for_each(|(_, other)| other.displace());
        }
        let is_called = index
            .checked_sub(1)
            .is_none_or(|before| leads && waiters[before].leads_readers() && waiter.is_reader());
        let state = if is_called { WaiterState::Called } else { WaiterState::Queued };
        let waiter = waiter.clone();
        waiters.insert(index, Entry { waiter, state, asks_alone: false, watched: None });
    }

    /// Removes a waiter, and calls the waiter that is next then. Returns whether it was in the line. Votes for a question of the
    /// waiter are returned by its attempt.
    pub(super) fn remove(&mut self, waiter: &W, mut wake: impl FnMut(&W)) -> bool {
        self.end_question(waiter, &mut wake);
        // Most waiters that leave are near the front.
        let index = self.entries().position(|entry| entry.waiter.is(waiter));
        if let Some(index) = index {
            self.remove_at(index, wake);
        }
        index.is_some()
    }

    fn remove_at(&mut self, index: usize, mut wake: impl FnMut(&W)) {
        let Some(waiting) = &mut self.waiting else { return };
        waiting.waiters.remove(index);
        match index.checked_sub(1) {
            None => {
                waiting.waiters.front_mut().map(|first| first.call(&mut wake));
            }
            // The waiter may have stood between two readers.
            Some(before) if waiting.waiters[before].leads_readers() => {
                self.call_readers(index, wake);
            }
            Some(_) => {}
        }
    }

    /// Calls the readers that stand next to each other behind the first waiter, when the nodes have granted a reader the lock.
    pub(super) fn call_run(&mut self, wake: impl FnMut(&W)) {
        if self.first().is_some_and(|first| first.waiter.is_reader()) {
            self.call_readers(1, wake);
        }
    }

    /// Calls the readers that stand next to each other from this index on.
    ///
    /// Stops at a reader that was called before: of a thousand readers that were called together, each one ends here when
    /// it is granted its lock.
    fn call_readers(&mut self, index: usize, mut wake: impl FnMut(&W)) {
        let Some(waiting) = &mut self.waiting else { return };
        let mut readers = waiting.waiters.iter_mut().skip(index);
        let _ = readers
            .try_for_each(|next| (next.waiter.is_reader() && next.call(&mut wake)).then_some(()));
    }

    /// Wakes the first waiter, so that it looks at the holders again.
    pub(super) fn wake_first(&self, wake: impl FnMut(&W)) {
        self.first().map(|first| &first.waiter).into_iter().for_each(wake);
    }

    /// Wakes the first waiter beside a new holder, unless it waits for another holder in any case.
    pub(super) fn wake_first_beside(&self, mode: Mode, wake: impl FnMut(&W)) {
        // A writer that the readers keep out asks the nodes now and then.
        if let Some(first) = self.first()
            && (mode == Mode::Exclusive || first.waiter.mode() != Mode::Exclusive)
        {
            self.wake_first(wake);
        }
    }

    /// Wakes the first waiter after this holder has gone, unless it waits for another holder of this process.
    pub(super) fn wake_first_after(&self, held: &H, wake: impl FnMut(&W)) {
        if let Some(first) = self.first()
            && (first.watched == Some(held.id()) || self.is_compatible(first.waiter.mode()))
        {
            self.wake_first(wake);
        }
    }
}

impl<W: LineWaiter> Entry<W> {
    fn set(&mut self, state: WaiterState) {
        match state {
            WaiterState::Refused => self.asks_alone = true,
            WaiterState::Queued => self.asks_alone = false,
            WaiterState::Called | WaiterState::Asking => {}
        }
        self.state = state;
    }

    /// Returns whether the nodes have the waiter's question, or have refused it.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, WaiterState::Asking | WaiterState::Refused)
    }

    /// Returns whether the waiter may take a lock that is handed over: it does not ask the nodes at the moment.
    fn may_take(&self) -> bool {
        matches!(self.state, WaiterState::Called | WaiterState::Refused)
    }

    /// Returns whether the next reader may ask the nodes together with this one.
    fn leads_readers(&self) -> bool {
        self.waiter.is_reader()
            && !self.asks_alone
            && matches!(self.state, WaiterState::Called | WaiterState::Asking)
    }

    /// Lets the waiter wait behind another one, which was put before it.
    fn displace(&mut self) {
        if self.state == WaiterState::Asking {
            self.asks_alone = true;
        } else {
            self.set(WaiterState::Queued);
        }
    }

    /// Lets a waiter that stands behind another one ask the nodes. Returns false if that changes nothing.
    fn call(&mut self, wake: &mut impl FnMut(&W)) -> bool {
        let is_queued = self.state == WaiterState::Queued;
        if is_queued {
            self.set(WaiterState::Called);
            wake(&self.waiter);
        }
        is_queued
    }
}

/// The state that the waiters share.
impl<W: LineWaiter, H: LineHolder, G: LineSignal, S> Line<W, H, G, S> {
    pub(super) fn shared(&self) -> Option<&S> {
        self.waiting.as_ref().map(|waiting| &waiting.shared)
    }

    pub(super) fn shared_mut(&mut self) -> Option<&mut S> {
        self.waiting.as_mut().map(|waiting| &mut waiting.shared)
    }

    /// Returns whether a waiter of this process has subscribed to the releases, whether the subscription is in effect or not.
    pub(super) fn subscribes(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.signal.is_some())
    }

    /// Returns the signal of the releases that concern this mode, if its subscription is in effect.
    pub(super) fn signal(&self, mode: Mode) -> Option<&G> {
        let signal = self.waiting.as_ref()?.signal.as_ref();
        signal.filter(|signal| signal.is_in_effect() && signal.serves(mode))
    }

    pub(super) fn set_signal(&mut self, signal: G) {
        if let Some(waiting) = &mut self.waiting {
            waiting.signal = Some(signal);
        }
    }

    /// Returns when the present outage began.
    pub(super) fn outage(&self) -> Option<Instant> {
        self.waiting.as_ref()?.outage
    }

    /// Records that a round, which began at `begun`, found no quorum. Returns when the outage began.
    pub(super) fn record_outage(&mut self, begun: Instant) -> Instant {
        match &mut self.waiting {
            Some(waiting) => *waiting.outage.get_or_insert(begun),
            None => begun,
        }
    }

    /// Ends the outage, because a quorum of nodes answers. Returns whether there was one. The broken connections of the outage
    /// may have ended the subscription, and releases may have passed unnoticed, so the next waiter subscribes again.
    pub(super) fn end_outage(&mut self) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        let was_outage = waiting.outage.take().is_some();
        if was_outage {
            waiting.signal = None;
        }
        was_outage
    }

    /// Ends the subscription and the outage if there are no waiters.
    pub(super) fn end_if_idle(&mut self) {
        if self.is_idle() {
            self.waiting = None;
        }
    }
}
