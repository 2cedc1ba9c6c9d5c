//! The store: a task that owns the locks.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redlock_core::node::{Action, Found, FoundHolder, Notify, Op, Removal, Reply, Token};
use redlock_core::{HolderId, NodeError, Vote};
use tokio::sync::{mpsc, oneshot};

/// A message to the store.
pub(crate) enum Message {
    Call(Op, oneshot::Sender<Reply>),
    Subscribe { name: String, id: u64, notify: Notify, done: oneshot::Sender<()> },
    Unsubscribe { name: String, id: u64 },
    Watch { name: String, id: u64, token: Token, notify: Notify },
    EndWatch { name: String, id: u64 },
    Look(Box<dyn FnOnce(&mut Store) + Send>),
}

#[derive(Default)]
pub(crate) struct Store {
    locks: HashMap<String, Lock>,
    subscribers: HashMap<String, Vec<(u64, Notify)>>,
    watches: HashMap<String, Vec<Watch>>,
    /// The greatest fencing number that was issued or confirmed, for any lock.
    number: i64,
}

struct Lock {
    token: Token,
    end: Instant,
}

/// The wish of a holder to hear that its lock is gone.
struct Watch {
    id: u64,
    token: Token,
    notify: Notify,
    /// Whether the store had the lock when it last looked. Only its loss is news.
    is_held: bool,
}

impl Store {
    /// Handles messages in the order in which they were sent, until all nodes are gone.
    pub(crate) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        while let Some(message) = inbox.recv().await {
            match message {
                Message::Call(op, reply) => {
                    // Executed even if the caller has dropped the operation: a release follows it.
                    let _ = reply.send(self.execute(&op));
                }
                Message::Subscribe { name, id, notify, done } => {
                    self.subscribers.entry(name).or_default().push((id, notify));
                    let _ = done.send(());
                }
                Message::Unsubscribe { name, id } => self.unsubscribe(&name, id),
                Message::Watch { name, id, token, notify } => {
                    let watch = Watch { id, token, notify, is_held: true };
                    self.watches.entry(name).or_default().push(watch);
                }
                Message::EndWatch { name, id } => self.end_watch(&name, id),
                Message::Look(look) => look(&mut self),
            }
            self.hint();
        }
    }

    fn execute(&mut self, op: &Op) -> Reply {
        let now = Instant::now();
        self.locks.retain(|_, lock| lock.end > now);
        let name = op.spec.name();
        let holder = self.locks.get_mut(name);
        if let Action::Acquire { lease, fenced, .. } = op.action {
            if let Some(holder) = holder.filter(|holder| holder.token != op.token) {
                let refusal = Vote::held_by(holder.token.holder_id(), Some(holder.end - now));
                return refusal.with_label(holder.token.label()).into();
            }
            self.locks.insert(name.to_owned(), Lock { token: op.token, end: now + lease });
            let granted = Reply::new(Vote::Agreed);
            return if fenced { granted.with_number(self.next_number()) } else { granted };
        }
        let Some(own) = holder.filter(|holder| holder.token == op.token) else {
            return Vote::NotHeld.into();
        };
        match op.action {
            Action::Extend { lease, .. } => own.end = own.end.max(now + lease),
            Action::Confirm { number, .. } => self.number = self.number.max(number),
            Action::Release { min_hold, .. } => {
                match min_hold {
                    Some(time) => own.end = own.end.min(now + time),
                    None => drop(self.locks.remove(name)),
                }
                return Reply::new(Vote::Agreed).with_subscribers(self.notify(name));
            }
            _ => return Vote::Failed(NodeError::Server("unknown action".into())).into(),
        }
        Vote::Agreed.into()
    }

    /// Returns a number greater than all earlier ones. It starts at the wall clock, so it is also greater
    /// than the numbers of an earlier store with the same name.
    fn next_number(&mut self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        self.number = (self.number + 1).max(i64::try_from(now).unwrap_or_default());
        self.number
    }

    /// Notifies the subscribers of a lock, and returns how many there are.
    fn notify(&self, name: &str) -> usize {
        let subscribers = self.subscribers.get(name).map_or(&[][..], Vec::as_slice);
        for (_, notify) in subscribers {
            notify();
        }
        subscribers.len()
    }

    fn unsubscribe(&mut self, name: &str, id: u64) {
        if let Some(subscribers) = self.subscribers.get_mut(name) {
            subscribers.retain(|(other, _)| *other != id);
            if subscribers.is_empty() {
                self.subscribers.remove(name);
            }
        }
    }

    /// Notifies the holders whose lock is gone.
    fn hint(&mut self) {
        for (name, watches) in &mut self.watches {
            let present = self.locks.get(name).map(|lock| lock.token);
            for watch in watches {
                let is_held = present == Some(watch.token);
                if std::mem::replace(&mut watch.is_held, is_held) && !is_held {
                    (watch.notify)();
                }
            }
        }
    }

    fn end_watch(&mut self, name: &str, id: u64) {
        if let Some(watches) = self.watches.get_mut(name) {
            watches.retain(|watch| watch.id != id);
            if watches.is_empty() {
                self.watches.remove(name);
            }
        }
    }

    pub(crate) fn time_to_live(&self, name: &str) -> Option<Duration> {
        let left = self.locks.get(name)?.end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    pub(crate) fn len(&self) -> usize {
        let now = Instant::now();
        self.locks.values().filter(|lock| lock.end > now).count()
    }

    pub(crate) fn watches_of(&self, name: &str) -> usize {
        self.watches.get(name).map_or(0, Vec::len)
    }

    pub(crate) fn subscribers_of(&self, name: &str) -> usize {
        self.subscribers.get(name).map_or(0, Vec::len)
    }

    /// Returns what an operator sees at a key.
    pub(crate) fn found(&self, name: &str) -> Found {
        let now = Instant::now();
        let Some(Lock { token, end }) = self.locks.get(name).filter(|lock| lock.end > now) else {
            return Found::free();
        };
        let holder = FoundHolder::new(token.holder_id(), Some(*end - now));
        Found::exclusive(holder.of_owner(token.label(), token.since()))
    }

    /// Removes the lock of this holder, and no other.
    pub(crate) fn remove_holder(&mut self, name: &str, holder: HolderId) -> Removal {
        let now = Instant::now();
        let is_held = |lock: &&Lock| lock.end > now && lock.token.holder_id() == holder;
        let Some(Lock { end, .. }) = self.locks.get(name).filter(is_held) else {
            return Removal::NotHeld;
        };
        let remaining = *end - now;
        self.locks.remove(name);
        self.notify(name);
        Removal::removed(Some(remaining))
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.locks.remove(name);
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Message")
    }
}
