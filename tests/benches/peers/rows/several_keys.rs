//! One caller that locks ten keys at once, beside one key, and beside ten locks of one key.

use redlock_core::{LockGuard, MultiGuard};
use redlock_tests::Servers;

use crate::cores;
use crate::load::{Measured, contender};
use crate::locker::Locker;
use crate::ours::Ours;
use crate::rounds::interleave;
use crate::settings::{LEASE, Settings};
use crate::statistics::Summary;
use crate::table::Row;
use crate::usage::Meter;

const KEYS: usize = 10;

pub(crate) async fn measure(settings: &Settings) {
    if settings.wants("ten-keys") {
        compare(settings, 1, "1 node").await.print();
    }
    if settings.wants("ten-keys-five-nodes") {
        compare(settings, 5, "5 nodes").await.print();
    }
}

fn names(key: &str) -> [String; KEYS] {
    std::array::from_fn(|number| format!("{key}:{number}"))
}

/// A lock of ten keys.
#[derive(Clone)]
struct AtOnce(Ours);

impl Locker for AtOnce {
    type Held = MultiGuard;

    async fn lock(&self, key: &str) -> Result<MultiGuard, String> {
        let request = self.0.0.lock_all(names(key)).expire(LEASE);
        request.acquire().await.map_err(|error| error.diagnostics().to_string())
    }

    async fn wait(&self, key: &str) -> Result<MultiGuard, String> {
        self.lock(key).await
    }

    async fn unlock(&self, _: &str, guard: MultiGuard) -> Result<(), String> {
        guard.release().await.map_err(|error| error.diagnostics().to_string())
    }
}

/// Ten locks of one key, one after another.
#[derive(Clone)]
struct OneByOne(Ours);

impl Locker for OneByOne {
    type Held = Vec<LockGuard>;

    async fn lock(&self, key: &str) -> Result<Vec<LockGuard>, String> {
        let mut guards = Vec::with_capacity(KEYS);
        for name in names(key) {
            guards.push(self.0.lock(&name).await?);
        }
        Ok(guards)
    }

    async fn wait(&self, key: &str) -> Result<Vec<LockGuard>, String> {
        self.lock(key).await
    }

    async fn unlock(&self, key: &str, guards: Vec<LockGuard>) -> Result<(), String> {
        for guard in guards {
            self.0.unlock(key, guard).await?;
        }
        Ok(())
    }
}

async fn compare(settings: &Settings, servers: usize, nodes: &str) -> Row {
    let servers = Servers::start(servers).await;
    cores::pin_separately(&servers);
    let meter = Meter::over(&servers).await;
    let ours = Ours::connect(&servers.urls()).await;
    let (at_once, one_by_one) = (AtOnce(ours.clone()), OneByOne(ours.clone()));
    let measured = interleave(
        settings.rounds,
        vec![
            contender(&ours, settings.slice, 1, &meter),
            contender(&at_once, settings.slice, 1, &meter),
            contender(&one_by_one, settings.slice, 1, &meter),
        ],
    );
    let measured = measured.await;
    cores::unpin(&servers);
    ours.0.shutdown().await;
    let figures = |side: usize| measured[side].iter().map(Measured::p50);
    let ratio = |side| Summary::of(figures(1).zip(figures(side)).map(|(ten, other)| ten / other));
    let (to_one, to_ten) = (ratio(0), ratio(2));
    let [one, ten, singles] = [0, 1, 2].map(|side| Summary::of(figures(side)));
    let failures: usize = measured.iter().flatten().map(|measured| measured.failures).sum();
    let text = format!("{ten}; one key {one}, ratio {to_one}; ten locks {singles}, ratio {to_ten}");
    let row = Row::ours(format!("{nodes}, 1 caller, a lock of ten keys, p50 us"), text);
    let row = if servers.len() == 1 {
        row.limit("to one key", to_one.median, 1.6)
    } else {
        row.limit("to one key", to_one.median, 2.2).limit("to ten locks", to_ten.median, 0.3)
    };
    row.target("nobody fails", failures == 0)
}
