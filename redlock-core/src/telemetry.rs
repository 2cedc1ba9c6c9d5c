//! Metrics. Without the feature `metrics`, all functions of this module do nothing.
//!
//! No name or label contains a key, because there may be millions of keys. The `tracing` events name the key.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::counters::{Counters, Outcome};
use crate::error::LockError;

/// Defines a function for each metric, which records a value, and the function `describe`.
macro_rules! metrics {
    ($($(#[$attribute:meta])* $function:ident($($argument:ident: $type:ty),*) {
        $kind:ident($name:literal $(, $label:literal => $value:expr)*).$record:ident($amount:expr),
        $describe:ident($($description:expr),+)
    })*) => {
        $($(#[$attribute])*
        pub(crate) fn $function($($argument: $type),*) {
            #[cfg(feature = "metrics")]
            metrics::$kind!($name $(, $label => $value)*).$record($amount);
            #[cfg(not(feature = "metrics"))]
            let _ = ($($argument,)*);
        })*

        /// Registers the descriptions of all metrics with the exporter.
        pub(crate) fn describe() {
            $(
                $(#[$attribute])*
                #[cfg(feature = "metrics")]
                metrics::$describe!($name, $($description),+);
            )*
        }
    };
}

metrics! {
    acquisition_ended(outcome: &'static str, after: Duration) {
        histogram("redlock_acquire_seconds", "outcome" => outcome).record(after.as_secs_f64()),
        describe_histogram(metrics::Unit::Seconds, "Duration of acquisitions, waiting included, by outcome")
    }
    lost() {
        counter("redlock_lost_total").increment(1),
        describe_counter("Locks that were lost before their holder released them, or that the release found gone")
    }
    conductor_changed() {
        counter("redlock_conductor_changes_total").increment(1),
        describe_counter("Changes of the node that keeps the order of fair waiters")
    }
    extension(outcome: &'static str) {
        counter("redlock_extensions_total", "outcome" => outcome).increment(1),
        describe_counter("Extensions of leases, by outcome")
    }
    node_up(node: &Arc<str>, up: bool) {
        gauge("redlock_node_up", "node" => Arc::clone(node)).set(f64::from(u8::from(up))),
        describe_gauge("Whether a node is up (1) or down (0)")
    }
    #[cfg(any(feature = "postgres", feature = "redis"))]
    clock_stepped(node: &Arc<str>, direction: &'static str) {
        counter("redlock_clock_steps_total", "node" => Arc::clone(node), "direction" => direction).increment(1),
        describe_counter("Steps of the nodes' wall clocks")
    }
    #[cfg(any(feature = "postgres", feature = "redis"))]
    promoted(node: &Arc<str>) {
        counter("redlock_promotions_total", "node" => Arc::clone(node)).increment(1),
        describe_counter("Promotions of another server of a node, seen by this manager")
    }
    #[cfg(feature = "redis")]
    authenticated_again(node: &Arc<str>, outcome: &'static str) {
        counter("redlock_authentications_total", "node" => Arc::clone(node), "outcome" => outcome).increment(1),
        describe_counter("Attempts to renew the credentials of a connection, by outcome")
    }
}

/// Measures and counts one acquisition, until it has an outcome or is dropped.
#[derive(Debug)]
pub(crate) struct AcquisitionTimer<'a> {
    counters: &'a Counters,
    /// `None` without the feature `metrics`.
    started: Option<Instant>,
    outcome: Outcome,
}

impl<'a> AcquisitionTimer<'a> {
    pub(crate) fn start(counters: &'a Counters) -> Self {
        let started = cfg!(feature = "metrics").then(Instant::now);
        Self { counters, started, outcome: Outcome::Dropped }
    }

    /// Sets the outcome of the acquisition: acquired, or this error.
    pub(crate) fn set_outcome(&mut self, error: Option<&LockError>) {
        self.outcome = match error {
            None => Outcome::Acquired,
            Some(LockError::Contended { .. }) => Outcome::Contended,
            Some(LockError::Split { .. }) => Outcome::Split,
            Some(LockError::Unavailable { .. }) => Outcome::Unavailable,
            Some(LockError::TimedOut { .. }) => Outcome::TimedOut,
            Some(LockError::TooManyWaiters { .. }) => Outcome::TooManyWaiters,
            Some(LockError::AlreadyHeld { .. }) => Outcome::AlreadyHeld,
            Some(LockError::Lost(_)) => Outcome::Lost,
            Some(LockError::ForeignKey { .. }) => Outcome::ForeignKey,
            Some(LockError::InvalidKey(_) | LockError::InvalidOption(_)) => Outcome::Invalid,
            Some(LockError::Draining) => Outcome::Draining,
            Some(LockError::ShutDown) => Outcome::ShutDown,
            Some(LockError::RuntimeEnded) => Outcome::RuntimeEnded,
        };
    }
}

impl Drop for AcquisitionTimer<'_> {
    fn drop(&mut self) {
        self.counters.record_acquisition(self.outcome);
        if let Some(started) = self.started {
            acquisition_ended(self.outcome.name(), started.elapsed());
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

    use crate::clock::fake::RuntimeClock;
    use crate::error::NodeError;
    use crate::node::deferring::DeferringNode;
    use crate::node::fake::{FakeMode, FakeNode};
    use crate::node::{Node, NodeStatus};
    use crate::{LockManager, LockManagerBuilder};

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the metrics with their labels, sorted, each with a number: the count of a counter, the number
    /// of samples of a histogram, or 0 or 1 for a gauge.
    fn counted(snapshotter: &Snapshotter) -> Vec<(String, u64)> {
        let mut counted: Vec<_> = snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| {
                let labels = key.key().labels().map(|label| format!(" {}", label.value()));
                let name = format!("{}{}", key.key().name(), labels.collect::<String>());
                let value = match value {
                    DebugValue::Counter(count) => count,
                    DebugValue::Histogram(values) => values.len() as u64,
                    DebugValue::Gauge(value) => u64::from(value.0 > 0.5),
                };
                (name, value)
            })
            .collect();
        counted.sort();
        counted
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
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        metrics::with_local_recorder(&recorder, || {
            runtime.unwrap().block_on(async {
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
            ("redlock_acquire_seconds acquired", 3),
            ("redlock_acquire_seconds contended", 2),
            ("redlock_acquire_seconds dropped", 1),
            ("redlock_acquire_seconds invalid", 1),
            ("redlock_acquire_seconds shut_down", 1),
            ("redlock_acquire_seconds unavailable", 1),
            ("redlock_extensions_total extended", 1),
            ("redlock_extensions_total lost", 1),
            ("redlock_extensions_total unavailable", 1),
            ("redlock_lost_total", 3),
            ("redlock_node_up node", 1),
        ];
        assert_eq!(counted(&snapshotter), expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn the_status_of_every_node_is_reported_until_the_manager_is_gone() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap();
        let mut nodes = [(); 3].map(|()| DeferringNode::new().0);
        nodes.sort_by_key(|node| node.name().to_string());
        let names = nodes.each_ref().map(|node| format!("redlock_node_up {}", node.name()));
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
        let expected: Vec<_> = names.into_iter().zip([1, 0, 1]).collect();
        assert_eq!(counted(&snapshotter), expected);
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    #[test]
    fn promotions_are_counted_by_node() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            super::promoted(&Arc::from("shop@10.0.0.1:26379"));
        });
        let expected = [("redlock_promotions_total shop@10.0.0.1:26379".to_owned(), 1)];
        assert_eq!(counted(&snapshotter), expected);
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    #[test]
    fn steps_of_a_clock_are_counted_by_node_and_direction() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            for direction in ["forward", "back", "forward"] {
                super::clock_stepped(&Arc::from("10.0.0.1:6379"), direction);
            }
        });
        let expected = [("10.0.0.1:6379 back", 1), ("10.0.0.1:6379 forward", 2)]
            .map(|(labels, count)| (format!("redlock_clock_steps_total {labels}"), count));
        assert_eq!(counted(&snapshotter), expected);
    }
}
