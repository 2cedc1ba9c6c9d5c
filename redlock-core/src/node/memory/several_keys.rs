//! The operations on a lock of several keys in memory: all of them or none. Such a lock is exclusive.

use std::time::Duration;

use super::shared_lock::SharedEntry;
use super::subscribers::Audience;
use super::table::{FOREIGN, LockTable, StoredLock};
use crate::clock::Moment;
use crate::error::Vote;
use crate::lock::{LockName, WriterMark};
use crate::node::{Action, Notify, Op, Reply};

/// The holder of one of the keys, compared with the token of an operation.
enum KeyHolder {
    /// No holder. The marks of waiting writers do not count.
    Free,
    /// The token of the operation holds the key.
    Own(Duration),
    /// Another token holds the key exclusively.
    Other(Duration),
    /// Others share the key, or it is their turn.
    Shared(Duration),
    /// The key has a lock of another dialect.
    Foreign,
}

impl LockTable {
    /// Executes an operation on a lock of several keys. Returns the subscribers to notify too.
    pub(super) fn execute_on_all(&mut self, op: &Op, now: Moment) -> (Reply, Vec<Notify>) {
        match op.action {
            Action::Acquire { lease, fenced, mark, .. } => {
                (self.acquire_all(op, now, lease, fenced, mark), Vec::new())
            }
            Action::Extend { lease } => (self.extend_all(op, now, lease), Vec::new()),
            Action::Confirm { number } => (self.confirm_all(op, now, number), Vec::new()),
            Action::Release { min_hold } => self.release_all(op, now, min_hold),
            // The mode of a lock of several keys does not change.
            Action::Downgrade | Action::Withdraw { .. } => (Vote::NotHeld.into(), Vec::new()),
        }
    }

    fn key_holder(&mut self, op: &Op, name: &LockName, now: Moment) -> KeyHolder {
        match self.living(name, now) {
            None => KeyHolder::Free,
            Some(lock) if lock.is_foreign(op.spec.dialect()) => KeyHolder::Foreign,
            Some(StoredLock::Exclusive { token, deadline, .. }) => {
                let remaining = now.time_until(*deadline);
                if *token == op.token {
                    KeyHolder::Own(remaining)
                } else {
                    KeyHolder::Other(remaining)
                }
            }
            Some(StoredLock::Shared(shared)) => {
                shared.obstacle_to_writers(now).map_or(KeyHolder::Free, KeyHolder::Shared)
            }
        }
    }

    /// Sets all keys of the lock if they are free, or if the token holds only some of them. If shared holders are the
    /// only obstacle, sets the mark at their keys.
    fn acquire_all(
        &mut self,
        op: &Op,
        now: Moment,
        lease: Duration,
        fenced: bool,
        mark: Option<WriterMark>,
    ) -> Reply {
        let (mut owned, mut own_lease) = (0, Duration::ZERO);
        let (mut refused, mut shared_names) = (None, Vec::new());
        for (index, name) in op.spec.keys().iter().enumerate() {
            let vote = match self.key_holder(op, name, now) {
                KeyHolder::Free => continue,
                KeyHolder::Own(remaining) => {
                    (owned, own_lease) = (owned + 1, remaining);
                    continue;
                }
                KeyHolder::Shared(remaining) => {
                    refused.get_or_insert((index, remaining));
                    shared_names.push(name);
                    continue;
                }
                KeyHolder::Other(remaining) => Vote::Held { remaining: Some(remaining) },
                KeyHolder::Foreign => FOREIGN,
            };
            return Reply::new(vote).with_refused_key(index);
        }
        if owned == op.spec.keys().len() {
            return Reply::new(Vote::Held { remaining: Some(own_lease) }).with_refused_key(0);
        }
        if let Some((index, remaining)) = refused {
            for name in mark.iter().flat_map(|_| &shared_names) {
                if let (Some(StoredLock::Shared(shared)), Some(mark)) =
                    (self.by_name.get_mut(*name), mark)
                {
                    shared.set(SharedEntry::Mark(mark), now.plus(WriterMark::LIFE_TIME));
                }
            }
            let refused = Reply::new(Vote::Held { remaining: Some(remaining) });
            return refused.with_refused_key(index).with_shared_holders();
        }
        self.sweep(now);
        let (dialect, deadline) = (op.spec.dialect(), now.plus(lease));
        for name in op.spec.keys() {
            let lock = StoredLock::Exclusive { token: op.token, dialect, deadline };
            self.by_name.insert(name.clone(), lock);
        }
        let granted = Reply::new(Vote::Granted);
        let prefix = op.spec.name().prefix();
        if fenced { granted.with_number(self.next_number(prefix)) } else { granted }
    }

    /// Returns [`Vote::Granted`] if the token of the operation holds all keys of the lock.
    fn ownership(&mut self, op: &Op, now: Moment) -> Vote {
        for name in op.spec.keys() {
            match self.key_holder(op, name, now) {
                KeyHolder::Own(_) => {}
                KeyHolder::Foreign => return FOREIGN,
                KeyHolder::Free | KeyHolder::Other(_) | KeyHolder::Shared(_) => {
                    return Vote::NotHeld;
                }
            }
        }
        Vote::Granted
    }

    /// Sets the end of a key that the token of the operation holds.
    fn set_deadline(&mut self, name: &LockName, end: Moment) {
        if let Some(StoredLock::Exclusive { deadline, .. }) = self.by_name.get_mut(name) {
            *deadline = end;
        }
    }

    fn extend_all(&mut self, op: &Op, now: Moment, lease: Duration) -> Reply {
        let vote = self.ownership(op, now);
        if vote == Vote::Granted {
            for name in op.spec.keys() {
                if let KeyHolder::Own(remaining) = self.key_holder(op, name, now)
                    && remaining < lease
                {
                    self.set_deadline(name, now.plus(lease));
                }
            }
        }
        vote.into()
    }

    fn confirm_all(&mut self, op: &Op, now: Moment, number: i64) -> Reply {
        let vote = self.ownership(op, now);
        if vote == Vote::Granted {
            let count = self.counters.entry(op.spec.name().prefix().to_owned()).or_default();
            *count = number.max(*count);
        }
        vote.into()
    }

    /// Releases the keys that the token of the operation holds.
    fn release_all(
        &mut self,
        op: &Op,
        now: Moment,
        min_hold: Option<Duration>,
    ) -> (Reply, Vec<Notify>) {
        let vote = self.ownership(op, now);
        let (mut most, mut notified) = (0, Vec::new());
        for name in op.spec.keys() {
            let KeyHolder::Own(remaining) = self.key_holder(op, name, now) else { continue };
            match min_hold {
                Some(min_hold) => self.set_deadline(name, now.plus(min_hold.min(remaining))),
                None => self.free(name, now),
            }
            let subscribers = self.subscribers.of(name, op.spec.dialect(), Audience::All);
            most = most.max(subscribers.len());
            notified.extend(subscribers);
        }
        let reply = Reply::new(vote);
        let is_granted = reply.vote == Vote::Granted;
        (if is_granted { reply.with_subscribers(most) } else { reply }, notified)
    }
}
