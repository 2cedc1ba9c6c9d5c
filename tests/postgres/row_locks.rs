//! Rows that an operator locks.

use std::time::Duration;

use redlock_core::{HolderId, LockError, Vote};
use redlock_tests::{Logs, PostgresServer, builder, eventually, skip};
use tokio_postgres::Client;

use crate::{KEY, LONG, SOON, connect_patient, impatient, no_lock_is_left, serves, start};

/// All keys share one connection, whose statements are executed one after another.
#[tokio::test]
async fn a_row_that_an_operator_locks_blocks_no_other_lock() {
    let Some(server) = start().await else { return };
    let url = format!("{}&connections=1", server.url());
    // The wait for a row ends after half of this time.
    let manager = impatient(&url).node_timeout(Duration::from_secs(4)).connect().await.unwrap();
    serves(&manager, KEY).await;
    let admin = server.admin().await;
    admin.batch_execute("begin; select * from locks.redlock_lease for update").await.unwrap();
    let blocked = tokio::spawn(manager.lock(KEY).expire(LONG).try_acquire());
    let other = tokio::spawn(manager.lock("other").try_acquire());
    let error = blocked.await.unwrap().expect_err("the row is locked");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    other.await.unwrap().expect("another row").release().await.unwrap();
    admin.batch_execute("rollback").await.unwrap();
    serves(&manager, KEY).await;
    no_lock_is_left(&server).await;
}

/// Lets another caller win the race for the row of a lock, which both callers have seen free. Returns the transaction of the
/// winner. The manager has used the lock before.
async fn begin_race(server: &PostgresServer, winner: HolderId) -> Client {
    let admin = server.admin().await;
    eventually("the former lock is released", SOON, async || {
        let sql = "select from locks.redlock_lease where name = $1 and token = ''";
        admin.query_opt(sql, &[&KEY]).await.unwrap()
    })
    .await;
    let acquire = format!(
        "begin; update locks.redlock_lease set token = '{winner}', expires = now() + interval '1 hour' \
         where name = '{KEY}'"
    );
    admin.batch_execute(&acquire).await.unwrap();
    admin
}

/// Waits until the manager waits for the transaction of the winner. Then the winner has the lock.
async fn end_race(server: &PostgresServer, winner: &Client) {
    let admin = server.admin().await;
    eventually("the second caller waits for the row", SOON, async || {
        let sql = "select from pg_stat_activity \
                   where application_name = 'redlock' and wait_event_type = 'Lock'";
        (!admin.query(sql, &[]).await.unwrap().is_empty()).then_some(())
    })
    .await;
    winner.batch_execute("commit").await.unwrap();
}

/// The refusal names the winner, as any other refusal does.
#[tokio::test]
async fn a_caller_that_loses_a_race_at_the_row_is_refused() {
    let Some(server) = start().await else { return };
    let manager = connect_patient(&server.url()).await;
    serves(&manager, KEY).await;
    let holder: HolderId = "0123456789abcdef".parse().unwrap();
    let winner = begin_race(&server, holder).await;
    let second = tokio::spawn(manager.lock(KEY).try_acquire());
    end_race(&server, &winner).await;
    let error = second.await.unwrap().expect_err("the first caller has the lock");
    let LockError::Contended { remaining, votes, .. } = &error else { panic!("{error:?}") };
    let (_, vote) = votes.iter().next().unwrap();
    assert_eq!(vote.and_then(Vote::holder), Some(holder), "{votes}");
    assert!(remaining.is_some_and(|rest| rest > LONG), "{votes}");
}

/// Each of three callers wins the race on another server. Nobody has a quorum, so none of them may leave its work to the
/// others.
#[tokio::test]
async fn races_that_several_callers_win_are_a_split_vote() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        match PostgresServer::options().independent().start().await {
            Ok(server) => servers.push(server),
            Err(why) => return skip(&why),
        }
    }
    let urls = servers.iter().map(PostgresServer::url);
    let manager = builder(urls).node_timeout(SOON).expire(LONG).connect().await.unwrap();
    serves(&manager, KEY).await;
    let mut winners = Vec::new();
    for (server, holder) in
        servers.iter().zip(["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc"])
    {
        winners.push(begin_race(server, holder.parse().unwrap()).await);
    }
    let asking = tokio::spawn(manager.lock(KEY).try_acquire());
    for (server, winner) in servers.iter().zip(&winners) {
        end_race(server, winner).await;
    }
    let error = asking.await.unwrap().expect_err("other callers have the servers");
    assert!(error.is_split(), "{}", error.diagnostics());
}

/// The client of a service gets its response, so that only the log can say why the lock was lost.
#[tokio::test]
async fn a_loss_has_the_words_of_the_server_whose_table_is_locked() {
    const LEASE: Duration = Duration::from_secs(2);
    let Some(server) = start().await else { return };
    let logs = Logs::collect();
    let manager = impatient(&server.url()).connect().await.unwrap();
    let guard = manager.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
    let admin = server.admin().await;
    let lock = "begin; lock table locks.redlock_lease in access exclusive mode";
    admin.batch_execute(lock).await.unwrap();
    guard.lost().await;
    let warning = eventually("the loss is logged", SOON, async || {
        logs.lines().into_iter().find(|line| line.contains("a lock was lost"))
    });
    let warning = warning.await;
    assert!(warning.contains("lock timeout") || warning.contains("no reply within"), "{warning}");
    admin.batch_execute("rollback").await.unwrap();
    drop(guard);
    no_lock_is_left(&server).await;
}
