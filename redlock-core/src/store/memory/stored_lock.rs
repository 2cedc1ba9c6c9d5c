//! The lock in memory, with its holders: the value that a server stores at the key.

use std::collections::{BTreeSet, HashMap};

use super::subscribers::{ANY_MODE, Topic};
use crate::clock::Moment;
use crate::lock::{Dialect, Mark, Mode, OwnerLabel, Token};

/// The holders of a lock, the marks of waiting writers, and the turn of the readers. Each has its own end. An exclusive
/// lock has one holder, and nothing else.
#[derive(Debug, Default)]
pub(super) struct StoredLock {
    pub(super) kind: LockKind,
    ends: HashMap<Token, Moment>,
    /// The same holders in the order of their ends.
    by_end: BTreeSet<(Moment, Token)>,
    pub(super) marks: HashMap<Mark, Moment>,
    pub(super) turn: Option<Moment>,
}

/// The kind of the holders. Holders of different kinds exclude each other.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockKind {
    Exclusive(Dialect),
    #[default]
    Readers,
    Permits,
}

impl StoredLock {
    pub(super) fn exclusive(token: Token, dialect: Dialect, end: Moment) -> Self {
        let mut lock = Self { kind: LockKind::Exclusive(dialect), ..Self::default() };
        lock.set(token, end);
        lock
    }

    /// Removes the entries that have ended. Returns whether any is left. Without entries, the lock has no kind any more.
    pub(super) fn settle(&mut self, now: Moment) -> bool {
        while let Some((end, token)) = self.by_end.first().copied()
            && now.has_reached(end)
        {
            self.remove(token);
        }
        self.marks.retain(|_, end| !now.has_reached(*end));
        self.turn = self.turn.filter(|end| !now.has_reached(*end));
        let is_living = self.end().is_some();
        if !is_living {
            *self = Self::default();
        }
        is_living
    }

    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self.kind, LockKind::Exclusive(_))
    }

    /// Returns whether the lock was acquired in another dialect. On a server, its key would have another type. There are
    /// no shared locks in the Redisson dialect.
    pub(super) fn is_foreign(&self, wanted: Dialect) -> bool {
        let dialect = match self.kind {
            LockKind::Exclusive(dialect) => dialect,
            LockKind::Readers | LockKind::Permits => Dialect::Plain,
        };
        dialect != wanted
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

    /// Returns the holder of an exclusive lock.
    pub(super) fn only_holder(&self) -> Option<Token> {
        self.ends.keys().copied().find(|_| self.is_exclusive())
    }

    /// Returns the label of the holder that ends last.
    pub(super) fn last_label(&self) -> Option<OwnerLabel> {
        self.by_end.last()?.1.label()
    }

    /// Returns the holders with their ends; the one that ends last comes first.
    pub(super) fn holders_by_end(&self) -> impl Iterator<Item = (Moment, Token)> {
        self.by_end.iter().rev().copied()
    }

    /// Returns the number of holders that have not ended.
    pub(super) fn holders(&self, now: Moment) -> usize {
        self.by_end.iter().rev().take_while(|(end, _)| !now.has_reached(*end)).count()
    }

    /// Returns the end of a holder.
    pub(super) fn end_of(&self, token: Token) -> Option<Moment> {
        self.ends.get(&token).copied()
    }

    /// Adds a holder, or changes its end.
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

    /// Adds a shared holder, or prolongs its entry. Returns the end for which it has to wait if others keep it out.
    pub(super) fn enter(&mut self, token: Token, mode: Mode, end: Moment) -> Result<(), Moment> {
        if let Some(old_end) = self.end_of(token)
            && !self.is_exclusive()
        {
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
        let kind = if permits.is_some() { LockKind::Permits } else { LockKind::Readers };
        if let Some(last) = self.last_holder()
            && self.kind != kind
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
        self.kind = kind;
        self.set(token, end);
        Ok(())
    }

    /// Removes a holder. Returns the topics of the subscribers that this concerns.
    pub(super) fn leave(&mut self, token: Token) -> &'static [Topic] {
        let end = self.end_of(token);
        self.remove(token);
        let last = self.last_holder();
        if !self.marks.is_empty() {
            // A waiting writer sleeps until the last holder ends. It keeps all others out.
            return if last < end { &[Topic::Exclusive] } else { &[] };
        }
        match last {
            None => ANY_MODE,
            Some(_) if self.kind == LockKind::Permits => &[Topic::Shared],
            Some(_) => &[],
        }
    }
}
