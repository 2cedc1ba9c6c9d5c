//! The table of locks in memory, and the operations on it. The rules are those of the scripts of a Redis server.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smol_str::SmolStr;

use super::shared_set::{Audience, SharedSet};
use super::subscribers::Subscribers;
use crate::clock::Moment;
use crate::error::{ForeignKind, Vote};
#[cfg(test)]
use crate::lock::LockSpec;
use crate::lock::{Dialect, Mark, Token};
use crate::node::{Action, Notify, Op, Reply, TURN};

#[derive(Default)]
pub(super) struct LockTable {
    pub(super) by_name: HashMap<SmolStr, StoredLock>,
    pub(super) subscribers: Subscribers,
    /// The fencing counters, by prefix.
    pub(super) counters: HashMap<String, i64>,
    /// The number of entries at which expired locks are removed. Without this removal, an expired lock that
    /// no caller requests again would stay for ever.
    sweep_at: usize,
}

/// The value of a lock. On a server, an exclusive lock and a shared lock have different types.
pub(super) enum StoredLock {
    Exclusive { token: Token, dialect: Dialect, end: Moment },
    Shared(SharedSet),
}

/// The part of a key that the token of an operation holds.
enum Own {
    /// The whole key, until this moment.
    Key(Moment),
    /// An entry of a shared lock, until this moment.
    Entry(Moment),
}

impl StoredLock {
    /// Returns whether the lock lives. Removes ended entries of a shared lock.
    fn settle(&mut self, now: Moment) -> bool {
        match self {
            Self::Exclusive { end, .. } => !now.has_reached(*end),
            Self::Shared(set) => set.settle(now),
        }
    }

    /// Returns whether the lock was acquired in another dialect. On a server, its key would have another type. There are
    /// no shared locks in the Redisson dialect.
    fn is_foreign(&self, wanted: Dialect) -> bool {
        match self {
            Self::Exclusive { dialect, .. } => *dialect != wanted,
            Self::Shared(_) => wanted != Dialect::Plain,
        }
    }

    /// Returns the time until the lock is removed.
    pub(super) fn time_to_live(&self, now: Moment) -> Duration {
        now.time_until(match self {
            Self::Exclusive { end, .. } => *end,
            Self::Shared(set) => set.end().unwrap_or_default(),
        })
    }

    /// Returns the number of living holders.
    pub(super) fn holders(&self, now: Moment) -> usize {
        match self {
            Self::Exclusive { end, .. } => usize::from(!now.has_reached(*end)),
            Self::Shared(set) => set.holders(now),
        }
    }
}

pub(super) const FOREIGN: Vote = Vote::Foreign { found: ForeignKind::WrongType };

impl LockTable {
    /// Executes an operation. Returns the subscribers to notify too.
    pub(super) fn execute(&mut self, op: &Op, now: Moment) -> (Reply, Vec<Notify>) {
        let reply = match op.action {
            Action::Acquire { lease, .. } if op.spec.mode().is_shared() => {
                self.share(op, now, lease)
            }
            Action::Acquire { lease, fenced, mark, .. } => {
                self.acquire(op, now, lease, fenced, mark)
            }
            Action::Extend { lease } => self.extend(op, now, lease).into(),
            Action::Confirm { number } => self.confirm(op, now, number).into(),
            Action::Release { min_hold } => return self.release(op, now, min_hold),
            Action::Downgrade => return self.downgrade(op, now),
            Action::Withdraw { mark } => return self.withdraw(op, now, mark),
        };
        (reply, Vec::new())
    }

    /// Returns the lock of this name if it lives.
    fn living(&mut self, name: &str, now: Moment) -> Option<&mut StoredLock> {
        let is_living = self.by_name.get_mut(name).is_some_and(|lock| lock.settle(now));
        if !is_living {
            self.by_name.remove(name);
        }
        self.by_name.get_mut(name)
    }

    /// Returns the part of a key that the token of the operation holds, or the vote if it holds nothing. A reader may hold
    /// the whole key: a downgrade has not reached this node.
    fn own(&mut self, op: &Op, name: &str, now: Moment) -> Result<Own, Vote> {
        match self.living(name, now) {
            Some(lock) if lock.is_foreign(op.spec.dialect()) => Err(FOREIGN),
            Some(StoredLock::Exclusive { token, end, .. }) if *token == op.token => {
                Ok(Own::Key(*end))
            }
            Some(StoredLock::Shared(set)) if op.spec.mode().is_shared() => {
                set.end_of(op.token).map(Own::Entry).ok_or(Vote::NotHeld)
            }
            Some(_) | None => Err(Vote::NotHeld),
        }
    }

    /// Sets the end of the part of a key that the token of the operation holds.
    fn set_end(&mut self, op: &Op, name: &str, own_end: Moment) {
        match self.by_name.get_mut(name) {
            Some(StoredLock::Exclusive { end, .. }) => *end = own_end,
            Some(StoredLock::Shared(set)) => set.set(op.token, own_end),
            None => {}
        }
    }

    /// Acquires an exclusive lock. Sets all keys or none. Marks of waiting writers refuse nobody. If shared holders are the
    /// only obstacle, sets the mark at the first of their keys, so that a caller of several keys keeps nobody out of a key
    /// that it cannot use. Keys that it has waited for keep their marks.
    fn acquire(
        &mut self,
        op: &Op,
        now: Moment,
        lease: Duration,
        fenced: bool,
        mark: Option<Mark>,
    ) -> Reply {
        let (mut refused, mut marked, mut until) = (None, Vec::new(), now.plus(lease));
        for (index, name) in op.spec.names().enumerate() {
            let vote = match self.living(name, now) {
                None => continue,
                Some(lock) if lock.is_foreign(op.spec.dialect()) => FOREIGN,
                // An acquisition that comes again never shortens the lease.
                Some(StoredLock::Exclusive { token, end, .. }) if *token == op.token => {
                    until = until.max(*end);
                    continue;
                }
                Some(StoredLock::Exclusive { end, .. }) => {
                    Vote::Held { remaining: Some(now.time_until(*end)) }
                }
                Some(StoredLock::Shared(set)) => {
                    match set.obstacle_to_writers() {
                        None if mark.is_some_and(|mark| set.has_mark(mark)) => marked.push(name),
                        Some(end) if refused.is_none() => {
                            refused = Some((index, end));
                            marked.push(name);
                        }
                        None | Some(_) => {}
                    }
                    continue;
                }
            };
            return Reply::new(vote).with_refused_key(index);
        }
        if let Some((index, end)) = refused {
            for name in marked {
                if let (Some(StoredLock::Shared(set)), Some(mark)) =
                    (self.by_name.get_mut(name), mark)
                {
                    set.set_mark(mark, now.plus(Mark::LIFE_TIME));
                }
            }
            let refused = Reply::new(Vote::Held { remaining: Some(now.time_until(end)) });
            return refused.with_refused_key(index).with_marks();
        }
        self.sweep(now);
        let (token, dialect, end) = (op.token, op.spec.dialect(), until);
        for key in op.spec.keys() {
            let lock = StoredLock::Exclusive { token, dialect, end };
            self.by_name.insert(key.stored_name().clone(), lock);
        }
        let granted = Reply::new(Vote::Granted);
        let prefix = op.spec.key().prefix();
        if fenced { granted.with_number(self.next_number(prefix)) } else { granted }
    }

    /// Acquires a shared lock.
    fn share(&mut self, op: &Op, now: Moment, lease: Duration) -> Reply {
        let name = op.spec.name();
        let vote = match self.living(name, now) {
            Some(lock) if lock.is_foreign(op.spec.dialect()) => FOREIGN,
            Some(StoredLock::Exclusive { end, .. }) => {
                Vote::Held { remaining: Some(now.time_until(*end)) }
            }
            living => {
                let is_new = living.is_none();
                if is_new {
                    self.sweep(now);
                }
                let new = || StoredLock::Shared(SharedSet::default());
                let name = op.spec.key().stored_name().clone();
                let lock = self.by_name.entry(name).or_insert_with(new);
                let StoredLock::Shared(set) = lock else { return FOREIGN.into() };
                match set.enter(op.token, op.spec.mode(), now.plus(lease)) {
                    Ok(()) => Vote::Granted,
                    Err(end) => Vote::Held { remaining: Some(now.time_until(end)) },
                }
            }
        };
        vote.into()
    }

    fn extend(&mut self, op: &Op, now: Moment, lease: Duration) -> Vote {
        let mut ends = Vec::new();
        for name in op.spec.names() {
            match self.own(op, name, now) {
                Ok(Own::Key(end) | Own::Entry(end)) => ends.push(end.max(now.plus(lease))),
                Err(vote) => return vote,
            }
        }
        for (name, end) in op.spec.names().zip(ends) {
            self.set_end(op, name, end);
        }
        Vote::Granted
    }

    fn confirm(&mut self, op: &Op, now: Moment, number: i64) -> Vote {
        for name in op.spec.names() {
            if let Err(vote) = self.own(op, name, now) {
                return vote;
            }
        }
        let count = self.counters.entry(op.spec.key().prefix().to_owned()).or_default();
        *count = number.max(*count);
        Vote::Granted
    }

    /// Releases the keys that the token of the operation holds, even if it has lost others.
    fn release(
        &mut self,
        op: &Op,
        now: Moment,
        min_hold: Option<Duration>,
    ) -> (Reply, Vec<Notify>) {
        let (mut vote, mut most, mut notified) = (Vote::Granted, 0, Vec::new());
        for name in op.spec.names() {
            let audience = match (self.own(op, name, now), min_hold) {
                (Err(reason), _) => {
                    if vote == Vote::Granted {
                        vote = reason;
                    }
                    None
                }
                (Ok(Own::Key(end) | Own::Entry(end)), Some(time)) => {
                    self.set_end(op, name, end.min(now.plus(time)));
                    Some(Audience::All)
                }
                (Ok(Own::Key(_)), None) => {
                    self.free(name, now);
                    Some(Audience::All)
                }
                (Ok(Own::Entry(end)), None) => self.leave(op, name, end),
            };
            if let Some(audience) = audience {
                let subscribers = self.subscribers.of(name, op.spec.dialect(), audience);
                most = most.max(subscribers.len());
                notified.extend(subscribers);
            }
        }
        let is_released = vote == Vote::Granted;
        let reply = Reply::new(vote);
        (if is_released { reply.with_subscribers(most) } else { reply }, notified)
    }

    /// Removes an exclusive lock. Gives the readers a turn if one of them asks for it.
    fn free(&mut self, name: &str, now: Moment) {
        self.by_name.remove(name);
        if self.subscribers.wants_turn(name) {
            let turn = SharedSet::of_turn(now.plus(TURN));
            self.by_name.insert(name.into(), StoredLock::Shared(turn));
        }
    }

    /// Removes the entry of a shared holder.
    fn leave(&mut self, op: &Op, name: &str, end: Moment) -> Option<Audience> {
        let Some(StoredLock::Shared(set)) = self.by_name.get_mut(name) else { return None };
        let audience = set.leave(op.token, end);
        if set.is_empty() {
            self.by_name.remove(name);
        }
        audience
    }

    /// Turns an exclusive lock into that of a reader.
    fn downgrade(&mut self, op: &Op, now: Moment) -> (Reply, Vec<Notify>) {
        let name = op.spec.name();
        match self.own(op, name, now) {
            Ok(Own::Key(end)) => {
                let reader = StoredLock::Shared(SharedSet::of_reader(op.token, end));
                self.by_name.insert(name.into(), reader);
                let readers = self.subscribers.of(name, op.spec.dialect(), Audience::Readers);
                (Vote::Granted.into(), readers)
            }
            Ok(Own::Entry(_)) => (Vote::Granted.into(), Vec::new()),
            Err(vote) => (vote.into(), Vec::new()),
        }
    }

    fn withdraw(&mut self, op: &Op, now: Moment, mark: Mark) -> (Reply, Vec<Notify>) {
        let mut notified = Vec::new();
        for name in op.spec.names() {
            let Some(StoredLock::Shared(set)) = self.living(name, now) else { continue };
            if set.remove_mark(mark) {
                if set.is_empty() {
                    self.by_name.remove(name);
                }
                let readers = self.subscribers.of(name, op.spec.dialect(), Audience::Readers);
                notified.extend(readers);
            }
        }
        (Vote::Granted.into(), notified)
    }

    /// Returns the next fencing number. It is never below the time in microseconds since 1970, so that
    /// numbers grow even when this process restarts.
    fn next_number(&mut self, prefix: &str) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let floor = i64::try_from(now.as_micros()).unwrap_or_default();
        let count = self.counters.entry(prefix.to_owned()).or_default();
        *count = floor.max(*count) + 1;
        *count
    }

    /// Removes locks that have ended, from time to time.
    fn sweep(&mut self, now: Moment) {
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
