use std::collections::BTreeSet;

use metrics_util::debugging::DebuggingRecorder;
use redlock_core::LockManager;

use crate::spans::{collect, warnings};

/// A service that makes names of values has 10,000 of them. The series stay few.
#[test]
fn a_process_has_at_most_200_names_and_other_and_one_warning() {
    collect();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            // The names belong to the process, and not to a manager.
            let managers = [LockManager::in_memory(), LockManager::in_memory()];
            for number in 0..10_000 {
                let request = managers[number % 2].lock("a").named(format!("many {number}"));
                request.try_acquire().await.unwrap().release().await.unwrap();
            }
        });
    });
    let metrics = snapshotter.snapshot().into_vec();
    let of_locks = metrics.iter().flat_map(|(key, ..)| key.key().labels());
    let of_locks = of_locks.filter(|label| label.key() == "lock");
    let names: BTreeSet<_> = of_locks.map(|label| label.value().to_owned()).collect();
    assert!(names.contains("other") && names.len() <= 201, "{}", names.len());
    // The other test of this program has names too.
    assert!(names.len() >= 195, "{}", names.len());
    let series = metrics.iter().filter(|(key, ..)| key.key().name() == "redlock_held").count();
    assert_eq!(series, names.len());
    let warnings = warnings();
    let of_names = warnings.iter().filter(|text| text.contains("too many names for the metrics"));
    assert_eq!(of_names.count(), 1, "{warnings:?}");
}
