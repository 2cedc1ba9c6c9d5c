//! Servers that are killed or frozen.

use std::time::{Duration, Instant};

use redlock_core::{LockError, LockManager, NodeError};
use redlock_tests::{PostgresServer, Proxy, Welcome, eventually, skip};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    KEY, LONG, SOON, acquire, connect, failure, impatient, is_contended, is_held, no_lock_is_left,
    serves, start,
};

/// A restarted server has every lock that it has granted.
#[tokio::test]
async fn a_lock_outlasts_a_server_that_is_killed_while_the_lock_is_held() {
    let Some(mut server) = start().await else { return };
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock(KEY).fenced(true).expire(LONG).try_acquire().await.unwrap();
    server.kill();
    assert!(other.lock(KEY).try_acquire().await.is_err());
    server.restart().await;
    is_contended(&other, KEY).await;
    assert!(guard.is_valid());
    let number = guard.fencing_token().unwrap();
    is_held(&guard).await;
    guard.release().await.unwrap();
    let next = acquire(&other, KEY).await;
    assert!(next.fencing_token().unwrap() > number);
}

#[tokio::test]
async fn a_waiter_outlasts_a_server_that_is_killed() {
    let options = PostgresServer::options().setting("log_statement", "all");
    let mut server = match options.start().await {
        Ok(server) => server,
        Err(why) => return skip(&why),
    };
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock(KEY).wait_time(LONG).acquire());
    // The channel is a hash of the name.
    let sql = "select 'listen redlock_' || left(encode(sha256(convert_to($1, 'utf8')), 'hex'), 32)";
    let row = server.admin().await.query_one(sql, &[&KEY]).await.unwrap();
    let listen: String = row.get(0);
    eventually("the waiter listens", SOON, async || server.log().contains(&listen).then_some(()))
        .await;
    server.kill();
    // With a new log.
    server.restart().await;
    eventually("it listens again", SOON, async || server.log().contains(&listen).then_some(()))
        .await;
    is_held(&guard).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// The server has stored the lock, but dies before it reports success. Nobody knows then whether the lock is set.
#[tokio::test]
async fn a_server_that_is_killed_while_it_commits_keeps_no_lock_without_a_holder() {
    let Some(mut server) = start().await else { return };
    let mut replica = server.start_replica(true).await;
    let proxy = Proxy::to_port(server.port()).await;
    let manager = connect(&server.url_at("127.0.0.1", proxy.port())).await;
    serves(&manager, KEY).await;
    // The commit waits for this replica.
    replica.freeze();
    let attempt = tokio::spawn(manager.lock(KEY).expire(LONG).try_acquire());
    let admin = server.admin().await;
    eventually("the commit waits", SOON, async || {
        let sql = "select from pg_stat_activity where wait_event = 'SyncRep'";
        (!admin.query(sql, &[]).await.unwrap().is_empty()).then_some(())
    })
    .await;
    server.kill();
    assert!(matches!(attempt.await.unwrap(), Err(LockError::Unavailable { .. })));
    // The manager, which releases the lock, comes later.
    proxy.welcome(Welcome::Silence);
    server.restart().await;
    assert_eq!(server.locks_count().await, 1, "the server has the lock");
    proxy.welcome(Welcome::Forward);
    replica.thaw();
    no_lock_is_left(&server).await;
}

/// The former session may still execute an acquisition, and does not end while it is stopped.
#[tokio::test]
async fn a_connection_waits_for_the_end_of_the_former_session() {
    let Some(server) = start().await else { return };
    let manager = connect(&format!("{}&connections=1", server.url())).await;
    let sessions = eventually("two connections", SOON, async || {
        <[i32; 2]>::try_from(server.sessions().await).ok()
    })
    .await;
    let send = |signal| {
        for session in sessions {
            kill_process(Pid::from_raw(session).unwrap(), signal).unwrap();
        }
    };
    send(Signal::STOP);
    eventually("the new connection waits", SOON, async || {
        let error = manager.lock(KEY).expire(LONG).try_acquire().await.expect_err("no session");
        failure(&error).to_string().contains("the former session has not ended yet").then_some(())
    })
    .await;
    send(Signal::CONT);
    serves(&manager, KEY).await;
    no_lock_is_left(&server).await;
}

#[tokio::test]
async fn a_frozen_server_is_unavailable_and_serves_again_afterwards() {
    let Some(mut server) = start().await else { return };
    let (manager, holder) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = holder.lock("held").expire(LONG).try_acquire().await.unwrap();
    server.freeze();
    let attempt = manager.lock(KEY).expire(LONG).try_acquire().await;
    assert!(matches!(attempt, Err(LockError::Unavailable { .. })), "{attempt:?}");
    eventually("the node is down", SOON, async || (!manager.is_available()).then_some(())).await;
    server.thaw();
    serves(&manager, KEY).await;
    assert!(held.is_valid());
    held.release().await.unwrap();
    // Neither the attempt that nobody waited for nor another one has left a lock.
    no_lock_is_left(&server).await;
}

/// One session dies. Then the server ends all others and repeats its log, without the commits that are not on the disk. The
/// time of its start does not change.
#[tokio::test]
async fn a_server_that_recovers_from_the_death_of_a_session_grants_nothing_for_the_time_of_the_guard()
 {
    let options = PostgresServer::options().setting("synchronous_commit", "off");
    let Ok(server) = options.start().await.inspect_err(|why| skip(why)) else { return };
    let manager = impatient(&server.url()).restart_guard(LONG).connect().await.unwrap();
    let votes_in = async |manager: &LockManager| {
        let error = manager.lock(KEY).expire(LONG).try_acquire().await.expect_err("the guard");
        match failure(&error) {
            NodeError::Restarted { votes_in, .. } => Some(*votes_in),
            _ => None,
        }
    };
    // Older than the rounding of its uptime to seconds.
    let before = eventually("the server runs for some seconds", SOON, async || {
        let before = Instant::now();
        let votes_in = votes_in(&manager).await.unwrap();
        (votes_in + Duration::from_secs(2) < LONG).then_some(before)
    })
    .await;
    let admin = server.admin().await;
    let session = admin.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    kill_process(Pid::from_raw(session).unwrap(), Signal::KILL).unwrap();
    eventually("the guard begins again", SOON, async || {
        let end = Instant::now() + votes_in(&manager).await?;
        (end >= before + LONG).then_some(())
    })
    .await;
}
