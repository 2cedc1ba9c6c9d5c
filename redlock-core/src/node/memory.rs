//! A node in the memory of this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::memory_queue::MemoryQueues;
use super::{
    Action, Capabilities, Node, NodeStatus, Notify, Op, ProcessId, QueueFuture, QueueOp, Reply,
    ReplyFuture, StatusReceiver, StatusSender, Subscription,
};
use crate::clock::{Clock, Moment, SystemClock};
use crate::error::{ForeignKind, Vote};
use crate::lock::{Dialect, LockName, LockSpec, Token};

/// A node in the memory of this process, for examples, tests and services that run as one copy.
///
/// Behaves like a Redis server without a network. Cloning is cheap, and the clones share their locks:
/// managers with the same `MemoryNode` exclude each other, like two copies of a service with the same Redis
/// server.
///
/// # Examples
///
/// ```
/// use redlock_core::{LockManager, MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = MemoryNode::new();
/// let one = LockManager::builder().memory_node(&node).connect().await?;
/// let other = LockManager::builder().memory_node(&node).connect().await?;
///
/// let guard = one.lock("order:42").try_acquire().await?;
/// assert!(other.lock("order:42").try_acquire().await.unwrap_err().is_contended());
/// guard.release().await?;
/// assert!(node.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    store: Arc<Store>,
}

struct Store {
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    /// The time from which the fair queues count.
    created: Moment,
    status: StatusSender,
    locks: Mutex<LockTable>,
    queues: MemoryQueues,
}

#[derive(Default)]
struct LockTable {
    by_name: HashMap<LockName, StoredLock>,
    subscribers: HashMap<(LockName, Dialect), Vec<(u64, Notify)>>,
    next_subscriber: u64,
    /// The fencing counters, by prefix.
    counters: HashMap<String, i64>,
    /// The number of entries at which expired locks are removed. Without this removal, an expired lock that
    /// no caller requests again would stay for ever.
    sweep_at: usize,
}

struct StoredLock {
    token: Token,
    dialect: Dialect,
    deadline: Moment,
}

impl MemoryNode {
    /// Creates an empty node.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        // The number distinguishes several memory nodes in votes.
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("memory-{}", COUNT.fetch_add(1, Ordering::Relaxed)).into();
        let status = StatusSender::new(NodeStatus::Up);
        let store = Store {
            name,
            created: clock.now(),
            clock,
            status,
            locks: Mutex::default(),
            queues: MemoryQueues::default(),
        };
        Self { store: Arc::new(store) }
    }

    /// Returns the remaining lease of a lock, or `None` if the lock is free. `name` is the name of the lock
    /// on the node, including the prefix if the manager has one.
    pub fn time_to_live(&self, name: &str) -> Option<Duration> {
        let now = self.store.clock.now();
        let locks = self.store.locks.lock();
        let left = now.time_until(locks.by_name.get(name)?.deadline);
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether both nodes share their locks.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// Returns the number of held locks.
    pub fn len(&self) -> usize {
        let now = self.store.clock.now();
        let locks = self.store.locks.lock();
        locks.by_name.values().filter(|entry| !now.has_reached(entry.deadline)).count()
    }

    /// Returns whether no lock is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(feature = "test-util")]
impl MemoryNode {
    /// Forgets all locks and fencing counters, without notifying subscribers.
    pub(crate) fn forget(&self) {
        let mut locks = self.store.locks.lock();
        locks.by_name.clear();
        locks.counters.clear();
        self.store.queues.clear();
    }
}

#[cfg(test)]
impl MemoryNode {
    /// Notifies the subscribers of a lock, as if it was released.
    pub(crate) fn publish_release(&self, spec: &LockSpec) {
        let subscribers = self.store.locks.lock().subscribers(spec);
        for notify in subscribers {
            notify();
        }
    }

    /// Forgets all fair queues.
    pub(crate) fn forget_queues(&self) {
        self.store.queues.clear();
    }

    /// Returns whether no caller waits in a fair queue.
    pub(crate) fn has_empty_queues(&self) -> bool {
        let now = self.store.clock.now().since(self.store.created);
        self.store.queues.is_empty(now)
    }

    /// Returns the number of subscriptions to all locks.
    pub(crate) fn subscriptions(&self) -> usize {
        self.store.locks.lock().subscribers.values().map(Vec::len).sum()
    }
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("len", &self.len()).finish()
    }
}

impl LockTable {
    /// Returns the next fencing number. It is never below the time in microseconds since 1970, so that
    /// numbers grow even when this process restarts.
    fn next_number(&mut self, prefix: &str) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let floor = i64::try_from(now.as_micros()).unwrap_or_default();
        let count = self.counters.entry(prefix.to_owned()).or_default();
        *count = floor.max(*count) + 1;
        *count
    }

    fn subscribers(&self, spec: &LockSpec) -> Vec<Notify> {
        let subscribers = self.subscribers.get(&(spec.name().clone(), spec.dialect()));
        subscribers.map_or_else(Vec::new, |subscribers| {
            subscribers.iter().map(|(_, notify)| Arc::clone(notify)).collect()
        })
    }

    fn sweep(&mut self, now: Moment) {
        const SMALLEST: usize = 64;
        if self.by_name.len() >= self.sweep_at.max(SMALLEST) {
            self.by_name.retain(|_, entry| !now.has_reached(entry.deadline));
            self.sweep_at = self.by_name.len() * 2;
        }
    }
}

/// The holder of a lock, compared with the token of an operation.
enum CurrentHolder {
    /// The token of the operation holds the lock.
    Own { remaining: Duration },
    /// Another token holds the lock.
    Other { remaining: Duration },
    /// The lock has another dialect. On a server, its key would have another type.
    Foreign,
}

const FOREIGN: Vote = Vote::Foreign { found: ForeignKind::WrongType };

impl LockTable {
    fn holder(&self, op: &Op, now: Moment) -> Option<CurrentHolder> {
        let entry = self.by_name.get(op.spec.name())?;
        let remaining = now.time_until(entry.deadline);
        (!remaining.is_zero()).then_some(if entry.dialect != op.spec.dialect() {
            CurrentHolder::Foreign
        } else if entry.token == op.token {
            CurrentHolder::Own { remaining }
        } else {
            CurrentHolder::Other { remaining }
        })
    }

    fn set(&mut self, op: &Op, now: Moment, lease: Duration, fenced: bool) -> Reply {
        match self.holder(op, now) {
            Some(CurrentHolder::Own { remaining } | CurrentHolder::Other { remaining }) => {
                Vote::Held { remaining: Some(remaining) }.into()
            }
            Some(CurrentHolder::Foreign) => FOREIGN.into(),
            None => {
                self.sweep(now);
                let (name, dialect) = (op.spec.name(), op.spec.dialect());
                let entry = StoredLock { token: op.token, dialect, deadline: now.plus(lease) };
                self.by_name.insert(name.clone(), entry);
                let granted = Reply::new(Vote::Granted);
                if fenced { granted.with_number(self.next_number(name.prefix())) } else { granted }
            }
        }
    }

    /// Calls `change` with the remaining lease if the token of the operation holds the lock.
    fn with_own_lock(
        &mut self,
        op: &Op,
        now: Moment,
        change: impl FnOnce(&mut Self, Duration) -> Reply,
    ) -> Reply {
        match self.holder(op, now) {
            Some(CurrentHolder::Own { remaining }) => change(self, remaining),
            Some(CurrentHolder::Foreign) => FOREIGN.into(),
            Some(CurrentHolder::Other { .. }) | None => Vote::NotHeld.into(),
        }
    }

    fn set_deadline(&mut self, op: &Op, deadline: Moment) {
        if let Some(entry) = self.by_name.get_mut(op.spec.name()) {
            entry.deadline = deadline;
        }
    }
}

impl Node for MemoryNode {
    fn name(&self) -> &Arc<str> {
        &self.store.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { fair: true, ..Capabilities::default() }
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let mut locks = self.store.locks.lock();
        // Read under the mutex, so that operations read the clock in the order in which they are executed.
        let now = self.store.clock.now();
        let mut notified = Vec::new();
        let reply = match op.action {
            Action::Acquire { lease, fenced, .. } => locks.set(&op, now, lease, fenced),
            Action::Extend { lease } => locks.with_own_lock(&op, now, |locks, remaining| {
                if remaining < lease {
                    locks.set_deadline(&op, now.plus(lease));
                }
                Vote::Granted.into()
            }),
            Action::Confirm { number } => locks.with_own_lock(&op, now, |locks, _| {
                let prefix = op.spec.name().prefix().to_owned();
                let count = locks.counters.entry(prefix).or_default();
                *count = number.max(*count);
                Vote::Granted.into()
            }),
            Action::Release { min_hold } => locks.with_own_lock(&op, now, |locks, remaining| {
                match min_hold {
                    Some(min_hold) => locks.set_deadline(&op, now.plus(min_hold.min(remaining))),
                    None => drop(locks.by_name.remove(op.spec.name())),
                }
                notified = locks.subscribers(&op.spec);
                Reply::new(Vote::Granted).with_subscribers(notified.len())
            }),
        };
        drop(locks);
        for notify in notified {
            notify();
        }
        ReplyFuture::ready(reply)
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        let mut locks = self.store.locks.lock();
        let id = locks.next_subscriber;
        locks.next_subscriber += 1;
        let lock = (spec.name().clone(), spec.dialect());
        locks.subscribers.entry(lock.clone()).or_default().push((id, notify));
        let store = Arc::clone(&self.store);
        Subscription::new(move || {
            let mut locks = store.locks.lock();
            if let Some(subscribers) = locks.subscribers.get_mut(&lock) {
                subscribers.retain(|(other, _)| *other != id);
                if subscribers.is_empty() {
                    locks.subscribers.remove(&lock);
                }
            }
        })
    }

    /// Executes the operation at once.
    fn queue(&self, op: QueueOp) -> QueueFuture {
        let now = self.store.clock.now().since(self.store.created);
        let reply = self.store.queues.execute(&op, now);
        Box::pin(std::future::ready(Ok(reply)))
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.store.queues.subscribe(spec, process, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.store.status.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::key::LockKey;
    use crate::lock::Mode;

    const LEASE: Duration = Duration::from_secs(5);
    const ACQUIRE: Action = Action::Acquire { lease: LEASE, fenced: false, lookup: true };
    const EXTEND: Action = Action::Extend { lease: LEASE };
    const RELEASE: Action = Action::Release { min_hold: None };

    fn spec(dialect: Dialect, key: &str) -> LockSpec {
        let name = LockName::new("", &LockKey::new(key).unwrap());
        LockSpec::new(name, Mode::Exclusive, dialect)
    }

    /// A caller that requests a lock.
    struct Caller(LockSpec, Token);

    impl Caller {
        fn new(dialect: Dialect, key: &str) -> Self {
            Self(spec(dialect, key), Token::random(dialect))
        }

        fn vote(&self, node: &MemoryNode, action: Action) -> Vote {
            node.call(Op::new(&self.0, self.1, action)).now_or_never().unwrap().vote
        }
    }

    #[test]
    fn a_lock_is_free_when_its_lease_is_over() {
        let clock = FakeClock::default();
        let node = MemoryNode::with_clock(Arc::new(clock.clone()));
        let [first, second] = [(), ()].map(|()| Caller::new(Dialect::Plain, "a"));
        assert_eq!(first.vote(&node, ACQUIRE), Vote::Granted);
        clock.advance(Duration::from_secs(2));
        let held = Vote::Held { remaining: Some(Duration::from_secs(3)) };
        assert_eq!(second.vote(&node, ACQUIRE), held);
        assert_eq!(node.time_to_live("a"), Some(Duration::from_secs(3)));
        clock.advance(Duration::from_secs(3));
        assert!(node.is_empty());
        assert_eq!(second.vote(&node, ACQUIRE), Vote::Granted);
        assert_eq!(first.vote(&node, RELEASE), Vote::NotHeld);
        assert_eq!(first.vote(&node, EXTEND), Vote::NotHeld);
        assert_eq!(node.len(), 1);
    }

    /// As on a server, where a plain lock is a string and a Redisson lock is a hash.
    #[test]
    fn a_lock_of_another_dialect_is_foreign() {
        for (one, other) in
            [(Dialect::Plain, Dialect::Redisson), (Dialect::Redisson, Dialect::Plain)]
        {
            let node = MemoryNode::new();
            let (holder, stranger) = (Caller::new(one, "a"), Caller::new(other, "a"));
            assert_eq!(holder.vote(&node, ACQUIRE), Vote::Granted);
            for action in [ACQUIRE, EXTEND, RELEASE] {
                assert_eq!(stranger.vote(&node, action), FOREIGN);
            }
            assert_eq!(holder.vote(&node, RELEASE), Vote::Granted);
            assert_eq!(stranger.vote(&node, ACQUIRE), Vote::Granted);
        }
    }

    /// Waiters subscribe to ever new locks, and leave.
    #[test]
    fn a_lock_without_subscribers_leaves_no_entry() {
        let node = MemoryNode::new();
        for number in 0..100 {
            let spec = spec(Dialect::Plain, &format!("lock:{number}"));
            let [first, second] = [(), ()].map(|()| node.subscribe(&spec, Arc::new(|| {})));
            drop(first);
            assert_eq!(node.subscriptions(), 1);
            drop(second);
        }
        assert!(node.store.locks.lock().subscribers.is_empty());
    }

    /// Expired locks that no caller requests again must not accumulate.
    #[test]
    fn expired_locks_are_removed() {
        let clock = FakeClock::default();
        let node = MemoryNode::with_clock(Arc::new(clock.clone()));
        let acquire =
            Action::Acquire { lease: Duration::from_millis(10), fenced: false, lookup: true };
        for number in 0..10_000 {
            Caller::new(Dialect::Plain, &format!("lock:{number}")).vote(&node, acquire);
            clock.advance(Duration::from_millis(1));
        }
        let kept = node.store.locks.lock().by_name.len();
        assert!(kept <= 100, "{kept}");
    }
}
