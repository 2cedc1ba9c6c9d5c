//! The metric that counts replays.

use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use redlock_axum::{IdempotencyLayer, LockManager, MemoryAnswers};

use super::{Counted, request, route, send};

#[test]
fn each_replay_is_counted_by_the_name_of_its_layer() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let replays = || {
        let metrics = snapshotter.snapshot().into_vec().into_iter();
        let replays = metrics.filter_map(|(key, _, _, value)| {
            let key = key.key();
            let DebugValue::Counter(count) = value else { return None };
            let label = key.labels().next().map(|label| (label.key(), label.value()));
            (key.name() == "redlock_replayed_total").then(|| format!("{label:?} {count}"))
        });
        let mut replays: Vec<_> = replays.collect();
        replays.sort();
        replays
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let work = async {
        let (locks, counted) = (LockManager::in_memory(), Counted::default());
        let layer = || IdempotencyLayer::new(&locks, MemoryAnswers::new());
        let app = route(counted.handler(), layer());
        let waiting = route(counted.handler(), layer().wait(Duration::from_secs(60)).named("pay"));
        let zeros = [r#"Some(("lock", "idempotency")) 0"#, r#"Some(("lock", "pay")) 0"#];
        assert_eq!(replays(), zeros);
        send(&app, request("a", "1")).await;
        send(&app, request("a", "1")).await;
        // Neither a refusal nor the first answer of another key.
        send(&app, request("a", "2")).await.is(422, "key_reused");
        send(&app, request("b", "1")).await;
        send(&app, request("a", "1")).await;
        // A request that has waited for the lock is a replay too.
        let (first, second) =
            tokio::join!(send(&waiting, request("c", "")), send(&waiting, request("c", "")));
        assert!(first.is_replayed() != second.is_replayed());
    };
    metrics::with_local_recorder(&recorder, || runtime.block_on(work));
    let counted = [r#"Some(("lock", "idempotency")) 2"#, r#"Some(("lock", "pay")) 1"#];
    assert_eq!(replays(), counted);
    let names = snapshotter.snapshot().into_vec().into_iter().map(|(key, ..)| format!("{key:?}"));
    assert!(!names.into_iter().any(|name| name.contains("idempotency:7")), "no key");
}
