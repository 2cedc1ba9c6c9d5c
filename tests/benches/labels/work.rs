//! The work of both sides.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockGuard, LockManager};

const CALLERS: usize = 64;
/// Short, so that two slices beside each other meet the same machine.
const SLICE: Duration = Duration::from_millis(20);
/// Longer than the time between two snapshots.
const PACED: Duration = Duration::from_millis(1250);
const LEASE: Duration = Duration::from_secs(30);

/// The figures of one side in one slice.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Figures {
    fn of(mut times: Vec<Duration>, elapsed: Duration) -> Self {
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
        let per_second = times.len() as f64 / elapsed.as_secs_f64();
        Self { per_second, p50: at(50), p99: at(99) }
    }

    /// Returns the means of two slices.
    pub(crate) fn mean(self, other: Self) -> Self {
        let mean = |of: fn(&Self) -> f64| f64::midpoint(of(&self), of(&other));
        let (per_second, p50) = (mean(|side| side.per_second), mean(|side| side.p50));
        Self { per_second, p50, p99: mean(|side| side.p99) }
    }
}

pub(crate) async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).try_acquire().await.expect("a lock")
}

/// Each caller acquires and releases a key of its own, for a slice.
pub(crate) async fn pairs(locks: &LockManager) -> Figures {
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
    Figures::of(times.collect(), begun.elapsed())
}

/// One caller asks for a lock that another manager holds.
pub(crate) async fn refusals(locks: &LockManager, key: &str) -> Figures {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < SLICE {
        let sent = Instant::now();
        let refused = locks.lock(key).expire(LEASE).try_acquire().await;
        times.push(sent.elapsed());
        assert!(refused.is_err_and(|refused| refused.is_contended()));
    }
    Figures::of(times, begun.elapsed())
}

/// One caller acquires and releases a lock 200 times a second.
pub(crate) async fn paced(locks: &LockManager) -> Figures {
    let (begun, mut times) = (Instant::now(), Vec::new());
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    while begun.elapsed() < PACED {
        pace.tick().await;
        let sent = Instant::now();
        let guard = locks.lock("paced").expire(LEASE).try_acquire().await.expect("a lock");
        guard.release().await.expect("a release");
        times.push(sent.elapsed());
    }
    Figures::of(times, begun.elapsed())
}
