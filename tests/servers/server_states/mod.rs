//! Servers that are up but reply with errors. Each is one failed vote that names its cause.

pub(crate) mod state;

use redlock_core::{
    ConnectError, Dialect, HoldError, LockError, LockGuard, LockManager, NodeError, ReleaseError,
    Vote,
};
use redlock_tests::{Nodes, Proxy, RedisServer, Servers, eventually, skip};
use state::State;

use super::{LONG, SOON, builder, no_key_is_left};

const KEY: &str = "order:42";

async fn manager(urls: Vec<String>, dialect: Dialect) -> Result<LockManager, ConnectError> {
    builder(urls).dialect(dialect).connect().await
}

/// Returns the error of an attempt that must fail, and must not hang.
async fn refused(locks: &LockManager) -> LockError {
    let attempt = locks.lock("other").expire(LONG).wait_time(LONG).acquire();
    tokio::time::timeout(SOON, attempt).await.unwrap().unwrap_err()
}

async fn granted(locks: &LockManager) {
    let attempt = locks.lock(KEY).expire(LONG).try_acquire();
    let guard = tokio::time::timeout(SOON, attempt).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// Returns why the vote of the first node failed.
fn failed(error: &LockError) -> &NodeError {
    let LockError::Unavailable { votes, .. } = error else { panic!("{error}") };
    let vote = votes.iter().next().unwrap().1;
    let Some(Vote::Failed(reason)) = vote else { panic!("{error}") };
    reason
}

/// Checks what a holder sees whose lock is on this server only.
async fn check_holder(state: State, held: LockGuard) {
    if state.spares_holders() {
        held.extend(LONG * 2).await.unwrap();
        return held.release().await.unwrap();
    }
    let error = held.extend(LONG * 2).await.unwrap_err();
    assert!(matches!(error, HoldError::Unavailable { .. }), "{error}");
    assert!(held.is_valid(), "one failed extension is no loss: {error}");
    let error = held.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Unavailable { .. }), "{error}");
}

async fn costs_one_vote_until_it_ends(state: State, dialect: Dialect) {
    if !state.can_be_made().await {
        return skip(&format!("this version of the server cannot enter the state {state:?}"));
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
    let diagnostics = error.diagnostics().to_string();
    assert!(!diagnostics.contains("right"), "the error contains the password: {diagnostics}");
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
        check_holder(state, held).await;
    }
    // Twice, because the manager may treat a node differently after its first failure.
    granted(&all).await;
    granted(&all).await;

    trouble.end(&servers[0]).await;
    no_key_is_left(&servers).await;
    for (locks, nodes) in [(&alone, 1), (&all, 3)] {
        eventually("the server votes again", SOON, async || {
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
                super::costs_one_vote_until_it_ends(
                    super::State::$state, super::Dialect::Plain,
                ).await;
            })+
        }
        mod redisson {
            $(#[tokio::test]
            async fn $name() {
                super::costs_one_vote_until_it_ends(
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
    a_server_that_requires_a_password: NoAuth,
    a_server_with_a_changed_password: WrongPassword,
    a_server_that_denies_a_command: NotPermitted,
    a_server_that_cannot_save: Misconfigured,
    a_replica_without_its_master: MasterDown,
    a_master_without_its_replicas: NoReplicas,
    a_server_with_too_many_clients: TooManyClients,
}

/// An administrator, a proxy or a limit on idle clients may close connections.
#[tokio::test]
async fn a_connection_that_the_server_closes_is_replaced() {
    let nodes = Nodes::redis(1).await;
    let locks = nodes.manager().await;
    let held = locks.lock("held").expire(LONG).try_acquire().await.unwrap();
    let mut probe = nodes.servers()[0].probe().await;
    probe.command::<()>(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    let again = async || locks.lock(KEY).expire(LONG).try_acquire().await.ok();
    eventually("the node is used again", SOON, again).await.release().await.unwrap();
    assert!(held.is_valid());
    held.release().await.unwrap();
    nodes.become_empty().await;
}

/// After a failover by Sentinel or by hand, the existing connection still leads to the old master, which is a
/// replica now. The address leads to the new master.
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
    assert!(failed(&error).to_string().contains("READONLY"), "{error:?}");
    let guard = eventually("the new master votes", SOON, async || {
        locks.lock(KEY).expire(LONG).try_acquire().await.ok()
    });
    let guard = guard.await;
    assert!(new.probe().await.time_to_live(KEY).await.is_some());
    guard.release().await.unwrap();
    eventually("the connection to the old master is closed", SOON, async || {
        (proxy.connections().len() == 1).then_some(())
    })
    .await;
}
