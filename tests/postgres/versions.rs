//! Facts about other versions of PostgreSQL than the one of the gate: `.ci/nightly postgres` runs these tests.

use std::time::Instant;

use redlock_tests::{Logs, PostgresServer, eventually, skip};

use crate::{KEY, LONG, SOON, connect, is_contended, no_lock_is_left};

/// The queue has a small size from PostgreSQL 17 on. A session that listens, and does not end its transaction, keeps it full, also
/// after its end.
#[tokio::test]
async fn a_full_queue_of_notifications_is_named_and_waiters_poll() {
    let options = PostgresServer::options().setting("max_notify_queue_pages", "64");
    let Ok(server) = options.start().await.inspect_err(|why| skip(why)) else { return };
    let (culprit, admin) = (server.admin().await, server.admin().await);
    culprit.batch_execute("listen events").await.unwrap();
    culprit.batch_execute("begin; select 1").await.unwrap();
    let fill = "do $$ begin for i in 1..80 loop perform pg_notify('events', repeat('a', 7000) || i); end loop; end $$";
    admin.batch_execute(fill).await.unwrap_err();
    drop(culprit);
    let logs = Logs::collect();
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    is_contended(&other, KEY).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    println!("the waiter has its lock after {:?}", released.elapsed());
    for words in ["too many notifications in the NOTIFY queue", "pg_notification_queue_usage()"] {
        eventually("the log names the queue", SOON, async || {
            (logs.count("WARN", words) > 0).then_some(())
        })
        .await;
    }
    assert_eq!(logs.count("WARN", "pooler=transaction"), 0, "{:?}", logs.lines());
    admin.batch_execute("notify events").await.expect_err("the queue is still full");
    admin.batch_execute("select pg_notification_queue_usage()").await.unwrap();
    admin.batch_execute("notify events").await.unwrap();
    no_lock_is_left(&server).await;
}
