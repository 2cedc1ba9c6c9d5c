//! The cost of owner labels and of snapshots. Starts its own server.
//!
//! ```text
//! cargo bench -p redlock-tests --bench labels
//! ```
//!
//! Each round measures both sides, one after another, and changes their order. A cell has the median of the ratios of the
//! rounds, with the smallest and the largest one. `LABELS_ROUNDS` (15) sets the number of rounds.

#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot continue must stop")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockGuard, LockManager};
use redlock_tests::RedisServer;

/// 24 bytes, as the name of a pod and a process have.
const LABEL: &str = "shop-7f9c6d5b48-x2x:4121";
const CALLERS: usize = 64;
const SLICE: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(30);
const HELD: usize = 10_000;

/// The figures of one side in one round.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    p50: f64,
    p99: f64,
}

#[tokio::main]
async fn main() {
    let rounds = std::env::var("LABELS_ROUNDS").map_or(15, |text| text.parse().expect("a number"));
    let server = RedisServer::start().await;
    let manager = async |label: &str| {
        let builder = LockManager::builder().url(server.url()).owner_label(label);
        builder.connect().await.expect("a manager")
    };
    let (labelled, plain) = (manager(LABEL).await, manager("off").await);

    println!("| work | reference | ratio: median (least-most) | limit |\n|---|---|---|---|");
    let pairs =
        compare(rounds, async || pairs(&labelled).await, async || pairs(&plain).await).await;
    row("64 callers, pairs a second", "without labels", &pairs, |one| one.per_second, ">= 0.98");
    let same =
        compare(rounds, async || self::pairs(&plain).await, async || self::pairs(&plain).await);
    row("no labels", "the same again", &same.await, |one| one.per_second, "the spread");

    let held = [held(&labelled, "held:labelled").await, held(&plain, "held:plain").await];
    let refusals = compare(
        rounds,
        async || refusals(&plain, "held:labelled").await,
        async || refusals(&labelled, "held:plain").await,
    );
    row("refusal, p50", "without labels", &refusals.await, |one| one.p50, "<= 1.03");
    drop(held);

    let many = manager(LABEL).await;
    let names = (0..HELD).map(|number| format!("many:{number}"));
    let guards: Vec<_> = join_all(names.map(async |name| renewed(&many, &name).await)).await;
    let longest = Arc::new(AtomicU64::new(0));
    let observed = async || {
        let ends = Arc::new(AtomicBool::new(false));
        let (locks, longest, until) = (many.clone(), Arc::clone(&longest), Arc::clone(&ends));
        let snapshots = tokio::spawn(async move {
            // The first within the slice, and one each second.
            while !until.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let snapshot = locks.snapshot();
                let took = begun.elapsed();
                assert!(snapshot.held.len() >= HELD, "{} locks", snapshot.held.len());
                let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                longest.fetch_max(micros, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let figures = paced(&many).await;
        ends.store(true, Ordering::Relaxed);
        snapshots.abort();
        figures
    };
    let snapshots = compare(rounds, observed, async || paced(&many).await).await;
    let same = compare(rounds, async || paced(&many).await, async || paced(&many).await).await;
    let title = "200 acquisitions a second beside 10,000 renewed locks, a snapshot each second";
    row(
        &format!("{title}: pairs a second"),
        "no snapshots",
        &snapshots,
        |one| one.per_second,
        ">= 0.98",
    );
    row("the same: p99", "no snapshots", &snapshots, |one| one.p99, "<= 1.2");
    row("no snapshots: p99", "the same again", &same, |one| one.p99, "the spread");
    let longest = Duration::from_micros(longest.load(Ordering::Relaxed));
    println!("| longest of the snapshots | | {longest:.1?} | <= 10 ms |");
    drop(guards);
    many.shutdown().await;
}

async fn renewed(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).acquire().await.expect("a lock")
}

async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).try_acquire().await.expect("a lock")
}

/// Measures both sides in each round, and changes their order.
async fn compare(
    rounds: usize,
    one: impl AsyncFn() -> Figures,
    other: impl AsyncFn() -> Figures,
) -> Vec<[Figures; 2]> {
    let mut compared = Vec::new();
    // The first round is not counted.
    for round in 0..=rounds {
        let figures = if round % 2 == 0 {
            let first = one().await;
            [first, other().await]
        } else {
            let second = other().await;
            [one().await, second]
        };
        compared.push(figures);
    }
    compared.split_off(1)
}

/// Prints the ratio of a figure.
fn row(work: &str, reference: &str, rounds: &[[Figures; 2]], of: fn(&Figures) -> f64, limit: &str) {
    let mut ratios: Vec<_> = rounds.iter().map(|[one, other]| of(one) / of(other)).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    let median = ratios[ratios.len() / 2];
    println!("| {work} | {reference} | {median:.2} ({least:.2}-{most:.2}) | {limit} |");
}

fn figures(mut times: Vec<Duration>, elapsed: Duration) -> Figures {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
    let per_second = times.len() as f64 / elapsed.as_secs_f64();
    Figures { per_second, p50: at(50), p99: at(99) }
}

/// Each caller acquires and releases a key of its own, for a slice.
async fn pairs(locks: &LockManager) -> Figures {
    let begun = Instant::now();
    let callers = (0..CALLERS).map(|caller| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let (key, mut times) = (format!("own:{caller}"), Vec::new());
            while begun.elapsed() < SLICE {
                let sent = Instant::now();
                let guard = locks.lock(&key).expire(LEASE).try_acquire().await.expect("a lock");
                guard.release().await.expect("a release");
                times.push(sent.elapsed());
            }
            times
        })
    });
    let times = join_all(callers).await.into_iter().flat_map(|times| times.expect("no panic"));
    figures(times.collect(), begun.elapsed())
}

/// One caller asks for a lock that another manager holds.
async fn refusals(locks: &LockManager, key: &str) -> Figures {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < SLICE {
        let sent = Instant::now();
        let refused = locks.lock(key).expire(LEASE).try_acquire().await;
        times.push(sent.elapsed());
        assert!(refused.is_err_and(|refused| refused.is_contended()));
    }
    figures(times, begun.elapsed())
}

/// One caller acquires and releases a lock 200 times a second, for a second and a bit.
async fn paced(locks: &LockManager) -> Figures {
    let (begun, mut times) = (Instant::now(), Vec::new());
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    while begun.elapsed() < 5 * SLICE {
        pace.tick().await;
        let sent = Instant::now();
        let guard = locks.lock("paced").expire(LEASE).try_acquire().await.expect("a lock");
        guard.release().await.expect("a release");
        times.push(sent.elapsed());
    }
    figures(times, begun.elapsed())
}
