//! Readers and writers that never rest, and the cost of a thousand readers of one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::test_util::TestLocks;
use redlock_core::{LockManager, LockRequest};
use redlock_tests::{Nodes, RedisServer, Servers, connect, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::waiting::{Asked, a_message_wakes_the_waiter};

const LEASE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(120);
const KEY: &str = "catalogue";
const PROCESSES: usize = 8;

/// Managers with connections of their own, which act as processes.
async fn processes(urls: &[String], count: usize) -> Vec<LockManager> {
    join_all((0..count).map(|_| connect(urls))).await
}

/// Managers on nodes in memory whose replies take a millisecond, in paused time.
async fn paused_processes(nodes: usize, count: usize) -> Vec<LockManager> {
    let test = TestLocks::new(nodes);
    test.nodes().iter().for_each(|node| node.delay(Duration::from_millis(1)));
    let managers = join_all((0..count).map(|_| test.builder().connect())).await;
    managers.into_iter().map(Result::unwrap).collect()
}

fn reader(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).shared(true).expire(LEASE).wait_forever()
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

async fn become_empty(servers: &Servers) {
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// A writer enters again and again beside readers that never rest.
async fn a_writer_enters(urls: &[String], rounds: usize) {
    let [locks] = &processes(urls, 1).await[..] else { unreachable!() };
    let readers =
        Restless::start(&processes(urls, PROCESSES).await, reader, Duration::from_millis(5));
    for _ in 0..rounds {
        readers.go_on().await;
        let guard = tokio::time::timeout(SOON, writer(locks).acquire()).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    readers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_enters_beside_readers_that_never_rest() {
    for nodes in [1, 5] {
        let servers = Servers::start(nodes).await;
        a_writer_enters(&servers.urls(), 20).await;
        become_empty(&servers).await;
    }
}

/// Without messages, waiters poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_enters_although_messages_are_denied() {
    let servers = Servers::start(1).await;
    for server in servers.iter() {
        let user =
            ["ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "-publish", "-subscribe"];
        server.probe().await.command::<()>(user).await;
    }
    let urls: Vec<_> =
        servers.urls().iter().map(|url| url.replace("redis://", "redis://mute:x@")).collect();
    a_writer_enters(&urls, 5).await;
    become_empty(&servers).await;
}

#[tokio::test]
async fn the_release_of_the_last_reader_wakes_a_waiting_writer() {
    for count in [1, 5] {
        let nodes = Nodes::redis(count).await;
        let urls: Vec<_> = nodes.servers().into_iter().map(RedisServer::url).collect();
        let managers = processes(&urls, 3).await;
        let [one, two, three] = &managers[..] else { unreachable!() };
        a_message_wakes_the_waiter(async || {
            let (first, last) =
                (reader(one).acquire().await.unwrap(), reader(two).acquire().await.unwrap());
            nodes.all_hold(KEY).await;
            let mut asked = Asked::count(&nodes, KEY).await;
            let begun = Instant::now();
            let entering = tokio::spawn(writer(three).acquire());
            // Each attempt that leaves a mark is a script.
            asked.a_caller_listens("evalsha").await;
            first.release().await.unwrap();
            last.release().await.unwrap();
            let guard = tokio::time::timeout(SOON, entering).await.unwrap().unwrap().unwrap();
            let waited = begun.elapsed();
            guard.release().await.unwrap();
            nodes.become_empty().await;
            waited
        })
        .await;
    }
}

/// A writer that releases the lock and requests it again at once would win against readers of other processes, which
/// first have to receive the message about the release.
#[tokio::test]
async fn few_writers_pass_a_waiting_reader() {
    for nodes in [1, 5] {
        let processes = paused_processes(nodes, PROCESSES + 2).await;
        let (readers, writers) = processes.split_at(2);
        let writers = Restless::start(writers, writer, Duration::from_millis(1));
        let rounds = join_all(readers.iter().map(async |locks| {
            let mut passed = Vec::new();
            for _ in 0..20 {
                writers.go_on().await;
                let before = writers.turns();
                let guard = reader(locks).acquire().await.unwrap();
                passed.push(writers.turns() - before);
                guard.release().await.unwrap();
            }
            passed
        }));
        let passed = rounds.await.concat();
        writers.stop().await;
        assert!(passed.iter().all(|passed| *passed <= 4), "{nodes} nodes: {passed:?}");
    }
}

/// The turn of the readers, on a server. It lasts for 50 ms, so a busy machine needs several tries.
#[tokio::test]
async fn in_the_turn_of_the_readers_no_writer_and_no_mark_keeps_them_out() {
    let server = RedisServer::start().await;
    let managers = processes(&[server.url()], 2).await;
    let [one, two] = &managers[..] else { unreachable!() };
    let mut probe = server.probe().await;
    // A reader has loaded the scripts.
    drop(reader(one).try_acquire().await.unwrap());
    let several = || one.lock_all([KEY, "other{1}"]).expire(LEASE).try_acquire();
    eventually("readers enter past a mark, and no writer enters", SOON, async || {
        let time: (i64, i64) = probe.command(["TIME"]).await;
        let now = time.0 * 1000 + time.1 / 1000;
        let (turn, mark) = ((-now - 50).to_string(), (-now - 1000).to_string());
        probe.command::<()>(["ZADD", KEY, "0", "shared", &turn, "t", &mark, "w:1"]).await;
        probe.command::<()>(["PEXPIREAT", KEY, &mark[1..]]).await;
        let writers = [writer(one).try_acquire().await.is_ok(), several().await.is_ok()];
        let readers = [reader(one).try_acquire().await, reader(two).try_acquire().await];
        let are_in = readers.iter().all(Result::is_ok);
        drop(readers);
        probe.command::<()>(["DEL", KEY]).await;
        (writers == [false, false] && are_in).then_some(())
    })
    .await;
}

/// A writer that dies leaves its mark, which refuses nobody but readers. It lives for a second, so a busy machine needs several
/// tries.
#[tokio::test]
async fn the_mark_of_a_dead_writer_keeps_no_other_writer_out() {
    let server = RedisServer::start().await;
    let locks = connect(&[server.url()]).await;
    let mut probe = server.probe().await;
    for (case, request) in [
        ("plain", writer(&locks)),
        ("fenced", writer(&locks).fenced(true)),
        ("several keys", locks.lock_all([KEY, "other"]).expire(LEASE)),
    ] {
        eventually("the mark keeps a reader out, and no writer", SOON, async || {
            let time: (i64, i64) = probe.command(["TIME"]).await;
            let mark = format!("-{}", time.0 * 1000 + time.1 / 1000 + 1000);
            probe.command::<()>(["ZADD", KEY, "0", "shared", &mark, "w:1"]).await;
            probe.command::<()>(["PEXPIREAT", KEY, &mark[1..]]).await;
            let reader = reader(&locks).try_acquire().await;
            let granted = request.clone().try_acquire().await;
            if let Ok(reader) = reader {
                reader.release().await.unwrap();
                return None;
            }
            let granted = granted.unwrap_or_else(|refused| panic!("{case}: {refused:?}"));
            granted.release().await.unwrap();
            Some(())
        })
        .await;
    }
}

/// The writer sleeps until the end of the dead reader's lease, which the refusal has reported, or until the living one
/// has released.
#[tokio::test]
async fn a_writer_enters_right_after_the_end_of_a_dead_reader() {
    const SHORT: Duration = Duration::from_millis(300);
    let managers = paused_processes(1, 3).await;
    let [dying, living, third] = &managers[..] else { unreachable!() };
    for round in 0..10 {
        // In half of the rounds the living reader leaves after the end of the dead one.
        let stays = SHORT * if round % 2 == 0 { 2 } else { 1 } * 3 / 4;
        let alive = reader(living).acquire().await.unwrap();
        let begun = tokio::time::Instant::now();
        let dead = dying.lock(KEY).shared(true).expire(SHORT).try_acquire().await.unwrap();
        let end_of_the_dead = tokio::time::Instant::now() + SHORT;
        std::mem::forget(dead);
        let entering = tokio::spawn(writer(third).acquire());
        tokio::time::sleep_until(begun + stays).await;
        alive.release().await.unwrap();
        let free = tokio::time::Instant::now().max(end_of_the_dead);
        let guard = entering.await.unwrap().unwrap();
        let delay = free.elapsed();
        assert!(delay <= Duration::from_millis(10), "{delay:?}");
        guard.release().await.unwrap();
    }
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

/// A lease that is too short to join another reader.
const ALONE: Duration = Duration::from_millis(150);

/// 64 readers of one process without a pause. One of them asks, and the others join its lock.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_process_that_never_rest_ask_the_nodes_seldom() {
    const TIME: Duration = Duration::from_secs(2);
    for nodes in [1, 5] {
        let servers = Servers::start(nodes).await;
        let locks = connect(&servers.urls()).await;
        for lease in [ALONE, LEASE] {
            let (turns, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let begun = Instant::now();
            let readers = (0..64).map(async |_| {
                while begun.elapsed() < TIME {
                    // On a busy machine, the short lease may be over at once.
                    let Ok(guard) = reader(&locks).expire(lease).acquire().await else { continue };
                    turns.fetch_add(1, Ordering::SeqCst);
                    asked.fetch_add(usize::from(!guard.has_joined()), Ordering::SeqCst);
                    drop(guard.release().await);
                }
            });
            join_all(readers).await;
            let [turns, asked] = [turns, asked].map(AtomicUsize::into_inner);
            let a_second = |count: usize| count as u128 * 1000 / begun.elapsed().as_millis();
            let (turns_a_second, asked_a_second) = (a_second(turns), a_second(asked));
            println!(
                "{nodes} nodes, lease {lease:?}: {turns_a_second} turns a second, {asked_a_second} acquisitions"
            );
            if lease == LEASE {
                assert!(turns > asked, "{asked} acquisitions for {turns} turns");
            } else {
                assert_eq!(turns, asked);
            }
        }
        become_empty(&servers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_readers_of_a_process_cost_two_commands_each() {
    const READERS: usize = 1000;
    let servers = Servers::start(1).await;
    let managers = processes(&servers.urls(), 1).await;
    let locks = &managers[0];
    let long = Duration::from_millis(200);
    for (waits, holds) in [(false, long), (true, long), (true, Duration::ZERO)] {
        for server in servers.iter() {
            server.probe().await.reset_calls().await;
        }
        let tasks: Vec<_> = (0..READERS)
            .map(|_| {
                let request = locks.lock(KEY).shared(true).expire(LEASE);
                let request =
                    if waits { request.wait_forever() } else { request.wait_time(Duration::ZERO) };
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
        println!("{READERS} readers: {commands} commands");
        // An acquisition and a release. The rest are scripts that are loaded, and subscriptions.
        assert!(commands <= 2 * READERS as u64 + 50, "{commands} commands");
        become_empty(&servers).await;
    }
}
