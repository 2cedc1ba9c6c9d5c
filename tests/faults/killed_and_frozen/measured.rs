//! Response times while servers are killed or frozen. Other work on the machine makes each of these times longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redlock_core::{LockError, LockManager};
use redlock_tests::{Servers, best_of_five, eventually};
use tokio_util::task::AbortOnDropHandle;

use super::{Fault, KEY, LONG, SOON, pair, served_again};
use crate::QUIET;

/// Connects a manager with the default node timeout, which these tests measure.
async fn connect(servers: &Servers) -> LockManager {
    let builder = LockManager::builder().urls(servers.urls()).connect_timeout(SOON);
    builder.connect().await.unwrap()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    millis(times[times.len() / 2])
}

/// Serves the same requests on five healthy nodes and on five of which two have the fault, in turns, so that both see
/// the same noise. Returns how many times as long the requests take with the fault.
async fn slowdown(fault: Fault) -> f64 {
    const REQUESTS: usize = 400;
    let (healthy, mut faulty) = tokio::join!(Servers::start(5), Servers::start(5));
    let on_healthy = connect(&healthy).await;
    let on_faulty = connect(&faulty).await;
    for _ in 0..20 {
        pair(&on_healthy, KEY).await;
        pair(&on_faulty, KEY).await;
    }
    fault.strike(&mut faulty, 2);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for request in 0..REQUESTS {
        let key = format!("order:{request}");
        with.push(pair(&on_faulty, &key).await);
        without.push(pair(&on_healthy, &key).await);
    }
    median(with) / median(without)
}

/// No request waits for the faulty nodes. But it needs all of the others, and the slowest of three nodes is slower than
/// the third of five.
#[tokio::test]
async fn two_nodes_of_five_that_are_down_cost_nothing() {
    let _quiet = QUIET.write().await;
    for fault in [Fault::Kill, Fault::Freeze] {
        let what = format!("{fault:?} of two of five nodes: times as slow as five healthy ones");
        best_of_five(&what, async || slowdown(fault).await, |times| *times <= 1.5).await;
    }
}

/// Measures how late this process runs in total, by a task that should wake every few milliseconds.
#[derive(Clone, Default)]
struct Lateness(Arc<AtomicU64>);

impl Lateness {
    fn watch() -> (Self, AbortOnDropHandle<()>) {
        const TICK: Duration = Duration::from_millis(5);
        let lateness = Self::default();
        let total = Arc::clone(&lateness.0);
        let watch = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(TICK).await;
                let late = begun.elapsed().saturating_sub(TICK);
                total.fetch_add(u64::try_from(late.as_micros()).unwrap(), Ordering::Relaxed);
            }
        });
        (lateness, AbortOnDropHandle::new(watch))
    }

    fn so_far(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Kills or freezes servers while callers lock and release without a pause, so that some replies are queued behind other
/// replies. Returns the longest time until one of these callers, or a later one, is refused, in milliseconds. The time
/// that this process was late does not count.
async fn noticed_after(fault: Fault, struck: usize, servers: usize) -> f64 {
    const CALLERS: usize = 32;
    let (lateness, _watch) = Lateness::watch();
    let mut longest = Duration::ZERO;
    // Each round strikes the servers at another moment.
    for round in 0..3 {
        let mut servers = Servers::start(servers).await;
        let locks = connect(&servers).await;
        let served = Arc::new(AtomicU64::new(0));
        // Calls until a request is refused. Returns how long that request took.
        let call = |key: String| {
            let (locks, lateness, served) = (locks.clone(), lateness.clone(), Arc::clone(&served));
            async move {
                loop {
                    let (begun, late) = (Instant::now(), lateness.so_far());
                    match locks.lock(&key).expire(LONG).try_acquire().await {
                        Ok(guard) => {
                            served.fetch_add(1, Ordering::Relaxed);
                            drop(guard);
                        }
                        // The release of the previous guard is still pending.
                        Err(LockError::Contended { .. } | LockError::Split { .. }) => {}
                        Err(LockError::Unavailable { .. }) => {
                            let late = lateness.so_far().saturating_sub(late);
                            return begun.elapsed().saturating_sub(late);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        };
        let callers: Vec<_> =
            (0..CALLERS).map(|caller| tokio::spawn(call(format!("order:{caller}")))).collect();
        eventually("the callers are served", SOON, async || {
            (served.load(Ordering::Relaxed) > 500 + 37 * round).then_some(())
        })
        .await;
        fault.strike(&mut servers, struck);
        for caller in callers {
            longest = longest.max(tokio::time::timeout(SOON, caller).await.unwrap().unwrap());
        }
        longest = longest.max(call(KEY.to_owned()).await);
    }
    millis(longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_learns_of_a_lost_quorum_in_time() {
    let _quiet = QUIET.write().await;
    // The default timeouts of 200 ms and of a second plus a quarter, with room for the last reply.
    let cases =
        [(Fault::Kill, 3, 5, 300.0), (Fault::Freeze, 3, 5, 300.0), (Fault::Freeze, 1, 1, 1500.0)];
    for (fault, struck, servers, within) in cases {
        let what =
            format!("{fault:?} of {struck} of {servers} nodes: milliseconds until a refusal");
        let measure = async || noticed_after(fault, struck, servers).await;
        best_of_five(&what, measure, |millis| *millis < within).await;
    }
}

/// The server is back at its port at once, but the connection pool does not know yet.
async fn used_again_after(fault: Fault, struck: usize, servers: usize) -> f64 {
    let mut servers = Servers::start(servers).await;
    let locks = connect(&servers).await;
    pair(&locks, KEY).await;
    fault.strike(&mut servers, struck);
    locks.lock(KEY).try_acquire().await.unwrap_err();
    fault.undo(&mut servers, struck).await;
    let back = Instant::now();
    served_again(&locks).await;
    millis(back.elapsed())
}

#[tokio::test]
async fn servers_that_are_back_are_used_within_half_a_second() {
    let _quiet = QUIET.write().await;
    for (servers, struck, fault) in
        [(1, 1, Fault::Kill), (5, 3, Fault::Kill), (5, 3, Fault::Freeze)]
    {
        let what =
            format!("{fault:?} of {struck} of {servers} nodes: milliseconds until the first grant");
        let measure = async || used_again_after(fault, struck, servers).await;
        best_of_five(&what, measure, |millis| *millis < 500.0).await;
    }
}
