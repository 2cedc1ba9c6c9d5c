//! The table of locks in memory, and the operations on it. The rules are those of the scripts of a Redis server.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smol_str::SmolStr;

use super::queue::MemoryQueues;
use super::stored_lock::{LockKind, StoredLock};
use super::subscribers::{ANY_MODE, Subscribers, Topic};
use crate::clock::Moment;
use crate::error::{ForeignKind, Vote};
use crate::key::LockKey;
use crate::lock::{HolderId, LockSpec, Mark, Token};
use crate::node::{
    Action, Found, FoundHolder, MOST_HOLDERS, Notify, Op, QueueOp, QueueReply, Removal, Reply, TURN,
};

#[derive(Default)]
pub(super) struct LockTable {
    pub(super) by_name: HashMap<SmolStr, StoredLock>,
    pub(super) queues: MemoryQueues,
    pub(super) subscribers: Subscribers,
    /// The fencing counters, by prefix.
    pub(super) counters: HashMap<String, i64>,
    /// The number of entries at which those are removed whose lock is free. Without this removal, the entry of a lock that
    /// no caller requests again would stay for ever.
    sweep_at: usize,
}

pub(super) const FOREIGN: Vote = Vote::Foreign { found: ForeignKind::WrongType };

/// The subscribers to notify, or the vote of a node that has not executed the operation.
type Executed = Result<Vec<Notify>, Vote>;

impl LockTable {
    /// Executes an operation. Also returns the subscribers to notify.
    pub(super) fn execute(&mut self, op: &Op, now: Moment) -> (Reply, Vec<Notify>) {
        self.sweep(now);
        let executed = match op.action {
            Action::Acquire { lease, .. } if op.spec.mode().is_shared() => {
                self.share(op, now, lease)
            }
            Action::Acquire { lease, fenced, ask, .. } => {
                return (self.acquire(op, now, lease, fenced, ask.mark), Vec::new());
            }
            Action::Extend { lease } => self.extend(op, now, lease),
            Action::Confirm { number } => self.confirm(op, now, number),
            Action::Release { min_hold } => return self.release(op, now, min_hold),
            Action::Downgrade => self.downgrade(op, now),
            Action::Withdraw { mark } => Ok(self.withdraw(op, now, mark)),
        };
        match executed {
            Ok(notified) => (Vote::Agreed.into(), notified),
            Err(vote) => (vote.into(), Vec::new()),
        }
    }

    /// Executes an operation on a fair queue. Also returns the subscribers to notify.
    pub(super) fn execute_queue(&mut self, op: &QueueOp, now: Moment) -> (QueueReply, Vec<Notify>) {
        let (reply, processes) = self.queues.execute(op, now);
        let topics: Vec<_> = processes.into_iter().map(Topic::Queue).collect();
        (reply, self.subscribers.of(op.spec.key(), op.spec.dialect(), &topics))
    }

    /// Returns the lock at this key if it lives.
    fn living(&mut self, key: &LockKey, now: Moment) -> Option<&mut StoredLock> {
        let lock = self.by_name.get_mut(key.name())?;
        lock.settle(now).then_some(lock)
    }

    /// Returns the lock at a key that the token of the operation holds, and its end for this token. Returns the vote if
    /// the token does not hold the key.
    fn own(
        &mut self,
        op: &Op,
        key: &LockKey,
        now: Moment,
    ) -> Result<(&mut StoredLock, Moment), Vote> {
        let lock = self.living(key, now).ok_or(Vote::NotHeld)?;
        if lock.is_foreign(op.spec.dialect()) {
            return Err(FOREIGN);
        }
        // A reader may hold an exclusive lock: a downgrade has not reached this node.
        let is_own = lock.is_exclusive() || op.spec.mode().is_shared();
        let end = lock.end_of(op.token).filter(|_| is_own).ok_or(Vote::NotHeld)?;
        Ok((lock, end))
    }

    /// Checks that the token of the operation holds all of its keys.
    fn check_own(&mut self, op: &Op, now: Moment) -> Result<(), Vote> {
        op.spec.keys().iter().try_for_each(|key| self.own(op, key, now).map(drop))
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
        let (token, dialect) = (op.token, op.spec.dialect());
        let (mut refused, mut marked, mut until) = (None, Vec::new(), now.plus(lease));
        for (index, key) in op.spec.keys().iter().enumerate() {
            let Some(lock) = self.living(key, now) else { continue };
            if lock.is_foreign(dialect) {
                return Reply::new(FOREIGN).with_refused_key(index);
            }
            let Some(end) = lock.obstacle_to_writers() else {
                if mark.is_some_and(|mark| lock.marks.contains_key(&mark)) {
                    marked.push(key);
                }
                continue;
            };
            if lock.is_exclusive() {
                if lock.end_of(token).is_none() {
                    let holder = lock.only_holder().filter(|_| refused.is_none());
                    let keys = &op.spec.keys()[index + 1..];
                    let is_alone =
                        keys.iter().all(|key| self.is_free_of_others(key, now, holder, token));
                    let label = holder.and_then(|holder| holder.label());
                    let holder = holder.filter(|_| is_alone).map(|holder| holder.holder_id());
                    let vote = Vote::Held { holder, label, remaining: Some(now.time_until(end)) };
                    return Reply::new(vote).with_refused_key(index);
                }
                // An acquisition that comes again never shortens the lease.
                until = until.max(end);
            } else if refused.is_none() {
                refused = Some((index, end, lock.last_label()));
                marked.push(key);
            }
        }
        if let Some((index, end, label)) = refused {
            for key in marked {
                if let (Some(lock), Some(mark)) = (self.by_name.get_mut(key.name()), mark) {
                    lock.marks.insert(mark, now.plus(Mark::LIFE_TIME));
                }
            }
            let held = Vote::held(Some(now.time_until(end))).with_label(label);
            return Reply::new(held).with_refused_key(index).with_marks();
        }
        for key in op.spec.keys() {
            let lock = StoredLock::exclusive(token, dialect, until);
            self.by_name.insert(key.stored_name().clone(), lock);
        }
        let granted = Reply::new(Vote::Agreed);
        let prefix = op.spec.key().prefix();
        if fenced { granted.with_number(self.next_number(prefix)) } else { granted }
    }

    /// Returns whether neither a shared holder nor another holder than these two has a key.
    fn is_free_of_others(
        &mut self,
        key: &LockKey,
        now: Moment,
        holder: Option<Token>,
        own: Token,
    ) -> bool {
        let Some(lock) = self.living(key, now) else { return true };
        let only = lock.only_holder();
        only.is_some() && (only == holder || only == Some(own))
    }

    /// Acquires a shared lock.
    fn share(&mut self, op: &Op, now: Moment, lease: Duration) -> Executed {
        let key = op.spec.key();
        // Removes the entries that have ended, and with them the kind of the lock.
        self.living(key, now);
        let lock = self.by_name.entry(key.stored_name().clone()).or_default();
        if lock.is_foreign(op.spec.dialect()) {
            return Err(FOREIGN);
        }
        match lock.enter(op.token, op.spec.mode(), now.plus(lease)) {
            Ok(()) => Ok(Vec::new()),
            Err(end) => {
                let holder = lock.only_holder().map(|holder| holder.holder_id());
                // A waiting writer has no label.
                let is_kept_out = !lock.marks.is_empty() && lock.turn.is_none();
                let label = lock.last_label().filter(|_| !is_kept_out);
                Err(Vote::Held { holder, label, remaining: Some(now.time_until(end)) })
            }
        }
    }

    fn extend(&mut self, op: &Op, now: Moment, lease: Duration) -> Executed {
        self.check_own(op, now)?;
        for key in op.spec.keys() {
            let (lock, end) = self.own(op, key, now)?;
            lock.set(op.token, end.max(now.plus(lease)));
        }
        Ok(Vec::new())
    }

    fn confirm(&mut self, op: &Op, now: Moment, number: i64) -> Executed {
        self.check_own(op, now)?;
        let count = self.counters.entry(op.spec.key().prefix().to_owned()).or_default();
        *count = number.max(*count);
        Ok(Vec::new())
    }

    /// Releases the keys that the token of the operation holds, even if it has lost others. The release of an exclusive
    /// lock gives the readers a turn if one of them asks for it.
    fn release(
        &mut self,
        op: &Op,
        now: Moment,
        min_hold: Option<Duration>,
    ) -> (Reply, Vec<Notify>) {
        let dialect = op.spec.dialect();
        let (mut lost, mut most, mut notified) = (None, 0, Vec::new());
        for key in op.spec.keys() {
            let wants_turn = !self.subscribers.of(key, dialect, &[Topic::Turn]).is_empty();
            let topics = match (self.own(op, key, now), min_hold) {
                (Ok((lock, end)), Some(time)) => {
                    lock.set(op.token, end.min(now.plus(time)));
                    ANY_MODE
                }
                (Ok((lock, _)), None) => {
                    if lock.is_exclusive() && wants_turn {
                        (lock.kind, lock.turn) = (LockKind::Readers, Some(now.plus(TURN)));
                    }
                    lock.leave(op.token)
                }
                (Err(reason), _) => {
                    lost = lost.or(Some(reason));
                    continue;
                }
            };
            let subscribers = self.subscribers.of(key, dialect, topics);
            most = most.max(subscribers.len());
            notified.extend(subscribers);
        }
        let released = || Reply::new(Vote::Agreed).with_subscribers(most);
        (lost.map_or_else(released, Reply::new), notified)
    }

    /// Turns an exclusive lock into that of a reader.
    fn downgrade(&mut self, op: &Op, now: Moment) -> Executed {
        let (lock, _) = self.own(op, op.spec.key(), now)?;
        if !lock.is_exclusive() {
            return Ok(Vec::new());
        }
        lock.kind = LockKind::Readers;
        Ok(self.subscribers.of(op.spec.key(), op.spec.dialect(), &[Topic::Shared]))
    }

    fn withdraw(&mut self, op: &Op, now: Moment, mark: Mark) -> Vec<Notify> {
        let mut notified = Vec::new();
        for key in op.spec.keys() {
            let Some(lock) = self.living(key, now) else { continue };
            if lock.marks.remove(&mark).is_some() && lock.marks.is_empty() {
                notified.extend(self.subscribers.of(key, op.spec.dialect(), &[Topic::Shared]));
            }
        }
        notified
    }

    /// Returns what stands at a key.
    pub(super) fn look(&mut self, spec: &LockSpec, now: Moment) -> Found {
        let Some(lock) = self.living(spec.key(), now) else { return Found::free() };
        if lock.is_foreign(spec.dialect()) {
            return Found::foreign(ForeignKind::WrongType);
        }
        let writers = lock.marks.len();
        if lock.is_exclusive() {
            let holder = lock.holders_by_end().next();
            return holder.map_or_else(Found::free, |holder| Found::exclusive(found(holder, now)));
        }
        if lock.holders(now) > MOST_HOLDERS {
            return Found::foreign(ForeignKind::TooManyHolders);
        }
        let holders = lock.holders_by_end().map(|holder| found(holder, now)).collect();
        Found::shared(holders).with_waiting_writers(writers)
    }

    /// Removes a holder from a key. Also returns the subscribers to notify.
    pub(super) fn remove(
        &mut self,
        spec: &LockSpec,
        id: HolderId,
        now: Moment,
    ) -> (Removal, Vec<Notify>) {
        let Some(lock) = self.living(spec.key(), now) else {
            return (Removal::NotHeld, Vec::new());
        };
        if lock.is_foreign(spec.dialect()) {
            return (Removal::Foreign(ForeignKind::WrongType), Vec::new());
        }
        let holder = lock.holders_by_end().find(|(_, token)| token.holder_id() == id);
        let Some((end, token)) = holder else { return (Removal::NotHeld, Vec::new()) };
        lock.leave(token);
        let topics = [ANY_MODE, &[Topic::Loss(token)]].concat();
        let notified = self.subscribers.of(spec.key(), spec.dialect(), &topics);
        (Removal::removed(Some(now.time_until(end))), notified)
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

    /// Removes the entries of locks that are free, from time to time.
    fn sweep(&mut self, now: Moment) {
        const SMALLEST: usize = 64;
        if self.by_name.len() >= self.sweep_at.max(SMALLEST) {
            self.by_name.retain(|_, lock| lock.settle(now));
            self.sweep_at = self.by_name.len() * 2;
        }
    }
}

fn found((end, token): (Moment, Token), now: Moment) -> FoundHolder {
    let holder = FoundHolder::new(token.holder_id(), Some(now.time_until(end)));
    holder.of_owner(token.label(), token.since())
}
