//! One client process of the storm. Its tasks contend for a few keys with random options, release them in
//! every way that the library offers, and record a history.
//!
//! Its settings are [`ClientSettings`]. The process runs until SIGTERM.
//!
//! * Twelve tasks contend for the keys `hot:0` to `hot:8`. Half of the requests for the first four keys are shared, and
//!   some holders of these keys turn an exclusive lock into a shared one, or back. On a single node, half of the requests
//!   for `hot:0` have permits. Some requests for the first six keys are fair.
//! * One task acquires sets of the first six keys.
//! * Two tasks hold the keys `patient:0` to `patient:2` for a short time only, and wait until they have them.
//! * One task acquires keys of its own, `own:<process id>:<number>`, with a lease that is longer than any test, and
//!   abandons or releases them in every way. Any such key that exists at the end was left behind.
//! * With the feature `metrics`, one task compares the gauges with the snapshots. Both are zero at the end.

mod contended;
#[cfg(feature = "metrics")]
mod gauges;
mod own_keys;
mod patient;
mod sets;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{LockManager, LockManagerBuilder};
use redlock_tests::{
    ClientSettings, History, LONGEST_LEASE, Probe, What, eventually, monotonic_nanos,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::own_keys::own_prefix;

/// A shorter timeout of the nodes than the default.
const HASTY: Duration = Duration::from_millis(50);
/// The default timeout of several nodes. A grant may arrive when a large part of its lease has passed.
const PATIENT: Duration = Duration::from_millis(200);
const TASKS: u64 = 12;
/// The number of tasks that wait patiently.
const PATIENT_TASKS: u64 = 2;
const SOON: Duration = Duration::from_secs(60);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let mut terminate = signal(SignalKind::terminate())?;
    let settings: ClientSettings = serde_json::from_str(&std::env::var("SETTINGS")?)?;
    let settings = Arc::new(settings);
    let history = History::at(&settings.history);
    tokio::spawn(record_pauses(history.clone()));

    #[cfg(feature = "metrics")]
    let gauges = Arc::new(gauges::Gauges::install()?);
    let mut choices = StdRng::seed_from_u64(settings.seed);
    let node_timeout = if choices.random() { PATIENT } else { HASTY };
    let holds_long = choices.random();
    let builder = || LockManager::builder().urls(&settings.urls).node_timeout(node_timeout);
    let guarded = || {
        let builder = builder().expire(LONGEST_LEASE).restart_guard(LONGEST_LEASE);
        settings.failover_margin.into_iter().fold(builder, LockManagerBuilder::failover_margin)
    };
    let connected = async {
        if !settings.restart_guard {
            let locks = connect(builder).await;
            return (locks.clone(), locks);
        }
        // The guard allows no longer leases, so the process's own keys need a manager without it.
        (connect(guarded).await, connect(builder).await)
    };
    let (locks, own_locks) = tokio::select! {
        connected = connected => connected,
        _ = terminate.recv() => return Ok(()),
    };
    let end = CancellationToken::new();
    let mut contender = |locks: &LockManager| Contender {
        locks: locks.clone(),
        history: history.clone(),
        end: end.clone(),
        settings: Arc::clone(&settings),
        node_timeout,
        holds_long,
        choices: StdRng::seed_from_u64(choices.random()),
    };
    let mut tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(contender(&locks).contend())).collect();
    if settings.has_sets {
        tasks.push(tokio::spawn(contender(&locks).contend_for_sets()));
    }
    let patient = (0..PATIENT_TASKS).map(|_| tokio::spawn(contender(&locks).wait_patiently()));
    tasks.extend(patient);
    tasks.push(tokio::spawn(contender(&own_locks).acquire_own_keys()));
    #[cfg(feature = "metrics")]
    let gauges_agree = {
        // Without the restart guard, both are one manager.
        let mut managers = vec![locks.clone()];
        managers.extend(settings.restart_guard.then(|| own_locks.clone()));
        let (gauges, end) = (Arc::clone(&gauges), end.clone());
        tokio::spawn(async move { gauges.agree_with(&managers, &end).await })
    };
    terminate.recv().await;
    end.cancel();
    for task in join_all(tasks).await {
        task??;
    }
    // Check before the shutdown, which would release locks that the library has failed to release.
    eventually("all keys of this process are released", SOON, async || {
        for url in &settings.server_urls {
            let keys = Probe::connect(url).await.ok()?.keys().await;
            if keys.iter().any(|key| key.starts_with(&own_prefix())) {
                return None;
            }
        }
        Some(())
    })
    .await;
    locks.shutdown().await;
    own_locks.shutdown().await;
    #[cfg(feature = "metrics")]
    {
        gauges_agree.await??;
        gauges.are_zero()?;
    }
    Ok(())
}

/// Connects, and retries until it succeeds: the storm may already have disturbed the nodes.
async fn connect(builder: impl Fn() -> LockManagerBuilder) -> LockManager {
    loop {
        if let Ok(locks) = builder().connect().await {
            return locks;
        }
    }
}

/// Records when the tasks of this process do not run, so that such a pause does not count as a slow
/// acquisition.
async fn record_pauses(history: History) {
    const TICK: Duration = Duration::from_millis(3);
    const LEAST_PAUSE: u64 = 7_000_000;
    loop {
        let since = monotonic_nanos();
        sleep(TICK).await;
        if monotonic_nanos() - since > LEAST_PAUSE
            && let Err(error) = history.note(What::HeldUp { since })
        {
            eprintln!("the history is incomplete: {error}");
        }
    }
}

/// One task of the process.
struct Contender {
    locks: LockManager,
    history: History,
    end: CancellationToken,
    settings: Arc<ClientSettings>,
    node_timeout: Duration,
    /// Whether the task holds each lock for a part of its lease or longer, never for a few milliseconds.
    holds_long: bool,
    choices: StdRng,
}

impl Contender {
    fn one_in(&mut self, count: u32) -> bool {
        self.choices.random_range(0..count) == 0
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.choices.random_range(from * 1000..=to * 1000))
    }

    /// Pauses before the next acquisition. Without longer pauses after failures, most of them would cost processor time
    /// alone.
    async fn pause(&mut self, held: bool) {
        let pause = self.millis(0, if held { 30 } else { 100 });
        sleep(pause).await;
    }
}
