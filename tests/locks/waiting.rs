//! Waiters on real servers: what wakes them, what waiting costs, how processes share a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::test_util::node_tests::StoreFault;
use redlock_core::{LockError, LockGuard, LockManager};
use redlock_tests::{
    Direction, Nodes, Probe, Proxy, Servers, Traffic, connect, eventually, on_each_kind_of_nodes,
};

const LEASE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(120);

async fn wait(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).wait_forever().acquire().await.unwrap()
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

/// The servers that a caller asks for one lock, as a test sees them.
pub(crate) struct Asked<'a> {
    nodes: &'a Nodes,
    key: &'a str,
    probes: Vec<Probe>,
}

impl<'a> Asked<'a> {
    /// Counts commands from now on.
    pub(crate) async fn count(nodes: &'a Nodes, key: &'a str) -> Self {
        let mut probes = nodes.probes(key).await;
        for probe in &mut probes {
            probe.reset_calls().await;
        }
        Self { nodes, key, probes }
    }

    /// Waits until a caller has subscribed to releases, and was then refused once more. From now on, only a message wakes
    /// it before it polls. Each of its attempts sends `command` to each Redis server. Other stores do not show it, so it
    /// gets a part of the time before it polls.
    pub(crate) async fn a_caller_listens(&mut self, command: &str) {
        self.nodes.are_waited_for(self.key, 1).await;
        if self.probes.len() < self.nodes.len() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for probe in &mut self.probes {
            eventually("the waiter asks again", SOON, async || {
                (probe.calls().await.get(command) >= Some(&2)).then_some(())
            })
            .await;
        }
    }
}

/// Checks that a message wakes a waiter. A round returns the time from before its request until it has the lock. A waiter
/// polls 250 ms after a refusal at the earliest, so in a round that took less, it was woken. On a busy machine it takes
/// several rounds to see that.
pub(crate) async fn a_message_wakes_the_waiter(mut round: impl AsyncFnMut() -> Duration) {
    eventually("the waiter has the lock before it polls", SOON * 3, async || {
        (round().await < Duration::from_millis(250)).then_some(())
    })
    .await;
}

async fn a_waiter_is_woken_before_it_polls(nodes: Nodes) {
    let (here, there) = (nodes.manager().await, nodes.manager().await);
    a_message_wakes_the_waiter(async || {
        let guard = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
        nodes.all_hold("a").await;
        let mut asked = Asked::count(&nodes, "a").await;
        let begun = Instant::now();
        let request = here.lock("a").expire(LEASE).wait_forever();
        let waiter = tokio::spawn(async move { (request.acquire().await, begun.elapsed()) });
        // Each attempt reads the holder's TTL.
        asked.a_caller_listens("pttl").await;
        guard.release().await.unwrap();
        let (next, took) = waiter.await.unwrap();
        next.unwrap().release().await.unwrap();
        nodes.become_empty().await;
        took
    })
    .await;
}

on_each_kind_of_nodes! {
    [
        redis_x5: Nodes::redis(5).await,
        sentinel: Nodes::sentinel(1).await,
        cluster: Nodes::cluster().await,
    ]
    [a_waiter_is_woken_before_it_polls,]
}

on_each_kind_of_nodes! {
    [redis_x3: Nodes::redis(3).await,]
    [a_waiter_is_woken_after_a_reconnect, contended_rounds_leave_nothing_behind,]
}

mod thorough {
    use super::*;

    on_each_kind_of_nodes! {
        [
            postgres_x1: Nodes::postgres(1, 0).await,
            postgres_x3: Nodes::postgres(3, 0).await,
            postgres_beside_two_redis: Nodes::postgres(1, 2).await,
            zookeeper_x1: Nodes::zookeeper().await,
        ]
        [a_waiter_is_woken_before_it_polls, contended_rounds_leave_nothing_behind,]
    }

    on_each_kind_of_nodes! {
        [
            postgres_x3_with_a_quorum: Nodes::postgres(3, 0).await,
            postgres_beside_two_redis_with_a_quorum: Nodes::postgres(1, 2).await,
        ]
        [a_waiter_is_woken_after_a_reconnect,]
    }
}

#[tokio::test]
async fn idle_waiters_poll_no_more_than_a_single_waiter() {
    let servers = Servers::start(1).await;
    let here = connect(servers.urls()).await;
    let there = connect(servers.urls()).await;
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
    tokio::time::sleep(Duration::from_secs(2)).await;
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
async fn a_waiter_is_woken_after_a_reconnect(mut nodes: Nodes) {
    let (here, there) = (nodes.manager().await, nodes.manager().await);
    let guard = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiter = tokio::spawn(async move { drop(wait(&here, "a").await) });
    nodes.are_waited_for("a", 1).await;
    assert!(nodes[0].fault(StoreFault::Kill).await);
    nodes[0].fault(StoreFault::Restart).await;
    nodes.are_waited_for("a", 1).await;
    guard.release().await.unwrap();
    waiter.await.unwrap();
}

/// The other nodes are a quorum without the foreign key, even if one of them replies last.
#[tokio::test]
async fn a_waiter_waits_despite_a_foreign_key_that_the_other_nodes_outvote() {
    let servers = Servers::start(3).await;
    let late = Proxy::to(&servers[2]).await;
    let locks = connect([servers[0].url(), servers[1].url(), late.url()]).await;
    late.set(Direction::ToClient, Traffic::Delay(Duration::from_millis(50)));
    let put_foreign_key =
        async |server: usize| servers[server].probe().await.command::<()>(["SET", "a", ""]).await;
    put_foreign_key(0).await;
    for server in servers.iter().skip(1) {
        let one = connect([server.url()]).await;
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

async fn contended_rounds_leave_nothing_behind(nodes: Nodes) {
    let managers = [nodes.manager().await, nodes.manager().await];
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let locks = managers[task % 2].clone();
            tokio::spawn(async move {
                for round in 0..50 {
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
        let left = nodes.locks().await + nodes.leftovers().await.len();
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
    let locks = connect(servers.urls()).await;
    reset(&servers).await;
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
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
    println!("1280 turns: {commands} commands");
    assert!(commands <= 1280, "{commands}");
}

/// The callers ask for more locks than the nodes can answer in time, so attempts are abandoned and commands
/// queue up. A release must not overtake its own acquisition.
#[tokio::test(flavor = "multi_thread")]
async fn an_overload_leaves_no_key() {
    const BRIEF: Duration = Duration::from_millis(200);
    let servers = Servers::start(3).await;
    let locks = redlock_tests::builder(servers.urls()).node_timeout(BRIEF).connect().await.unwrap();
    let granted = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_secs(1);
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let (locks, granted) = (locks.clone(), Arc::clone(&granted));
            tokio::spawn(async move {
                while Instant::now() < end || granted.load(Ordering::Relaxed) < 100 {
                    let key = format!("caller:{caller}:{}", granted.load(Ordering::Relaxed));
                    if let Ok(guard) = locks.lock(key).expire(LEASE).try_acquire().await {
                        granted.fetch_add(1, Ordering::Relaxed);
                        let _ = guard.release().await;
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        tokio::time::timeout(SOON * 2, caller).await.unwrap().unwrap();
    }
    locks.shutdown().await;
    assert_eq!(servers.keys().await, [""; 0]);
}

mod measured {
    use std::collections::HashMap;
    use std::fmt;

    use redlock_tests::best_of_five;

    use super::*;
    use crate::turns::Contention;

    fn median(mut times: Vec<Duration>) -> Duration {
        times.sort();
        times[times.len() / 2]
    }

    /// A wake-up takes four one-way trips: the release script, its message, the waiter's attempt and the reply.
    /// The network is so slow that delays of a busy machine matter little. An uncontended acquisition in the same
    /// run measures the round trip.
    async fn round_trips_of_a_wake_up(count: usize) -> f64 {
        const ONE_WAY: Duration = Duration::from_millis(20);
        let nodes = Nodes::redis(count).await;
        let proxies = join_all(nodes.servers().into_iter().map(Proxy::to)).await;
        let urls = || proxies.iter().map(Proxy::url);
        let (here, there) = (connect(urls()).await, connect(urls()).await);
        for proxy in &proxies {
            proxy.set_both(Traffic::Delay(ONE_WAY));
        }
        let (mut round_trips, mut wake_ups) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let mut asked = Asked::count(&nodes, "a").await;
            let begun = Instant::now();
            let guard = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
            round_trips.push(begun.elapsed());
            let waiter = {
                let here = here.clone();
                tokio::spawn(async move {
                    let guard = wait(&here, "a").await;
                    (Instant::now(), guard)
                })
            };
            asked.a_caller_listens("pttl").await;
            let released = Instant::now();
            guard.release().await.unwrap();
            let (acquired, guard) = waiter.await.unwrap();
            wake_ups.push(acquired - released);
            guard.release().await.unwrap();
            nodes.become_empty().await;
        }
        median(wake_ups).as_secs_f64() / median(round_trips).as_secs_f64()
    }

    async fn a_waiter_is_woken_within_four_round_trips(nodes: usize) {
        let what = format!("round trips of a wake-up on {nodes} nodes, at most 4");
        let measure = async || round_trips_of_a_wake_up(nodes).await;
        best_of_five(&what, measure, |trips| *trips <= 4.0).await;
    }

    #[tokio::test]
    async fn a_waiter_on_one_node_is_woken_within_four_round_trips() {
        a_waiter_is_woken_within_four_round_trips(1).await;
    }

    #[tokio::test]
    async fn a_waiter_on_five_nodes_is_woken_within_four_round_trips() {
        a_waiter_is_woken_within_four_round_trips(5).await;
    }

    /// How evenly the processes shared a hot lock.
    struct Share {
        /// The turns of the process with the fewest, relative to an equal share.
        least: f64,
        /// The turns of the process with the most, relative to an equal share.
        most: f64,
        /// The longest wait, relative to the mean.
        longest_wait: f64,
    }

    impl fmt::Display for Share {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self { least, most, longest_wait } = self;
            write!(
                f,
                "{least:.2} to {most:.2} of a share, longest wait {longest_wait:.1} times the mean"
            )
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    async fn share() -> Share {
        const PROCESSES: usize = 4;
        let callers = Contention { processes: PROCESSES, tasks: 16, turns: 50, keys: 1, size: 1 };
        let holds = callers.run(&Servers::start(1).await).await;
        let mut ends = HashMap::new();
        for hold in &holds {
            ends.insert(hold.process, hold.end);
        }
        // Counts only the turns while all four processes still had work to do.
        let first_end = *ends.values().min().unwrap();
        let shared: Vec<_> = holds.iter().filter(|hold| hold.end <= first_end).collect();
        let turns = ends.keys().map(|process| {
            let turns = shared.iter().filter(|hold| hold.process == *process).count();
            turns as f64 * PROCESSES as f64 / shared.len() as f64
        });
        let turns: Vec<f64> = turns.collect();
        let waits = holds.iter().map(|hold| (hold.start - hold.asked.unwrap()) as f64);
        let mean = waits.clone().sum::<f64>() / holds.len() as f64;
        Share {
            least: turns.iter().copied().fold(f64::MAX, f64::min),
            most: turns.iter().copied().fold(0.0, f64::max),
            longest_wait: waits.fold(0.0, f64::max) / mean,
        }
    }

    /// Without starvation, the longest wait is 3 to 7 times the mean. A starved caller waits most of the run, 50 times
    /// the mean.
    #[tokio::test]
    async fn every_process_gets_its_share_of_a_hot_lock() {
        best_of_five("turns of a process, at least 0.5 of a share", share, |share| {
            share.least >= 0.5 && share.most <= 2.0 && share.longest_wait <= 15.0
        })
        .await;
    }
}
