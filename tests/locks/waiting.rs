//! Waiters on real servers: how soon they wake, what waiting costs, how processes share a lock.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockError, LockGuard, LockManager};
use redlock_tests::{
    Direction, History, Nodes, Proxy, Servers, Traffic, eventually, holds, overlaps,
};

const LEASE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(20);

/// A manager with long timeouts, because many tests share few cores.
async fn manager(urls: Vec<String>) -> LockManager {
    let builder = LockManager::builder().urls(urls).connect_timeout(SOON);
    builder.node_timeout(SOON).connect().await.unwrap()
}

async fn wait(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).wait_forever().acquire().await.unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Counts the commands that clients sent. Commands called by scripts do not count.
async fn commands(servers: &Servers) -> u64 {
    let mut sum = 0;
    for server in servers.iter() {
        let calls = server.probe().await.calls().await;
        let sent = ["set", "evalsha", "subscribe", "unsubscribe", "script|load"];
        sum += sent.iter().filter_map(|name| calls.get(*name)).sum::<u64>();
    }
    sum
}

async fn reset(servers: &Servers) {
    for server in servers.iter() {
        server.probe().await.reset_calls().await;
    }
}

/// The channels with subscribers on all nodes.
async fn channels(servers: &Servers) -> Vec<String> {
    let mut all = Vec::new();
    for server in servers.iter() {
        let channels: Vec<String> = server.probe().await.command(["PUBSUB", "CHANNELS"]).await;
        all.extend(channels);
    }
    all
}

/// A wake-up takes four one-way trips: the release script, its message, the waiter's attempt and the reply.
/// The network is so slow that delays of a busy machine matter little. An uncontended acquisition in the same
/// run measures the round trip. A waiter that is not woken polls after 250 ms at the earliest.
async fn a_waiter_is_woken_within_four_round_trips(nodes: usize) {
    const ONE_WAY: Duration = Duration::from_millis(20);
    let servers = Servers::start(nodes).await;
    let proxies = join_all(servers.iter().map(Proxy::to)).await;
    let urls = || proxies.iter().map(Proxy::url).collect();
    let (here, there) = (manager(urls()).await, manager(urls()).await);
    for proxy in &proxies {
        proxy.set_both(Traffic::Delay(ONE_WAY));
    }
    let (mut round_trips, mut wake_ups) = (Vec::new(), Vec::new());
    for round in 0..9 {
        let key = format!("lock:{round}");
        reset(&servers).await;
        let begun = Instant::now();
        let guard = there.lock(&key).expire(LEASE).try_acquire().await.unwrap();
        round_trips.push(begun.elapsed());
        let waiter = {
            let (here, key) = (here.clone(), key.clone());
            tokio::spawn(async move {
                let guard = wait(&here, &key).await;
                (Instant::now(), guard)
            })
        };
        // Each attempt reads the holder's TTL: the first one, and the decisive one after the subscription.
        eventually("the waiter has subscribed and asked again", SOON, async || {
            let calls = join_all(servers.iter().map(async |server| {
                server.probe().await.calls().await.get("pttl").copied().unwrap_or_default()
            }));
            let listens = channels(&servers).await.len() == nodes;
            (listens && calls.await.iter().all(|calls| *calls >= 2)).then_some(())
        })
        .await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (acquired, guard) = waiter.await.unwrap();
        wake_ups.push(acquired - released);
        guard.release().await.unwrap();
        eventually("no subscription is left", SOON, async || {
            channels(&servers).await.is_empty().then_some(())
        })
        .await;
    }
    let (round_trip, wake_up) = (median(round_trips), median(wake_ups));
    println!("{nodes} nodes: round trip {round_trip:?}, release to acquired {wake_up:?}");
    assert!(wake_up <= round_trip * 4, "{wake_up:?} for a round trip of {round_trip:?}");
}

#[tokio::test]
async fn a_waiter_on_one_node_is_woken_within_four_round_trips() {
    a_waiter_is_woken_within_four_round_trips(1).await;
}

#[tokio::test]
async fn a_waiter_on_five_nodes_is_woken_within_four_round_trips() {
    a_waiter_is_woken_within_four_round_trips(5).await;
}

/// Returns the number of subscribers to the releases of a lock, on a node that is a group of servers.
async fn subscribers(nodes: &Nodes, key: &str) -> usize {
    let mut probe = match nodes {
        Nodes::Sentinel(groups) => groups[0].servers[0].probe().await,
        Nodes::Cluster(cluster) => cluster.probe(cluster.owner(key).await).await,
        other => panic!("{other:?}"),
    };
    let (_, count): (String, usize) = probe.command(["PUBSUB", "NUMSUB", key]).await;
    count
}

/// Without the message, the waiter would poll after 250 ms at the earliest.
async fn a_waiter_is_woken_before_it_polls(nodes: Nodes) {
    let (here, there) = (nodes.manager().await, nodes.manager().await);
    let mut wake_ups = Vec::new();
    for round in 0..9 {
        let key = format!("lock:{round}");
        let guard = there.lock(&key).expire(LEASE).try_acquire().await.unwrap();
        let waiter = {
            let (here, key) = (here.clone(), key.clone());
            tokio::spawn(async move {
                let guard = wait(&here, &key).await;
                (Instant::now(), guard)
            })
        };
        eventually("the waiter has subscribed", SOON, async || {
            (subscribers(&nodes, &key).await == 1).then_some(())
        })
        .await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (woken, guard) = waiter.await.unwrap();
        wake_ups.push(woken - released);
        guard.release().await.unwrap();
    }
    let wake_up = median(wake_ups);
    assert!(wake_up < Duration::from_millis(100), "{wake_up:?}");
}

#[tokio::test]
async fn a_waiter_on_a_sentinel_group_is_woken_before_it_polls() {
    a_waiter_is_woken_before_it_polls(Nodes::sentinel(1).await).await;
}

#[tokio::test]
async fn a_waiter_on_a_cluster_is_woken_before_it_polls() {
    a_waiter_is_woken_before_it_polls(Nodes::cluster().await).await;
}

#[tokio::test]
async fn idle_waiters_poll_no_more_than_a_single_waiter() {
    let servers = Servers::start(1).await;
    let here = manager(servers.urls()).await;
    let there = manager(servers.urls()).await;
    let guard = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let here = here.clone();
            tokio::spawn(async move { drop(wait(&here, "a").await) })
        })
        .collect();
    eventually("the waiters have subscribed", SOON, async || {
        (!channels(&servers).await.is_empty()).then_some(())
    })
    .await;
    let begun = Instant::now();
    reset(&servers).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let polls = commands(&servers).await;
    let elapsed = begun.elapsed();
    println!("100 idle waiters: {polls} commands in {elapsed:?}");
    // Only one waiter polls, every 250 to 500 ms, with two commands: the attempt and the TTL lookup.
    let most = elapsed.as_millis() / 250 * 2 + 2;
    assert!(u128::from(polls) <= most, "{polls} commands in {elapsed:?}");
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

/// A restarted server has lost its subscriptions, so the waiter subscribes again.
#[tokio::test]
async fn a_waiter_is_woken_after_a_reconnect() {
    let mut servers = Servers::start(3).await;
    let here = manager(servers.urls()).await;
    let there = manager(servers.urls()).await;
    let guard = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiter = tokio::spawn(async move { drop(wait(&here, "a").await) });
    let subscribed = async |servers: &Servers| (channels(servers).await.len() == 3).then_some(());
    eventually("the waiter has subscribed", SOON, async || subscribed(&servers).await).await;
    servers[0].kill();
    servers[0].restart().await;
    eventually("the waiter has subscribed again", SOON, async || subscribed(&servers).await).await;
    guard.release().await.unwrap();
    waiter.await.unwrap();
}

/// The other nodes are a quorum without the foreign key, even if one of them replies last.
#[tokio::test]
async fn a_waiter_waits_despite_a_foreign_key_that_the_other_nodes_outvote() {
    let servers = Servers::start(3).await;
    let late = Proxy::to(&servers[2]).await;
    let locks = manager(vec![servers[0].url(), servers[1].url(), late.url()]).await;
    late.set(Direction::ToClient, Traffic::Delay(Duration::from_millis(50)));
    let put_foreign_key =
        async |server: usize| servers[server].probe().await.command::<()>(["SET", "a", ""]).await;
    put_foreign_key(0).await;
    for server in servers.iter().skip(1) {
        let one = manager(vec![server.url()]).await;
        let held = one.lock("a").expire(Duration::from_secs(5)).try_acquire().await.unwrap();
        held.keep_until_expiry();
    }
    let refused = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(refused.is_contended(), "{refused}");
    wait(&locks, "a").await.release().await.unwrap();

    put_foreign_key(1).await;
    let refused = locks.lock("a").wait_time(LEASE).acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::ForeignKey { .. }), "{refused}");
}

#[tokio::test]
async fn contended_rounds_leave_nothing_behind() {
    let servers = Servers::start(3).await;
    let managers = [manager(servers.urls()).await, manager(servers.urls()).await];
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let locks = managers[task % 2].clone();
            tokio::spawn(async move {
                for round in 0..250 {
                    let guard = wait(&locks, &format!("lock:{}", (round + task) % 5)).await;
                    tokio::task::yield_now().await;
                    if round % 2 == 0 { drop(guard) } else { guard.release().await.unwrap() }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    eventually("no key and no subscription is left", SOON, async || {
        let left = servers.keys().await.len() + channels(&servers).await.len();
        (left == 0).then_some(())
    })
    .await;
    for locks in managers {
        locks.shutdown().await;
    }
}

#[tokio::test]
async fn hand_overs_inside_one_process_save_commands() {
    let servers = Servers::start(1).await;
    let locks = manager(servers.urls()).await;
    reset(&servers).await;
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = wait(&locks, "hot").await;
                    tokio::task::yield_now().await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let commands = commands(&servers).await;
    println!("3200 turns: {commands} commands");
    assert!(commands <= 3200 / 2, "{commands}");
}

/// A worker process. It is killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Uses the median of several rounds, because a busy machine may delay any process for a while.
#[tokio::test]
async fn every_process_gets_its_share_of_a_hot_lock() {
    let mut rounds = Vec::new();
    for _ in 0..3 {
        rounds.push(share().await);
    }
    let median = |of: fn(&Share) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    assert!(median(|share| share.least) >= 0.5, "{rounds:?}");
    assert!(median(|share| share.most) <= 2.0, "{rounds:?}");
    // The factor is 3 to 7 without starvation. A starved caller waits most of the run, 50 times the mean.
    assert!(median(|share| share.longest_wait) <= 15.0, "{rounds:?}");
}

/// How evenly the processes shared a hot lock.
#[derive(Debug)]
struct Share {
    /// The turns of the process with the fewest, relative to an equal share.
    least: f64,
    /// The turns of the process with the most, relative to an equal share.
    most: f64,
    /// The longest wait, relative to the mean.
    longest_wait: f64,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
async fn share() -> Share {
    const PROCESSES: usize = 4;
    const TASKS: usize = 16;
    const TURNS: usize = 50;

    let servers = Servers::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let history = History::at(dir.path().join("history"));
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_turns"));
            command
                .env("REDIS_URLS", servers.urls().join(","))
                .env("KEY", "hot")
                .env("TASKS", TASKS.to_string())
                .env("TURNS", TURNS.to_string())
                .env("WORK_US", "0")
                .env("HISTORY", history.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            Worker(command.spawn().unwrap())
        })
        .collect();
    let mut outputs: Vec<_> =
        workers.iter_mut().map(|worker| BufReader::new(worker.0.stdout.take().unwrap())).collect();
    for output in &mut outputs {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
    reset(&servers).await;
    for worker in &mut workers {
        worker.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let outputs = tokio::task::spawn_blocking(move || {
        let lines = |output: BufReader<_>| -> Vec<u64> {
            output.lines().map(|line| line.unwrap().parse().unwrap()).collect()
        };
        outputs.into_iter().map(lines).collect::<Vec<_>>()
    });
    let waits = outputs.await.unwrap().concat();
    assert_eq!(waits.len(), PROCESSES * TASKS * TURNS);
    let holds = holds(&history.events().unwrap());
    assert_eq!(overlaps(&holds), [], "two holders at once");

    // Counts only the turns while all four processes still had work to do.
    let of = |worker: &Worker| {
        let process = worker.0.id();
        holds.iter().filter(move |hold| hold.process == process)
    };
    let ends = workers.iter().map(|worker| of(worker).map(|hold| hold.end).max().unwrap());
    let first_end = ends.min().unwrap();
    let shared = holds.iter().filter(|hold| hold.end <= first_end).count();
    let turns = workers.iter().map(|worker| {
        let turns = of(worker).filter(|hold| hold.end <= first_end).count();
        println!("process {}: {turns} of {shared} turns", worker.0.id());
        turns as f64 * PROCESSES as f64 / shared as f64
    });
    let turns: Vec<f64> = turns.collect();
    let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
    let longest = *waits.iter().max().unwrap() as f64;
    let sent = commands(&servers).await;
    let all = waits.len();
    println!("longest wait {longest:.0} us, mean {mean:.0} us, {sent} commands for {all} turns");
    Share {
        least: turns.iter().copied().fold(f64::MAX, f64::min),
        most: turns.iter().copied().fold(0.0, f64::max),
        longest_wait: longest / mean,
    }
}
