//! Servers whose wall clocks are stepped, with and without the restart guard.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use redlock_core::{LockError, LockGuard, LockManager, LockManagerBuilder, NodeError, Vote};
use redlock_tests::{Direction, Logs, Proxy, Servers, Traffic, eventually};

/// The longest lease, and how long a server has to be running before it votes.
const LEASE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "order:42";

/// Servers, each behind a proxy that can step what it tells of its clock.
struct Stepped {
    servers: Servers,
    proxies: Vec<Proxy>,
    logs: Logs,
}

impl Stepped {
    async fn start(count: usize) -> Self {
        let logs = Logs::collect();
        let servers = Servers::start(count).await;
        let mut proxies = Vec::new();
        for server in servers.iter() {
            proxies.push(Proxy::to(server).await);
        }
        Self { servers, proxies, logs }
    }

    fn builder(&self) -> LockManagerBuilder {
        LockManager::builder()
            .urls(self.proxies.iter().map(Proxy::url))
            .expire(LEASE)
            .node_timeout(Duration::from_secs(1))
            .connect_timeout(SOON)
    }

    /// A manager with the guard, when all servers have been running for long enough.
    async fn guarded(&self) -> LockManager {
        let locks = self.builder().restart_guard(LEASE).connect().await.unwrap();
        eventually("all grant the lock", SOON, async || {
            let guard = locks.lock(KEY).try_acquire().await.ok()?;
            let all = self.servers.keys().await.len() == self.servers.len();
            guard.release().await.unwrap();
            all.then_some(())
        })
        .await;
        locks
    }

    /// How many lines with these words were logged.
    fn lines(&self, words: &str) -> usize {
        self.logs.lines().iter().filter(|line| line.contains(words)).count()
    }

    /// How many of them were warnings.
    fn warnings(&self, words: &str) -> usize {
        let is_one = |line: &&String| line.contains("WARN") && line.contains(words);
        self.logs.lines().iter().filter(is_one).count()
    }

    async fn are_warned(&self, words: &str, times: usize) {
        eventually(words, SOON, async || (self.warnings(words) >= times).then_some(())).await;
    }
}

async fn try_acquire(locks: &LockManager, key: &str) -> Result<LockGuard, LockError> {
    locks.lock(key).expire(LEASE).try_acquire().await
}

async fn granted(locks: &LockManager, key: &str) -> LockGuard {
    eventually("the lock is granted", SOON, async || try_acquire(locks, key).await.ok()).await
}

/// The reasons of the nodes whose clocks were stepped.
fn stepped(error: &LockError) -> Vec<NodeError> {
    let votes = error.votes().unwrap().iter();
    votes
        .filter_map(|(_, vote)| match vote {
            Some(Vote::Failed(reason @ NodeError::ClockStepped { .. })) => Some(reason.clone()),
            _ => None,
        })
        .collect()
}

/// While a lock is renewed nothing else is asked, and a majority is stepped. That the servers do here
/// what they did before, and only say otherwise, shows that what they say is what counts.
#[tokio::test]
async fn a_majority_that_is_stepped_forward_grants_nothing_for_the_longest_lease() {
    let nodes = Stepped::start(3).await;
    let locks = nodes.guarded().await;
    let holder = locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
    let before = Instant::now();
    for proxy in &nodes.proxies[..2] {
        proxy.set_clock_ahead(60);
    }
    nodes.are_warned("wall clock was stepped forward", 2).await;
    let error = try_acquire(&locks, "other").await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    let [NodeError::ClockStepped { by, votes_in, .. }, NodeError::ClockStepped { .. }] =
        stepped(&error)[..]
    else {
        panic!("{error}");
    };
    assert!(Duration::from_secs(58) < by && by <= Duration::from_secs(60), "{error}");
    assert!(votes_in <= LEASE, "{error}");
    let words = "failed: its wall clock was stepped forward by 60s, votes again in ";
    assert!(error.to_string().contains(words), "{error}");

    // What is held is extended and released.
    holder.extend(LEASE).await.unwrap();
    holder.release().await.unwrap();
    granted(&locks, "other").await.release().await.unwrap();
    assert!(before.elapsed() > LEASE, "{:?}", before.elapsed());
    assert_eq!(nodes.warnings("wall clock was stepped"), 2, "each is told once");
}

/// A look now and then would come too late: the first vote over the new connection would count.
#[tokio::test]
async fn a_step_while_there_is_no_connection_is_noticed_before_the_next_vote() {
    let nodes = Stepped::start(1).await;
    let locks = nodes.guarded().await;
    let before = Instant::now();
    nodes.proxies[0].set_clock_ahead(60);
    for connections in 1..=2 {
        nodes.proxies[0].reset();
        eventually("the node is asked over another connection", SOON, async || {
            let is_back = nodes.lines("a node is back") >= connections;
            match try_acquire(&locks, KEY).await {
                Ok(_) => {
                    assert!(before.elapsed() > LEASE, "granted over connection {connections}");
                    Some(())
                }
                Err(error) if is_back => stepped(&error).pop().map(drop),
                Err(_) => None,
            }
        })
        .await;
    }
    assert_eq!(nodes.warnings("wall clock was stepped forward"), 1);
    granted(&locks, KEY).await.release().await.unwrap();
}

/// A lock that lasts for longer keeps others out, and lets nobody in.
#[tokio::test]
async fn a_step_back_is_told_and_hinders_nobody() {
    let nodes = Stepped::start(1).await;
    let locks = nodes.guarded().await;
    nodes.proxies[0].set_clock_ahead(-60);
    nodes.are_warned("wall clock was stepped back", 1).await;
    try_acquire(&locks, KEY).await.unwrap().release().await.unwrap();
    assert_eq!(nodes.warnings("stepped forward"), 0);
}

#[tokio::test]
async fn without_the_guard_a_step_forward_is_told_while_locks_are_used() {
    let nodes = Stepped::start(1).await;
    let locks = nodes.builder().connect().await.unwrap();
    // The clock is stepped again and again, because a line per second stands for all such steps.
    let mut ahead = 0;
    for times in 1..=2 {
        eventually("it is logged", SOON, async || {
            ahead += 60;
            nodes.proxies[0].set_clock_ahead(ahead);
            try_acquire(&locks, KEY).await.unwrap().release().await.unwrap();
            (nodes.warnings("as if it had forgotten locks") >= times).then_some(())
        })
        .await;
    }
}

/// The answer says what time it was when the server was asked.
#[tokio::test]
async fn an_answer_that_is_late_is_no_step() {
    let nodes = Stepped::start(1).await;
    let locks = nodes.builder().restart_guard(LEASE).connect().await.unwrap();
    let mut probe = nodes.servers[0].probe().await;
    let mut asked = async || probe.calls().await.get("time").copied().unwrap_or_default();
    for direction in [Direction::ToServer, Direction::ToClient] {
        nodes.proxies[0].set(direction, Traffic::Delay(Duration::from_millis(1500)));
        let before = asked().await;
        eventually("it was asked", SOON, async || (asked().await > before + 1).then_some(())).await;
        nodes.proxies[0].set(direction, Traffic::Pass);
        let before = asked().await;
        eventually("it was asked", SOON, async || (asked().await > before + 1).then_some(())).await;
    }
    assert_eq!(nodes.warnings("stepped"), 0);
    granted(&locks, KEY).await.release().await.unwrap();
}
