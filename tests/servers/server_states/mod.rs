//! Servers that are up, and answer with an error: each is one failed vote that says why, no more.

#![allow(clippy::unwrap_used, reason = "tests")]

mod state;

use std::time::Duration;

use redlock_core::{
    ConnectError, Dialect, ExtendError, LockError, LockGuard, LockManager, NodeError, ReleaseError,
    Vote,
};
use redlock_tests::{Nodes, Peer, Proxy, RedisServer, Servers, eventually};
use state::State;

const LONG: Duration = Duration::from_secs(300);
/// A server that refuses the password is tried again after some seconds only.
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "order:42";

async fn manager(urls: Vec<String>, dialect: Dialect) -> Result<LockManager, ConnectError> {
    let builder = LockManager::builder().urls(urls).dialect(dialect);
    builder.node_timeout(Duration::from_secs(2)).connect_timeout(SOON).connect().await
}

/// The error of an attempt that has to fail; with a limit, as none of them may hang.
async fn refused(locks: &LockManager) -> LockError {
    let attempt = locks.lock("other").expire(LONG).wait_time(LONG).acquire();
    tokio::time::timeout(SOON, attempt).await.unwrap().unwrap_err()
}

async fn granted(locks: &LockManager) {
    let attempt = locks.lock(KEY).expire(LONG).try_acquire();
    let guard = tokio::time::timeout(SOON, attempt).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// The node's vote, if nothing else went wrong.
fn failed(error: &LockError) -> &NodeError {
    let LockError::Unavailable { votes, .. } = error else { panic!("{error}") };
    let vote = votes.iter().next().unwrap().1;
    let Some(Vote::Failed(reason)) = vote else { panic!("{error}") };
    reason
}

/// What the holder of a lock on nothing but this server sees.
async fn holder_is_told(state: State, held: LockGuard) {
    if state.spares_holders() {
        held.extend(LONG * 2).await.unwrap();
        return held.release().await.unwrap();
    }
    let error = held.extend(LONG * 2).await.unwrap_err();
    assert!(matches!(error, ExtendError::Unavailable { .. }), "{error}");
    assert!(held.is_valid(), "one failed extension is no loss: {error}");
    let error = held.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Unavailable { .. }), "{error}");
}

async fn is_one_failed_vote_until_it_ends(state: State, dialect: Dialect) {
    if !state.can_be_made().await {
        return Peer::skip(&format!("this version of the server cannot be made {state:?}"));
    }
    let mut servers = Servers::from(vec![
        state.start_server().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ]);
    let alone = manager(vec![servers[0].url()], dialect).await.unwrap();
    let all = manager(servers.urls(), dialect).await.unwrap();
    let held = alone.lock(KEY).expire(LONG).try_acquire().await.unwrap();

    let trouble = state.begin(&mut servers[0]).await;
    let error = eventually("the vote says why it failed", SOON, async || {
        let error = refused(&alone).await;
        failed(&error).to_string().contains(state.words()).then_some(error)
    });
    let error = error.await;
    assert!(!error.to_string().contains("right"), "the password: {error}");
    match manager(vec![servers[0].url()], dialect).await {
        Err(error) => {
            assert!(matches!(error, ConnectError::Unavailable { .. }), "{error}");
            assert!(error.to_string().contains(state.words()), "{error}");
        }
        Ok(late) => {
            let error = refused(&late).await;
            assert!(failed(&error).to_string().contains(state.words()), "{error}");
        }
    }
    if state.forgets() {
        drop(held);
    } else {
        holder_is_told(state, held).await;
    }
    // Twice, as what is said to a node may change when it has failed once.
    granted(&all).await;
    granted(&all).await;

    trouble.end(&servers[0]).await;
    eventually("nothing is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
    for (locks, nodes) in [(&alone, 1), (&all, 3)] {
        eventually("it votes again", SOON, async || {
            let guard = locks.lock(KEY).expire(LONG).try_acquire().await.ok()?;
            let votes = servers.keys().await.len();
            guard.release().await.unwrap();
            (votes == nodes).then_some(())
        })
        .await;
    }
    alone.shutdown().await;
    all.shutdown().await;
    assert_eq!(servers.keys().await, [""; 0]);
}

macro_rules! each_state {
    ($($name:ident: $state:ident,)+) => {
        mod plain {
            $(#[tokio::test]
            async fn $name() {
                super::is_one_failed_vote_until_it_ends(
                    super::State::$state, super::Dialect::Plain,
                ).await;
            })+
        }
        mod redisson {
            $(#[tokio::test]
            async fn $name() {
                super::is_one_failed_vote_until_it_ends(
                    super::State::$state, super::Dialect::Redisson,
                ).await;
            })+
        }
    };
}

each_state! {
    a_server_that_loads_its_data: Loading,
    a_master_that_became_a_replica: ReadOnly,
    a_full_server: OutOfMemory,
    a_server_that_runs_a_long_script: Busy,
    a_server_that_wants_a_password: NoAuth,
    a_server_with_another_password: WrongPassword,
    a_server_that_does_not_permit_it: NotPermitted,
    a_server_that_cannot_save: Misconfigured,
    a_replica_without_its_master: MasterDown,
    a_master_without_its_replicas: NoReplicas,
    a_server_with_too_many_clients: TooManyClients,
}

/// By an administrator, a proxy, or a limit on idle clients.
#[tokio::test]
async fn a_connection_that_the_server_closes_is_replaced() {
    let nodes = Nodes::redis(1).await;
    let locks = nodes.manager().await;
    let Nodes::Redis(servers) = &nodes else { unreachable!() };
    let held = locks.lock("held").expire(LONG).try_acquire().await.unwrap();
    let mut probe = servers[0].probe().await;
    probe.command::<()>(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    let guard = eventually("the node is used again", SOON, async || {
        locks.lock(KEY).expire(LONG).try_acquire().await.ok()
    });
    guard.await.release().await.unwrap();
    assert!(held.is_valid());
    held.release().await.unwrap();
    nodes.become_empty().await;
}

/// By Sentinel, or by hand: the old master, which is a replica now, is asked over the connection that
/// there is, and its name leads to the new one.
#[tokio::test]
async fn after_a_failover_the_new_master_is_used() {
    let servers = Servers::start(2).await;
    let (old, new) = (&servers[0], &servers[1]);
    let proxy = Proxy::to(old).await;
    let locks = manager(vec![proxy.url()], Dialect::Plain).await.unwrap();
    granted(&locks).await;
    let port = new.port().to_string();
    old.probe().await.command::<()>(["REPLICAOF", "127.0.0.1", &port]).await;
    proxy.lead_to(new);

    let error = refused(&locks).await;
    assert!(failed(&error).to_string().contains("READONLY"), "{error}");
    let guard = eventually("the new master votes", SOON, async || {
        locks.lock(KEY).expire(LONG).try_acquire().await.ok()
    });
    let guard = guard.await;
    assert!(new.probe().await.time_to_live(KEY).await.is_some());
    guard.release().await.unwrap();
    eventually("the connection to the old one is closed", SOON, async || {
        (proxy.connections().len() == 1).then_some(())
    })
    .await;
}
