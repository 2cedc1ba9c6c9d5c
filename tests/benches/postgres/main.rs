//! Compares a lock in PostgreSQL with its bare statements and with other crates. Starts its own servers.
//!
//! Prints one Markdown table. A pair is an acquisition and its release. All sides run in the same process and runtime. Each
//! round measures all sides, one after another, and begins with the next side. A ratio compares figures of the same round.
//! A cell shows the median over the rounds, with the smallest and the largest figure.
//!
//! ```text
//! cargo run --release                 all rows, about four minutes
//! cargo run --release -- wake-up      only these rows: pairs, callers, refused, wake-up
//! ```
//!
//! `POSTGRES_ROUNDS` (15) sets the number of rounds, `POSTGRES_SLICE_MS` (200) the duration of a measurement.

mod sides;
#[path = "../peers/statistics.rs"]
mod statistics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use distributed_lock_postgres::PostgresLockProvider;
use redlock_core::LockManager;
use redlock_tests::PostgresServer;

use sides::{Advisory, Bare, Deadpool, LEASE, Notifying, SHEDLOCK, ShedLock, Side, connect};
use statistics::{Summary, micros, percentile};

const ON: &str = "synchronous_commit on";
const OFF: &str = "synchronous_commit off";
const ROWS: [&str; 4] = ["pairs", "callers", "refused", "wake-up"];
/// The number of attempts whose log is measured.
const ATTEMPTS: usize = 1000;
/// The time in which a waiter begins to listen.
const SETTLE: Duration = Duration::from_millis(30);

struct Settings {
    rounds: usize,
    slice: Duration,
}

type Sides = Vec<(&'static str, Option<f64>, Arc<dyn Side>)>;

#[tokio::main]
async fn main() {
    redlock_logs::do_not_watch();
    let number = |variable, default| {
        let Ok(value) = std::env::var(variable) else { return default };
        value.parse().unwrap_or_else(|_| panic!("{variable} is {value}, not a number"))
    };
    let settings = Settings {
        rounds: number("POSTGRES_ROUNDS", 15).try_into().expect("a small number"),
        slice: Duration::from_millis(number("POSTGRES_SLICE_MS", 200)),
    };
    let mut rows: Vec<String> = std::env::args().skip(1).collect();
    if rows.is_empty() {
        rows = ROWS.map(str::to_owned).into();
    }
    println!("| work | side | us | ours / side | target | met |\n|---|---|---|---|---|---|");
    for (words, limit) in [(ON, 1.2), (OFF, 1.3)] {
        let server = PostgresServer::options()
            .on_disk()
            .setting("synchronous_commit", words.trim_start_matches("synchronous_commit "))
            .setting("autovacuum", "off");
        let server = server.start().await.unwrap_or_else(|missing| panic!("{missing}"));
        server.admin().await.batch_execute(SHEDLOCK).await.expect("the table of ShedLock");
        for row in &rows {
            match &**row {
                "pairs" => pairs(&settings, &server, words, limit).await,
                "callers" => many_callers(&settings, &server, words).await,
                "refused" => refused(&settings, &server, words).await,
                "wake-up" => wake_up(&settings, &server, words).await,
                other => panic!("there is no row {other}; the rows are {}", ROWS.join(", ")),
            }
        }
    }
}

async fn manager(server: &PostgresServer) -> LockManager {
    manager_with(server, "").await
}

/// Returns a manager with more parameters in its URL.
async fn manager_with(server: &PostgresServer, parameters: &str) -> LockManager {
    let manager = LockManager::builder().url(server.url() + parameters).connect().await;
    manager.expect("a manager")
}

/// Returns the URL without the parameter that other clients do not know.
fn plain_url(server: &PostgresServer) -> String {
    server.url().split('?').next().unwrap_or_default().to_owned()
}

async fn pairs(settings: &Settings, server: &PostgresServer, words: &str, limit: f64) {
    let url = plain_url(server);
    let provider = PostgresLockProvider::new(url.clone()).await.expect("a provider");
    let sides: Sides = vec![
        ("ours", None, Arc::new(manager(server).await)),
        ("bare statements", Some(limit), Arc::new(Bare::connect(&url).await)),
        ("bare statements, and pg_notify", None, Arc::new(Notifying(Bare::connect(&url).await))),
        (
            "ShedLock: insert, update, update",
            Some(1.0),
            Arc::new(ShedLock::connect(&url, true).await),
        ),
        ("ShedLock: update, update", None, Arc::new(ShedLock::connect(&url, false).await)),
        ("advisory lock, sqlx", None, Arc::new(Advisory::connect(&url).await)),
        ("distributed-lock", None, Arc::new(provider)),
    ];
    compare(settings, &format!("pair, {words}"), 1, sides).await;
}

async fn many_callers(settings: &Settings, server: &PostgresServer, words: &str) {
    let sides: Sides = vec![
        ("ours, 16 connections", None, Arc::new(manager_with(server, "&connections=16").await)),
        ("ours, 2 connections (default)", None, Arc::new(manager(server).await)),
        (
            "deadpool-postgres, 16 connections",
            Some(1.0),
            Arc::new(Deadpool::new(&plain_url(server))),
        ),
    ];
    compare(settings, &format!("64 callers, {words}, time for each pair"), 64, sides).await;
}

/// Measures all sides in every round, and prints a row for each. An additional first round is a warm-up.
async fn compare(settings: &Settings, work: &str, callers: usize, sides: Sides) {
    let mut figures = vec![Vec::new(); sides.len()];
    for round in 0..=settings.rounds {
        for turn in 0..sides.len() {
            let side = (round + turn) % sides.len();
            let figure = measure(&sides[side].2, callers, settings.slice).await;
            if round > 0 {
                figures[side].push(figure);
            }
        }
    }
    for ((name, limit, _), of_side) in sides.iter().zip(&figures) {
        let ratios = figures[0].iter().zip(of_side).map(|(ours, side)| ours / side);
        print(work, name, of_side, Summary::of(ratios), *limit);
    }
}

fn print(work: &str, side: &str, figures: &[f64], ratio: Summary, limit: Option<f64>) {
    let figures = Summary::of(figures.iter().copied());
    let target = limit.map(|limit| format!("<= {limit}")).unwrap_or_default();
    let met = limit.map(|limit| if ratio.median <= limit { "yes" } else { "**no**" });
    println!("| {work} | {side} | {figures} | {ratio} | {target} | {} |", met.unwrap_or_default());
}

/// Returns the median time of a pair in microseconds; of many callers, the time divided by the number of their pairs.
async fn measure(side: &Arc<dyn Side>, callers: usize, slice: Duration) -> f64 {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (side, key) = (Arc::clone(side), caller.to_string());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while begun.elapsed() < slice {
                    let start = Instant::now();
                    side.pair(&key).await;
                    times.push(start.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a caller"));
    }
    let elapsed = begun.elapsed();
    if callers > 1 {
        return micros(elapsed) / times.len() as f64;
    }
    times.sort();
    micros(percentile(&times, 0.5))
}

/// Attempts on a lock that another process holds, beside `select 1`, and the bytes that they write to the log.
async fn refused(settings: &Settings, server: &PostgresServer, words: &str) {
    let (holder, other) = (manager(server).await, manager(server).await);
    let bare = Bare::connect(&plain_url(server)).await;
    let _held =
        holder.lock("refused").expire(LEASE * 100).try_acquire().await.expect("a free lock");
    let attempt = async || {
        let refused = other.lock("refused").fenced(true).expire(LEASE).try_acquire().await;
        refused.expect_err("a held lock");
    };
    let (mut attempts, mut selects) = (Vec::new(), Vec::new());
    for round in 0..=settings.rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                attempts.push(median(settings.slice, &attempt).await);
            } else {
                selects.push(median(settings.slice, &async || bare.select().await).await);
            }
        }
    }
    let ratios = attempts.iter().zip(&selects).map(|(attempt, select)| attempt / select);
    let work = format!("refused attempt, {words}");
    print(&work, "ours", &attempts, Summary::default(), None);
    print(&work, "select 1", &selects, Summary::of(ratios), Some(2.0));

    let admin = connect(&server.admin_url()).await;
    let position = async || {
        let sql = "select (pg_current_wal_insert_lsn() - '0/0')::bigint";
        admin.query_one(sql, &[]).await.expect("a position").get::<_, i64>(0)
    };
    let mut bytes = Vec::new();
    for _ in 0..5 {
        let before = position().await;
        for _ in 0..ATTEMPTS {
            attempt().await;
        }
        bytes.push((position().await - before) as f64);
    }
    let bytes = Summary::of(bytes);
    let met = if bytes.median == 0.0 { "yes" } else { "**no**" };
    println!(
        "| {ATTEMPTS} refused attempts, {words}, bytes of log | ours | {bytes} | | 0 | {met} |"
    );
}

/// Returns the median time of an operation in microseconds.
async fn median(slice: Duration, operation: &impl AsyncFn()) -> f64 {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < slice {
        let start = Instant::now();
        operation().await;
        times.push(start.elapsed());
    }
    times.sort();
    micros(percentile(&times, 0.5))
}

/// The time from the end of a release until a waiter of another process holds the lock: in round trips, and beside a bare
/// acquisition after the same pause, because a disk that has rested may be slower.
async fn wake_up(settings: &Settings, server: &PostgresServer, words: &str) {
    let (holder, waiter) = (manager(server).await, manager(server).await);
    let bare = Bare::connect(&plain_url(server)).await;
    let (mut times, mut trips, mut acquisitions) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        trips.push(median(settings.slice / 4, &async || bare.select().await).await);
        let (mut wakes, mut bares) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let held = holder.lock("wake-up").fenced(true).expire(LEASE);
            let held = held.try_acquire().await.expect("a free lock");
            let wanted = waiter.lock("wake-up").fenced(true).expire(LEASE).wait_time(LEASE);
            let next = tokio::spawn(async move {
                let guard = wanted.acquire().await.expect("the lock");
                (Instant::now(), guard)
            });
            tokio::time::sleep(SETTLE).await;
            held.release().await.expect("a release");
            let released = Instant::now();
            let (acquired, guard) = next.await.expect("the waiter");
            wakes.push(acquired.saturating_duration_since(released));
            guard.release().await.expect("a release");
            tokio::time::sleep(SETTLE).await;
            let begun = Instant::now();
            let token = bare.acquire("bare:wake-up").await;
            bares.push(begun.elapsed());
            bare.release("bare:wake-up", &token).await;
        }
        for (round, all) in [(&mut wakes, &mut times), (&mut bares, &mut acquisitions)] {
            round.sort();
            all.push(micros(percentile(round, 0.5)));
        }
    }
    let work = format!("wake-up after a release, {words}");
    let ratio = |of: &[f64]| Summary::of(times.iter().zip(of).map(|(time, other)| time / other));
    print(&work, "ours", &times, Summary::default(), None);
    // The acquisition waits for the disk.
    let limit = (words == OFF).then_some(3.0);
    print(&work, "round trip (select 1)", &trips, ratio(&trips), limit);
    print(&work, "bare acquisition", &acquisitions, ratio(&acquisitions), None);
}
