//! Network faults: late, lost and truncated messages, and silence in one or both directions.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{
    ConnectError, LockError, LockGuard, LockManager, LockManagerBuilder, NodeError, ReleaseError,
    Vote,
};
use redlock_tests::{Direction, Proxy, RedisCluster, Servers, Traffic, Welcome, eventually};

use Direction::{ToClient, ToServer};
use Traffic::{Delay, Hold, Pass, ResetAfter};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(20);
/// Long enough for a busy machine, short enough for a test to wait for it.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);
const KEY: &str = "order:42";

/// Servers, each behind a proxy. They are nodes of their own, or the masters of a cluster.
struct Network {
    servers: Servers,
    cluster: Option<RedisCluster>,
    proxies: Vec<Proxy>,
}

impl Network {
    async fn start(nodes: usize) -> Self {
        let servers = Servers::start(nodes).await;
        let proxies = join_all(servers.iter().map(Proxy::to)).await;
        Self { servers, cluster: None, proxies }
    }

    async fn cluster() -> Self {
        let (cluster, proxies) = RedisCluster::start_proxied().await;
        Self { servers: Servers::from(Vec::new()), cluster: Some(cluster), proxies }
    }

    fn servers(&self) -> &Servers {
        self.cluster.as_ref().map_or(&self.servers, RedisCluster::servers)
    }

    fn builder(&self) -> LockManagerBuilder {
        let urls = match &self.cluster {
            Some(_) => vec![RedisCluster::url_by(&self.proxies)],
            None => self.proxies.iter().map(Proxy::url).collect(),
        };
        let builder = LockManager::builder().urls(urls).node_timeout(NODE_TIMEOUT);
        builder.connect_timeout(Duration::from_secs(4))
    }

    /// Sets the traffic to or from the first `count` nodes.
    fn set(&self, count: usize, direction: Direction, traffic: Traffic) {
        for proxy in &self.proxies[..count] {
            proxy.set(direction, traffic);
        }
    }

    async fn manager(&self) -> LockManager {
        self.builder().connect().await.unwrap()
    }

    /// A manager that bypasses the proxies.
    async fn direct_manager(&self) -> LockManager {
        redlock_tests::connect(self.servers.urls()).await
    }

    /// Counts the executions of a command on all servers.
    async fn calls(&self, command: &str) -> u64 {
        let mut sum = 0;
        for server in self.servers().iter() {
            sum += server.probe().await.calls().await.get(command).copied().unwrap_or(0);
        }
        sum
    }

    async fn becomes_empty(&self) {
        eventually("no key is left", SOON, async || {
            self.servers().keys().await.is_empty().then_some(())
        })
        .await;
    }

    /// Waits until all nodes vote again and no key is left.
    async fn recovers(&self, locks: &LockManager) {
        eventually("all nodes vote", SOON, async || {
            let guard = locks.lock("recovered").expire(LONG).try_acquire().await.ok()?;
            let votes = self.servers().keys().await;
            let votes = votes.iter().filter(|key| key.ends_with("recovered")).count();
            guard.release().await.ok()?;
            (self.cluster.is_some() || votes == self.servers.len()).then_some(())
        })
        .await;
        self.becomes_empty().await;
    }
}

async fn try_acquire(locks: &LockManager) -> Result<LockGuard, LockError> {
    tokio::time::timeout(SOON, locks.lock(KEY).expire(LONG).try_acquire()).await.unwrap()
}

/// Returns the reasons of the failed votes.
fn failures(error: &LockError) -> Vec<NodeError> {
    let LockError::Unavailable { votes, .. } = error else { panic!("{error}") };
    let reasons = votes.iter().filter_map(|(_, vote)| match vote {
        Some(Vote::Failed(reason)) => Some(reason.clone()),
        _ => None,
    });
    reasons.collect()
}

/// Over another connection the clean-up would overtake the `SET` (an abandoned attempt leaves nothing
/// behind).
#[tokio::test]
async fn a_set_that_arrives_after_its_attempt_was_abandoned_leaves_no_key() {
    let networks = [Network::start(1).await, Network::start(3).await, Network::cluster().await];
    for (network, majority) in networks.into_iter().zip([1, 2, 3]) {
        let locks = network.manager().await;
        for round in 1..=3 {
            network.set(majority, ToServer, Hold);
            let error = try_acquire(&locks).await.unwrap_err();
            assert!(failures(&error).iter().all(|r| matches!(r, NodeError::NoReply(_))), "{error}");
            network.set(majority, ToServer, Pass);
            eventually("the held-back commands arrive", SOON, async || {
                (network.calls("set").await >= round).then_some(())
            })
            .await;
            network.becomes_empty().await;
        }
        network.recovers(&locks).await;
    }
}

/// The servers set the lock, although the client receives no reply.
#[tokio::test]
async fn a_lock_whose_reply_is_lost_is_removed() {
    for nodes in [1, 3] {
        let network = Network::start(nodes).await;
        let locks = network.manager().await;
        let majority = nodes / 2 + 1;
        network.set(majority, ToClient, Hold);
        let error = try_acquire(&locks).await.unwrap_err();
        assert_eq!(failures(&error).len(), majority, "{error}");
        assert!(network.calls("set").await >= majority as u64);
        // The replies are still held back.
        network.becomes_empty().await;
        for proxy in &network.proxies {
            proxy.reset();
            proxy.set(ToClient, Pass);
        }
        network.recovers(&locks).await;
    }
}

/// The server sets the lock, and the connection breaks in the middle of its reply.
#[tokio::test]
async fn a_lock_whose_reply_is_truncated_is_removed() {
    let network = Network::start(1).await;
    let locks = network.manager().await;
    for bytes in 0..4 {
        let calls = truncate(&network, &locks, ToClient, bytes).await;
        assert_eq!(calls, 1, "the acquisition was not executed");
        network.becomes_empty().await;
        network.recovers(&locks).await;
    }
}

#[tokio::test]
async fn a_truncated_command_is_not_executed() {
    let network = Network::start(1).await;
    let locks = network.manager().await;
    for bytes in [0, 1, 20, 60] {
        assert_eq!(truncate(&network, &locks, ToServer, bytes).await, 0);
        network.recovers(&locks).await;
    }
}

/// Breaks the connection after `bytes` bytes of an acquisition or of its reply. Returns how many acquisitions
/// the server has executed.
///
/// The manager also polls the server's time. If a poll breaks the connection before the acquisition is executed, the
/// attempt is repeated.
async fn truncate(
    network: &Network,
    locks: &LockManager,
    direction: Direction,
    bytes: usize,
) -> u64 {
    loop {
        network.proxies[0].connections().last().unwrap().set(direction, ResetAfter(bytes));
        let before = network.calls("set").await;
        let error = try_acquire(locks).await.unwrap_err();
        let calls = network.calls("set").await - before;
        match failures(&error)[..] {
            [NodeError::ConnectionBroke(_)] if calls > 0 || direction == ToServer => return calls,
            [NodeError::ConnectionBroke(_) | NodeError::NotConnected(_)] => {
                network.recovers(locks).await;
            }
            _ => panic!("{error}"),
        }
    }
}

/// The connection breaks in the middle of the release or of its reply.
#[tokio::test]
async fn a_truncated_release_is_repeated() {
    let network = Network::start(1).await;
    let locks = network.manager().await;
    for direction in [ToServer, ToClient] {
        let guard = eventually("the manager is connected again", SOON, async || {
            try_acquire(&locks).await.ok()
        });
        let guard = guard.await;
        network.proxies[0].connections().last().unwrap().set(direction, ResetAfter(2));
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Unavailable { .. }), "{error}");
        network.becomes_empty().await;
    }
}

/// With silence in both directions the node's vote fails in time, and later callers do not wait for the node
/// at all.
#[tokio::test]
async fn a_half_open_connection_costs_one_node_timeout() {
    let network = Network::start(1).await;
    let locks = network.manager().await;
    try_acquire(&locks).await.unwrap().release().await.unwrap();
    network.proxies[0].set_both(Hold);
    let begun = Instant::now();
    let error = try_acquire(&locks).await.unwrap_err();
    let first = begun.elapsed();
    assert!(matches!(failures(&error)[..], [NodeError::NoReply(_)]), "{error}");
    assert!(first >= NODE_TIMEOUT, "{first:?}");
    eventually("callers no longer wait for the node", SOON, async || {
        let begun = Instant::now();
        let error = try_acquire(&locks).await.unwrap_err();
        assert!(matches!(failures(&error)[..], [NodeError::NoReply(_)]), "{error}");
        (begun.elapsed() < first / 4).then_some(())
    })
    .await;
    network.proxies[0].set_both(Pass);
    network.recovers(&locks).await;
}

/// A load balancer can leave such a connection: it acknowledges packets that it does not deliver, so neither
/// keepalive nor the timeout of TCP notices.
#[tokio::test]
async fn a_half_open_connection_is_replaced() {
    let network = Network::start(3).await;
    let locks = network.manager().await;
    network.proxies[0].connections()[0].set_both(Hold);
    network.recovers(&locks).await;
}

/// The client's side of the connection has ended, but its `SET` still reaches the server, after the clean-up
/// that was sent over the next connection. Nothing can prevent that. It blocks the key for one lease at most.
#[tokio::test]
async fn a_set_that_outlives_its_connection_blocks_the_key_for_one_lease_only() {
    const LEASE: Duration = Duration::from_secs(3);
    let network = Network::start(1).await;
    let locks = network.builder().node_timeout(LEASE * 2 / 3).connect().await.unwrap();
    // Each connection begins with a check of the rights, which sends as many of both as the first one.
    let (sets, scripts) = (network.calls("set").await, network.calls("evalsha").await);
    let first = network.proxies[0].connections()[0].clone();
    first.set(ToServer, Hold);
    let before = first.received(ToServer);
    let attempt = tokio::spawn(locks.lock(KEY).expire(LEASE).try_acquire());
    eventually("the `SET` is on its way", SOON, async || {
        (first.received(ToServer) > before).then_some(())
    })
    .await;
    first.reset_client();
    let error = attempt.await.unwrap().unwrap_err();
    assert!(matches!(failures(&error)[..], [NodeError::ConnectionBroke(_)]), "{error}");
    eventually("the clean-up arrives first", SOON, async || {
        (network.calls("evalsha").await > scripts * 2).then_some(())
    })
    .await;
    assert_eq!(network.calls("set").await, sets * 2);
    first.set(ToServer, Pass);
    eventually("the `SET` is executed", SOON, async || {
        (network.calls("set").await > sets * 2).then_some(())
    })
    .await;
    assert!(try_acquire(&locks).await.unwrap_err().is_contended());
    network.recovers(&locks).await;
    try_acquire(&locks).await.unwrap().release().await.unwrap();
}

/// The release is published, but the waiter never receives the message.
#[tokio::test]
async fn a_waiter_on_silent_connections_wakes_by_its_own_timer() {
    for silent in [1, 3] {
        let network = Network::start(3).await;
        let (here, there) = (network.manager().await, network.direct_manager().await);
        let guard = try_acquire(&there).await.unwrap();
        let waiting = tokio::spawn(here.lock(KEY).expire(LONG).wait_time(LONG).acquire());
        eventually("the waiter has subscribed", SOON, async || {
            let mut subscribers = 0;
            for server in network.servers.iter() {
                let (_, count): (String, usize) =
                    server.probe().await.command(["PUBSUB", "NUMSUB", KEY]).await;
                subscribers += count;
            }
            (subscribers == 3).then_some(())
        })
        .await;
        for proxy in &network.proxies[..silent] {
            proxy.set_both(Hold);
        }
        guard.release().await.unwrap();
        let waited = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
        match waited {
            Ok(guard) if silent == 1 => guard.release().await.unwrap(),
            // Without a quorum the wait fails.
            Err(LockError::Unavailable { .. }) if silent == 3 => {}
            other => panic!("{silent} silent: {other:?}"),
        }
        for proxy in &network.proxies {
            proxy.set_both(Pass);
        }
        network.recovers(&here).await;
    }
}

/// The lease runs while the command and the reply travel.
#[tokio::test]
async fn a_slow_link_shortens_the_validity() {
    const DELAY: Duration = Duration::from_millis(100);
    let network = Network::start(3).await;
    let locks = network.builder().node_timeout(Duration::from_secs(10)).connect().await.unwrap();
    for proxy in &network.proxies {
        proxy.set_both(Delay(DELAY));
    }
    let guard = try_acquire(&locks).await.unwrap();
    let margin = LONG / 100 + Duration::from_millis(2);
    assert!(guard.remaining() + margin + 2 * DELAY <= LONG, "{:?}", guard.remaining());
    let before = Instant::now();
    guard.extend(2 * LONG).await.unwrap();
    let margin = LONG / 50 + Duration::from_millis(2);
    assert!(before.elapsed() >= 2 * DELAY);
    assert!(guard.remaining() + margin + 2 * DELAY <= 2 * LONG, "{:?}", guard.remaining());
    guard.release().await.unwrap();

    // This lease ends before the replies arrive.
    let short = locks.lock(KEY).expire(DELAY).try_acquire().await.unwrap_err();
    let refused = matches!(short, LockError::TimedOut { .. } | LockError::Unavailable { .. });
    assert!(refused, "{short}");
    network.becomes_empty().await;
    for proxy in &network.proxies {
        proxy.set_both(Pass);
    }
    network.recovers(&locks).await;
}

#[tokio::test]
async fn callers_do_not_wait_for_a_slow_minority() {
    let network = Network::start(3).await;
    let locks = network.builder().node_timeout(SOON).connect().await.unwrap();
    let sets = async || network.servers[1].probe().await.calls().await.get("set").copied();
    let before = sets().await;
    network.proxies[1].set(ToServer, Hold);
    let begun = Instant::now();
    for _ in 0..5 {
        try_acquire(&locks).await.unwrap().release().await.unwrap();
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(sets().await, before, "the slow node has executed nothing yet");
    network.proxies[1].set(ToServer, Pass);
    network.recovers(&locks).await;
}

/// A server that accepts connections but never replies delays `connect` by its timeout at most, and later
/// calls not at all.
#[tokio::test]
async fn connect_succeeds_despite_a_minority_that_never_replies() {
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
    let network = Network::start(3).await;
    let builder = || network.builder().node_timeout(SOON).connect_timeout(CONNECT_TIMEOUT);
    network.proxies[2].welcome(Welcome::Silence);
    let begun = Instant::now();
    let locks = builder().connect().await.unwrap();
    for _ in 0..5 {
        try_acquire(&locks).await.unwrap().release().await.unwrap();
    }
    network.proxies[1].welcome(Welcome::Silence);
    let error = builder().connect().await.unwrap_err();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let ConnectError::Unavailable { connected: 1, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("no connection within 2s"), "{error}");

    for proxy in &network.proxies {
        proxy.welcome(Welcome::Forward);
    }
    network.recovers(&locks).await;
}

/// Cuts a holder off from its majority. Its lock is lost before another caller can hold it.
async fn a_holder_is_lost_before_another_can_hold(cut: impl Fn(&Proxy), mend: impl Fn(&Proxy)) {
    const LEASE: Duration = Duration::from_millis(1500);
    let network = Network::start(3).await;
    let (here, there) = (network.manager().await, network.direct_manager().await);
    let holder = here.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
    let lost = tokio::spawn(holder.lost());
    network.proxies[..2].iter().for_each(&cut);
    let waiting = tokio::spawn(there.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    let error = here.lock("other").expire(LONG).wait_time(LONG).acquire().await.unwrap_err();
    assert_eq!(
        failures(&error).len(),
        2,
        "a node granted the lock to a caller that is cut off: {error}"
    );
    eventually("the other caller gets the lock", SOON, async || {
        let is_valid = holder.is_valid();
        let granted = waiting.is_finished();
        assert!(!(is_valid && granted), "two holders at once");
        granted.then_some(())
    })
    .await;
    tokio::time::timeout(SOON, lost).await.unwrap().unwrap();
    let next = waiting.await.unwrap().unwrap();
    drop(holder);
    network.proxies[..2].iter().for_each(&mend);
    assert!(next.is_valid());
    next.release().await.unwrap();
    network.recovers(&here).await;
}

#[tokio::test]
async fn a_holder_that_is_cut_off_loses_the_lock_in_time() {
    let hold = |direction| move |proxy: &Proxy| proxy.set(direction, Hold);
    let pass = |proxy: &Proxy| proxy.set_both(Pass);
    let reset = |proxy: &Proxy| {
        proxy.welcome(Welcome::Silence);
        proxy.reset();
    };
    tokio::join!(
        a_holder_is_lost_before_another_can_hold(hold(ToServer), pass),
        a_holder_is_lost_before_another_can_hold(hold(ToClient), pass),
        a_holder_is_lost_before_another_can_hold(|proxy| proxy.set_both(Hold), pass),
        a_holder_is_lost_before_another_can_hold(reset, |proxy| proxy.welcome(Welcome::Forward)),
    );
}
