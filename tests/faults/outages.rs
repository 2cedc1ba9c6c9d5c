//! Waiters on real servers that are unreachable for a while: dropped connections, restarts, outages.

use std::time::{Duration, Instant};

use redlock_core::{LockError, LockGuard, LockManager};
use redlock_tests::{RedisServer, Servers, eventually};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const LEASE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(20);
/// How long a restarting server is unreachable.
const RESTART: Duration = Duration::from_millis(1300);

/// Servers that keep their locks over a restart.
async fn start(count: usize) -> Servers {
    let options = RedisServer::options();
    let options = options.directive("appendonly", "yes").directive("appendfsync", "always");
    Servers::start_with(&options, count).await
}

/// A manager with longer timeouts than the defaults, which are too short for a busy machine.
async fn connect(servers: &Servers, outage_grace: Duration) -> LockManager {
    let builder = LockManager::builder().urls(servers.urls()).outage_grace(outage_grace);
    let builder = builder.node_timeout(Duration::from_secs(1)).connect_timeout(SOON);
    builder.connect().await.unwrap()
}

type Waiter = JoinHandle<Result<LockGuard, LockError>>;

fn wait(locks: &LockManager, wait_time: Duration) -> Waiter {
    tokio::spawn(locks.lock("a").expire(LEASE).wait_time(wait_time).acquire())
}

/// Waits until a waiter was refused and has subscribed on every server.
async fn wait_for_subscriptions(servers: &Servers) {
    for server in servers.iter() {
        eventually("the waiter has subscribed", SOON, async || {
            let mut probe = server.probe().await;
            let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
            (!channels.is_empty()).then_some(())
        })
        .await;
    }
}

fn stop(server: &mut RedisServer, frozen: bool) {
    if frozen {
        server.freeze();
    } else {
        server.kill();
    }
}

fn kill(servers: &mut Servers, count: usize) {
    for server in servers.iter_mut().take(count) {
        server.kill();
    }
}

async fn gets_the_lock_after(holder: LockGuard, waiter: Waiter, servers: &Servers) {
    wait_for_subscriptions(servers).await;
    assert!(!waiter.is_finished(), "the lock is still held");
    // The release continues in the background if a connection is not back yet.
    drop(holder);
    let acquired = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    acquired.release().await.unwrap();
}

/// Closes every connection repeatedly, for longer than the polling interval of a sleeping waiter.
async fn a_waiter_outlasts_client_kill(count: usize) {
    let servers = start(count).await;
    let here = connect(&servers, SOON).await;
    let there = connect(&servers, SOON).await;
    let holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiter = wait(&here, WAIT);
    wait_for_subscriptions(&servers).await;
    let begun = Instant::now();
    while begun.elapsed() < RESTART {
        for server in servers.iter() {
            server.probe().await.disconnect_others().await;
        }
        sleep(Duration::from_millis(2)).await;
    }
    gets_the_lock_after(holder, waiter, &servers).await;
}

#[tokio::test]
async fn a_waiter_on_one_node_outlasts_client_kill() {
    a_waiter_outlasts_client_kill(1).await;
}

#[tokio::test]
async fn a_waiter_on_three_nodes_outlasts_client_kill() {
    a_waiter_outlasts_client_kill(3).await;
}

async fn a_waiter_outlasts_a_restart(count: usize, restarted: usize) {
    let mut servers = start(count).await;
    let here = connect(&servers, SOON).await;
    let there = connect(&servers, SOON).await;
    let holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiter = wait(&here, WAIT);
    wait_for_subscriptions(&servers).await;
    kill(&mut servers, restarted);
    sleep(RESTART).await;
    for server in servers.iter_mut().take(restarted) {
        server.restart().await;
    }
    gets_the_lock_after(holder, waiter, &servers).await;
}

#[tokio::test]
async fn a_waiter_on_one_node_outlasts_its_restart() {
    a_waiter_outlasts_a_restart(1, 1).await;
}

#[tokio::test]
async fn a_waiter_on_three_nodes_outlasts_the_restart_of_a_majority() {
    a_waiter_outlasts_a_restart(3, 2).await;
}

/// Uses the defaults of the library. On a busy machine a restart may take as long as the default grace of two
/// seconds. Such a restart proves nothing and is repeated.
async fn a_waiter_with_the_defaults_outlasts_a_restart(count: usize, restarted: usize) {
    const SURE: Duration = Duration::from_millis(1700);
    let mut took = Vec::new();
    while took.len() < 10 {
        let mut servers = start(count).await;
        let here = LockManager::connect(servers.urls()).await.unwrap();
        let there = LockManager::connect(servers.urls()).await.unwrap();
        let holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let waiter = wait(&here, WAIT);
        wait_for_subscriptions(&servers).await;
        let begun = Instant::now();
        kill(&mut servers, restarted);
        sleep(RESTART).await;
        for server in servers.iter_mut().take(restarted) {
            server.restart().await;
        }
        took.push(begun.elapsed());
        if begun.elapsed() < SURE {
            return gets_the_lock_after(holder, waiter, &servers).await;
        }
        waiter.abort();
    }
    panic!("no restart was fast enough: {took:?}");
}

#[tokio::test]
async fn a_waiter_with_the_defaults_outlasts_the_restart_of_one_node() {
    a_waiter_with_the_defaults_outlasts_a_restart(1, 1).await;
}

#[tokio::test]
async fn a_waiter_with_the_defaults_outlasts_the_restart_of_a_majority() {
    a_waiter_with_the_defaults_outlasts_a_restart(3, 2).await;
}

#[tokio::test]
async fn a_waiter_outlasts_a_server_that_is_frozen_for_a_moment() {
    let mut servers = start(1).await;
    let here = connect(&servers, SOON).await;
    let there = connect(&servers, SOON).await;
    let holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiter = wait(&here, WAIT);
    wait_for_subscriptions(&servers).await;
    servers[0].freeze();
    // Longer than the node timeout of one second.
    sleep(2 * RESTART).await;
    servers[0].thaw();
    gets_the_lock_after(holder, waiter, &servers).await;
}

#[tokio::test]
async fn an_outage_longer_than_the_grace_ends_the_wait() {
    const GRACE: Duration = Duration::from_secs(1);
    let outage = async |frozen| {
        let mut servers = start(1).await;
        let here = connect(&servers, GRACE).await;
        let there = connect(&servers, GRACE).await;
        let _holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let waiter = wait(&here, 10 * WAIT);
        wait_for_subscriptions(&servers).await;
        let begun = Instant::now();
        stop(&mut servers[0], frozen);
        let result = timeout(SOON, waiter).await.unwrap().unwrap();
        let elapsed = begun.elapsed();
        assert!(matches!(result, Err(LockError::Unavailable { .. })), "{result:?}");
        assert!(elapsed >= GRACE, "{elapsed:?}, frozen: {frozen}");
        if frozen {
            servers[0].thaw();
        }
    };
    tokio::join!(outage(false), outage(true));
}

/// If each waiter had a grace of its own, one after another, they would take ten minutes.
#[tokio::test]
async fn the_waiters_of_a_lock_share_the_grace() {
    let outage = async |frozen| {
        let mut servers = start(1).await;
        let here = connect(&servers, Duration::from_secs(2)).await;
        let there = connect(&servers, Duration::from_secs(2)).await;
        let _holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let waiters: Vec<_> = (0..300).map(|_| wait(&here, 10 * WAIT)).collect();
        wait_for_subscriptions(&servers).await;
        stop(&mut servers[0], frozen);
        let results = timeout(SOON, futures_util::future::join_all(waiters)).await;
        for result in results.unwrap() {
            let result = result.unwrap();
            assert!(matches!(result, Err(LockError::Unavailable { .. })), "{result:?}");
        }
        if frozen {
            servers[0].thaw();
        }
    };
    tokio::join!(outage(false), outage(true));
}

#[tokio::test]
async fn only_callers_that_already_wait_outlast_an_outage() {
    let mut servers = start(1).await;
    let here = connect(&servers, Duration::from_secs(60)).await;
    let there = connect(&servers, Duration::from_secs(60)).await;
    let _holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let waiter = wait(&here, 10 * WAIT);
    wait_for_subscriptions(&servers).await;
    kill(&mut servers, 1);
    let once = async |key: &str| {
        // This request finds out that the server is down. Before that, a request would queue behind the
        // waiter.
        let not_waiting = here.lock(key).acquire().await;
        let waiting = here.lock(key).wait_time(10 * WAIT).acquire().await;
        [not_waiting, waiting, here.lock(key).wait_forever().try_acquire().await]
    };
    let results = async { [once("a").await, once("b").await].into_iter().flatten() };
    for result in timeout(SOON, results).await.unwrap() {
        assert!(matches!(result, Err(LockError::Unavailable { .. })), "{result:?}");
    }
    // A waiter polls after half a second at the latest.
    sleep(RESTART).await;
    assert!(!waiter.is_finished());
    // The waiter ends at once. The shutdown itself would wait for the server until the connect timeout.
    let (ended, _) = tokio::join!(timeout(SOON, waiter), timeout(RESTART, here.shutdown()));
    let ended = ended.unwrap().unwrap().unwrap_err();
    assert!(matches!(ended, LockError::ShutDown), "{ended}");
}
