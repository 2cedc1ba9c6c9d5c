//! pgbouncer in transaction mode.

use redlock_tests::{PgBouncer, PostgresServer, connect, skip};

use crate::{KEY, LONG, impatient, is_contended, no_lock_is_left, serves, start};

async fn start_pooled() -> Option<(PostgresServer, PgBouncer)> {
    let server = start().await?;
    let pooler = PgBouncer::start(&server).await.inspect_err(|why| skip(why)).ok()?;
    Some((server, pooler))
}

#[tokio::test]
async fn locks_work_behind_a_pooler() {
    let Some((server, pooler)) = start_pooled().await else { return };
    let (one, other) = (connect([pooler.url()]).await, connect([pooler.url()]).await);
    let guard = one.lock(KEY).fenced(true).expire(LONG).try_acquire().await.unwrap();
    let number = guard.fencing_token().unwrap();
    is_contended(&other, KEY).await;
    // Notifications do not arrive: the waiter polls.
    let waiter = tokio::spawn(other.lock(KEY).fenced(true).wait_time(LONG).acquire());
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > number);
    next.release().await.unwrap();
    for index in 0..50 {
        let key = index.to_string();
        tokio::join!(serves(&one, &key), serves(&other, &key));
    }
    no_lock_is_left(&server).await;
}

#[tokio::test]
async fn without_the_parameter_the_error_names_it() {
    let Some((_server, pooler)) = start_pooled().await else { return };
    let url = pooler.url().replace("&pooler=transaction", "");
    let error = impatient(&url).connect().await.expect_err("the pooler refuses the session");
    assert!(error.to_string().contains("pooler=transaction"), "{error}");
}
