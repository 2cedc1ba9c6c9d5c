//! Metrics and spans. Without the feature `metrics`, nothing is recorded, and the types of the metrics are empty.
//!
//! No name, label or field contains a key, because there may be millions of keys. The `tracing` events name the key.

mod acquisition;
#[cfg(test)]
#[cfg(feature = "metrics")]
mod counted;
#[cfg(test)]
#[cfg(feature = "metrics")]
mod gauge_tests;
mod hold;
mod locks;
#[cfg(feature = "metrics")]
mod names;
#[cfg(test)]
#[cfg(feature = "metrics")]
mod table_tests;
#[cfg(test)]
#[cfg(feature = "metrics")]
mod tests;
mod trace;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::lock::LockName;

pub(crate) use acquisition::AcquisitionTimer;
#[cfg(test)]
#[cfg(feature = "metrics")]
pub(crate) use counted::Counted;
pub(crate) use hold::Hold;
pub(crate) use locks::{HoldEnd, Named};
pub(crate) use trace::Trace;

/// Boundaries for the buckets of the histograms `redlock_acquire_seconds` and `redlock_hold_seconds`, in seconds: from a
/// millisecond, about the duration of an acquisition without contention, to a minute. For exporters such as that of
/// Prometheus, whose default boundaries may be others.
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub const METRIC_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Defines a function for each metric, which records a value, and the function `describe`. The metrics of locks, in the
/// module `locks`, have only their description here.
macro_rules! metrics {
    ([$($describe_of_lock:ident($name_of_lock:literal, $($description_of_lock:expr),+))*]
    $($(#[$attribute:meta])* $function:ident($($argument:ident: $type:ty),*) {
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
        #[cfg(feature = "metrics")]
        fn describe() {
            $(
                $(#[$attribute])*
                metrics::$describe!($name, $($description),+);
            )*
            $(metrics::$describe_of_lock!($name_of_lock, $($description_of_lock),+);)*
        }
    };
}

metrics! {
    [
        describe_histogram("redlock_acquire_seconds", metrics::Unit::Seconds, "Duration of acquisitions, waiting included, by outcome")
        describe_histogram("redlock_hold_seconds", metrics::Unit::Seconds, "How long each holder had its lock, by the end of it")
        describe_gauge("redlock_held", "Locks that this process holds")
        describe_gauge("redlock_waiting", "Callers of this process that wait for a lock")
        describe_counter("redlock_broken_total", "Holders that an operator has removed through this process")
        describe_counter("redlock_replayed_total", "Stored answers that were sent to repeated requests")
    ]
    lost(count: u64) {
        counter("redlock_lost_total").increment(count),
        describe_counter("Locks that were lost before their holder released them, or that the release found gone")
    }
    lock_order(count: u64) {
        counter("redlock_lock_order_total").increment(count),
        describe_counter("Circles in the order in which requests take locks")
    }
    conductor_changed(count: u64) {
        counter("redlock_conductor_changes_total").increment(count),
        describe_counter("Changes of the node that keeps the order of fair waiters")
    }
    extension(outcome: &'static str, count: u64) {
        counter("redlock_extensions_total", "outcome" => outcome).increment(count),
        describe_counter("Extensions of leases, by outcome")
    }
    quorum(nodes: &Arc<str>, is_granting: bool) {
        gauge("redlock_quorum", "nodes" => Arc::clone(nodes)).set(f64::from(u8::from(is_granting))),
        describe_gauge("Whether a quorum of nodes would grant a lock (1) or not (0), by the nodes of a manager")
    }
    node_up(node: &Arc<str>, up: bool) {
        gauge("redlock_node_up", "node" => Arc::clone(node)).set(f64::from(u8::from(up))),
        describe_gauge("Whether a node is up (1) or down (0)")
    }
    #[cfg(any(feature = "postgres", feature = "redis"))]
    clock_stepped(node: &Arc<str>, direction: &'static str, count: u64) {
        counter("redlock_clock_steps_total", "node" => Arc::clone(node), "direction" => direction).increment(count),
        describe_counter("Steps of the nodes' wall clocks")
    }
    #[cfg(any(feature = "postgres", feature = "redis"))]
    promoted(node: &Arc<str>, count: u64) {
        counter("redlock_promotions_total", "node" => Arc::clone(node)).increment(count),
        describe_counter("Promotions of another server of a node, seen by this manager")
    }
    #[cfg(feature = "redis")]
    authenticated_again(node: &Arc<str>, outcome: &'static str, count: u64) {
        counter("redlock_authentications_total", "node" => Arc::clone(node), "outcome" => outcome).increment(count),
        describe_counter("Attempts to renew the credentials of a connection, by outcome")
    }
}

/// The metrics of a manager, its locks and its nodes.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) locks: locks::MetricTable,
    /// The names of the nodes that are servers.
    servers: Box<[Arc<str>]>,
    /// Notified when a recorder was installed late.
    installed: Notify,
}

impl Telemetry {
    /// Registers the descriptions of all metrics, and each counter without the name of a lock as 0, so that the first event
    /// is an increase.
    pub(crate) fn new(servers: impl IntoIterator<Item = Arc<str>>) -> Self {
        let telemetry = Self {
            locks: locks::MetricTable::default(),
            servers: servers.into_iter().collect(),
            installed: Notify::new(),
        };
        telemetry.register();
        telemetry
    }

    fn register(&self) {
        #[cfg(feature = "metrics")]
        describe();
        lost(0);
        lock_order(0);
        conductor_changed(0);
        for outcome in ["extended", "lost", "unavailable"] {
            extension(outcome, 0);
        }
        for server in &self.servers {
            let _ = server;
            #[cfg(any(feature = "postgres", feature = "redis"))]
            {
                promoted(server, 0);
                clock_stepped(server, "forward", 0);
                clock_stepped(server, "back", 0);
            }
            #[cfg(feature = "redis")]
            for outcome in ["renewed", "failed"] {
                authenticated_again(server, outcome, 0);
            }
        }
    }

    /// Returns the name of a lock with its metrics.
    pub(crate) fn named(&self, name: LockName) -> Named {
        self.look_for_recorder();
        Named { metrics: self.locks.of(&name), name }
    }

    /// Resolves when the manager has a recorder.
    pub(crate) async fn recorder_installed(&self) {
        if !self.locks.has_recorder() {
            self.installed.notified().await;
        }
    }

    /// Notices a recorder that was installed after the manager was created, and uses it from now on. Logs a warning, because
    /// the metrics lack what happened before, and the gauges lack the locks that are held now.
    fn look_for_recorder(&self) {
        if self.locks.has_new_recorder() {
            self.installed.notify_one();
            self.register();
            tracing::warn!(
                "a recorder of metrics was installed after the lock manager was created: the metrics lack what happened \
                 before; install the recorder first"
            );
        }
    }
}
