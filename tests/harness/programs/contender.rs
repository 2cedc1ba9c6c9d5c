//! A process whose tasks contend for a few keys in every way that the library offers, and write down
//! what they believe: one client of the storm.
//!
//! Environment: `REDIS_URLS`, `SERVER_URLS` (of the same nodes, by a way on which nothing fails),
//! `HISTORY`, `SEED` (of what the tasks do), `LEASE_MS` (the longest
//! lease), `CLIENT` (see [`Client`]), `RESTART_GUARD` (whether the locks of the contenders have it).
//! Goes on until SIGTERM.
//!
//! Twelve tasks contend for the keys `hot:0` to `hot:8`. One task acquires keys of its own,
//! `own:<process id>:<number>`, with a lease that is longer than any test, and gives them up in every
//! way: what is found of these at the end was left behind.

use std::error::Error;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::Cmd;
use redlock_core::{Dialect, LockError, LockGuard, LockManager, LockManagerBuilder, LockRequest};
use redlock_tests::{
    Belief, CONTENDED_KEYS, Client, History, Probe, What, eventually, monotonic_nanos,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long the nodes have to answer: the default, and so long that a grant may come with a good part
/// of its lease used up.
const HASTY: Duration = Duration::from_millis(50);
const PATIENT: Duration = Duration::from_millis(200);
const TASKS: u64 = 12;
/// So many of them in the plain dialect, the others in Redisson's.
const PLAIN: u32 = 6;
const SOON: Duration = Duration::from_secs(10);
/// Of the keys that nobody else wants: longer than any test.
const LONG: Duration = Duration::from_secs(600);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let mut terminate = signal(SignalKind::terminate())?;
    let (urls, server_urls) = (urls("REDIS_URLS")?, urls("SERVER_URLS")?);
    let history = History::at(std::env::var("HISTORY")?);
    let seed: u64 = std::env::var("SEED")?.parse()?;
    let lease = Duration::from_millis(std::env::var("LEASE_MS")?.parse()?);
    let client: Client = std::env::var("CLIENT")?.parse()?;
    let restart_guard: bool = std::env::var("RESTART_GUARD")?.parse()?;
    tokio::spawn(watch_for_pauses(history.clone()));

    let mut choices = StdRng::seed_from_u64(seed);
    let node_timeout = if choices.random() { PATIENT } else { HASTY };
    let clings = choices.random();
    let builder = || LockManager::builder().urls(&urls).node_timeout(node_timeout);
    let guarded = || builder().expire(lease).restart_guard(lease);
    let connected = async {
        if !restart_guard {
            let locks = connect(builder).await;
            return (locks.clone(), locks);
        }
        // The guard allows no leases that are longer.
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
        server_urls: server_urls.clone(),
        client,
        lease,
        node_timeout,
        clings,
        choices: StdRng::seed_from_u64(choices.random()),
    };
    let mut tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(contender(&locks).contend())).collect();
    tasks.push(tokio::spawn(contender(&own_locks).give_up()));
    terminate.recv().await;
    end.cancel();
    for task in join_all(tasks).await {
        task??;
    }
    // Before the shutdown, which would release what was forgotten.
    eventually("what was given up is released", SOON, async || {
        for url in &server_urls {
            let keys = Probe::connect(url).await.ok()?.keys().await;
            if keys.iter().any(|key| key.starts_with(&own_keys())) {
                return None;
            }
        }
        Some(())
    })
    .await;
    locks.shutdown().await;
    own_locks.shutdown().await;
    Ok(())
}

/// Connects in the end: the servers may be under attack already.
async fn connect(builder: impl Fn() -> LockManagerBuilder) -> LockManager {
    loop {
        if let Ok(locks) = builder().connect().await {
            return locks;
        }
    }
}

fn urls(variable: &str) -> Result<Vec<String>, std::env::VarError> {
    Ok(std::env::var(variable)?.split(',').map(str::to_owned).collect())
}

/// What the keys begin with that only this process acquires.
fn own_keys() -> String {
    format!("own:{}:", std::process::id())
}

/// Notes when the tasks of this process do not run, so that the lock is not blamed for it.
async fn watch_for_pauses(history: History) {
    const TICK: Duration = Duration::from_millis(3);
    const WORTH_NOTING: u64 = 7_000_000;
    loop {
        let since = monotonic_nanos();
        sleep(TICK).await;
        if monotonic_nanos() - since > WORTH_NOTING
            && let Err(error) = history.note(What::HeldUp { since })
        {
            eprintln!("the history is not complete: {error}");
        }
    }
}

/// One task.
struct Contender {
    locks: LockManager,
    history: History,
    end: CancellationToken,
    server_urls: Vec<String>,
    client: Client,
    lease: Duration,
    node_timeout: Duration,
    /// Whether it holds its locks for long.
    clings: bool,
    choices: StdRng,
}

/// The lock, and the number of its holder if it is to have one.
async fn acquire(
    request: LockRequest,
    fenced: bool,
) -> Result<(LockGuard, Option<i64>), LockError> {
    if !fenced {
        return Ok((request.acquire().await?, None));
    }
    let guard = request.fenced().acquire().await?;
    let number = guard.fencing_token().number();
    Ok((guard.into_guard(), Some(number)))
}

impl Contender {
    async fn contend(mut self) -> Result<(), String> {
        while !self.end.is_cancelled() {
            self.turn().await.map_err(|error| error.to_string())?;
            let pause = self.millis(0, 30);
            sleep(pause).await;
        }
        Ok(())
    }

    /// Asks once, holds what it gets, and gives it back.
    async fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        let number = self.choices.random_range(0..CONTENDED_KEYS);
        let key = format!("hot:{number}");
        let expire = self.lease.mul_f64(self.choices.random_range(0.5..=1.0));
        let wait_time = if self.one_in(2) { self.millis(20, 400) } else { Duration::ZERO };
        let renewed = self.one_in(4);
        let dialect = if number < PLAIN { Dialect::Plain } else { Dialect::Redisson };
        let mut request =
            self.locks.lock(&key).expire(expire).wait_time(wait_time).dialect(dialect);
        if renewed {
            request = request.renew(true);
        }
        if self.one_in(10) {
            request = request.min_hold(expire / 4);
        }
        let fenced = self.one_in(2);
        let patience = self.one_in(6).then(|| self.millis(0, 100));

        // A number is written back in a second round.
        let rounds = if fenced { 2 } else { 1 };
        let attempt = self.history.ask(&key, wait_time + self.node_timeout * rounds)?;
        let acquired = match patience {
            Some(patience) => timeout(patience, acquire(request, fenced)).await.ok(),
            None => Some(acquire(request, fenced).await),
        };
        match acquired {
            // The caller has given up; the attempt says so as it is dropped.
            None => {}
            Some(Err(error)) => attempt.refused(kind(&error)),
            Some(Ok((guard, number))) => {
                let belief = attempt.granted(number, || self.client.believes(&guard));
                self.hold(&guard, belief, expire).await?;
                self.leave(guard, &key).await;
            }
        }
        Ok(())
    }

    /// Holds a lock: shortly, for a part of its lease, beyond its end, or extended once and then
    /// beyond its end.
    async fn hold(
        &mut self,
        guard: &LockGuard,
        mut belief: Belief,
        expire: Duration,
    ) -> Result<(), &'static str> {
        let lease = |share: f64| expire.mul_f64(share);
        let share = self.choices.random_range(0.1..0.9);
        let (time, mut extend_at) = match self.choices.random_range(0..10) {
            0..=3 if !self.clings => (self.millis(0, 20), None),
            0..=5 => (lease(share), None),
            6..=7 => (lease(2.0), None),
            _ => (lease(3.0), Some(lease(share))),
        };
        // It does not look at its guard, as work that was not written for it does not.
        let looks_away = self.one_in(4);
        let begun = Instant::now();
        let mut was_lost = false;
        while !self.end.is_cancelled() {
            let left = time.saturating_sub(begun.elapsed());
            let lost = belief.look(|| self.client.believes(guard)).is_zero();
            if was_lost && !lost {
                return Err("a lock that was lost is valid again");
            }
            if lost && guard.lost().now_or_never().is_none() {
                return Err("a lock without validity does not say that it is lost");
            }
            was_lost = lost;
            if left.is_zero() || lost && !looks_away {
                break;
            }
            if extend_at.take_if(|at| begun.elapsed() >= *at).is_some() {
                let patience = if self.one_in(4) { self.millis(0, 20) } else { expire };
                drop(timeout(patience, guard.extend(expire)).await);
            }
            let pause = self.millis(1, 10);
            sleep(pause.min(left)).await;
        }
        Ok(())
    }

    /// Ends a holding in one of the ways there are. The belief has ended before.
    async fn leave(&mut self, guard: LockGuard, key: &str) {
        if self.client == Client::DeletesWithoutComparing {
            guard.keep_until_expiry();
            join_all(self.server_urls.iter().map(|url| delete(url, key))).await;
            return;
        }
        match self.choices.random_range(0..20) {
            0..=11 => drop(guard.release().await),
            12..=15 => drop(guard),
            16..=18 => {
                let patience = self.choices.random_range(0..2000);
                drop(timeout(Duration::from_micros(patience), guard.release()).await);
            }
            _ => guard.keep_until_expiry(),
        }
    }

    /// Acquires keys that nobody else wants, for ever, and gives them up at once.
    async fn give_up(mut self) -> Result<(), String> {
        for number in 0.. {
            if self.end.is_cancelled() {
                break;
            }
            let request = self.own_request(&format!("{}{number}", own_keys()));
            let patience = self.choices.random_range(0..5000);
            let patience = if self.one_in(2) { patience } else { patience * 20 };
            let acquired = timeout(Duration::from_micros(patience), request.acquire()).await;
            if let Ok(Ok(guard)) = acquired {
                if self.one_in(2) {
                    drop(guard);
                } else {
                    drop(guard.release().await);
                }
            }
            let pause = self.millis(0, 10);
            sleep(pause).await;
        }
        Ok(())
    }

    fn own_request(&mut self, key: &str) -> LockRequest {
        let request = self.locks.lock(key).expire(LONG);
        if self.one_in(2) { request.wait_time(self.lease) } else { request }
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.choices.random_range(0..count) == 0
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.choices.random_range(from * 1000..=to * 1000))
    }
}

fn kind(error: &LockError) -> &'static str {
    match error {
        LockError::Contended { .. } => "contended",
        LockError::Unavailable { .. } => "unavailable",
        LockError::TimedOut { .. } => "timed out",
        LockError::ForeignKey { .. } => "foreign key",
        LockError::TooManyWaiters { .. } => "too many waiters",
        LockError::ShutDown => "shut down",
        _ => "other",
    }
}

async fn delete(url: &str, key: &str) -> redis::RedisResult<()> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    Cmd::new().arg("DEL").arg(key).query_async(&mut connection).await
}
