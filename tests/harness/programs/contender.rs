//! One client process of the storm. Its tasks contend for a few keys with random options, release them in
//! every way that the library offers, and record a history.
//!
//! | environment | meaning |
//! |---|---|
//! | `REDIS_URLS` | the nodes, through the network that the storm disturbs |
//! | `SERVER_URLS` | the same nodes, over connections that the storm does not disturb |
//! | `HISTORY` | the file of the history |
//! | `SEED` | the seed of the random choices of the tasks |
//! | `LEASE_MS` | the longest lease |
//! | `CLIENT` | see [`Client`] |
//! | `RESTART_GUARD` | `true`: the contended locks have the restart guard |
//!
//! The process runs until SIGTERM.
//!
//! Twelve tasks contend for the keys `hot:0` to `hot:8`. Half of the requests for the first four keys are shared, and some
//! holders of these keys turn an exclusive lock into a shared one, or back. On a single node, half of the requests for
//! `hot:0` have permits. One more task acquires keys of its own,
//! `own:<process id>:<number>`, with a lease that is longer than any test, and abandons or releases them in
//! every way. Any such key that exists at the end was left behind.

use std::error::Error;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::Cmd;
use redlock_core::{Dialect, LockError, LockGuard, LockManager, LockManagerBuilder, LockRequest};
use redlock_tests::{
    Belief, CONTENDED_KEYS, Client, History, Probe, Sharing, What, eventually, monotonic_nanos,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// A shorter timeout of the nodes than the default.
const HASTY: Duration = Duration::from_millis(50);
/// The default timeout of several nodes. A grant may arrive when a large part of its lease has passed.
const PATIENT: Duration = Duration::from_millis(200);
const TASKS: u64 = 12;
/// The number of keys that are also shared, by readers or by holders of permits.
const SHARED: u32 = 4;
/// The number of keys that use the plain dialect. The other keys use Redisson's.
const PLAIN: u32 = 6;
const SOON: Duration = Duration::from_secs(10);
/// The lease of the keys of this process alone: longer than any test.
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
    tokio::spawn(record_pauses(history.clone()));

    let mut choices = StdRng::seed_from_u64(seed);
    let node_timeout = if choices.random() { PATIENT } else { HASTY };
    let holds_long = choices.random();
    let builder = || LockManager::builder().urls(&urls).node_timeout(node_timeout);
    let guarded = || builder().expire(lease).restart_guard(lease);
    let connected = async {
        if !restart_guard {
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
        server_urls: server_urls.clone(),
        client,
        lease,
        node_timeout,
        holds_long,
        choices: StdRng::seed_from_u64(choices.random()),
    };
    let mut tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(contender(&locks).contend())).collect();
    tasks.push(tokio::spawn(contender(&own_locks).acquire_own_keys()));
    terminate.recv().await;
    end.cancel();
    for task in join_all(tasks).await {
        task??;
    }
    // Check before the shutdown, which would release locks that the library has failed to release.
    eventually("all keys of this process are released", SOON, async || {
        for url in &server_urls {
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

fn urls(variable: &str) -> Result<Vec<String>, std::env::VarError> {
    Ok(std::env::var(variable)?.split(',').map(str::to_owned).collect())
}

/// Returns the prefix of the keys that only this process acquires.
fn own_prefix() -> String {
    format!("own:{}:", std::process::id())
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
    server_urls: Vec<String>,
    client: Client,
    lease: Duration,
    node_timeout: Duration,
    /// Whether the task holds each lock for a part of its lease or longer, never for a few milliseconds.
    holds_long: bool,
    choices: StdRng,
}

/// Acquires a lock, and returns the number of the fencing token if `fenced`.
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
    /// Acquires contended keys until SIGTERM.
    async fn contend(mut self) -> Result<(), String> {
        while !self.end.is_cancelled() {
            self.turn().await.map_err(|error| error.to_string())?;
            let pause = self.millis(0, 30);
            sleep(pause).await;
        }
        Ok(())
    }

    /// Makes one acquisition. If it succeeds, holds the lock and releases it.
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
        let sharing = self.sharing(number);
        request = match sharing {
            Sharing::Exclusive => request,
            Sharing::Readers => request.shared(),
            Sharing::Permits(permits) => request.permits(permits),
        };
        let fenced = sharing == Sharing::Exclusive && self.one_in(2);
        let patience = self.one_in(6).then(|| self.millis(0, 100));

        // A fenced acquisition has a second round of messages, which writes the number back. An exclusive one asks again
        // if shared holders have refused it. A reader may wait for another reader's reply, and extend a lease.
        let rounds = match sharing {
            Sharing::Exclusive => 2 + u32::from(fenced),
            Sharing::Readers => 3,
            Sharing::Permits(_) => 1,
        };
        let attempt = self.history.ask(&key, wait_time + self.node_timeout * rounds)?;
        let acquired = match patience {
            Some(patience) => timeout(patience, acquire(request, fenced)).await.ok(),
            None => Some(acquire(request, fenced).await),
        };
        match acquired {
            // The timeout dropped the request. Dropping `attempt` records that.
            None => {}
            Some(Err(error)) => attempt.refused(kind(&error)),
            Some(Ok((guard, number))) => {
                let believes = || self.client.believes(&guard);
                let belief = attempt.granted_to(sharing, number, believes);
                let Some(guard) = self.change_mode(guard, &belief).await else { return Ok(()) };
                self.hold(&guard, belief, expire).await?;
                self.release(guard, &key).await;
            }
        }
        Ok(())
    }

    /// Returns with whom the next holder of a key shares it.
    fn sharing(&mut self, number: u32) -> Sharing {
        match number {
            // A quorum has no permits.
            0 if self.server_urls.len() == 1 && self.one_in(2) => {
                Sharing::Permits(self.choices.random_range(1..4))
            }
            0..SHARED if self.one_in(2) => Sharing::Readers,
            _ => Sharing::Exclusive,
        }
    }

    /// Sometimes turns an exclusive lock into a shared one, or back. Returns `None` if the lock is lost.
    async fn change_mode(&mut self, guard: LockGuard, belief: &Belief) -> Option<LockGuard> {
        let is_plain = guard.key().as_str() < "hot:4";
        if !is_plain || !self.one_in(3) {
            return Some(guard);
        }
        if !guard.is_shared() {
            // The holder knows that others may share the lock from now on.
            belief.change(Sharing::Readers);
            return guard.downgrade().await.or_else(|error| error.into_guard().ok_or(())).ok();
        }
        match guard.try_upgrade().await {
            Ok(guard) => {
                belief.change(Sharing::Exclusive);
                Some(guard)
            }
            Err(error) => error.into_guard(),
        }
    }

    /// Holds a lock for a short time, for a part of its lease, for longer than its lease, or for longer than
    /// its lease with one extension.
    async fn hold(
        &mut self,
        guard: &LockGuard,
        mut belief: Belief,
        expire: Duration,
    ) -> Result<(), &'static str> {
        let lease = |share: f64| expire.mul_f64(share);
        let share = self.choices.random_range(0.1..0.9);
        let (time, mut extend_at) = match self.choices.random_range(0..10) {
            0..=3 if !self.holds_long => (self.millis(0, 20), None),
            0..=5 => (lease(share), None),
            6..=7 => (lease(2.0), None),
            _ => (lease(3.0), Some(lease(share))),
        };
        // Holder code that does not check its guard goes on after a loss.
        let ignores_loss = self.one_in(4);
        let begun = Instant::now();
        let mut was_lost = false;
        while !self.end.is_cancelled() {
            let left = time.saturating_sub(begun.elapsed());
            let lost = belief.look(|| self.client.believes(guard)).is_zero();
            if was_lost && !lost {
                return Err("a lost lock is valid again");
            }
            if lost && guard.lost().now_or_never().is_none() {
                return Err("a guard without validity does not report the loss");
            }
            was_lost = lost;
            if left.is_zero() || lost && !ignores_loss {
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

    /// Releases, drops or keeps the lock. The caller has dropped the belief before.
    async fn release(&mut self, guard: LockGuard, key: &str) {
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

    /// Acquires keys of this process alone, and abandons each request or releases each lock at once, until
    /// SIGTERM.
    async fn acquire_own_keys(mut self) -> Result<(), String> {
        for number in 0.. {
            if self.end.is_cancelled() {
                break;
            }
            let request = self.own_request(&format!("{}{number}", own_prefix()));
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
