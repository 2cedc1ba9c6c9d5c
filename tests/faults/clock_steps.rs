//! Servers whose wall clocks are stepped, with and without the restart guard.

use std::time::{Duration, Instant};

use redlock_core::{LockError, LockGuard, LockManager, LockManagerBuilder, NodeError, Vote};
use redlock_tests::{Direction, Logs, Proxy, Servers, Traffic, eventually};

/// The longest lease, which is also how long a server must run before it votes.
const LEASE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "order:42";

/// Servers, each behind a proxy that can change the time in the server's replies.
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

    /// Connects a manager with the restart guard, and waits until all servers vote.
    async fn guarded(&self) -> LockManager {
        let locks = self.builder().restart_guard(LEASE).connect().await.unwrap();
        eventually("all servers grant the lock", SOON, async || {
            let guard = locks.lock(KEY).try_acquire().await.ok()?;
            let all = self.servers.keys().await.len() == self.servers.len();
            guard.release().await.unwrap();
            all.then_some(())
        })
        .await;
        locks
    }

    /// Counts the log lines that contain `words`.
    fn lines(&self, words: &str) -> usize {
        self.logs.lines().iter().filter(|line| line.contains(words)).count()
    }

    /// Counts the warnings that contain `words`.
    fn warnings(&self, words: &str) -> usize {
        let is_one = |line: &&String| line.contains("WARN") && line.contains(words);
        self.logs.lines().iter().filter(is_one).count()
    }

    async fn wait_for_warnings(&self, words: &str, times: usize) {
        eventually(words, SOON, async || (self.warnings(words) >= times).then_some(())).await;
    }
}

async fn try_acquire(locks: &LockManager, key: &str) -> Result<LockGuard, LockError> {
    locks.lock(key).expire(LEASE).try_acquire().await
}

async fn granted(locks: &LockManager, key: &str) -> LockGuard {
    eventually("the lock is granted", SOON, async || try_acquire(locks, key).await.ok()).await
}

/// Returns the failed votes of the nodes whose clocks were stepped.
fn stepped(error: &LockError) -> Vec<NodeError> {
    let votes = error.votes().unwrap().iter();
    votes
        .filter_map(|(_, vote)| match vote {
            Some(Vote::Failed(reason @ NodeError::ClockStepped { .. })) => Some(reason.clone()),
            _ => None,
        })
        .collect()
}

/// A majority is stepped while a lock is renewed and no other command is sent. Only the time in the servers'
/// replies changes, not their clocks, which proves that the reported time decides.
#[tokio::test]
async fn a_majority_stepped_forward_grants_no_lock_for_the_longest_lease() {
    let nodes = Stepped::start(3).await;
    let locks = nodes.guarded().await;
    let holder = locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
    let before = Instant::now();
    for proxy in &nodes.proxies[..2] {
        proxy.set_clock_ahead(60);
    }
    nodes.wait_for_warnings("wall clock was stepped forward", 2).await;
    let error = try_acquire(&locks, "other").await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    let [NodeError::ClockStepped { by, votes_in, .. }, NodeError::ClockStepped { .. }] =
        stepped(&error)[..]
    else {
        panic!("{error}");
    };
    assert!(Duration::from_secs(58) < by && by <= Duration::from_secs(60), "{error}");
    assert!(votes_in <= LEASE, "{error}");
    let words = "failed: wall clock stepped forward by 60s, votes again in ";
    let diagnostics = error.diagnostics().to_string();
    assert!(diagnostics.contains(words), "{diagnostics}");

    // The held lock can still be extended and released.
    holder.extend(LEASE).await.unwrap();
    holder.release().await.unwrap();
    granted(&locks, "other").await.release().await.unwrap();
    assert!(before.elapsed() > LEASE, "{:?}", before.elapsed());
    assert_eq!(nodes.warnings("wall clock was stepped"), 2, "each step is logged once");
}

/// Periodic polling would be too late, because the first vote over the new connection would count.
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

/// After a backward step the server only keeps its locks for longer.
#[tokio::test]
async fn a_backward_step_is_only_logged() {
    let nodes = Stepped::start(1).await;
    let locks = nodes.guarded().await;
    nodes.proxies[0].set_clock_ahead(-60);
    nodes.wait_for_warnings("wall clock was stepped back", 1).await;
    try_acquire(&locks, KEY).await.unwrap().release().await.unwrap();
    assert_eq!(nodes.warnings("stepped forward"), 0);
}

#[tokio::test]
async fn without_the_guard_a_forward_step_is_only_logged() {
    let nodes = Stepped::start(1).await;
    let locks = nodes.builder().connect().await.unwrap();
    // Steps the clock repeatedly, because at most one line per second is logged for such steps.
    let mut ahead = 0;
    for times in 1..=2 {
        eventually("the step is logged", SOON, async || {
            ahead += 60;
            nodes.proxies[0].set_clock_ahead(ahead);
            try_acquire(&locks, KEY).await.unwrap().release().await.unwrap();
            (nodes.warnings("a second caller may get a lock that is held") >= times).then_some(())
        })
        .await;
    }
}

/// A late reply holds the time at which the server executed the command, not the time of its arrival.
#[tokio::test]
async fn a_late_reply_is_not_taken_for_a_step() {
    let nodes = Stepped::start(1).await;
    let locks = nodes.builder().restart_guard(LEASE).connect().await.unwrap();
    let mut probe = nodes.servers[0].probe().await;
    let mut asked = async || probe.calls().await.get("time").copied().unwrap_or_default();
    for direction in [Direction::ToServer, Direction::ToClient] {
        nodes.proxies[0].set(direction, Traffic::Delay(Duration::from_millis(1500)));
        let before = asked().await;
        eventually("the server was asked for its time", SOON, async || {
            (asked().await > before + 1).then_some(())
        })
        .await;
        nodes.proxies[0].set(direction, Traffic::Pass);
        let before = asked().await;
        eventually("the server was asked for its time", SOON, async || {
            (asked().await > before + 1).then_some(())
        })
        .await;
    }
    assert_eq!(nodes.warnings("stepped"), 0);
    granted(&locks, KEY).await.release().await.unwrap();
}
