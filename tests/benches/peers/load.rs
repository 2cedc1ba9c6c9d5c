//! Measures callers that lock and unlock keys of their own.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::comparison::Costs;
use crate::locker::Locker;
use crate::rounds::Contender;
use crate::statistics::{micros, percentile};
use crate::usage::{Meter, Usage};

/// One measurement.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) elapsed: Duration,
    /// The duration of each pair of a lock and an unlock, sorted.
    pub(crate) pairs: Vec<Duration>,
    pub(crate) failures: usize,
    pub(crate) usage: Usage,
}

impl Measured {
    pub(crate) fn p50(&self) -> f64 {
        micros(percentile(&self.pairs, 0.5))
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.pairs.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the p99 of a pair as a multiple of its p50.
    pub(crate) fn tail(&self) -> f64 {
        micros(percentile(&self.pairs, 0.99)) / self.p50()
    }
}

impl Costs for Measured {
    fn usage(&self) -> Usage {
        self.usage
    }

    fn count(&self) -> usize {
        self.pairs.len()
    }

    fn failures(&self) -> usize {
        self.failures
    }
}

/// Makes a contender whose callers lock keys of their own.
pub(crate) fn contender<'a>(
    locker: &impl Locker,
    slice: Duration,
    callers: usize,
    meter: &Meter,
) -> Contender<'a, Measured> {
    let (locker, meter) = (locker.clone(), meter.clone());
    Box::new(move || {
        let (locker, mut meter) = (locker.clone(), meter.clone());
        async move { own_keys(&locker, callers, slice, &mut meter).await }.boxed_local()
    })
}

/// Measures `callers` tasks that lock and unlock for the given time, each a key of its own.
pub(crate) async fn own_keys(
    locker: &impl Locker,
    callers: usize,
    time: Duration,
    meter: &mut Meter,
) -> Measured {
    let begun_usage = meter.begin().await;
    let begun = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let locker = locker.clone();
        tokio::spawn(
            async move { one_caller(&locker, &format!("own:{caller}"), begun, time).await },
        )
    });
    let all = join_all(tasks).await;
    let elapsed = begun.elapsed();
    let usage = meter.end(begun_usage).await;
    let mut measured = Measured { elapsed, usage, ..Measured::default() };
    for caller in all {
        let (pairs, failures) = caller.expect("a caller that does not panic");
        measured.pairs.extend(pairs);
        measured.failures += failures;
    }
    measured.pairs.sort_unstable();
    measured
}

async fn one_caller(
    locker: &impl Locker,
    key: &str,
    begun: Instant,
    time: Duration,
) -> (Vec<Duration>, usize) {
    let (mut pairs, mut failures) = (Vec::with_capacity(1 << 12), 0);
    let mut before = Instant::now();
    loop {
        let pair = match locker.lock(key).await {
            Ok(held) => locker.unlock(key, held).await,
            Err(error) => Err(error),
        };
        let after = Instant::now();
        match pair {
            Ok(()) => pairs.push(after - before),
            Err(_) => failures += 1,
        }
        before = after;
        if after - begun >= time {
            return (pairs, failures);
        }
    }
}
