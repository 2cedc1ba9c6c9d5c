//! The table of locks in memory, and the operations on it.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::shared_lock::{SharedEntry, SharedLock};
use super::subscribers::{Audience, Subscribers};
use crate::clock::Moment;
use crate::error::{ForeignKind, Vote};
#[cfg(test)]
use crate::lock::LockSpec;
use crate::lock::{Dialect, LockName, Token, WriterMark};
use crate::node::{Action, Notify, Op, Reply, TURN};

#[derive(Default)]
pub(super) struct LockTable {
    pub(super) by_name: HashMap<LockName, StoredLock>,
    pub(super) subscribers: Subscribers,
    /// The fencing counters, by prefix.
    pub(super) counters: HashMap<String, i64>,
    /// The number of entries at which expired locks are removed. Without this removal, an expired lock that
    /// no caller requests again would stay for ever.
    sweep_at: usize,
}

/// The value of a lock. On a server, an exclusive lock and a shared lock have different types.
pub(super) enum StoredLock {
    Exclusive { token: Token, dialect: Dialect, deadline: Moment },
    Shared(SharedLock),
}

impl StoredLock {
    /// Returns whether the lock lives. Removes ended entries of a shared lock.
    fn settle(&mut self, now: Moment) -> bool {
        match self {
            Self::Exclusive { deadline, .. } => !now.has_reached(*deadline),
            Self::Shared(shared) => shared.settle(now),
        }
    }

    /// Returns whether the lock was acquired in another dialect. On a server, its key would have another type. There are
    /// no shared locks in the Redisson dialect.
    pub(super) fn is_foreign(&self, wanted: Dialect) -> bool {
        match self {
            Self::Exclusive { dialect, .. } => *dialect != wanted,
            Self::Shared(_) => wanted != Dialect::Plain,
        }
    }

    /// Returns the time until the lock is removed.
    pub(super) fn time_to_live(&self, now: Moment) -> Duration {
        match self {
            Self::Exclusive { deadline, .. } => now.time_until(*deadline),
            Self::Shared(shared) => shared.longest(now, |_| true).unwrap_or_default(),
        }
    }

    /// Returns the number of living holders.
    pub(super) fn holders(&self, now: Moment) -> usize {
        match self {
            Self::Exclusive { deadline, .. } => usize::from(!now.has_reached(*deadline)),
            Self::Shared(shared) => shared.holders(now),
        }
    }
}

pub(super) const FOREIGN: Vote = Vote::Foreign { found: ForeignKind::WrongType };

fn held(remaining: Duration) -> Reply {
    Vote::Held { remaining: Some(remaining) }.into()
}

impl LockTable {
    /// Executes an operation. Returns the subscribers to notify too.
    pub(super) fn execute(&mut self, op: &Op, now: Moment) -> (Reply, Vec<Notify>) {
        if op.spec.has_several_keys() {
            return self.execute_on_all(op, now);
        }
        if self.living(op.spec.name(), now).is_some_and(|lock| lock.is_foreign(op.spec.dialect())) {
            return (FOREIGN.into(), Vec::new());
        }
        let (reply, audience) = match op.action {
            Action::Acquire { lease, .. } if op.spec.mode().is_shared() => {
                (self.enter(op, now, lease), None)
            }
            Action::Acquire { lease, fenced, mark, .. } => {
                (self.acquire(op, now, lease, fenced, mark), None)
            }
            Action::Extend { lease } => (self.extend(op, now, lease), None),
            Action::Confirm { number } => (self.confirm(op, number), None),
            Action::Release { min_hold: None } => self.release(op, now),
            Action::Release { min_hold: Some(time) } => self.shorten(op, now, time),
            Action::Downgrade => self.downgrade(op),
            Action::Withdraw { mark } => self.withdraw(op, mark),
        };
        let Some(audience) = audience else { return (reply, Vec::new()) };
        let notified = self.subscribers.of(op.spec.name(), op.spec.dialect(), audience);
        (reply.with_subscribers(notified.len()), notified)
    }

    /// Returns the lock of this name if it lives.
    pub(super) fn living(&mut self, name: &LockName, now: Moment) -> Option<&mut StoredLock> {
        let is_living = self.by_name.get_mut(name).is_some_and(|lock| lock.settle(now));
        if !is_living {
            self.by_name.remove(name);
        }
        self.by_name.get_mut(name)
    }

    /// Acquires an exclusive lock. Marks of waiting writers do not refuse it.
    fn acquire(
        &mut self,
        op: &Op,
        now: Moment,
        lease: Duration,
        fenced: bool,
        mark: Option<WriterMark>,
    ) -> Reply {
        match self.by_name.get_mut(op.spec.name()) {
            Some(StoredLock::Exclusive { deadline, .. }) => return held(now.time_until(*deadline)),
            Some(StoredLock::Shared(shared)) => {
                if let Some(remaining) = shared.obstacle_to_writers(now) {
                    if let Some(mark) = mark {
                        let end = now.plus(WriterMark::LIFE_TIME);
                        shared.set(SharedEntry::Mark(mark), end);
                    }
                    return held(remaining).with_shared_holders();
                }
            }
            None => self.sweep(now),
        }
        self.set_exclusive(op, now.plus(lease));
        let granted = Reply::new(Vote::Granted);
        if fenced {
            granted.with_number(self.next_number(op.spec.name().prefix()))
        } else {
            granted
        }
    }

    fn set_exclusive(&mut self, op: &Op, deadline: Moment) {
        let lock = StoredLock::Exclusive { token: op.token, dialect: op.spec.dialect(), deadline };
        self.by_name.insert(op.spec.name().clone(), lock);
    }

    /// Acquires a shared lock.
    fn enter(&mut self, op: &Op, now: Moment, lease: Duration) -> Reply {
        if !self.by_name.contains_key(op.spec.name()) {
            self.sweep(now);
        }
        let lock = self.by_name.entry(op.spec.name().clone());
        match lock.or_insert_with(|| StoredLock::Shared(SharedLock::default())) {
            StoredLock::Exclusive { deadline, .. } => held(now.time_until(*deadline)),
            StoredLock::Shared(shared) => {
                match shared.enter(now, op.token, op.spec.mode(), lease) {
                    Ok(()) => Vote::Granted.into(),
                    Err(remaining) => held(remaining),
                }
            }
        }
    }

    fn extend(&mut self, op: &Op, now: Moment, lease: Duration) -> Reply {
        let end = now.plus(lease);
        match self.by_name.get_mut(op.spec.name()) {
            Some(StoredLock::Exclusive { token, deadline, .. }) if *token == op.token => {
                if !deadline.has_reached(end) {
                    *deadline = end;
                }
                Vote::Granted.into()
            }
            Some(StoredLock::Shared(shared)) => match shared.own(op.token) {
                Some((entry, old_end)) => {
                    shared.set(entry, if old_end.has_reached(end) { old_end } else { end });
                    Vote::Granted.into()
                }
                None => Vote::NotHeld.into(),
            },
            Some(StoredLock::Exclusive { .. }) | None => Vote::NotHeld.into(),
        }
    }

    fn confirm(&mut self, op: &Op, number: i64) -> Reply {
        match self.by_name.get(op.spec.name()) {
            Some(StoredLock::Exclusive { token, .. }) if *token == op.token => {
                let prefix = op.spec.name().prefix().to_owned();
                let count = self.counters.entry(prefix).or_default();
                *count = number.max(*count);
                Vote::Granted.into()
            }
            _ => Vote::NotHeld.into(),
        }
    }

    fn release(&mut self, op: &Op, now: Moment) -> (Reply, Option<Audience>) {
        let name = op.spec.name();
        let audience = match self.by_name.get_mut(name) {
            Some(StoredLock::Exclusive { token, .. }) if *token == op.token => {
                self.free(name, now);
                Some(Audience::All)
            }
            Some(StoredLock::Shared(shared)) => {
                let Some((own, end)) = shared.own(op.token) else {
                    return (Vote::NotHeld.into(), None);
                };
                shared.remove(own);
                let last = shared.longest(now, SharedEntry::is_holder);
                let audience = match (last, shared.has_mark()) {
                    // A waiting writer sleeps until the last holder ends. It keeps all others out.
                    (last, true) => {
                        let is_later = last.unwrap_or_default() < now.time_until(end);
                        is_later.then_some(Audience::Writers)
                    }
                    (None, false) => Some(Audience::All),
                    (Some(_), false) => shared.has_permits().then_some(Audience::Readers),
                };
                self.remove_if_ended(name, now);
                audience
            }
            Some(StoredLock::Exclusive { .. }) | None => return (Vote::NotHeld.into(), None),
        };
        (Vote::Granted.into(), audience)
    }

    /// Removes an exclusive lock. Gives the readers a turn if one of them asks for it.
    pub(super) fn free(&mut self, name: &LockName, now: Moment) {
        self.by_name.remove(name);
        if self.subscribers.wants_turn(name) {
            let mut turn = SharedLock::default();
            turn.set(SharedEntry::Turn, now.plus(TURN));
            self.by_name.insert(name.clone(), StoredLock::Shared(turn));
        }
    }

    fn shorten(&mut self, op: &Op, now: Moment, time: Duration) -> (Reply, Option<Audience>) {
        let end = now.plus(time);
        match self.by_name.get_mut(op.spec.name()) {
            Some(StoredLock::Exclusive { token, deadline, .. }) if *token == op.token => {
                if deadline.has_reached(end) {
                    *deadline = end;
                }
            }
            Some(StoredLock::Shared(shared)) => match shared.own(op.token) {
                Some((own, old_end)) if old_end.has_reached(end) => shared.set(own, end),
                Some(_) => {}
                None => return (Vote::NotHeld.into(), None),
            },
            Some(StoredLock::Exclusive { .. }) | None => return (Vote::NotHeld.into(), None),
        }
        (Vote::Granted.into(), Some(Audience::All))
    }

    /// Shares an exclusive lock.
    fn downgrade(&mut self, op: &Op) -> (Reply, Option<Audience>) {
        match self.by_name.get_mut(op.spec.name()) {
            Some(StoredLock::Exclusive { token, deadline, .. }) if *token == op.token => {
                let mut shared = SharedLock::default();
                shared.set(SharedEntry::of_holder(op.token, op.spec.mode()), *deadline);
                self.by_name.insert(op.spec.name().clone(), StoredLock::Shared(shared));
                (Vote::Granted.into(), Some(Audience::All))
            }
            Some(StoredLock::Shared(shared)) if shared.own(op.token).is_some() => {
                (Vote::Granted.into(), None)
            }
            Some(_) | None => (Vote::NotHeld.into(), None),
        }
    }

    fn withdraw(&mut self, op: &Op, mark: WriterMark) -> (Reply, Option<Audience>) {
        let mut audience = None;
        if let Some(StoredLock::Shared(shared)) = self.by_name.get_mut(op.spec.name()) {
            shared.remove(SharedEntry::Mark(mark));
            audience = (!shared.has_mark()).then_some(Audience::Readers);
            if shared.is_empty() {
                self.by_name.remove(op.spec.name());
            }
        }
        (Vote::Granted.into(), audience)
    }

    fn remove_if_ended(&mut self, name: &LockName, now: Moment) {
        if self.by_name.get_mut(name).is_some_and(|lock| !lock.settle(now)) {
            self.by_name.remove(name);
        }
    }

    /// Returns the next fencing number. It is never below the time in microseconds since 1970, so that
    /// numbers grow even when this process restarts.
    pub(super) fn next_number(&mut self, prefix: &str) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let floor = i64::try_from(now.as_micros()).unwrap_or_default();
        let count = self.counters.entry(prefix.to_owned()).or_default();
        *count = floor.max(*count) + 1;
        *count
    }

    /// Removes locks that have ended, from time to time.
    pub(super) fn sweep(&mut self, now: Moment) {
        const SMALLEST: usize = 64;
        if self.by_name.len() >= self.sweep_at.max(SMALLEST) {
            self.by_name.retain(|_, lock| lock.settle(now));
            self.sweep_at = self.by_name.len() * 2;
        }
    }
}

#[cfg(test)]
impl LockTable {
    /// Returns the subscribers that a release of the lock would notify.
    pub(super) fn subscribers_of(&self, spec: &LockSpec) -> Vec<Notify> {
        self.subscribers.of(spec.name(), spec.dialect(), Audience::All)
    }
}
