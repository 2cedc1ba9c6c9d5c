//! The table of the metrics in the documentation of the crate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Records which metrics are described, each with its kind.
#[derive(Debug, Clone, Default)]
struct Described(Arc<Mutex<BTreeMap<String, &'static str>>>);

impl Described {
    fn add(&self, name: &KeyName, kind: &'static str) {
        self.0.lock().unwrap().insert(name.as_str().to_owned(), kind);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, "counter");
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, "gauge");
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, "histogram");
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
#[cfg(all(feature = "postgres", feature = "redis"))]
fn the_documentation_has_all_metrics_with_their_kinds() {
    let described = Described::default();
    metrics::with_local_recorder(&described, || drop(crate::LockManager::in_memory()));
    let described = described.0.lock().unwrap().clone();
    let rows =
        include_str!("../lib.rs").lines().filter_map(|line| line.strip_prefix("//! | `redlock_"));
    let documented = rows.flat_map(|row| {
        let mut cells = row.split(" | ");
        let names = format!("`redlock_{}", cells.next().unwrap());
        let kind = cells.next().unwrap().split(':').next().unwrap().to_owned();
        let names: Vec<_> =
            names.split(", ").map(|name| name.trim_matches('`').to_owned()).collect();
        names.into_iter().map(move |name| (name, kind.clone()))
    });
    let documented: BTreeMap<_, _> = documented.collect();
    let described = described.into_iter().map(|(name, kind)| (name, kind.to_owned()));
    assert_eq!(documented, described.collect());
}
