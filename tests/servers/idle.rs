//! An idle manager sends nothing. It notices a server that has ended without its help, and a frozen one at its next use.

use std::collections::HashMap;
use std::time::Duration;

use redlock_core::{LockManager, NodeError, Vote};
use redlock_tests::{Probe, RedisServer, builder, connect, eventually};

use super::{LONG, SOON};

const KEY: &str = "order:42";
/// How often a guarded manager reads the time while the commands of another one are counted.
const READINGS: u64 = 3;

/// Counts the commands of all clients but the probe.
async fn commands(probe: &mut Probe) -> HashMap<String, u64> {
    let mut calls = probe.calls().await;
    calls.remove("info");
    calls
}

/// Returns how often managers have asked for the time.
async fn readings(probe: &mut Probe) -> u64 {
    probe.calls().await.get("time").copied().unwrap_or_default()
}

async fn wait_for_readings(probe: &mut Probe) {
    let before = readings(probe).await;
    eventually("the time is read", SOON, async || {
        (readings(probe).await >= before + READINGS).then_some(())
    })
    .await;
}

async fn use_once(locks: &LockManager) {
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// A service may pay for each command, or let servers sleep. The guard reads the clock all the time, and so measures how
/// long the others send nothing.
#[tokio::test]
async fn a_manager_without_a_guard_sends_nothing_while_it_is_idle() {
    let (server, other) = (RedisServer::start().await, RedisServer::start().await);
    let (mut probe, mut clock) = (server.probe().await, other.probe().await);
    let _guarded = builder([other.url()]).restart_guard(LONG).connect().await.unwrap();
    let locks = connect([server.url()]).await;
    let before = readings(&mut probe).await;
    use_once(&locks).await;
    eventually("the time is read after the use", SOON, async || {
        (readings(&mut probe).await > before).then_some(())
    })
    .await;
    eventually("nothing is sent", SOON, async || {
        let before = commands(&mut probe).await;
        wait_for_readings(&mut clock).await;
        (commands(&mut probe).await == before).then_some(())
    })
    .await;
}

/// A waiter polls. Otherwise nobody would notice that a server is silent, and publishes no release.
#[tokio::test]
async fn the_time_is_read_while_a_caller_waits() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let (locks, holder) = (connect([server.url()]).await, connect([server.url()]).await);
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock(KEY).wait_time(LONG).acquire());
    eventually("the waiter has subscribed", SOON, async || {
        let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS", "*"]).await;
        (channels.len() == 1).then_some(())
    })
    .await;
    wait_for_readings(&mut probe).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_idle_manager_notices_that_its_server_ends_and_comes_back() {
    let mut server = RedisServer::start().await;
    let locks = connect([server.url()]).await;
    server.kill();
    let is = async |available| {
        eventually("the status", SOON, async || (locks.is_available() == available).then_some(()))
            .await;
    };
    is(false).await;
    server.restart().await;
    is(true).await;
    use_once(&locks).await;
}

/// The kernel of a frozen server answers its probes. The first caller waits for the `node_timeout`, the next one fails at
/// once.
#[tokio::test]
async fn the_first_use_notices_a_server_that_froze_in_an_idle_time() {
    let mut server = RedisServer::start().await;
    let timeout = Duration::from_millis(500);
    let locks = builder([server.url()]).node_timeout(timeout).connect().await.unwrap();
    server.freeze();
    for _ in 0..2 {
        let error = locks.lock(KEY).try_acquire().await.unwrap_err();
        let vote = error.votes().and_then(|votes| votes.iter().next()).unwrap().1;
        assert!(matches!(vote, Some(Vote::Failed(NodeError::NoReply(_)))), "{error:?}");
    }
    server.thaw();
    let guard = eventually("the server answers", SOON, async || {
        locks.lock(KEY).expire(LONG).try_acquire().await.ok()
    })
    .await;
    guard.release().await.unwrap();
    let mut probe = server.probe().await;
    eventually("no lock is left", SOON, async || probe.keys().await.is_empty().then_some(())).await;
}
