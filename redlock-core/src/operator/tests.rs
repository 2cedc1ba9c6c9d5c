//! Status and break, over nodes of a test.

use std::time::Duration;

use crate::error::{ForeignKind, LossCause, Vote};
use crate::lock::{Dialect, OwnerLabel};
use crate::node::FoundKind;
use crate::test_util::TestLocks;
use crate::{
    BreakError, HeldSnapshot, KeyState, LockGuard, LockManager, LockState, LockStatus, StatusError,
};

const LEASE: Duration = Duration::from_secs(30);

/// Returns the manager of another process, with this label.
async fn process(test: &TestLocks, label: &str) -> LockManager {
    test.builder().owner_label(label).connect().await.unwrap()
}

async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).try_acquire().await.unwrap()
}

async fn status(locks: &LockManager, key: &str) -> LockStatus {
    locks.status(key).await.unwrap()
}

fn labels(status: &LockStatus) -> Vec<&str> {
    status.holders().iter().map(|holder| holder.label().map_or("", OwnerLabel::as_str)).collect()
}

#[tokio::test]
async fn a_status_names_the_holder_and_how_many_nodes_have_it() {
    let test = TestLocks::new(5);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let free = status(&ops, "a").await;
    assert_eq!((free.state(), free.holders().len()), (KeyState::Free, 0));

    let guard = held(&shop, "a").await;
    test.nodes()[0].forget();
    test.nodes()[1].fail();
    let seen = status(&ops, "a").await;
    assert_eq!((seen.state(), labels(&seen)), (KeyState::Exclusive, vec!["shop"]));
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    assert_eq!((holder.nodes(), holder.is_own()), (3, false));
    assert!(holder.remaining().unwrap() <= LEASE && holder.since().is_some());
    assert!(seen.nodes()[1].error().is_some());
    assert_eq!(seen.nodes()[0].found().map(|found| found.kind), Some(FoundKind::Free));
    assert!(status(&shop, "a").await.holders()[0].is_own());
    guard.release().await.unwrap();
}

/// Silent nodes are not free, and the first quorum of answers does not decide.
#[tokio::test]
async fn a_status_waits_for_every_node() {
    let test = TestLocks::new(5);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let [first, second, third, frozen, other] = test.nodes() else { panic!("five nodes") };
    for node in [frozen, other] {
        node.fail();
    }
    let _guard = held(&shop, "a").await;
    for node in [first, second, third] {
        node.fail();
    }
    other.recover();
    frozen.recover();
    let rival = TestLocksOf(other).held("a").await;
    for node in [first, second, third] {
        node.recover();
    }
    frozen.freeze();
    third.delay(Duration::from_millis(100));
    let seen = status(&ops, "a").await;
    assert_eq!(seen.state(), KeyState::Exclusive);
    assert_eq!(labels(&seen), ["shop", "rival"]);
    assert_eq!(seen.holders().iter().map(crate::Holder::nodes).collect::<Vec<_>>(), [3, 1]);
    assert!(seen.nodes()[3].error().is_some() && seen.nodes()[3].found().is_none());
    drop(rival);
}

/// A manager over one of the nodes.
struct TestLocksOf<'a>(&'a crate::test_util::TestNode);

impl TestLocksOf<'_> {
    async fn held(&self, key: &str) -> LockGuard {
        let builder = LockManager::builder().node(self.0.clone()).owner_label("rival");
        held(&builder.connect().await.unwrap(), key).await
    }
}

#[tokio::test]
async fn values_without_a_quorum_are_split_and_too_few_answers_are_an_error() {
    let test = TestLocks::new(3);
    let ops = process(&test, "ops").await;
    let _one = TestLocksOf(&test.nodes()[0]).held("a").await;
    let _other = TestLocksOf(&test.nodes()[1]).held("a").await;
    let seen = status(&ops, "a").await;
    assert_eq!((seen.state(), seen.holders().len()), (KeyState::Split, 2));

    test.nodes()[0].fail();
    test.nodes()[2].freeze();
    let error = ops.status("a").await.unwrap_err();
    let StatusError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
    let answered = votes.iter().filter(|(_, vote)| *vote == Some(&Vote::Agreed));
    assert_eq!(answered.count(), 1);
    assert_eq!(error.to_string(), "no quorum of nodes answered");
    let shown = error.diagnostics().to_string();
    assert!(shown.contains("; lock a; memory-") && shown.contains(" no reply within "), "{shown}");
    assert!(matches!(ops.status("").await, Err(StatusError::InvalidKey(_))));
    ops.shutdown().await;
    assert!(matches!(ops.status("a").await, Err(StatusError::ShutDown)));
}

#[tokio::test]
async fn a_status_shows_readers_and_waiters() {
    let test = TestLocks::new(1);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let reader = |locks: &LockManager| locks.lock("a").shared(true).expire(LEASE);
    let _one = reader(&shop).try_acquire().await.unwrap();
    let _two = reader(&ops).expire(LEASE * 2).try_acquire().await.unwrap();
    let writer = ops.clone();
    let waiting = tokio::spawn(async move { writer.lock("a").acquire().await.map(drop) });
    let seen = loop {
        test.clock().advance(Duration::from_millis(10)).await;
        let seen = status(&ops, "a").await;
        if seen.waiting_writers() > 0 {
            break seen;
        }
    };
    assert_eq!((seen.state(), labels(&seen)), (KeyState::Shared, vec!["ops", "shop"]));
    assert_eq!(seen.local_waiters(), 1);
    assert!(seen.longest_wait().unwrap() >= Duration::from_millis(10));
    let elsewhere = status(&shop, "a").await;
    assert_eq!((elsewhere.local_waiters(), elsewhere.longest_wait()), (0, None));
    waiting.abort();
}

/// The Redisson dialect writes no label, and its lock is foreign in the plain one.
#[tokio::test]
async fn a_lock_of_another_dialect_is_foreign() {
    let test = TestLocks::new(1);
    let shop = process(&test, "shop").await;
    let request = shop.lock("a").dialect(Dialect::Redisson).expire(LEASE);
    let _guard = request.try_acquire().await.unwrap();
    let plain = status(&shop, "a").await;
    assert_eq!((plain.state(), plain.holders().len()), (KeyState::Foreign, 0));
    let found = plain.nodes()[0].found().map(|found| found.kind);
    assert_eq!(found, Some(FoundKind::Foreign(ForeignKind::WrongType)));
    let redisson = shop.status("a").dialect(Dialect::Redisson).await.unwrap();
    assert_eq!((redisson.state(), labels(&redisson)), (KeyState::Exclusive, vec![""]));
    shop.break_lock("a", &redisson.holders()[0]).await.unwrap();
    assert!(test.nodes()[0].is_empty());
}

#[tokio::test]
async fn a_holder_of_another_process_notices_a_break_at_its_next_renewal() {
    for nodes in [1, 5] {
        let test = TestLocks::new(nodes);
        let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
        let guard = held(&shop, "a").await;
        let seen = status(&ops, "a").await;
        let broken = ops.break_lock("a", &seen.holders()[0]).await.unwrap();
        assert!(broken.may_be_valid_for().unwrap() >= guard.remaining());
        assert!(broken.votes().iter().all(|(_, vote)| vote == Some(&Vote::Agreed)));
        let next = held(&ops, "a").await;
        tokio::time::timeout(LEASE / 2, guard.lost()).await.unwrap();
        assert!(!guard.is_valid() && next.is_valid());
        let again = ops.break_lock("a", &seen.holders()[0]).await;
        assert!(matches!(again, Err(BreakError::NotHeld { .. })), "{again:?}");
        assert!(next.is_valid() && status(&ops, "a").await.holders()[0].is_own());
    }
}

/// Otherwise the next waiter of the process would get a lock that was broken.
#[tokio::test]
async fn a_holder_of_this_process_is_lost_at_once_and_its_lock_is_not_handed_over() {
    let test = TestLocks::new(3);
    let shop = process(&test, "shop").await;
    let guard = held(&shop, "a").await;
    let first = status(&shop, "a").await.holders()[0].id();
    let (locks, waits) = (shop.clone(), shop.lock("a").expire(LEASE));
    let waiting = tokio::spawn(async move { waits.acquire().await });
    while status(&locks, "a").await.local_waiters() == 0 {
        tokio::task::yield_now().await;
    }
    let seen = status(&shop, "a").await;
    shop.break_lock("a", &seen.holders()[0]).await.unwrap();
    assert!(!guard.is_valid());
    let lost = guard.release().await.unwrap_err();
    assert!(format!("{lost:?}").contains(&format!("{:?}", LossCause::NotOnNodes)), "{lost:?}");
    let next = tokio::time::timeout(LEASE / 2, waiting).await.unwrap().unwrap().unwrap();
    assert_ne!(status(&shop, "a").await.holders()[0].id(), first);
    assert!(next.is_valid());
}

/// The holder sets its lock again on the nodes that have lost it. So a break that reaches a minority has no effect.
#[tokio::test]
async fn a_break_that_reaches_a_minority_is_unavailable_and_the_lock_stays() {
    let test = TestLocks::new(5);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let guard = held(&shop, "a").await;
    let seen = status(&ops, "a").await;
    // Only the operator is cut off: these nodes answer the holder again.
    test.nodes()[2..].iter().for_each(crate::test_util::TestNode::fail);
    let result = ops.break_lock("a", &seen.holders()[0]).await;
    let Err(BreakError::Unavailable { votes, .. }) = result else { panic!("{result:?}") };
    let removed = votes.iter().filter(|(_, vote)| *vote == Some(&Vote::Agreed)).count();
    assert_eq!(removed, 2);
    test.nodes()[2..].iter().for_each(crate::test_util::TestNode::recover);
    test.clock().advance(LEASE / 2).await;
    assert!(guard.is_valid());
    assert!(test.nodes().iter().all(|node| node.len() == 1));
}

/// A holder that was released, and one of another key, are not there any more: the present holder survives.
#[tokio::test]
async fn a_break_removes_no_other_holder() {
    let test = TestLocks::new(3);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let former = held(&shop, "a").await;
    let seen = status(&ops, "a").await;
    former.release().await.unwrap();
    let present = held(&shop, "a").await;
    let other = held(&shop, "b").await;
    for key in ["a", "b"] {
        let result = ops.break_lock(key, &seen.holders()[0]).await;
        assert!(matches!(result, Err(BreakError::NotHeld { .. })), "{key}: {result:?}");
    }
    assert!(present.is_valid() && other.is_valid());
    assert!(test.nodes().iter().all(|node| node.len() == 2));
}

#[tokio::test]
async fn a_break_of_a_reader_ends_this_reader_alone() {
    let test = TestLocks::new(3);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let reader = |locks: &LockManager| locks.lock("a").shared(true).expire(LEASE);
    let one = reader(&shop).try_acquire().await.unwrap();
    let two = reader(&ops).try_acquire().await.unwrap();
    let seen = status(&ops, "a").await;
    let own = seen.holders().iter().find(|holder| holder.is_own()).unwrap();
    ops.break_lock("a", own).await.unwrap();
    assert!(one.is_valid() && !two.is_valid());
    assert_eq!(labels(&status(&ops, "a").await), ["shop"]);
}

/// A lock of several keys has the same holder at each of them. The holder notices the loss of one, and releases the others.
#[tokio::test]
async fn a_break_of_one_of_several_keys_ends_the_whole_lock() {
    let test = TestLocks::new(3);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    for locks in [&shop, &ops] {
        let set = locks.lock_all(["a", "b"]).expire(LEASE).renew(true).try_acquire().await.unwrap();
        let seen = status(&ops, "b").await;
        ops.break_lock("b", &seen.holders()[0]).await.unwrap();
        tokio::time::timeout(LEASE / 2, set.lost()).await.unwrap();
        drop(set);
        while test.nodes().iter().any(|node| !node.is_empty()) {
            test.clock().advance(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_snapshot_shows_what_the_process_holds_and_waits_for() {
    let test = TestLocks::new(3);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let fenced = ops.lock("b").expire(LEASE).renew(true).fenced(true).try_acquire().await.unwrap();
    let set = ops.lock_all(["d", "c"]).expire(LEASE).try_acquire().await.unwrap();
    let elsewhere = held(&shop, "a").await;
    let waits = ops.lock("a").named("order:{id}").expire(LEASE);
    let waiting = tokio::spawn(async move { waits.acquire().await.map(drop) });
    test.clock().advance(LEASE / 2).await;

    let snapshot = ops.snapshot();
    assert_eq!(snapshot.process.label.as_ref(), ops.owner_label());
    assert_eq!(snapshot.process.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(snapshot.nodes.len(), 3);
    assert!(snapshot.nodes.iter().all(|node| node.status.is_up() && node.report.kind == "memory"));
    let [first, second] = &snapshot.held[..] else { panic!("{snapshot:?}") };
    let keys = |held: &HeldSnapshot| held.keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((keys(first), keys(second)), (vec!["b".into()], vec!["c".into(), "d".into()]));
    let token = fenced.fencing_token().map(crate::FencingToken::number);
    assert_eq!((first.fencing_number, second.fencing_number), (token, None));
    assert!(first.extensions >= 1 && second.extensions == 0);
    assert_eq!((first.lease, first.guards, first.state), (LEASE, 1, LockState::Held));
    assert!(second.remaining <= LEASE / 2);
    assert_eq!(first.id, status(&ops, "b").await.holders()[0].id());
    let [key] = &snapshot.waiting[..] else { panic!("{snapshot:?}") };
    assert_eq!((key.key.as_str(), &*key.name, key.waiters), ("a", "order:{id}", 1));
    assert_eq!(first.name, "other");
    assert_eq!(key.holder.as_ref(), shop.owner_label());
    assert!(key.longest_wait >= LEASE / 2);
    assert_eq!(snapshot.counters.acquisitions["acquired"], 2);
    assert_eq!(snapshot.counters.extended, u64::from(first.extensions));

    test.nodes()[1].fail();
    test.nodes()[2].fail();
    assert_eq!(ops.snapshot().held[0].state, LockState::Suspect);
    set.release().await.unwrap_err();
    let left = ops.snapshot();
    assert_eq!((left.held.len(), left.pending_releases), (1, 1));
    assert!(matches!(left.nodes[2].status, crate::node::NodeStatus::Down(_)));
    waiting.abort();
    drop((elsewhere, fenced));
}

/// Waits until the manager has found so many losses.
async fn losses(locks: &LockManager, count: u64) {
    while locks.snapshot().counters.lost < count {
        tokio::task::yield_now().await;
    }
}

/// The losses that the log reports, with their causes. A flood of them takes no more memory.
#[tokio::test]
async fn a_snapshot_shows_the_last_losses() {
    let test = TestLocks::new(3);
    let ops = process(&test, "ops").await;
    assert!(ops.snapshot().lost.is_empty());
    let slow = ops.lock("slow").named("report").expire(LEASE).try_acquire().await.unwrap();
    let slow_id = status(&ops, "slow").await.holders()[0].id();
    test.clock().advance(LEASE).await;
    losses(&ops, 1).await;
    let broken = held(&ops, "broken").await;
    test.clock().advance(LEASE / 10).await;
    let seen = status(&ops, "broken").await;
    ops.break_lock("broken", &seen.holders()[0]).await.unwrap();

    let snapshot = ops.snapshot();
    let [last, first] = &snapshot.lost[..] else { panic!("{snapshot:?}") };
    assert_eq!((last.key.as_str(), first.key.as_str()), ("broken", "slow"));
    assert_eq!((&*first.name, first.id, last.id), ("report", slow_id, seen.holders()[0].id()));
    assert_eq!(first.reason, "the lease ran out before the lock was released");
    assert_eq!(last.reason, "an operator has broken the lock");
    assert!(last.at.duration_since(first.at).unwrap() >= LEASE / 10);
    assert!(snapshot.taken >= last.at);
    drop((slow, broken));

    let mut guards = Vec::new();
    for number in 0..150 {
        let request = ops.lock(format!("flood:{number:03}")).expire(LEASE);
        guards.push(request.try_acquire().await.unwrap());
    }
    test.clock().advance(LEASE).await;
    losses(&ops, 152).await;
    let snapshot = ops.snapshot();
    assert_eq!(snapshot.lost.len(), 100);
    assert!(snapshot.lost.iter().all(|lost| lost.key.as_str().starts_with("flood:")));
}

/// A snapshot locks the schedule and the queues only while it copies a few entries.
#[tokio::test]
async fn a_snapshot_of_many_locks_has_each_of_them_once() {
    let test = TestLocks::new(1);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let mut guards = Vec::new();
    let mut waiters = Vec::new();
    for number in 0..700 {
        guards.push(held(&ops, &format!("held:{number:03}")).await);
        guards.push(held(&shop, &format!("busy:{number:03}")).await);
        let waits = ops.lock(format!("busy:{number:03}"));
        waiters.push(tokio::spawn(async move { waits.acquire().await.map(drop) }));
    }
    test.clock().advance(Duration::from_millis(10)).await;
    let snapshot = ops.snapshot();
    let keys: Vec<_> = snapshot.held.iter().map(|held| held.keys[0].as_str()).collect();
    let expected: Vec<_> = (0..700).map(|number| format!("held:{number:03}")).collect();
    assert_eq!(keys, expected);
    assert_eq!(snapshot.waiting.len(), 700);
    assert!(snapshot.waiting.iter().all(|waiting| waiting.holder.as_ref() == shop.owner_label()));
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_snapshot_is_written_as_json() {
    let test = TestLocks::new(1);
    let shop = process(&test, "shop").await;
    let _guard = held(&shop, "a").await;
    let json = serde_json::to_value(shop.snapshot()).unwrap();
    assert_eq!(json["process"]["label"], "shop");
    let node = &json["nodes"][0];
    assert_eq!((&node["status"], &node["kind"]), (&"up".into(), &"memory".into()));
    assert!(node["quarantine"].is_null() && node["servers"] == serde_json::json!([]));
    test.nodes()[0].fail();
    let down = serde_json::to_value(shop.snapshot()).unwrap();
    assert_eq!(down["nodes"][0]["status"], "down");
    assert_eq!(down["nodes"][0]["reason"], "not connected: the test has cut the node off");
    assert_eq!(down["held"][0]["state"], "suspect");
    let held = &json["held"][0];
    assert_eq!((&held["keys"], &held["mode"]), (&serde_json::json!(["a"]), &"exclusive".into()));
    assert_eq!((&held["lease_ms"], &held["dialect"]), (&30_000.into(), &"plain".into()));
    assert_eq!(held["id"].as_str().unwrap().len(), 16);
    assert_eq!(json["counters"]["acquisitions"]["acquired"], 1);
    assert_eq!(json["waiting"], serde_json::json!([]));
    test.nodes()[0].recover();
    let seen = status(&shop, "a").await;
    shop.break_lock("a", &seen.holders()[0]).await.unwrap();
    let lost = &serde_json::to_value(shop.snapshot()).unwrap()["lost"][0];
    assert_eq!((&lost["key"], &lost["id"]), (&"a".into(), &held["id"]));
    assert!(lost["at"].as_u64() > Some(0) && lost["reason"].is_string());
}
