//! Hints of nodes that a held lock is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::tests::{SECOND, settle};
use crate::clock::fake::RuntimeClock;
use crate::lock::{LockSpec, Token};
use crate::node::{
    Action, Capabilities, Inspection, LossHints, Node, Notify, Op, ReplyFuture, Subscription,
};
use crate::test_util::TestLocks;
use crate::{LockManager, LockManagerBuilder, LossCause, MemoryNode};

/// A node in memory whose hints a test gives.
#[derive(Debug)]
struct HintingNode {
    store: MemoryNode,
    extensions: AtomicUsize,
    watches: Arc<Watches>,
    /// Whether each extension leads to another hint, as if the store changed the key without end.
    hints_without_end: bool,
}

#[derive(Default)]
struct Watches {
    notify: Mutex<Option<Notify>>,
    /// How many watches were begun, and how many have ended.
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watches")
    }
}

impl HintingNode {
    fn start(hints_without_end: bool) -> (LockManager, Arc<Self>) {
        let node = Arc::new(Self {
            store: MemoryNode::with_clock(Arc::new(RuntimeClock::new())),
            extensions: AtomicUsize::new(0),
            watches: Arc::default(),
            hints_without_end,
        });
        let nodes = vec![Arc::clone(&node) as Arc<dyn Node>];
        (LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new())), node)
    }

    fn hint(&self) {
        let notify = self.watches.notify.lock().clone();
        if let Some(notify) = notify {
            notify();
        }
    }

    fn extensions(&self) -> usize {
        self.extensions.load(Ordering::SeqCst)
    }

    fn begun(&self) -> usize {
        self.watches.begun.load(Ordering::SeqCst)
    }

    fn ended(&self) -> usize {
        self.watches.ended.load(Ordering::SeqCst)
    }
}

impl Node for HintingNode {
    fn name(&self) -> &Arc<str> {
        self.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let is_extension = matches!(op.action, Action::Extend { .. });
        let reply = self.store.call(op);
        if is_extension {
            self.extensions.fetch_add(1, Ordering::SeqCst);
            if self.hints_without_end {
                self.hint();
            }
        }
        reply
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        self.store.inspection()
    }

    fn loss_hints(&self) -> Option<&dyn LossHints> {
        Some(self)
    }
}

impl LossHints for HintingNode {
    fn watch(&self, _: &LockSpec, _: Token, notify: Notify) -> Subscription {
        *self.watches.notify.lock() = Some(notify);
        self.watches.begun.fetch_add(1, Ordering::SeqCst);
        let watches = Arc::clone(&self.watches);
        Subscription::new(move || {
            watches.ended.fetch_add(1, Ordering::SeqCst);
        })
    }
}

/// The votes decide.
#[tokio::test(start_paused = true)]
async fn a_hint_asks_the_nodes_and_ends_no_lock_that_they_have() {
    let (locks, node) = HintingNode::start(false);
    let guard = locks.lock("a").expire(30 * SECOND).renew(true).try_acquire().await.unwrap();
    let lost = guard.lost();
    node.hint();
    settle().await;
    assert_eq!(node.extensions(), 1);
    assert!(guard.is_valid());

    node.store.forget();
    node.hint();
    lost.await;
    assert_eq!(node.extensions(), 2);
    assert_eq!(guard.loss().cause(), LossCause::NotOnNodes);
}

/// A store could otherwise keep the process busy. The next renewal allows further hints.
#[tokio::test(start_paused = true)]
async fn hints_without_end_ask_the_nodes_a_limited_number_of_times() {
    let (locks, node) = HintingNode::start(true);
    let guard = locks.lock("a").expire(30 * SECOND).renew(true).try_acquire().await.unwrap();
    let _lost = guard.lost();
    node.hint();
    settle().await;
    assert_eq!(node.extensions(), 16);
    node.hint();
    settle().await;
    assert_eq!(node.extensions(), 16);
    sleep(11 * SECOND).await;
    let renewed = node.extensions();
    assert!((17..=34).contains(&renewed), "{renewed}");
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_hint_prolongs_no_lock_that_is_not_renewed() {
    let (locks, node) = HintingNode::start(false);
    let guard = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
    let _lost = guard.lost();
    for _ in 0..3 {
        sleep(SECOND).await;
        let before = guard.remaining();
        node.hint();
        settle().await;
        assert!(guard.remaining() < before);
    }
    assert_eq!(node.extensions(), 3);
    assert!(node.store.time_to_live("a").unwrap() <= 2 * SECOND);
    sleep(2 * SECOND).await;
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn only_the_holder_of_an_exclusive_lock_that_waits_for_its_loss_is_hinted() {
    let (locks, node) = HintingNode::start(false);
    let guard = locks.lock("a").try_acquire().await.unwrap();
    assert!(guard.is_valid());
    assert_eq!(node.begun(), 0);
    drop((guard.lost(), guard.lost(), guard.handle().lost()));
    assert_eq!((node.begun(), node.ended()), (1, 0));
    guard.release().await.unwrap();
    assert_eq!((node.begun(), node.ended()), (1, 1));

    let reader = locks.lock("a").shared(true).try_acquire().await.unwrap();
    drop(reader.lost());
    assert_eq!(node.begun(), 1);
    drop(reader);

    let writer = locks.lock("b").try_acquire().await.unwrap();
    drop(writer.lost());
    assert_eq!(node.begun(), 2);
    writer.downgrade().await.unwrap();
    assert_eq!(node.ended(), 2);
    drop(writer.lost());
    assert_eq!(node.begun(), 2);
}

/// After a release, an extension would prolong a lock that stays for its minimum hold time.
#[tokio::test(start_paused = true)]
async fn a_hint_after_the_release_asks_nobody() {
    let (locks, node) = HintingNode::start(false);
    for ends in [true, false] {
        let guard = locks.lock("a").min_hold(SECOND).try_acquire().await.unwrap();
        drop(guard.lost());
        if ends {
            guard.release().await.unwrap();
        } else {
            node.hint();
            drop(guard);
        }
        node.hint();
        settle().await;
        assert!(node.store.time_to_live("a").unwrap() <= SECOND);
        sleep(2 * SECOND).await;
    }
    assert_eq!(node.extensions(), 0);
}

/// During a shutdown the task of the keeper may have ended.
#[tokio::test(start_paused = true)]
async fn a_hint_during_and_after_a_shutdown_does_nothing() {
    let (locks, node) = HintingNode::start(false);
    let guard = locks.lock("a").try_acquire().await.unwrap();
    let lost = guard.lost();
    node.hint();
    drop(guard);
    locks.shutdown().await;
    node.hint();
    settle().await;
    assert!(lost.now_or_never().is_none());
    assert!(node.store.is_empty());
}

/// A hint of a new holder reaches it, and none of the former one.
#[tokio::test(start_paused = true)]
async fn a_hand_over_ends_the_hints_of_the_former_holder() {
    let (locks, node) = HintingNode::start(false);
    let first = locks.lock("a").try_acquire().await.unwrap();
    drop(first.lost());
    let mut next = Box::pin(locks.lock("a").wait_time(60 * SECOND).acquire());
    assert!(next.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    let second = next.now_or_never().expect("handed over").unwrap();
    assert_eq!((node.begun(), node.ended()), (1, 1));
    node.store.forget();
    node.hint();
    settle().await;
    assert!(second.is_valid(), "nobody waits for its loss");
    let lost = second.lost();
    assert_eq!(node.begun(), 2);
    node.hint();
    lost.await;
}

/// The nodes in memory hint at a break, and the lock is lost without a renewal.
#[tokio::test]
async fn a_break_by_another_process_is_known_at_once() {
    for nodes in [1, 3, 5] {
        let test = TestLocks::new(nodes);
        let shop = test.builder().connect().await.unwrap();
        let ops = test.builder().connect().await.unwrap();
        let lease = Duration::from_secs(300);
        let guard = shop.lock("a").expire(lease).renew(true).try_acquire().await.unwrap();
        let lost = guard.lost();
        for holder in ops.status("a").await.unwrap().holders() {
            ops.break_lock("a", holder).await.unwrap();
        }
        // A renewal would come after a third of the lease.
        timeout(lease / 6, lost).await.expect("a hint");
        assert!(!guard.is_valid(), "{nodes} nodes");
    }
}
