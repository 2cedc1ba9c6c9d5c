//! Readers and writers that never rest, the longest wait beside them, and the cost of a thousand readers of one process.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockManager, LockRequest, MemoryNode};
use redlock_tests::{Servers, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const LEASE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "catalogue";
const PROCESSES: usize = 8;

/// Managers with connections of their own, which act as processes.
async fn processes(urls: &[String], count: usize) -> Vec<LockManager> {
    let connect = || LockManager::builder().urls(urls).connect_timeout(SOON).connect();
    join_all((0..count).map(|_| connect())).await.into_iter().map(Result::unwrap).collect()
}

fn reader(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).shared().expire(LEASE).wait_forever()
}

fn writer(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).expire(LEASE).wait_forever()
}

/// Tasks that hold the lock for a while, again and again, until they are stopped.
struct Restless {
    stop: CancellationToken,
    turns: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Restless {
    fn start(
        processes: &[LockManager],
        request: fn(&LockManager) -> LockRequest,
        work: Duration,
    ) -> Self {
        let (stop, turns) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let start = |locks: &LockManager| {
            let (locks, stop, turns) = (locks.clone(), stop.clone(), Arc::clone(&turns));
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    let guard = request(&locks).acquire().await.unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(work).await;
                    guard.release().await.unwrap();
                }
            })
        };
        let tasks = processes.iter().map(start).collect();
        Self { stop, turns, tasks }
    }

    fn turns(&self) -> usize {
        self.turns.load(Ordering::SeqCst)
    }

    /// Waits until each task had about two more turns.
    async fn go_on(&self) {
        let enough = self.turns() + 2 * self.tasks.len();
        eventually("the tasks go on", SOON, async || (self.turns() > enough).then_some(())).await;
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Returns the times that a writer waits beside readers that never rest.
async fn waits_of_a_writer(urls: &[String], rounds: usize) -> Vec<Duration> {
    let [locks] = &processes(urls, 1).await[..] else { unreachable!() };
    let readers =
        Restless::start(&processes(urls, PROCESSES).await, reader, Duration::from_millis(5));
    let mut waits = Vec::new();
    for _ in 0..rounds {
        readers.go_on().await;
        let begun = Instant::now();
        let guard = tokio::time::timeout(SOON, writer(locks).acquire()).await.unwrap().unwrap();
        waits.push(begun.elapsed());
        guard.release().await.unwrap();
    }
    readers.stop().await;
    waits.sort();
    waits
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

async fn become_empty(servers: &Servers) {
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_enters_soon_beside_readers_that_never_rest() {
    for (nodes, rounds) in [(1, 200), (5, 100)] {
        let servers = Servers::start(nodes).await;
        let waits = waits_of_a_writer(&servers.urls(), rounds).await;
        let [median, p99] = [50, 99].map(|percent| percentile(&waits, percent));
        println!("{nodes} nodes: median {median:?}, p99 {p99:?}, longest {:?}", waits.last());
        assert!(p99 <= Duration::from_millis(250), "{p99:?}");
        become_empty(&servers).await;
    }
}

/// Without messages, waiters poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_enters_within_a_poll_if_messages_are_denied() {
    let servers = Servers::start(1).await;
    for server in servers.iter() {
        let user =
            ["ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "-publish", "-subscribe"];
        server.probe().await.command::<()>(user).await;
    }
    let urls: Vec<_> =
        servers.urls().iter().map(|url| url.replace("redis://", "redis://mute:x@")).collect();
    let waits = waits_of_a_writer(&urls, 20).await;
    println!("without messages: {waits:?}");
    // The longest pause between two polls is 500 ms.
    assert!(*waits.last().unwrap() <= Duration::from_millis(1500), "{waits:?}");
    become_empty(&servers).await;
}

/// A writer that releases the lock and requests it again at once would win against readers of other processes, which
/// first have to receive the message about the release.
#[tokio::test(flavor = "multi_thread")]
async fn few_writers_pass_a_waiting_reader() {
    for (nodes, most) in [(1, 5), (5, 12)] {
        let servers = Servers::start(nodes).await;
        let urls = servers.urls();
        let writers =
            Restless::start(&processes(&urls, PROCESSES).await, writer, Duration::from_millis(1));
        let readers = processes(&urls, 2).await;
        let rounds = join_all(readers.iter().map(async |locks| {
            let mut passed = Vec::new();
            for _ in 0..20 {
                writers.go_on().await;
                let before = writers.turns();
                let guard =
                    tokio::time::timeout(SOON, reader(locks).acquire()).await.unwrap().unwrap();
                passed.push(writers.turns() - before);
                guard.release().await.unwrap();
            }
            passed
        }));
        let mut passed = rounds.await.concat();
        passed.sort_unstable();
        println!("{nodes} nodes: passed by {passed:?}");
        writers.stop().await;
        assert!(*passed.last().unwrap() <= most, "{nodes} nodes: {passed:?}");
        become_empty(&servers).await;
    }
}

/// The writer sleeps until the end of the dead reader's lease, which the refusal has reported, or until the living one
/// has released.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_enters_right_after_the_end_of_a_dead_reader() {
    const SHORT: Duration = Duration::from_millis(300);
    let servers = Servers::start(1).await;
    let managers = processes(&servers.urls(), 3).await;
    let [dying, living, third] = &managers[..] else { unreachable!() };
    let mut delays = Vec::new();
    for round in 0..10 {
        // In half of the rounds the living reader leaves after the end of the dead one.
        let stays = SHORT * if round % 2 == 0 { 2 } else { 1 } * 3 / 4;
        let alive = reader(living).acquire().await.unwrap();
        let begun = Instant::now();
        let dead = dying.lock(KEY).shared().expire(SHORT).try_acquire().await.unwrap();
        let end_of_the_dead = Instant::now() + SHORT;
        std::mem::forget(dead);
        let locks = third.clone();
        let entering = tokio::spawn(async move {
            let guard = writer(&locks).acquire().await.unwrap();
            let entered = Instant::now();
            guard.release().await.unwrap();
            entered
        });
        tokio::time::sleep_until((begun + stays).into()).await;
        alive.release().await.unwrap();
        let free = Instant::now().max(end_of_the_dead);
        let entered = tokio::time::timeout(SOON, entering).await.unwrap().unwrap();
        delays.push(entered.saturating_duration_since(free));
    }
    delays.sort();
    println!("delays: {delays:?}");
    assert!(percentile(&delays, 50) <= Duration::from_millis(50), "{delays:?}");
    assert!(percentile(&delays, 100) <= Duration::from_millis(250), "{delays:?}");
    become_empty(&servers).await;
}

/// The commands that clients sent.
async fn commands(servers: &Servers) -> u64 {
    let mut sum = 0;
    for server in servers.iter() {
        let calls = server.probe().await.calls().await;
        let sent = ["set", "evalsha", "subscribe", "unsubscribe", "script|load"];
        sum += sent.iter().filter_map(|name| calls.get(*name)).sum::<u64>();
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_readers_of_a_process_cost_a_few_commands() {
    const READERS: usize = 1000;
    let servers = Servers::start(1).await;
    let managers = processes(&servers.urls(), 1).await;
    let locks = &managers[0];
    let long = Duration::from_millis(200);
    // A reader that releases the lock at once does not release it for the readers that waited with it.
    for (waits, holds) in [(false, long), (true, long), (true, Duration::ZERO)] {
        for server in servers.iter() {
            server.probe().await.reset_calls().await;
        }
        let begun = Instant::now();
        let tasks: Vec<_> = (0..READERS)
            .map(|_| {
                let request = locks.lock(KEY).shared().expire(LEASE);
                let request = if waits { request.wait_forever() } else { request };
                tokio::spawn(async move {
                    let guard = request.acquire().await.unwrap();
                    if !holds.is_zero() {
                        tokio::time::sleep(holds).await;
                    }
                    guard.release().await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let commands = commands(&servers).await;
        println!("{READERS} readers: {commands} commands, {:?}", begun.elapsed());
        assert!(commands <= 50, "{commands} commands");
        become_empty(&servers).await;
    }
}

/// Returns the median time of an acquisition and a release.
async fn median(request: impl Fn() -> LockRequest) -> Duration {
    let mut times = Vec::new();
    for _ in 0..500 {
        let begun = Instant::now();
        request().acquire().await.unwrap().release().await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    percentile(&times, 50)
}

/// Compares in one run, because machines differ.
#[tokio::test]
async fn a_reader_beside_a_thousand_others_is_as_fast_as_an_exclusive_holder() {
    let locks = LockManager::builder().memory_node(&MemoryNode::new()).connect().await.unwrap();
    let shared = || locks.lock(KEY).shared().expire(LEASE);
    let exclusive = || locks.lock("other").expire(LEASE);
    let mut ratios = Vec::new();
    for _ in 0..7 {
        let others = join_all((0..999).map(|_| shared().acquire())).await;
        let beside = median(shared).await;
        drop(others);
        let alone = median(exclusive).await;
        ratios.push(beside.as_secs_f64() / alone.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratios: {ratios:?}");
    assert!(ratios[ratios.len() / 2] <= 1.0, "{ratios:?}");
}
