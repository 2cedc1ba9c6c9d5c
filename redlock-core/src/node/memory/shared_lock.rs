//! The value of a shared lock in memory: the entries of the hash that a server has.

use std::time::Duration;

use crate::clock::Moment;
use crate::lock::{Mode, Token, WriterMark};

/// A shared lock: its holders, the marks of waiting writers, and the turn of the readers. Each entry has its own end.
#[derive(Debug, Default)]
pub(super) struct SharedLock {
    entries: Vec<(SharedEntry, Moment)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedEntry {
    Reader(Token),
    Permit(Token),
    Mark(WriterMark),
    Turn,
}

impl SharedEntry {
    /// Returns the entry of a holder.
    pub(super) fn of_holder(token: Token, mode: Mode) -> Self {
        match mode {
            Mode::Shared { permits: Some(_) } => Self::Permit(token),
            Mode::Shared { permits: None } | Mode::Exclusive => Self::Reader(token),
        }
    }

    /// Returns whether the entry is that of a holder.
    pub(super) fn is_holder(self) -> bool {
        self.token().is_some()
    }

    fn token(self) -> Option<Token> {
        match self {
            Self::Reader(token) | Self::Permit(token) => Some(token),
            Self::Mark(_) | Self::Turn => None,
        }
    }
}

impl SharedLock {
    /// Removes the entries that have ended. Returns whether any is left.
    pub(super) fn settle(&mut self, now: Moment) -> bool {
        self.entries.retain(|(_, end)| !now.has_reached(*end));
        !self.entries.is_empty()
    }

    /// Sets the end of an entry.
    pub(super) fn set(&mut self, entry: SharedEntry, end: Moment) {
        self.remove(entry);
        self.entries.push((entry, end));
    }

    pub(super) fn remove(&mut self, entry: SharedEntry) {
        self.entries.retain(|(other, _)| *other != entry);
    }

    /// Returns the time until the last entry of these kinds ends; `None` if none is left.
    pub(super) fn longest(
        &self,
        now: Moment,
        is_wanted: impl Fn(SharedEntry) -> bool,
    ) -> Option<Duration> {
        let wanted = self.entries.iter().filter(|(entry, _)| is_wanted(*entry));
        wanted.map(|(_, end)| now.time_until(*end)).max()
    }

    /// Returns the time until the last holder ends, or the turn of the readers.
    pub(super) fn obstacle_to_writers(&self, now: Moment) -> Option<Duration> {
        self.longest(now, |entry| !matches!(entry, SharedEntry::Mark(_)))
    }

    pub(super) fn has_mark(&self) -> bool {
        self.entries.iter().any(|(entry, _)| matches!(entry, SharedEntry::Mark(_)))
    }

    /// Returns the number of living holders.
    pub(super) fn holders(&self, now: Moment) -> usize {
        let living = self.entries.iter().filter(|(_, end)| !now.has_reached(*end));
        living.filter(|(entry, _)| entry.is_holder()).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has_permits(&self) -> bool {
        self.entries.iter().any(|(entry, _)| matches!(entry, SharedEntry::Permit(_)))
    }

    /// Returns the entry of a token, and its end.
    pub(super) fn own(&self, token: Token) -> Option<(SharedEntry, Moment)> {
        self.entries.iter().find(|(entry, _)| entry.token() == Some(token)).copied()
    }

    /// Adds a holder, or prolongs its entry. Returns the time to wait if others keep it out.
    pub(super) fn enter(
        &mut self,
        now: Moment,
        token: Token,
        mode: Mode,
        lease: Duration,
    ) -> Result<(), Duration> {
        let end = now.plus(lease);
        if let Some((entry, old_end)) = self.own(token) {
            self.set(entry, if old_end.has_reached(end) { old_end } else { end });
            return Ok(());
        }
        let mark = self.longest(now, |entry| matches!(entry, SharedEntry::Mark(_)));
        let turn = self.longest(now, |entry| entry == SharedEntry::Turn);
        if let (Some(mark), None) = (mark, turn) {
            return Err(mark);
        }
        let own = SharedEntry::of_holder(token, mode);
        // Readers and holders of permits exclude each other.
        let kind = |entry: SharedEntry| std::mem::discriminant(&entry);
        let is_other = |entry: SharedEntry| entry.is_holder() && kind(entry) != kind(own);
        if let Some(others) = self.longest(now, is_other) {
            return Err(others);
        }
        if let Mode::Shared { permits: Some(permits) } = mode {
            let permits = usize::try_from(permits.get()).unwrap_or(usize::MAX);
            let same = self.entries.iter().filter(|(entry, _)| kind(*entry) == kind(own));
            let mut rests: Vec<_> = same.map(|(_, end)| now.time_until(*end)).collect();
            if rests.len() >= permits {
                rests.sort_unstable();
                return Err(rests[rests.len() - permits]);
            }
        }
        self.set(own, end);
        Ok(())
    }
}
