//! Rows that an operator locks.

use std::time::Duration;

use redlock_core::LockError;

use crate::{KEY, LONG, impatient, no_lock_is_left, serves, start};

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
