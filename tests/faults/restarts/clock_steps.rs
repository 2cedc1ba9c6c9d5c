//! Servers whose wall clocks are stepped, with and without the restart guard.

use std::time::{Duration, Instant};

use redlock_core::{LockError, LockManager, LockManagerBuilder, NodeError};
use redlock_tests::{Direction, Logs, Proxy, Servers, Traffic, eventually};

use super::{KEY, LEASE, SOON, failures, granted, granted_by_all};

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
        super::builder(self.proxies.iter().map(Proxy::url))
    }

    /// Connects a manager with the restart guard, and waits until all servers vote.
    async fn guarded(&self) -> LockManager {
        let locks = self.builder().restart_guard(LEASE).connect().await.unwrap();
        granted_by_all(&locks, &self.servers).await.release().await.unwrap();
        locks
    }

    /// Counts the log lines that contain `words`.
    fn lines(&self, words: &str) -> usize {
        self.logs.lines().iter().filter(|line| line.contains(words)).count()
    }

    /// Counts the warnings that contain `words`.
    fn warnings(&self, words: &str) -> usize {
        self.logs.count("WARN", words)
    }

    async fn wait_for_warnings(&self, words: &str, times: usize) {
        eventually(words, SOON, async || (self.warnings(words) >= times).then_some(())).await;
    }
}

/// Returns the failed votes of the nodes whose clocks were stepped.
fn stepped(error: &LockError) -> Vec<NodeError> {
    failures(error, |reason| matches!(reason, NodeError::ClockStepped { .. }))
}

/// A majority is stepped while a lock is renewed and no other command is sent. Only the time in the servers'
/// replies changes, not their clocks, which proves that the reported time decides.
#[tokio::test]
async fn a_majority_stepped_forward_grants_no_lock_for_the_longest_lease() {
    let nodes = Stepped::start(3).await;
    let locks = nodes.guarded().await;
    let holder = locks.lock(KEY).renew(true).try_acquire().await.unwrap();
    let before = Instant::now();
    for proxy in &nodes.proxies[..2] {
        proxy.set_clock_ahead(60);
    }
    nodes.wait_for_warnings("wall clock was stepped forward", 2).await;
    let error = locks.lock("other").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    let [NodeError::ClockStepped { by, votes_in, .. }, NodeError::ClockStepped { .. }] =
        stepped(&error)[..]
    else {
        panic!("{error}");
    };
    assert!(Duration::from_secs(50) < by && by <= Duration::from_secs(60), "{error}");
    assert!(votes_in <= LEASE, "{error}");
    let diagnostics = error.diagnostics().to_string();
    for words in ["failed: wall clock stepped forward by ", "s, votes again in "] {
        assert!(diagnostics.contains(words), "{diagnostics}");
    }

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
            match locks.lock(KEY).try_acquire().await {
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
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
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
            locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
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
