//! Metrics. Without the feature `metrics`, all functions of this module do nothing.
//!
//! No name or label contains a key, because there may be millions of keys. The `tracing` events name the key.

#[cfg(feature = "redis")]
use std::sync::Arc;

use crate::error::LockError;

/// Measures the duration of one acquisition, until it has an outcome or is dropped.
#[derive(Debug)]
pub(crate) struct AcquisitionTimer {
    #[cfg(feature = "metrics")]
    started: tokio::time::Instant,
    #[cfg(feature = "metrics")]
    outcome: &'static str,
}

impl AcquisitionTimer {
    pub(crate) fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            started: tokio::time::Instant::now(),
            #[cfg(feature = "metrics")]
            outcome: "dropped",
        }
    }

    /// Sets the outcome of the acquisition: acquired, or this error.
    #[cfg(feature = "metrics")]
    pub(crate) fn set_outcome(&mut self, error: Option<&LockError>) {
        self.outcome = match error {
            None => "acquired",
            Some(LockError::Contended { .. }) => "contended",
            Some(LockError::Unavailable { .. }) => "unavailable",
            Some(LockError::TimedOut { .. }) => "timed_out",
            Some(LockError::TooManyWaiters { .. }) => "too_many_waiters",
            Some(LockError::AlreadyHeld { .. }) => "already_held",
            Some(LockError::ForeignKey { .. }) => "foreign_key",
            Some(LockError::InvalidKey(_) | LockError::InvalidOption(_)) => "invalid",
            Some(LockError::ShutDown) => "shut_down",
            Some(LockError::RuntimeEnded) => "runtime_ended",
        };
    }

    #[cfg(not(feature = "metrics"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    pub(crate) fn set_outcome(&mut self, _: Option<&LockError>) {}
}

#[cfg(feature = "metrics")]
impl Drop for AcquisitionTimer {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        metrics::histogram!("redlock_acquire_seconds", "outcome" => self.outcome).record(seconds);
    }
}

/// Counts a lock that was lost before its holder released it.
pub(crate) fn lost() {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_lost_total").increment(1);
}

/// Counts a change of the node that keeps the order of fair waiters.
pub(crate) fn conductor_changed() {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_conductor_changes_total").increment(1);
}

/// Counts an extension that the holder or the renewal requested.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn extension(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_extensions_total", "outcome" => outcome).increment(1);
}

/// Records whether a node is up.
#[cfg(feature = "redis")]
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is measured"))]
pub(crate) fn node_up(node: &Arc<str>, up: bool) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("redlock_node_up", "node" => Arc::clone(node)).set(f64::from(u8::from(up)));
}

/// Counts a step of a node's wall clock.
#[cfg(feature = "redis")]
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn clock_stepped(node: &Arc<str>, direction: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_clock_steps_total", "node" => Arc::clone(node), "direction" => direction)
        .increment(1);
}

/// Counts the promotion of another server of a node.
#[cfg(feature = "redis")]
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn promoted(node: &Arc<str>) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_promotions_total", "node" => Arc::clone(node)).increment(1);
}

/// Counts an attempt to renew the credentials of a connection.
#[cfg(feature = "redis")]
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn authenticated_again(node: &Arc<str>, outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_authentications_total", "node" => Arc::clone(node), "outcome" => outcome)
        .increment(1);
}

/// Registers the descriptions of all metrics with the exporter.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    {
        use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

        describe_histogram!(
            "redlock_acquire_seconds",
            Unit::Seconds,
            "Duration of acquisitions, waiting included, by outcome"
        );
        describe_counter!(
            "redlock_lost_total",
            "Locks that were lost before their holder released them"
        );
        describe_counter!(
            "redlock_conductor_changes_total",
            "Changes of the node that keeps the order of fair waiters"
        );
        describe_counter!("redlock_extensions_total", "Extensions of leases, by outcome");
        describe_counter!("redlock_clock_steps_total", "Steps of the nodes' wall clocks");
        describe_counter!(
            "redlock_promotions_total",
            "Promotions of another server of a node, seen by this manager"
        );
        describe_counter!(
            "redlock_authentications_total",
            "Attempts to renew the credentials of a connection, by outcome"
        );
        describe_gauge!("redlock_node_up", "Whether a node is up (1) or down (0)");
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

    use crate::clock::fake::RuntimeClock;
    use crate::node::Node;
    use crate::node::fake::{FakeMode, FakeNode};
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
                let guard = locks.lock("a").expire(5 * SECOND).acquire().await.unwrap();
                guard.extend(5 * SECOND).await.unwrap();
                locks.lock("a").try_acquire().await.unwrap_err();
                locks.lock("a").wait_time(SECOND).acquire().await.unwrap_err();
                assert!(locks.lock("a").wait_forever().acquire().now_or_never().is_none());
                guard.lost().await;
                guard.extend(5 * SECOND).await.unwrap_err();
                drop(guard);
                let guard = locks.lock("b").expire(5 * SECOND).acquire().await.unwrap();
                node.set(FakeMode::Down);
                guard.extend(5 * SECOND).await.unwrap_err();
                locks.lock("c").try_acquire().await.unwrap_err();
                locks.lock("").try_acquire().await.unwrap_err();
                node.set(FakeMode::Up(Duration::ZERO));
                node.forget();
                guard.extend(5 * SECOND).await.unwrap_err();
                locks.shutdown().await;
                locks.lock("a").try_acquire().await.unwrap_err();
            });
        });
        let expected = [
            ("redlock_acquire_seconds acquired", 2),
            ("redlock_acquire_seconds contended", 2),
            ("redlock_acquire_seconds dropped", 1),
            ("redlock_acquire_seconds invalid", 1),
            ("redlock_acquire_seconds shut_down", 1),
            ("redlock_acquire_seconds unavailable", 1),
            ("redlock_extensions_total extended", 1),
            ("redlock_extensions_total lost", 1),
            ("redlock_extensions_total unavailable", 1),
            ("redlock_lost_total", 2),
        ];
        assert_eq!(counted(&snapshotter), expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[cfg(feature = "redis")]
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

    #[cfg(feature = "redis")]
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
