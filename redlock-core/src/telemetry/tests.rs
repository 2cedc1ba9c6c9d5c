//! The metrics that a recorder gets.
#![allow(clippy::float_cmp, reason = "the gauges have whole numbers")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redlock_logs::Logs;

use super::gauge_tests::Gauges;
use crate::clock::fake::RuntimeClock;
use crate::error::NodeError;
use crate::lock::LockName;
use crate::node::deferring::DeferringNode;
use crate::node::fake::{FakeMode, FakeNode};
use crate::node::{Node, NodeStatus};
use crate::{LockManager, LockManagerBuilder};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the metrics with their labels, sorted, each with a value: the count of a counter, the number of samples of a
/// histogram, or the value of a gauge.
fn counted(snapshotter: &Snapshotter) -> Vec<String> {
    let metrics = snapshotter.snapshot().into_vec().into_iter();
    let counted = metrics.map(|(key, _, _, value)| {
        let labels = key.key().labels().map(|label| format!(" {}", label.value()));
        let name = format!("{}{}", key.key().name(), labels.collect::<String>());
        match value {
            DebugValue::Counter(count) => format!("{name}: {count}"),
            DebugValue::Histogram(values) => format!("{name}: {}", values.len()),
            DebugValue::Gauge(value) => format!("{name}: {value}"),
        }
    });
    let mut counted: Vec<_> = counted.collect();
    counted.sort();
    counted
}

/// Returns the metrics that are not zero.
fn counted_without_zeros(snapshotter: &Snapshotter) -> Vec<String> {
    let mut counted = counted(snapshotter);
    counted.retain(|metric| !metric.ends_with(": 0"));
    counted
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn over_fake() -> (LockManager, Arc<FakeNode>) {
    let node = FakeNode::start("node");
    let nodes = vec![Arc::clone(&node) as Arc<dyn Node>];
    (LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new())), node)
}

#[test]
fn acquisitions_losses_and_extensions_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        runtime().block_on(async {
            let (locks, node) = over_fake();
            let guard = locks.lock("a").expire(5 * SECOND).try_acquire().await.unwrap();
            guard.extend(5 * SECOND).await.unwrap();
            locks.lock("a").try_acquire().await.unwrap_err();
            locks.lock("a").wait_time(SECOND).acquire().await.unwrap_err();
            assert!(locks.lock("a").wait_forever().acquire().now_or_never().is_none());
            guard.lost().await;
            guard.extend(5 * SECOND).await.unwrap_err();
            drop(guard);
            let guard = locks.lock("b").expire(5 * SECOND).try_acquire().await.unwrap();
            node.set(FakeMode::Down);
            guard.extend(5 * SECOND).await.unwrap_err();
            locks.lock("c").try_acquire().await.unwrap_err();
            locks.lock("").try_acquire().await.unwrap_err();
            node.set(FakeMode::Up(Duration::ZERO));
            node.forget();
            guard.extend(5 * SECOND).await.unwrap_err();
            // A release that finds its lock gone is a loss too, but only one of each lock.
            guard.release().await.unwrap_err();
            let guard = locks.lock("d").expire(5 * SECOND).try_acquire().await.unwrap();
            node.forget();
            guard.release().await.unwrap_err();
            locks.shutdown().await;
            locks.lock("a").try_acquire().await.unwrap_err();
        });
    });
    let expected = [
        "redlock_acquire_seconds acquired other: 3",
        "redlock_acquire_seconds contended other: 2",
        "redlock_acquire_seconds dropped other: 1",
        "redlock_acquire_seconds invalid other: 1",
        "redlock_acquire_seconds shut_down other: 1",
        "redlock_acquire_seconds unavailable other: 1",
        "redlock_extensions_total extended: 1",
        "redlock_extensions_total lost: 1",
        "redlock_extensions_total unavailable: 1",
        "redlock_hold_seconds other lost: 2",
        // Its release has found the third one gone.
        "redlock_hold_seconds other released: 1",
        "redlock_lost_total: 3",
        "redlock_node_up node: 1",
        "redlock_quorum node: 1",
    ];
    assert_eq!(counted_without_zeros(&snapshotter), expected);
}

/// Otherwise the first event is no increase.
#[test]
fn every_counter_is_zero_before_its_first_event() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        runtime().block_on(async {
            let (locks, _node) = over_fake();
            locks
                .lock("a")
                .named("order:{id}")
                .try_acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        });
    });
    let mut counted = counted(&snapshotter);
    counted.retain(|metric| metric.contains("_total"));
    #[cfg(not(any(feature = "postgres", feature = "redis")))]
    let of_servers: [&str; 0] = [];
    #[cfg(any(feature = "postgres", feature = "redis"))]
    let of_servers = [
        "redlock_clock_steps_total node back: 0",
        "redlock_clock_steps_total node forward: 0",
        "redlock_promotions_total node: 0",
    ];
    #[cfg(not(feature = "redis"))]
    let of_redis: [&str; 0] = [];
    #[cfg(feature = "redis")]
    let of_redis = [
        "redlock_authentications_total node failed: 0",
        "redlock_authentications_total node renewed: 0",
    ];
    let all = [
        "redlock_broken_total order:{id}: 0",
        "redlock_broken_total other: 0",
        "redlock_conductor_changes_total: 0",
        "redlock_extensions_total extended: 0",
        "redlock_extensions_total lost: 0",
        "redlock_extensions_total unavailable: 0",
        "redlock_lock_order_total: 0",
        "redlock_lost_total: 0",
    ];
    let mut expected = [&all[..], &of_servers, &of_redis].concat();
    expected.sort_unstable();
    assert_eq!(counted, expected);
}

#[test]
fn acquisitions_and_holds_are_counted_by_name_and_a_break_too() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        runtime().block_on(async {
            let locks = LockManager::in_memory();
            let order = || locks.lock("order:s3cret").named("order:{id}");
            let guard = order().try_acquire().await.unwrap();
            locks.lock("order:s3cret").named("refund").try_acquire().await.unwrap_err();
            let status = locks.status("order:s3cret").await.unwrap();
            let holder = &status.holders()[0];
            locks.break_lock("order:s3cret", holder).await.unwrap();
            drop(guard);
            order().try_acquire().await.unwrap().release().await.unwrap();
            let invalid = locks.lock("a").named("").try_acquire().await;
            invalid.unwrap_err();
            locks.shutdown().await;
        });
    });
    let mut counted = counted_without_zeros(&snapshotter);
    assert!(!counted.iter().any(|metric| metric.contains("s3cret")), "{counted:?}");
    counted.retain(|metric| !metric.starts_with("redlock_node_up") && !metric.contains("quorum"));
    let expected = [
        "redlock_acquire_seconds acquired order:{id}: 2",
        "redlock_acquire_seconds contended refund: 1",
        "redlock_acquire_seconds invalid other: 1",
        "redlock_broken_total order:{id}: 1",
        "redlock_hold_seconds order:{id} broken: 1",
        "redlock_hold_seconds order:{id} released: 1",
        "redlock_lost_total: 1",
    ];
    assert_eq!(counted, expected);
}

/// A caller waits for two seconds, and holds the lock for three.
#[test]
fn the_histograms_have_the_time_of_waiting_and_of_holding() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        runtime().block_on(async {
            let (locks, _node) = over_fake();
            let first = locks.lock("a").named("first").try_acquire().await.unwrap();
            let second = locks.lock("a").named("second").wait_time(60 * SECOND).acquire();
            let second = tokio::spawn(second);
            tokio::time::sleep(2 * SECOND).await;
            first.release().await.unwrap();
            let second = second.await.unwrap().unwrap();
            tokio::time::sleep(3 * SECOND).await;
            second.release().await.unwrap();
        });
    });
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let DebugValue::Histogram(values) = value else { continue };
        let name = key.key().labels().find(|label| label.key() == "lock");
        let expected = match (key.key().name(), name.map(metrics::Label::value)) {
            ("redlock_acquire_seconds", Some("first")) => 0.0..0.5,
            ("redlock_acquire_seconds", _) | ("redlock_hold_seconds", Some("first")) => 2.0..2.5,
            _ => 3.0..3.5,
        };
        assert_eq!(values.len(), 1);
        assert!(expected.contains(&values[0].into_inner()), "{key:?}: {values:?}");
    }
}

/// New handles would cost every acquisition time.
#[test]
fn the_handles_of_a_name_are_made_once() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = runtime();
    let take = |locks: &LockManager| {
        let acquire = locks.lock("a").named("kept").try_acquire();
        drop(runtime.block_on(acquire).unwrap());
    };
    let locks = metrics::with_local_recorder(&recorder, || {
        let locks = LockManager::in_memory();
        take(&locks);
        locks
    });
    // Handles that are made without the recorder would record nothing.
    take(&locks);
    let mut counted = counted_without_zeros(&snapshotter);
    counted.retain(|metric| metric.contains("kept"));
    let expected =
        ["redlock_acquire_seconds acquired kept: 2", "redlock_hold_seconds kept released: 2"];
    assert_eq!(counted, expected);
}

/// Front ends count them: a name has no such counter otherwise.
#[test]
fn answers_that_are_sent_again_are_counted_by_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let locks = runtime().block_on(async { LockManager::in_memory() });
        for (name, count) in [("orders", 0), ("payments", 0), ("payments", 1), ("payments", 1)] {
            locks.count_replays(&LockName::new(name), count);
        }
    });
    let mut counted = counted(&snapshotter);
    counted.retain(|metric| metric.contains("replayed"));
    let expected = ["redlock_replayed_total orders: 0", "redlock_replayed_total payments: 2"];
    assert_eq!(counted, expected);
}

/// The services that install their recorder late must not miss it silently.
#[test]
fn a_late_recorder_is_used_from_then_on_with_one_warning() {
    const WARNING: &str = "a recorder of metrics was installed after the lock manager was created";
    let logs = Logs::collect();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = runtime();
    let acquire = |locks: &LockManager, key: &str| {
        runtime.block_on(locks.lock(key).named("late").try_acquire()).unwrap()
    };
    let locks = LockManager::in_memory();
    let before = acquire(&locks, "a");
    assert_eq!(logs.count("WARN", WARNING), 0);
    metrics::with_local_recorder(&recorder, || {
        let after = acquire(&locks, "b");
        drop((before, acquire(&locks, "c")));
        assert_eq!(logs.count("WARN", WARNING), 1);
        let mut counted = counted(&snapshotter);
        counted.retain(|metric| metric.contains("late") || metric.contains("lost"));
        let expected = [
            "redlock_acquire_seconds acquired late: 2",
            "redlock_broken_total late: 0",
            "redlock_extensions_total lost: 0",
            "redlock_held late: 1",
            // Also the lock from before, whose hold is measured from its begin.
            "redlock_hold_seconds late released: 2",
            "redlock_lost_total: 0",
            "redlock_waiting late: 0",
        ];
        assert_eq!(counted, expected);
        drop(after);
        // A manager that is created now has the recorder from the begin.
        let other = LockManager::in_memory();
        drop(acquire(&other, "a"));
        assert_eq!(logs.count("WARN", WARNING), 1);
    });
}

/// The first acquisition notices it.
#[test]
fn a_late_recorder_gets_the_state_of_the_nodes() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = runtime();
    let (locks, _node) = runtime.block_on(async {
        let nodes = over_fake();
        // The task that reports the state waits for a recorder.
        tokio::time::sleep(2 * SECOND).await;
        nodes
    });
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            drop(locks.lock("a").try_acquire().await.unwrap());
            tokio::time::sleep(2 * SECOND).await;
        });
    });
    let mut counted = counted(&snapshotter);
    counted.retain(|metric| metric.contains("node_up") || metric.contains("quorum"));
    assert_eq!(counted, ["redlock_node_up node: 1", "redlock_quorum node: 1"]);
}

/// A process may have several managers.
#[test]
fn each_manager_has_a_quorum_of_its_own() {
    let recorder = Gauges::default();
    let runtime = runtime();
    let nodes = [(); 4].map(|()| DeferringNode::new().0);
    let status = nodes[0].status.clone();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let mut nodes = nodes.into_iter();
            let _down = LockManager::builder().node(nodes.next().unwrap()).connect().await.unwrap();
            let builder = nodes.fold(LockManager::builder(), LockManagerBuilder::node);
            let _up = builder.connect().await.unwrap();
            tokio::time::sleep(2 * SECOND).await;
            assert_eq!(recorder.value("redlock_quorum"), 2.0);
            status.send(NodeStatus::Down(NodeError::NotConnected("refused".into())));
            tokio::time::sleep(2 * SECOND).await;
            assert_eq!(recorder.value("redlock_quorum"), 1.0);
        });
    });
}

/// A quarantine does not change the status of a node.
#[test]
fn the_quorum_is_zero_while_too_many_nodes_are_down_or_grant_no_locks() {
    let recorder = Gauges::default();
    let runtime = runtime();
    let mut nodes = [(); 3].map(|()| DeferringNode::new().0);
    nodes[0].is_granting = false;
    let status = nodes[1].status.clone();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let builder = nodes.into_iter().fold(LockManager::builder(), LockManagerBuilder::node);
            let _locks = builder.connect().await.unwrap();
            let quorum = async || {
                tokio::time::sleep(2 * SECOND).await;
                recorder.value("redlock_quorum")
            };
            assert_eq!(quorum().await, 1.0);
            status.send(NodeStatus::Down(NodeError::NotConnected("refused".into())));
            assert_eq!(quorum().await, 0.0);
            status.send(NodeStatus::Up);
            assert_eq!(quorum().await, 1.0);
        });
    });
}

#[test]
fn the_status_of_every_node_is_reported_until_the_manager_is_gone() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = runtime();
    let mut nodes = [(); 3].map(|()| DeferringNode::new().0);
    nodes.sort_by_key(|node| node.name().to_string());
    let names = nodes.each_ref().map(|node| format!("redlock_node_up {}: ", node.name()));
    let statuses = nodes.each_ref().map(|node| node.status.clone());
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let settle = || tokio::time::sleep(SECOND);
            let down = || NodeStatus::Down(NodeError::NotConnected("refused".into()));
            statuses[2].send(down());
            let builder = LockManager::builder();
            let builder = nodes.into_iter().fold(builder, LockManagerBuilder::node);
            let locks = builder.connect().await.unwrap();
            settle().await;
            statuses[1].send(down());
            statuses[2].send(NodeStatus::Up);
            settle().await;
            drop(locks);
            settle().await;
            statuses[0].send(down());
            settle().await;
        });
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    });
    let mut counted = counted(&snapshotter);
    counted.retain(|metric| metric.starts_with("redlock_node_up"));
    let expected: Vec<_> =
        names.iter().zip([1, 0, 1]).map(|(name, up)| format!("{name}{up}")).collect();
    assert_eq!(counted, expected);
}

#[cfg(any(feature = "postgres", feature = "redis"))]
#[test]
fn promotions_are_counted_by_node() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        super::promoted(&Arc::from("shop@10.0.0.1:26379"), 1);
    });
    assert_eq!(counted(&snapshotter), ["redlock_promotions_total shop@10.0.0.1:26379: 1"]);
}

#[cfg(any(feature = "postgres", feature = "redis"))]
#[test]
fn steps_of_a_clock_are_counted_by_node_and_direction() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        for direction in ["forward", "back", "forward"] {
            super::clock_stepped(&Arc::from("10.0.0.1:6379"), direction, 1);
        }
    });
    let expected = ["10.0.0.1:6379 back: 1", "10.0.0.1:6379 forward: 2"];
    let expected = expected.map(|labels| format!("redlock_clock_steps_total {labels}"));
    assert_eq!(counted(&snapshotter), expected);
}
