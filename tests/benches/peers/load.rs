//! Measures callers that lock and unlock keys.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::comparison::{Contender, Measurement, Side};
use crate::floor::Floor;
use crate::lockers::{Locker, Ours, Theirs};
use crate::statistics::{micros, percentile};
use crate::usage::{Meter, Usage};

/// The work of the callers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    /// For this time, each of so many callers locks and unlocks a key of its own.
    OwnKeys(usize, Duration),
    /// Each of so many callers waits so many times for the same key, and works for this time under its lock.
    HotKey(usize, usize, Duration),
}

/// One measurement.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    elapsed: Duration,
    /// The duration of each pair of a lock and an unlock, or of each wait for the hot key, sorted.
    times: Vec<Duration>,
    /// The number of pairs, or how often the hot key went to another caller.
    count: usize,
    failures: usize,
    usage: Usage,
}

impl Measured {
    pub(crate) fn p50(&self) -> f64 {
        micros(percentile(&self.times, 0.5))
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64()
    }

    pub(crate) fn changes_per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the p99 as a multiple of the p50.
    pub(crate) fn tail(&self) -> f64 {
        micros(percentile(&self.times, 0.99)) / self.p50()
    }

    /// Returns the longest time as a multiple of the mean.
    pub(crate) fn longest(&self) -> f64 {
        let mean = self.times.iter().sum::<Duration>().as_secs_f64() / self.times.len() as f64;
        percentile(&self.times, 1.0).as_secs_f64() / mean
    }

    pub(crate) fn commands_per_turn(&self) -> f64 {
        self.usage.commands as f64 / self.times.len() as f64
    }
}

impl Measurement for Measured {
    fn usage(&self) -> Usage {
        self.usage
    }

    fn count(&self) -> usize {
        self.count
    }

    fn failures(&self) -> usize {
        self.failures
    }
}

/// Makes a contender whose callers do the task.
pub(crate) fn contender<'a>(
    locker: &impl Locker,
    task: Task,
    meter: &Meter,
) -> Contender<'a, Measured> {
    let (locker, meter) = (locker.clone(), meter.clone());
    Box::new(move || {
        let (locker, mut meter) = (locker.clone(), meter.clone());
        async move { measure(&locker, task, &mut meter).await }.boxed_local()
    })
}

/// Connects a side with a column of its own.
pub(crate) async fn column(
    side: Side,
    urls: &[String],
    task: Task,
    meter: &Meter,
) -> (Side, Contender<'static, Measured>) {
    let contender = match side {
        Side::Plain => contender(&Floor::plain(urls).await, task, meter),
        Side::Batched => contender(&Floor::batched(urls).await, task, meter),
        Side::Ours => contender(&Ours::connect(urls).await, task, meter),
        _ => contender(&Theirs::new(urls), task, meter),
    };
    (side, contender)
}

/// Lets the callers do their task once.
pub(crate) async fn measure(locker: &impl Locker, task: Task, meter: &mut Meter) -> Measured {
    let (Task::OwnKeys(callers, _) | Task::HotKey(callers, ..)) = task;
    let owners = Arc::new(Mutex::new(Vec::with_capacity(1 << 12)));
    let begun_usage = meter.begin().await;
    let begun = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let (locker, owners) = (locker.clone(), Arc::clone(&owners));
        tokio::spawn(async move {
            match task {
                Task::OwnKeys(_, time) => own_key(&locker, caller, begun, time).await,
                Task::HotKey(_, turns, work) => {
                    let own = || {
                        owners.lock().expect("no caller panics with the mutex").push(caller);
                    };
                    (hot_key(&locker, turns, work, own).await, 0)
                }
            }
        })
    });
    let all = join_all(tasks).await;
    let elapsed = begun.elapsed();
    let usage = meter.end(begun_usage).await;
    let mut measured = Measured { elapsed, usage, ..Measured::default() };
    for caller in all {
        let (times, failures) = caller.expect("a caller that does not panic");
        measured.times.extend(times);
        measured.failures += failures;
    }
    measured.times.sort_unstable();
    let owners = owners.lock().expect("no caller panics with the mutex");
    measured.count = match task {
        Task::OwnKeys(..) => measured.times.len(),
        Task::HotKey(..) => owners.windows(2).filter(|pair| pair[0] != pair[1]).count(),
    };
    measured
}

/// Returns the duration of each pair, and the number of pairs that failed.
async fn own_key(
    locker: &impl Locker,
    caller: usize,
    begun: Instant,
    time: Duration,
) -> (Vec<Duration>, usize) {
    let key = format!("own:{caller}");
    let (mut pairs, mut failures) = (Vec::with_capacity(1 << 12), 0);
    let mut before = Instant::now();
    loop {
        let pair = match locker.lock(&key, false).await {
            Ok(held) => locker.unlock(&key, held).await,
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

/// Returns the duration of each wait. A caller that fails ends the benchmark.
async fn hot_key(
    locker: &impl Locker,
    turns: usize,
    work: Duration,
    own: impl Fn(),
) -> Vec<Duration> {
    let mut waits = Vec::with_capacity(turns);
    for _ in 0..turns {
        let before = Instant::now();
        let held = locker.lock("hot", true).await.expect("a turn");
        waits.push(before.elapsed());
        own();
        if !work.is_zero() {
            tokio::time::sleep(work).await;
        }
        // After a failed release, the library releases in the background.
        let _ = locker.unlock("hot", held).await;
    }
    waits
}
