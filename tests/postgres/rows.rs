//! The contents of the row of a lock.

use std::time::Duration;

use redlock_tests::{Logs, eventually};

use crate::{KEY, LONG, SOON, connect_patient, start};

const TABLE: &str = "locks.redlock_lease";

/// So the numbers grow even after the row was deleted, or lost by a failover.
#[tokio::test]
async fn a_fencing_number_is_no_smaller_than_the_time_of_the_server() {
    let Some(server) = start().await else { return };
    let (manager, admin) = (connect_patient(&server.url()).await, server.admin().await);
    for _ in 0..3 {
        let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let time: i64 = admin.query_one(sql, &[]).await.unwrap().get(0);
        let guard = manager.lock(KEY).fenced(true).try_acquire().await.unwrap();
        let number = guard.fencing_token().unwrap().number();
        assert!(number >= time, "{number} at {time}");
        guard.release().await.unwrap();
    }
}

/// The clock of another node is ahead.
#[tokio::test]
async fn a_fencing_number_is_greater_than_the_former_one() {
    let Some(server) = start().await else { return };
    let (manager, admin) = (connect_patient(&server.url()).await, server.admin().await);
    manager.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    let ahead = 9_000_000_000_000_000_i64;
    admin.execute("update locks.redlock_lease set number = $1", &[&ahead]).await.unwrap();
    let guard = manager.lock(KEY).fenced(true).try_acquire().await.unwrap();
    assert_eq!(guard.fencing_token().unwrap().number(), ahead + 1);
}

#[tokio::test]
async fn a_release_after_the_end_of_the_lease_is_no_success() {
    let Some(server) = start().await else { return };
    let (manager, admin) = (connect_patient(&server.url()).await, server.admin().await);
    for request in [manager.lock(KEY), manager.lock(KEY).min_hold(LONG / 2)] {
        let guard = request.expire(LONG).try_acquire().await.unwrap();
        let sql = "update locks.redlock_lease set expires = clock_timestamp() - interval '1 s'";
        admin.execute(sql, &[]).await.unwrap();
        assert!(guard.release().await.is_err());
    }
}

/// A transaction that locks the row waits for the disk at its end.
#[tokio::test]
async fn a_refusal_does_not_lock_the_row() {
    let Some(server) = start().await else { return };
    let (manager, other) =
        (connect_patient(&server.url()).await, connect_patient(&server.url()).await);
    let admin = server.admin().await;
    let _guard = manager.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let locker = async || -> String {
        let sql = "select xmax::text from locks.redlock_lease";
        admin.query_one(sql, &[]).await.unwrap().get(0)
    };
    let before = locker().await;
    assert!(other.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    assert_eq!(locker().await, before);
}

/// A row must stay for a day, and its number must be a day old too: another node may have given the number, or a clock may be
/// stepped back.
#[tokio::test]
async fn a_clean_up_deletes_only_rows_that_nobody_has_used_for_a_day() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let rows = "insert into locks.redlock_lease select name, token, now() + expires * interval '1 hour',
        (extract(epoch from now() + number * interval '1 hour') * 1000000)::bigint
        from (values ('unused', '', -25, -25), ('expired', 'token', -25, -25), ('held', 'token', 1, -25),
            ('recent', '', -23, -25), ('recent number', '', -25, -23)) as row (name, token, expires, number)";
    admin.batch_execute(rows).await.unwrap();
    let sql = include_str!("../../redlock-core/src/store/postgres/sql/clean_up.sql");
    let deleted = admin.query(&sql.replace("{table}", TABLE), &[]).await.unwrap();
    assert_eq!(deleted.len(), 2);
    let sql = "select name from locks.redlock_lease order by name";
    let left = admin.query(sql, &[]).await.unwrap();
    let left: Vec<&str> = left.iter().map(|row| row.get(0)).collect();
    assert_eq!(left, ["held", "recent", "recent number"]);
}

/// Lets the longest time between two clean-ups pass.
async fn clean_up_begins() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(5400)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_clean_up_that_fails_is_logged() {
    let logs = Logs::collect();
    let Some(server) = start().await else { return };
    let refuse = "create function locks.refuse() returns trigger language plpgsql
            as 'begin raise exception ''rows stay''; end';
        create trigger refuse before delete on locks.redlock_lease execute function locks.refuse()";
    server.admin().await.batch_execute(refuse).await.unwrap();
    let manager = connect_patient(&server.url()).await;
    clean_up_begins().await;
    eventually("the line", SOON, async || {
        (logs.count("WARN", "has failed, and will be repeated: rows stay") == 1).then_some(())
    })
    .await;
    manager.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// A clean-up of a large table lasts for long. Here it waits for a lock of the test.
#[tokio::test]
async fn a_clean_up_delays_no_lock_and_ends_in_its_own_time() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let slow = "create function locks.wait() returns trigger language plpgsql set lock_timeout = 0
            as 'begin perform pg_advisory_xact_lock(1); return old; end';
        create trigger slow before delete on locks.redlock_lease for each row execute function locks.wait();
        insert into locks.redlock_lease values ('unused', '', now() - interval '2 days', 1);
        select pg_advisory_lock(1)";
    admin.batch_execute(slow).await.unwrap();
    let manager = connect_patient(&format!("{}&connections=1", server.url())).await;
    clean_up_begins().await;
    // Beside the connections for commands and for notifications, the clean-up has its own.
    eventually("the clean-up waits", SOON, async || {
        let sql = "select from pg_locks where locktype = 'advisory' and not granted";
        let waits = !admin.query(sql, &[]).await.unwrap().is_empty();
        (waits && server.sessions().await.len() == 3).then_some(())
    })
    .await;
    manager.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    admin.batch_execute("select pg_advisory_unlock(1)").await.unwrap();
    eventually("the row is deleted and the connection closed", SOON, async || {
        let sql = "select from locks.redlock_lease where name = 'unused'";
        let is_deleted = admin.query(sql, &[]).await.unwrap().is_empty();
        (is_deleted && server.sessions().await.len() == 2).then_some(())
    })
    .await;
}

/// The lock may have another holder soon, whose number must not be the confirmed one.
#[tokio::test]
async fn no_number_is_confirmed_after_the_end_of_the_lease() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let sql = include_str!("../../redlock-core/src/store/postgres/sql/confirm.sql");
    let sql = sql.replace("{table}", TABLE);
    for (rest, confirmed) in [("1 hour", 1), ("-1 ms", 0)] {
        let row = format!(
            "truncate {TABLE}; insert into {TABLE} values ('{KEY}', 'token', now() + interval '{rest}', 1)"
        );
        admin.batch_execute(&row).await.unwrap();
        let rows = admin.query(&sql, &[&KEY, &"token", &2_i64]).await.unwrap();
        assert_eq!(rows.len(), confirmed, "{rest}");
    }
}
