//! Replicas that take over.

use redlock_core::{LockError, NodeError, Vote};
use redlock_tests::{PostgresServer, eventually};

use crate::{
    KEY, LONG, SOON, acquire, connect, connect_patient, impatient, is_contended, is_held,
    no_lock_is_left, serves, start,
};

/// Returns the URL with both servers.
pub(crate) fn url(primary: &PostgresServer, replica: &PostgresServer) -> String {
    primary.url_at(&format!("127.0.0.1:{},127.0.0.1", primary.port()), replica.port())
}

#[tokio::test]
async fn a_synchronous_replica_that_takes_over_has_every_lock() {
    let Some(mut primary) = start().await else { return };
    let replica = primary.start_replica(true).await;
    let url = url(&primary, &replica);
    let (holder, other) = (connect(&url).await, connect(&url).await);
    let guard = holder.lock(KEY).fenced(true).expire(LONG).try_acquire().await.unwrap();
    let number = guard.fencing_token().unwrap();
    primary.kill();
    replica.promote().await;
    is_contended(&other, KEY).await;
    is_held(&guard).await;
    guard.release().await.unwrap();
    let next = acquire(&other, KEY).await;
    assert!(next.fencing_token().unwrap() > number);
}

/// A failover that undoes a release only keeps the lock for longer.
#[tokio::test]
async fn a_release_does_not_wait_for_the_synchronous_replica() {
    let Some(primary) = start().await else { return };
    let mut replica = primary.start_replica(true).await;
    let manager = connect(&primary.url()).await;
    let guard = acquire(&manager, KEY).await;
    let request = manager.lock("kept").min_hold(LONG).expire(2 * LONG);
    let kept = request.try_acquire().await.unwrap();
    replica.freeze();
    guard.release().await.unwrap();
    kept.release().await.unwrap();
    let rest = primary.locks_rest("kept").await.unwrap();
    assert!(rest <= LONG, "{rest:?}");
    assert_eq!(primary.locks_count().await, 1);
}

/// Cases that the guide does not promise to prevent: without the guard, and if the commit does not wait for the replica, a
/// failover leads to two holders.
#[tokio::test]
async fn a_replica_that_lacks_a_lock_when_it_takes_over_grants_it_again() {
    for (synchronous, commit) in [(false, "on"), (true, "local")] {
        let Some(mut primary) = start().await else { return };
        let set = format!("alter role app set synchronous_commit = {commit}");
        primary.admin().await.batch_execute(&set).await.unwrap();
        let replica = primary.start_replica(synchronous).await;
        let url = url(&primary, &replica);
        let (holder, other) = (connect(&url).await, connect(&url).await);
        replica.cut_off().await;
        let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        primary.kill();
        replica.promote().await;
        let second = acquire(&other, KEY).await;
        assert!(guard.is_valid() && second.is_valid(), "synchronous_commit = {commit}");
    }
}

/// A case that the guide does not promise to prevent: the process of the first holder knows only the former primary.
#[tokio::test]
async fn a_former_primary_that_runs_grants_to_those_who_know_no_other() {
    let Some(primary) = start().await else { return };
    let replica = primary.start_replica(false).await;
    let holder = connect(&primary.url()).await;
    replica.promote().await;
    let other = connect(&replica.url()).await;
    let (first, second) = (acquire(&holder, KEY).await, acquire(&other, KEY).await);
    is_held(&first).await;
    assert!(first.is_valid() && second.is_valid());
}

#[tokio::test]
async fn with_the_restart_guard_a_replica_that_takes_over_grants_nothing_at_first() {
    let Some(mut primary) = start().await else { return };
    let replica = primary.start_replica(false).await;
    let url = url(&primary, &replica);
    let guarded = async || impatient(&url).restart_guard(LONG).connect().await.unwrap();
    let (holder, other) = (guarded().await, guarded().await);
    replica.cut_off().await;
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    primary.kill();
    replica.promote().await;
    eventually("the vote of the replica does not count", SOON, async || {
        let error = other.lock(KEY).expire(LONG).try_acquire().await.expect_err("a held lock");
        let LockError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
        let is_promoted =
            |vote: Option<&Vote>| matches!(vote, Some(Vote::Failed(NodeError::Promoted { .. })));
        votes.iter().any(|(_, vote)| is_promoted(vote)).then_some(())
    })
    .await;
    // A manager that knows no former primary sees the promotion too.
    assert!(!guarded().await.is_granting());
    assert!(guard.is_valid());
}

/// Then the server reports success with a warning, although the replica does not have the lock. The settings of the role hide
/// warnings.
#[tokio::test]
async fn a_wait_for_the_replica_that_an_operator_cancels_is_no_grant() {
    let Some(primary) = start().await else { return };
    let hide = "alter role app set client_min_messages = error";
    primary.admin().await.batch_execute(hide).await.unwrap();
    let mut replica = primary.start_replica(true).await;
    let manager = connect_patient(&primary.url()).await;
    replica.freeze();
    let attempt = tokio::spawn(manager.lock(KEY).expire(LONG).try_acquire());
    let admin = primary.admin().await;
    eventually("the commit waits, and the wait is canceled", SOON, async || {
        let sql =
            "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
        (!admin.query(sql, &[]).await.unwrap().is_empty()).then_some(())
    })
    .await;
    let error = attempt.await.unwrap().expect_err("the replica does not have the lock");
    let LockError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
    let broke =
        |vote: Option<&Vote>| matches!(vote, Some(Vote::Failed(NodeError::ConnectionBroke(_))));
    assert!(votes.iter().all(|(_, vote)| broke(vote)), "{error:?}");
    replica.thaw();
    no_lock_is_left(&primary).await;
}

/// Both servers accept writes. The former primary is the first host of the URL.
#[tokio::test]
async fn a_former_primary_that_comes_back_is_not_used_again() {
    let Some(mut primary) = start().await else { return };
    let replica = primary.start_replica(false).await;
    let manager = connect(&url(&primary, &replica)).await;
    primary.freeze();
    replica.promote().await;
    let guard = acquire(&manager, KEY).await;
    primary.thaw();
    replica.terminate_backends("app").await;
    // The former primary would deny the extension, and the lock would be lost.
    eventually("the lease is extended", SOON, async || guard.extend(LONG).await.ok()).await;
    guard.release().await.unwrap();
    no_lock_is_left(&replica).await;
}

/// One connection of the node breaks, and finds the new primary. The other one does not break: the former primary still runs.
#[tokio::test]
async fn a_node_that_has_found_the_new_primary_leaves_the_former_one() {
    let Some(primary) = start().await else { return };
    let replica = primary.start_replica(false).await;
    let manager = connect(&url(&primary, &replica)).await;
    let sessions = eventually("three connections", SOON, async || {
        <[i32; 3]>::try_from(primary.sessions().await).ok()
    })
    .await;
    replica.promote().await;
    let admin = primary.admin().await;
    admin.batch_execute("alter role app nologin").await.unwrap();
    admin.execute("select pg_terminate_backend($1)", &[&sessions[0]]).await.unwrap();
    eventually("all connections lead to the new primary", SOON, async || {
        let (former, new) = (primary.sessions().await, replica.sessions().await);
        (former.is_empty() && new.len() == sessions.len()).then_some(())
    })
    .await;
    serves(&manager, KEY).await;
}

/// The server reports the time of a checkpoint in whole seconds. Locks that a former primary has granted until then are not
/// older.
#[tokio::test]
async fn a_promotion_is_no_longer_ago_than_the_server_can_know() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let time = async || -> i64 {
        let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        admin.query_one(sql, &[]).await.unwrap().get(0)
    };
    let before = time().await;
    admin.batch_execute("checkpoint").await.unwrap();
    let findings = include_str!("../../redlock-core/src/store/postgres/sql/findings.sql");
    let row = admin.query_one(findings, &[&"locks"]).await.unwrap();
    let (ago, elapsed): (i64, i64) = (row.get("promoted_ago"), time().await - before);
    assert!(ago <= elapsed, "{ago} after {elapsed}");
}
