//! A node in the memory of this process.

mod locks;
mod queue;
mod stored_lock;
mod subscribers;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment, SystemClock};
use crate::lock::{HolderId, LockSpec, Token};
use crate::node::{
    Capabilities, FairOrder, Found, Inspection, LookFuture, LossHints, Node, NodeReport,
    NodeStatus, Notify, Op, ProcessId, QueueFuture, QueueOp, QueueReply, Removal, RemovalFuture,
    Reply, ReplyFuture, StatusReceiver, StatusSender, Subscription, Turns,
};
use crate::store::kit::description::{NodeOptions, StoreUrl};
use locks::LockTable;
use subscribers::Topic;

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
    status: StatusSender,
    locks: Mutex<LockTable>,
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
        let store = Store {
            name,
            clock,
            status: StatusSender::new(NodeStatus::Up),
            locks: Mutex::default(),
        };
        Self { store: Arc::new(store) }
    }

    /// Returns the remaining lease of a lock, or `None` if the lock is free. `name` is the name of the lock
    /// on the node, including the prefix if the manager has one.
    pub fn time_to_live(&self, name: &str) -> Option<Duration> {
        let now = self.store.clock.now();
        let locks = self.store.locks.lock();
        let left = now.time_until(locks.by_name.get(name)?.end()?);
        (!left.is_zero()).then_some(left)
    }

    /// Returns the number of holders of all locks.
    pub fn len(&self) -> usize {
        let now = self.store.clock.now();
        let locks = self.store.locks.lock();
        locks.by_name.values().map(|lock| lock.holders(now)).sum()
    }

    /// Returns whether no lock is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Executes an operation at once.
    pub(crate) fn execute(&self, op: &Op) -> Reply {
        self.run(|locks, now| locks.execute(op, now))
    }

    /// Executes an operation on a fair queue at once.
    pub(crate) fn execute_queue(&self, op: &QueueOp) -> QueueReply {
        self.run(|locks, now| locks.execute_queue(op, now))
    }

    /// Executes an operation, and notifies the subscribers that it returns.
    fn run<R>(&self, op: impl FnOnce(&mut LockTable, Moment) -> (R, Vec<Notify>)) -> R {
        let mut locks = self.store.locks.lock();
        // Read under the mutex, so that operations read the clock in the order in which they are executed.
        let now = self.store.clock.now();
        let (reply, notified) = op(&mut locks, now);
        drop(locks);
        for notify in notified {
            notify();
        }
        reply
    }

    /// Returns what stands at a key.
    pub(crate) fn look_at(&self, spec: &LockSpec) -> Found {
        self.run(|locks, now| (locks.look(spec, now), Vec::new()))
    }

    /// Removes a holder at once.
    pub(crate) fn remove_holder(&self, spec: &LockSpec, holder: HolderId) -> Removal {
        self.run(|locks, now| locks.remove(spec, holder, now))
    }

    fn subscribe_to(&self, spec: &LockSpec, topic: Topic, notify: Notify) -> Subscription {
        self.store.locks.lock().subscribers.subscribe(spec, topic, notify)
    }
}

/// The URL of a new node.
struct MemoryUrl;

/// Reads a URL. The error explains the mistake without repeating the URL.
pub(crate) fn read(url: &str) -> Result<Box<dyn StoreUrl>, String> {
    if url.eq_ignore_ascii_case("memory:") {
        Ok(Box::new(MemoryUrl))
    } else {
        Err("nothing may follow memory: in the URL of a node in memory".to_owned())
    }
}

impl StoreUrl for MemoryUrl {
    fn name(&self) -> String {
        "memory:".to_owned()
    }

    fn into_node(self: Box<Self>, options: &NodeOptions<'_>) -> Result<Arc<dyn Node>, String> {
        tracing::warn!(
            "the locks are in the memory of this process: they exclude no other process"
        );
        Ok(Arc::new(MemoryNode::with_clock(Arc::clone(options.clock))))
    }
}

#[cfg(any(test, feature = "test-util"))]
impl MemoryNode {
    /// Forgets all locks, fencing counters and fair queues, without notifying subscribers.
    pub(crate) fn forget(&self) {
        let mut locks = self.store.locks.lock();
        locks.by_name.clear();
        locks.counters.clear();
        locks.queues.clear();
    }
}

#[cfg(feature = "test-util")]
impl MemoryNode {
    /// Removes a key, as an operator does.
    pub(crate) fn remove(&self, name: &str) {
        self.store.locks.lock().by_name.remove(name);
    }
}

#[cfg(test)]
impl MemoryNode {
    /// Notifies the subscribers of a lock, as if it was released.
    pub(crate) fn publish_release(&self, spec: &LockSpec) {
        let (key, dialect) = (spec.key(), spec.dialect());
        self.run(|locks, _| ((), locks.subscribers.of(key, dialect, subscribers::ANY_MODE)));
    }

    /// Forgets all fair queues.
    pub(crate) fn forget_queues(&self) {
        self.store.locks.lock().queues.clear();
    }

    /// Returns whether no caller waits in a fair queue.
    pub(crate) fn has_empty_queues(&self) -> bool {
        self.store.locks.lock().queues.is_empty(self.store.clock.now())
    }

    /// Returns the number of subscriptions to all locks.
    pub(crate) fn subscriptions(&self) -> usize {
        self.store.locks.lock().subscribers.len()
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

impl Node for MemoryNode {
    fn name(&self) -> &Arc<str> {
        &self.store.name
    }

    fn capabilities(&self) -> Capabilities {
        // The locks and their holders are in the same process.
        Capabilities { durable: true, ..Capabilities::of_library() }
    }

    fn store_id(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.store.name))
    }

    fn call(&self, op: Op) -> ReplyFuture {
        ReplyFuture::ready(self.execute(&op))
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        let topic = if spec.mode().is_shared() { Topic::Shared } else { Topic::Exclusive };
        self.subscribe_to(spec, topic, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.store.status.subscribe()
    }

    fn turns(&self) -> Option<&dyn Turns> {
        Some(self)
    }

    fn fair_order(&self) -> Option<&dyn FairOrder> {
        Some(self)
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        Some(self)
    }

    fn loss_hints(&self) -> Option<&dyn LossHints> {
        Some(self)
    }

    fn report(&self) -> NodeReport {
        NodeReport::new("memory")
    }
}

impl LossHints for MemoryNode {
    fn watch(&self, spec: &LockSpec, token: Token, notify: Notify) -> Subscription {
        let keys = spec.keys().iter();
        let topic = Topic::Loss(token);
        let watches: Vec<_> = keys
            .map(|key| self.subscribe_to(&spec.of_key(key), topic, Arc::clone(&notify)))
            .collect();
        Subscription::new(move || drop(watches))
    }
}

impl Inspection for MemoryNode {
    fn look(&self, spec: &LockSpec) -> LookFuture {
        Box::pin(std::future::ready(Ok(self.look_at(spec))))
    }

    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture {
        Box::pin(std::future::ready(Ok(self.remove_holder(spec, holder))))
    }
}

impl Turns for MemoryNode {
    fn request_turn(&self, spec: &LockSpec) -> Subscription {
        self.subscribe_to(spec, Topic::Turn, Arc::new(|| {}))
    }
}

impl FairOrder for MemoryNode {
    fn queue(&self, op: QueueOp) -> QueueFuture {
        Box::pin(std::future::ready(Ok(self.execute_queue(&op))))
    }

    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        self.subscribe_to(spec, Topic::Queue(process), notify)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::locks::FOREIGN;
    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::error::Vote;
    use crate::key::LockKey;
    use crate::lock::{Dialect, Mode, Token};
    use crate::node::{Action, Ask};

    const LEASE: Duration = Duration::from_secs(5);
    const ACQUIRE: Action = Action::Acquire { lease: LEASE, fenced: false, ask: Ask::FIRST };
    const EXTEND: Action = Action::Extend { lease: LEASE };
    const RELEASE: Action = Action::Release { min_hold: None };

    fn spec(dialect: Dialect, key: &str) -> LockSpec {
        let key = LockKey::new(key).unwrap();
        LockSpec::new(key, Mode::Exclusive, dialect)
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
        assert_eq!(first.vote(&node, ACQUIRE), Vote::Agreed);
        clock.advance(Duration::from_secs(2));
        let held = Vote::held_by(first.1.holder_id(), Some(Duration::from_secs(3)));
        assert_eq!(second.vote(&node, ACQUIRE), held);
        assert_eq!(node.time_to_live("a"), Some(Duration::from_secs(3)));
        clock.advance(Duration::from_secs(3));
        assert!(node.is_empty());
        assert_eq!(second.vote(&node, ACQUIRE), Vote::Agreed);
        assert_eq!(first.vote(&node, RELEASE), Vote::NotHeld);
        assert_eq!(first.vote(&node, EXTEND), Vote::NotHeld);
        assert_eq!(node.len(), 1);
    }

    /// A holder sets its lock again on a node that seemed to have forgotten it.
    #[test]
    fn an_acquisition_that_comes_again_never_shortens_the_lease() {
        for mode in [Mode::Exclusive, Mode::SHARED] {
            let clock = FakeClock::default();
            let node = MemoryNode::with_clock(Arc::new(clock.clone()));
            let caller =
                Caller(spec(Dialect::Plain, "a").with_mode(mode), Token::random(Dialect::Plain));
            for (lease, left) in [(5, 5), (1, 5), (9, 9)]
                .map(|(lease, left)| (Duration::from_secs(lease), Duration::from_secs(left)))
            {
                let again = Action::Acquire { lease, fenced: false, ask: Ask::FIRST };
                assert_eq!(caller.vote(&node, again), Vote::Agreed);
                assert_eq!(node.time_to_live("a"), Some(left), "{mode:?}");
            }
        }
    }

    /// As on a server, where a plain lock is a string and a Redisson lock is a hash.
    #[test]
    fn a_lock_of_another_dialect_is_foreign() {
        for (one, other) in
            [(Dialect::Plain, Dialect::Redisson), (Dialect::Redisson, Dialect::Plain)]
        {
            let node = MemoryNode::new();
            let (holder, stranger) = (Caller::new(one, "a"), Caller::new(other, "a"));
            assert_eq!(holder.vote(&node, ACQUIRE), Vote::Agreed);
            for action in [ACQUIRE, EXTEND, RELEASE] {
                assert_eq!(stranger.vote(&node, action), FOREIGN);
            }
            assert_eq!(holder.vote(&node, RELEASE), Vote::Agreed);
            assert_eq!(stranger.vote(&node, ACQUIRE), Vote::Agreed);
        }
    }

    /// On a server, the key is gone with its last holder, and with it the type of its value.
    #[test]
    fn a_lock_that_was_released_can_be_shared_in_another_dialect() {
        let node = MemoryNode::new();
        let holder = Caller::new(Dialect::Redisson, "a");
        let reader = Caller(spec(Dialect::Plain, "a").with_mode(Mode::SHARED), holder.1);
        assert_eq!(holder.vote(&node, ACQUIRE), Vote::Agreed);
        assert_eq!(reader.vote(&node, ACQUIRE), FOREIGN);
        assert_eq!(holder.vote(&node, RELEASE), Vote::Agreed);
        assert_eq!(reader.vote(&node, ACQUIRE), Vote::Agreed);
    }

    /// The operation of a reader also covers an exclusive lock, but not the other way round.
    #[test]
    fn an_operation_on_an_exclusive_lock_does_not_touch_a_shared_one() {
        let node = MemoryNode::new();
        let writer = Caller::new(Dialect::Plain, "a");
        let reader = Caller(writer.0.with_mode(Mode::SHARED), writer.1);
        assert_eq!(reader.vote(&node, ACQUIRE), Vote::Agreed);
        for action in [EXTEND, RELEASE, Action::Confirm { number: 1 }] {
            assert_eq!(writer.vote(&node, action), Vote::NotHeld);
        }
        assert_eq!(reader.vote(&node, RELEASE), Vote::Agreed);
    }

    /// Otherwise the readers would keep a writer out for longer than their turn.
    #[test]
    fn only_an_exclusive_release_begins_a_turn_of_the_readers() {
        let node = MemoryNode::new();
        let writer = Caller::new(Dialect::Plain, "a");
        let reader = Caller(writer.0.with_mode(Mode::SHARED), Token::random(Dialect::Plain));
        let _turn = node.request_turn(&reader.0);
        for (caller, begins_turn) in [(&reader, false), (&writer, true)] {
            assert_eq!(caller.vote(&node, ACQUIRE), Vote::Agreed);
            assert_eq!(caller.vote(&node, RELEASE), Vote::Agreed);
            assert_eq!(node.time_to_live("a").is_some(), begins_turn);
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
            Action::Acquire { lease: Duration::from_millis(10), fenced: false, ask: Ask::FIRST };
        for number in 0..10_000 {
            Caller::new(Dialect::Plain, &format!("lock:{number}")).vote(&node, acquire);
            clock.advance(Duration::from_millis(1));
        }
        let kept = node.store.locks.lock().by_name.len();
        assert!(kept <= 100, "{kept}");
    }
}
