use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use redlock_core::LockManager;
use tokio::runtime::Runtime;

use crate::spans::{collect, ignore_spans, warnings};

/// Counts the series that are registered: the values of the label `lock` by the names of the metrics. Its own memory grows only
/// with the series.
#[derive(Debug, Default)]
struct Series(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl Series {
    fn add(&self, key: &Key) {
        if let Some(lock) = key.labels().find(|label| label.key() == "lock") {
            let mut series = self.0.lock().unwrap();
            series.entry(key.name().to_owned()).or_default().insert(lock.value().to_owned());
        }
    }
}

impl Recorder for Series {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.add(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.add(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.add(key);
        Histogram::noop()
    }
}

/// Acquires a lock by a name of its own for each number.
fn take(runtime: &Runtime, managers: &[LockManager; 2], numbers: std::ops::Range<usize>) {
    runtime.block_on(async {
        for number in numbers {
            let request = managers[number % 2].lock("a").named(format!("many {number:05}"));
            request.try_acquire().await.unwrap().release().await.unwrap();
        }
    });
}

/// A service that makes names of values has 10,000 of them. The series stay few, and so does the memory.
#[test]
fn a_process_has_at_most_200_names_and_other_and_one_warning_and_flat_memory() {
    collect();
    ignore_spans();
    let recorder = Series::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // The names belong to the process, and not to a manager.
    let mut left = Vec::new();
    metrics::with_local_recorder(&recorder, || {
        let managers = runtime.block_on(async { [(); 2].map(|()| LockManager::in_memory()) });
        for thousand in 0..10 {
            let numbers = thousand * 1000..(thousand + 1) * 1000;
            let allocated = allocation_counter::measure(|| take(&runtime, &managers, numbers));
            left.push(allocated.bytes_current);
        }
    });
    let series = recorder.0.lock().unwrap();
    let names = &series["redlock_held"];
    assert!(names.contains("other") && names.len() <= 201, "{}", names.len());
    // The other test of this program has names too.
    assert!(names.len() >= 195, "{}", names.len());
    for metric in ["redlock_acquire_seconds", "redlock_hold_seconds", "redlock_waiting"] {
        assert_eq!(&series[metric], names, "{metric}");
    }
    // 200 names take up more than the first thousand may leave, so nothing of the later names is kept.
    assert!(left[0] > 10_000, "{left:?}");
    assert!(left[1..].iter().sum::<i64>() < 10_000, "{left:?}");
    let warnings = warnings();
    let of_names = warnings.iter().filter(|text| text.contains("too many names for the metrics"));
    assert_eq!(of_names.count(), 1, "{warnings:?}");
}
