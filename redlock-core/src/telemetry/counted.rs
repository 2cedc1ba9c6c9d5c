//! Counts the metrics of a test.

use metrics::LocalRecorderGuard;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Records the metrics of this thread until it is dropped.
pub(crate) struct Counted {
    snapshotter: Snapshotter,
    _guard: LocalRecorderGuard<'static>,
}

impl Counted {
    pub(crate) fn begin() -> Self {
        // The guard borrows it. A test may leak it.
        let recorder: &'static DebuggingRecorder = Box::leak(Box::default());
        Self {
            snapshotter: recorder.snapshotter(),
            _guard: metrics::set_default_local_recorder(recorder),
        }
    }

    /// Returns the events of a counter since the last call, by their labels, such as `["node forward: 1"]`.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let metrics = self.snapshotter.snapshot().into_vec().into_iter();
        let events = metrics.filter_map(|(key, _, _, value)| match value {
            DebugValue::Counter(count) if count > 0 && key.key().name() == name => {
                let labels: Vec<_> = key.key().labels().map(metrics::Label::value).collect();
                Some(format!("{}: {count}", labels.join(" ")))
            }
            _ => None,
        });
        let mut events: Vec<_> = events.collect();
        events.sort();
        events
    }
}
