//! The metrics of locks, by name. Their handles are made once for each name, and kept.

use crate::lock::LockName;

/// The metrics of the locks of one name. Cloning is cheap. Without the feature `metrics` it is empty.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "metrics"), derive(Default))]
pub(crate) struct LockMetrics(#[cfg(feature = "metrics")] std::sync::Arc<recording::Handles>);

/// The metrics of a manager's locks, by name. Without the feature `metrics` it is empty.
#[derive(Debug)]
#[cfg_attr(not(feature = "metrics"), derive(Default))]
pub(crate) struct MetricTable {
    #[cfg(feature = "metrics")]
    entries: arc_swap::ArcSwap<recording::MetricsByName>,
    /// Whether the handles were made with a recorder.
    #[cfg(feature = "metrics")]
    has_recorder: std::sync::atomic::AtomicBool,
}

/// The name of a lock, with its metrics.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: LockName,
    pub(crate) metrics: LockMetrics,
}

impl Named {
    pub(crate) fn as_str(&self) -> &str {
        self.name.as_str()
    }
}

/// The name of a lock in a test, whose metrics are recorded nowhere.
#[cfg(test)]
impl Default for Named {
    fn default() -> Self {
        Self { name: LockName::OTHER, metrics: LockMetrics::default() }
    }
}

/// How a hold has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    /// Its holder has released the lock, or handed it over.
    Released,
    /// The lock was lost before.
    Lost,
    /// An operator has broken the lock.
    Broken,
}

impl HoldEnd {
    #[cfg(feature = "metrics")]
    const COUNT: usize = Self::Broken as usize + 1;

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Broken => "broken",
        }
    }
}

#[cfg(feature = "metrics")]
mod recording {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    use ahash::RandomState;
    use arc_swap::ArcSwap;
    use metrics::{Counter, Gauge, Histogram, SharedString};

    use super::super::names;
    use super::{HoldEnd, LockMetrics, MetricTable};
    use crate::counters::Outcome;
    use crate::lock::LockName;

    #[derive(Debug)]
    pub(super) struct Handles {
        label: SharedString,
        /// Of each outcome, once an acquisition has had it.
        acquire: [OnceLock<Histogram>; Outcome::COUNT],
        /// Of each end, once a hold has had it.
        hold: [OnceLock<Histogram>; HoldEnd::COUNT],
        held: Gauge,
        waiting: Gauge,
        broken: Counter,
        /// Once a layer counts the replays of this name.
        replayed: OnceLock<Counter>,
    }

    impl LockMetrics {
        /// Registers the metrics with the recorder of this thread, or of the process.
        fn register(name: &str) -> Self {
            let label = SharedString::from(name.to_owned());
            let of = |label: &SharedString| label.clone();
            Self(Arc::new(Handles {
                acquire: [const { OnceLock::new() }; Outcome::COUNT],
                hold: [const { OnceLock::new() }; HoldEnd::COUNT],
                held: metrics::gauge!("redlock_held", "lock" => of(&label)),
                waiting: metrics::gauge!("redlock_waiting", "lock" => of(&label)),
                broken: metrics::counter!("redlock_broken_total", "lock" => of(&label)),
                replayed: OnceLock::new(),
                label,
            }))
        }

        pub(in crate::telemetry) fn acquisition_ended(&self, outcome: Outcome, after: Duration) {
            let histogram = self.0.acquire[outcome as usize].get_or_init(|| {
                let lock = self.0.label.clone();
                metrics::histogram!("redlock_acquire_seconds", "outcome" => outcome.name(), "lock" => lock)
            });
            histogram.record(after.as_secs_f64());
        }

        pub(in crate::telemetry) fn hold_ended(&self, end: HoldEnd, after: Duration) {
            let histogram = self.0.hold[end as usize].get_or_init(|| {
                let lock = self.0.label.clone();
                metrics::histogram!("redlock_hold_seconds", "lock" => lock, "end" => end.name())
            });
            histogram.record(after.as_secs_f64());
        }

        pub(in crate::telemetry) fn hold_begins(&self) {
            self.0.held.increment(1.0);
        }

        pub(in crate::telemetry) fn holds_one_less(&self) {
            self.0.held.decrement(1.0);
        }

        /// Records that a caller waits.
        pub(crate) fn waits(&self) {
            self.0.waiting.increment(1.0);
        }

        /// Records that a caller waits no longer.
        pub(crate) fn waits_no_longer(&self) {
            self.0.waiting.decrement(1.0);
        }

        /// Records that an operator has removed a holder.
        pub(crate) fn broken(&self) {
            self.0.broken.increment(1);
        }

        /// Records that stored answers were sent.
        pub(crate) fn replayed(&self, count: u64) {
            let counter = self.0.replayed.get_or_init(|| {
                let lock = self.0.label.clone();
                metrics::counter!("redlock_replayed_total", "lock" => lock)
            });
            counter.increment(count);
        }
    }

    #[cfg(test)]
    impl Default for LockMetrics {
        fn default() -> Self {
            metrics::with_local_recorder(&metrics::NoopRecorder, || Self::register("other"))
        }
    }

    #[derive(Debug, Clone)]
    pub(super) struct MetricsByName {
        /// The metrics of locks without a name, or with a name that is not admitted.
        other: LockMetrics,
        by_name: HashMap<Box<str>, LockMetrics, RandomState>,
    }

    impl Default for MetricsByName {
        fn default() -> Self {
            let by_name = HashMap::with_hasher(crate::random::hash_state());
            Self { other: LockMetrics::register(LockName::OTHER.as_str()), by_name }
        }
    }

    impl Default for MetricTable {
        fn default() -> Self {
            // Before the handles: a recorder that is installed in between is noticed later.
            let has_recorder = AtomicBool::new(is_recorder_installed());
            Self { entries: ArcSwap::default(), has_recorder }
        }
    }

    impl MetricTable {
        pub(crate) fn of(&self, name: &LockName) -> LockMetrics {
            let (table, name) = (self.entries.load(), name.as_str());
            // An invalid name is empty.
            if name.is_empty() || name == LockName::OTHER.as_str() {
                return table.other.clone();
            }
            match table.by_name.get(name) {
                Some(metrics) => metrics.clone(),
                None => self.add(name),
            }
        }

        /// Adds a name, if the process has room for it.
        #[cold]
        fn add(&self, name: &str) -> LockMetrics {
            if !names::admit(name) {
                return self.entries.load().other.clone();
            }
            let metrics = LockMetrics::register(name);
            self.entries.rcu(|table| {
                let mut table = MetricsByName::clone(table);
                table.by_name.entry(name.into()).or_insert_with(|| metrics.clone());
                table
            });
            metrics
        }

        pub(in crate::telemetry) fn has_recorder(&self) -> bool {
            self.has_recorder.load(Ordering::Relaxed)
        }

        /// Returns whether the first recorder was installed since the last call. Makes all handles anew then. A lock keeps the
        /// handles with which it began, so that it is subtracted from a gauge only if it was added to it.
        pub(in crate::telemetry) fn has_new_recorder(&self) -> bool {
            let is_new = !self.has_recorder.load(Ordering::Relaxed)
                && is_recorder_installed()
                && !self.has_recorder.swap(true, Ordering::Relaxed);
            if is_new {
                self.entries.store(Arc::default());
            }
            is_new
        }
    }

    /// Returns whether this thread or the process has a recorder. The facade uses a recorder without fields as long as none is
    /// installed. A recorder of an application without fields is not noticed when it is installed late.
    fn is_recorder_installed() -> bool {
        metrics::with_recorder(|recorder| size_of_val(recorder) > 0)
    }
}

#[cfg(not(feature = "metrics"))]
mod silent {
    use super::{LockMetrics, MetricTable};
    use crate::lock::LockName;

    #[allow(clippy::unused_self, reason = "as with the feature")]
    impl LockMetrics {
        pub(crate) fn waits(&self) {}
        pub(crate) fn waits_no_longer(&self) {}
        pub(crate) fn broken(&self) {}
        pub(crate) fn replayed(&self, _: u64) {}
    }

    #[allow(clippy::unused_self, reason = "as with the feature")]
    impl MetricTable {
        pub(crate) fn of(&self, _: &LockName) -> LockMetrics {
            LockMetrics::default()
        }

        pub(in crate::telemetry) fn has_recorder(&self) -> bool {
            false
        }

        pub(in crate::telemetry) fn has_new_recorder(&self) -> bool {
            false
        }
    }
}
