//! The value of a shared lock in memory: the entries of the sorted set that a server has.

use std::collections::{BTreeSet, HashMap};

use crate::clock::Moment;
use crate::lock::{Mark, Mode, Token};

/// The holders of a shared lock, the marks of waiting writers, and the turn of the readers. Each has its own end.
#[derive(Debug, Default)]
pub(super) struct SharedSet {
    ends: HashMap<Token, Moment>,
    /// The same holders in the order of their ends.
    by_end: BTreeSet<(Moment, Token)>,
    /// Whether the holders have permits. Readers and holders of permits exclude each other.
    has_permits: bool,
    marks: HashMap<Mark, Moment>,
    turn: Option<Moment>,
}

impl SharedSet {
    /// Returns the lock of one reader.
    pub(super) fn of_reader(token: Token, end: Moment) -> Self {
        let mut set = Self::default();
        set.set(token, end);
        set
    }

    /// Returns a lock without holders in which only readers enter.
    pub(super) fn of_turn(end: Moment) -> Self {
        Self { turn: Some(end), ..Self::default() }
    }

    /// Removes the entries that have ended. Returns whether any is left.
    pub(super) fn settle(&mut self, now: Moment) -> bool {
        while let Some((end, token)) = self.by_end.first().copied()
            && now.has_reached(end)
        {
            self.by_end.pop_first();
            self.ends.remove(&token);
        }
        self.marks.retain(|_, end| !now.has_reached(*end));
        self.turn = self.turn.filter(|end| !now.has_reached(*end));
        !self.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.marks.is_empty() && self.turn.is_none()
    }

    /// Returns the end of the last entry.
    pub(super) fn end(&self) -> Option<Moment> {
        self.marks.values().copied().max().max(self.obstacle_to_writers())
    }

    /// Returns the end of the last holder, or of the turn of the readers.
    pub(super) fn obstacle_to_writers(&self) -> Option<Moment> {
        self.last_holder().max(self.turn)
    }

    fn last_holder(&self) -> Option<Moment> {
        self.by_end.last().map(|(end, _)| *end)
    }

    /// Returns the number of holders that have not ended.
    pub(super) fn holders(&self, now: Moment) -> usize {
        self.by_end.iter().rev().take_while(|(end, _)| !now.has_reached(*end)).count()
    }

    /// Returns the end of a holder.
    pub(super) fn end_of(&self, token: Token) -> Option<Moment> {
        self.ends.get(&token).copied()
    }

    /// Sets the end of a holder.
    pub(super) fn set(&mut self, token: Token, end: Moment) {
        self.remove(token);
        self.ends.insert(token, end);
        self.by_end.insert((end, token));
    }

    fn remove(&mut self, token: Token) {
        if let Some(end) = self.ends.remove(&token) {
            self.by_end.remove(&(end, token));
        }
    }

    pub(super) fn has_mark(&self, mark: Mark) -> bool {
        self.marks.contains_key(&mark)
    }

    pub(super) fn set_mark(&mut self, mark: Mark, end: Moment) {
        self.marks.insert(mark, end);
    }

    /// Removes a mark. Returns whether it was the last one.
    pub(super) fn remove_mark(&mut self, mark: Mark) -> bool {
        self.marks.remove(&mark).is_some() && self.marks.is_empty()
    }

    /// Adds a holder, or prolongs its entry. Returns the end for which it has to wait if others keep it out.
    pub(super) fn enter(&mut self, token: Token, mode: Mode, end: Moment) -> Result<(), Moment> {
        if let Some(old_end) = self.end_of(token) {
            self.set(token, old_end.max(end));
            return Ok(());
        }
        if let (Some(mark), None) = (self.marks.values().max(), self.turn) {
            return Err(*mark);
        }
        let permits = match mode {
            Mode::Shared { permits } => permits,
            Mode::Exclusive => None,
        };
        if let Some(last) = self.last_holder()
            && self.has_permits != permits.is_some()
        {
            return Err(last);
        }
        if let Some(permits) = permits {
            // The permit of this holder ends first that leaves fewer holders than permits.
            let permits = usize::try_from(permits.get()).unwrap_or(usize::MAX);
            if let Some((taken, _)) = self.by_end.iter().rev().nth(permits - 1) {
                return Err(*taken);
            }
        }
        self.has_permits = permits.is_some();
        self.set(token, end);
        Ok(())
    }

    /// Removes a holder whose entry would have ended at `end`. Returns the subscribers that this concerns.
    pub(super) fn leave(&mut self, token: Token, end: Moment) -> Option<Audience> {
        self.remove(token);
        let last = self.last_holder();
        if !self.marks.is_empty() {
            // A waiting writer sleeps until the last holder ends. It keeps all others out.
            return (last < Some(end)).then_some(Audience::Writers);
        }
        match last {
            None => Some(Audience::All),
            Some(_) => self.has_permits.then_some(Audience::Readers),
        }
    }
}

/// The subscribers that a release concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    All,
    /// The subscribers that wait for a shared lock.
    Readers,
    /// The subscribers that wait for an exclusive lock.
    Writers,
}
