//! Rows that an operator locks.

use std::time::Duration;

use redlock_core::LockError;
use redlock_tests::{Logs, eventually};

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

/// Both callers have seen a free lock. The second one waits for the transaction of the first one.
#[tokio::test]
async fn a_caller_that_loses_a_race_at_the_row_is_refused() {
    let Some(server) = start().await else { return };
    let manager = connect_patient(&server.url()).await;
    serves(&manager, KEY).await;
    let (first, admin) = (server.admin().await, server.admin().await);
    let acquire = format!(
        "begin; update locks.redlock_lease set token = 'first', expires = now() + interval '1 hour' \
         where name = '{KEY}'"
    );
    first.batch_execute(&acquire).await.unwrap();
    let second = tokio::spawn(manager.lock(KEY).try_acquire());
    eventually("the second caller waits for the row", SOON, async || {
        let sql = "select from pg_stat_activity \
                   where application_name = 'redlock' and wait_event_type = 'Lock'";
        (!admin.query(sql, &[]).await.unwrap().is_empty()).then_some(())
    })
    .await;
    first.batch_execute("commit").await.unwrap();
    let error = second.await.unwrap().expect_err("the first caller has the lock");
    assert!(error.is_contended(), "{error:?}");
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
