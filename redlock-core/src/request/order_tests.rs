//! The warning of requests that take locks in different orders.

use std::time::Duration;

use redlock_logs::Logs;

use crate::{LockManager, LockRequest, scope};

const CIRCLE: &str = "requests take locks in different orders";
const SAME_NAME: &str = "a request waits for a second lock of a name";

fn lock(locks: &LockManager, key: &'static str) -> LockRequest {
    let name = key.split(':').next().unwrap();
    locks.lock(key).named(name).wait_time(Duration::from_secs(60))
}

/// Acquires the locks one after another in a scope of its own, and then releases them.
async fn take(requests: impl IntoIterator<Item = LockRequest>) {
    scope(async {
        let mut guards = Vec::new();
        for request in requests {
            guards.push(request.prepare().unwrap().acquire().await.unwrap());
        }
    })
    .await;
}

fn warnings(logs: &Logs) -> Vec<String> {
    let lines = logs.lines();
    lines.into_iter().filter(|line| line.trim_start().starts_with("WARN")).collect()
}

#[tokio::test]
async fn two_requests_that_take_two_locks_in_different_orders_are_one_warning_with_both_places() {
    let logs = Logs::collect().expect_lock_order();
    let locks = LockManager::in_memory();
    let first = |locks: &LockManager| [lock(locks, "a:1"), lock(locks, "b:1")];
    take(first(&locks)).await;
    take(first(&locks)).await;
    assert_eq!(warnings(&logs), [""; 0]);
    for _ in 0..2 {
        let (b, a) = (locks.lock("b:2").named("b"), locks.lock("a:2").named("a"));
        let [b, a] = [b, a].map(|request| request.wait_time(Duration::from_secs(60)));
        take([b, a]).await;
    }
    let warnings = warnings(&logs);
    assert_eq!(logs.count("WARN", CIRCLE), 1, "{warnings:?}");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(!["a:1", "a:2", "b:1", "b:2"].iter().any(|key| warning.contains(key)), "{warning}");
    let file = file!().rsplit('/').next().unwrap();
    for edge in ["b then a at ", "a then b at "] {
        let place = warning.split(edge).nth(1).unwrap();
        assert!(place.split(';').next().unwrap().contains(&format!("{file}:")), "{warning}");
    }
    assert!(warning.find("b then a") < warning.find("a then b"), "the last one first: {warning}");
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn each_circle_is_counted_once() {
    let _logs = Logs::collect().expect_lock_order();
    let counted = crate::telemetry::Counted::begin();
    let locks = LockManager::in_memory();
    for _ in 0..2 {
        take([lock(&locks, "a"), lock(&locks, "b")]).await;
        take([lock(&locks, "b"), lock(&locks, "a")]).await;
        take([lock(&locks, "order:1"), lock(&locks, "order:2")]).await;
    }
    assert_eq!(counted.events("redlock_lock_order_total"), [": 2"]);
}

#[tokio::test]
async fn a_circle_of_three_names_is_found() {
    let logs = Logs::collect().expect_lock_order();
    let locks = LockManager::in_memory();
    for [held, wanted] in [["a", "b"], ["b", "c"]] {
        take([lock(&locks, held), lock(&locks, wanted)]).await;
    }
    assert_eq!(warnings(&logs), [""; 0]);
    take([lock(&locks, "c"), lock(&locks, "a")]).await;
    let warnings = warnings(&logs);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for edge in ["c then a at ", "a then b at ", "b then c at "] {
        assert!(warnings[0].contains(edge), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_task_that_stays_in_the_scope_of_its_caller_has_its_locks() {
    let logs = Logs::collect().expect_lock_order();
    let locks = LockManager::in_memory();
    take([lock(&locks, "a"), lock(&locks, "b")]).await;
    let inner = locks.clone();
    let work = async move |_| drop(lock(&inner, "a").acquire().await.unwrap());
    lock(&locks, "b").run_detached(work).await.unwrap();
    assert_eq!(logs.count("WARN", CIRCLE), 1, "{:?}", warnings(&logs));
    // A task of its own is another caller.
    let locks = LockManager::in_memory();
    take([lock(&locks, "a"), lock(&locks, "b")]).await;
    let inner = locks.clone();
    let work = async move |_| {
        let other = async move { drop(lock(&inner, "a").acquire().await.unwrap()) };
        tokio::spawn(other).await.unwrap();
    };
    lock(&locks, "b").run(work).await.unwrap();
    assert_eq!(logs.count("WARN", CIRCLE), 1, "{:?}", warnings(&logs));
}

/// It does not wait this time.
#[tokio::test(start_paused = true)]
async fn a_reader_that_joins_the_lock_of_another_one_takes_it_in_an_order() {
    let logs = Logs::collect().expect_lock_order();
    let locks = LockManager::in_memory();
    let reader = lock(&locks, "b").shared(true);
    let window = reader.clone().acquire().await.unwrap();
    scope(async {
        let _first = lock(&locks, "a").acquire().await.unwrap();
        let joined = reader.acquire().await.unwrap();
        assert!(joined.has_joined(), "{joined:?}");
    })
    .await;
    drop(window);
    take([lock(&locks, "b"), lock(&locks, "a")]).await;
    assert_eq!(logs.count("WARN", CIRCLE), 1, "{:?}", warnings(&logs));
}

#[tokio::test]
async fn two_keys_of_one_name_propose_a_lock_of_both() {
    let logs = Logs::collect().expect_lock_order();
    let locks = LockManager::in_memory();
    for _ in 0..2 {
        take([lock(&locks, "order:1"), lock(&locks, "order:2")]).await;
    }
    let warnings = warnings(&logs);
    assert_eq!(logs.count("WARN", SAME_NAME), 1, "{warnings:?}");
    assert!(warnings[0].contains("name=\"order\"") && warnings[0].contains("lock_all"));
    assert!(!["order:1", "order:2"].iter().any(|key| warnings[0].contains(key)), "{warnings:?}");
}

#[tokio::test]
async fn requests_that_cannot_wait_for_each_other_are_no_warning() {
    let logs = Logs::collect();
    let both = |one: &LockRequest, other: &LockRequest| {
        [[one.clone(), other.clone()], [other.clone(), one.clone()]]
    };
    let (locks, zero) = (LockManager::in_memory(), Duration::ZERO);
    // One of the orders does not wait.
    let [first, second] = both(&lock(&locks, "a"), &lock(&locks, "b"));
    take(first).await;
    take(second.map(|request| request.wait_time(zero))).await;
    take([locks.lock("b").named("b"), locks.lock("a").named("a")]).await;
    // Readers.
    let [c, d] = ["c", "d"].map(|key| lock(&locks, key).shared(true));
    for order in both(&c, &d) {
        take(order).await;
    }
    take([lock(&locks, "c:1").shared(true), lock(&locks, "c:2").shared(true)]).await;
    // Locks without a name.
    let [e, f] = ["e", "f"].map(|key| locks.lock(key).wait_time(Duration::from_secs(60)));
    for order in both(&e, &f) {
        take(order).await;
    }
    // A lock that was released before, and the locks of different scopes and managers.
    take([lock(&locks, "g"), lock(&locks, "h")]).await;
    scope(async {
        drop(lock(&locks, "h").acquire().await.unwrap());
        drop(lock(&locks, "g").acquire().await.unwrap());
    })
    .await;
    let other = LockManager::in_memory();
    take([lock(&other, "h"), lock(&locks, "g")]).await;
    // A lock that the scope joins.
    take([lock(&locks, "i"), lock(&locks, "j"), lock(&locks, "i").reentrant(true)]).await;
    let off = LockManager::builder().memory_node(&crate::MemoryNode::new()).lock_order(false);
    let off = off.connect().await.unwrap();
    for order in both(&lock(&off, "a"), &lock(&off, "b")) {
        take(order).await;
    }
    assert_eq!(warnings(&logs), [""; 0]);
}

/// Its guard still exists.
#[tokio::test]
async fn a_lock_that_is_lost_is_on_no_circle() {
    let logs = Logs::collect();
    let node = crate::MemoryNode::new();
    let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
    take([lock(&locks, "a"), lock(&locks, "b")]).await;
    scope(async {
        let lost = lock(&locks, "b").acquire().await.unwrap();
        node.forget();
        lost.extend(Duration::from_secs(60)).await.unwrap_err();
        drop(lock(&locks, "a").acquire().await.unwrap());
        drop(lost);
    })
    .await;
    assert_eq!(logs.count("WARN", CIRCLE), 0, "{:?}", warnings(&logs));
}

#[tokio::test]
async fn a_writer_closes_the_circle_of_readers() {
    let logs = Logs::collect().expect_lock_order();
    let locks = LockManager::in_memory();
    take([lock(&locks, "a").shared(true), lock(&locks, "b").shared(true)]).await;
    take([lock(&locks, "b").shared(true), lock(&locks, "a")]).await;
    assert_eq!(logs.count("WARN", CIRCLE), 1, "{:?}", warnings(&logs));
}
