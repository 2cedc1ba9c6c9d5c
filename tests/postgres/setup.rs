//! What `connect` checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redlock_core::Credentials;
use redlock_tests::{Proxy, eventually};
use tokio_postgres::NoTls;

use crate::network::HeldBack;
use crate::{KEY, LONG, SOON, connect, connect_patient, impatient, no_lock_is_left, serves, start};

/// Each error names what is wrong and the statement that repairs it.
#[tokio::test]
async fn what_is_wrong_with_a_server_is_an_error_with_its_remedy() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    for (wrong, words, repair) in [
        (
            "alter table locks.redlock_lease set unlogged",
            "alter table \"locks\".redlock_lease set logged",
            "alter table locks.redlock_lease set logged",
        ),
        (
            "revoke delete, update on locks.redlock_lease from app",
            "grant update, delete on \"locks\".redlock_lease to",
            "grant delete, update on locks.redlock_lease to app",
        ),
        (
            "revoke usage on schema locks from app",
            "grant usage on schema \"locks\" to",
            "grant usage on schema locks to app",
        ),
        (
            "alter table locks.redlock_lease rename to other",
            "create table if not exists \"locks\".redlock_lease (",
            "alter table locks.other rename to redlock_lease",
        ),
        (
            "alter system set full_page_writes = off",
            "alter system set full_page_writes = on",
            "alter system set full_page_writes = on",
        ),
        (
            "alter system set fsync = off",
            "alter system set fsync = on",
            "alter system set fsync = on",
        ),
    ] {
        admin.batch_execute(wrong).await.unwrap();
        admin.batch_execute("select pg_reload_conf()").await.unwrap();
        // A server reads its configuration a moment later.
        eventually(wrong, SOON, async || {
            impatient(&server.url())
                .connect()
                .await
                .err()?
                .to_string()
                .contains(words)
                .then_some(())
        })
        .await;
        admin.batch_execute(repair).await.unwrap();
        admin.batch_execute("select pg_reload_conf()").await.unwrap();
        eventually("the repair", SOON, async || impatient(&server.url()).connect().await.ok())
            .await;
    }
}

/// Locks need none of these columns, and never write a null.
#[tokio::test]
async fn a_column_that_needs_no_value_changes_nothing() {
    let Some(server) = start().await else { return };
    let (manager, admin) = (connect_patient(&server.url()).await, server.admin().await);
    let guard = manager.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    for change in [
        "add note text",
        "add kind text not null default 'lock'",
        "add \"Number of rows\" bigint generated always as identity",
        "add copy text generated always as (token) stored",
        "alter token drop not null",
    ] {
        admin.batch_execute(&format!("alter table locks.redlock_lease {change}")).await.unwrap();
        for manager in [&manager, &connect_patient(&server.url()).await] {
            manager.lock("other").try_acquire().await.expect(change).release().await.unwrap();
            assert!(manager.lock(KEY).try_acquire().await.unwrap_err().is_contended(), "{change}");
        }
    }
    guard.release().await.unwrap();
}

/// The statement at the end of the error is executed word for word, while a lock is held. A running manager names it too,
/// and goes on after the repair.
#[tokio::test]
async fn the_remedy_for_a_changed_table_ends_no_lock_unless_it_says_so() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let manager = connect(&server.url()).await;
    for (wrong, difference, ends_locks) in [
        (
            "add \"my note\" text not null default ''; alter table locks.redlock_lease alter \"my note\" drop default",
            "a further column \"my note\" that is not null and has no default",
            false,
        ),
        ("alter number type int using 0", "the column number of", false),
        ("alter number type numeric", "is numeric, but must be bigint", false),
        ("alter token type varchar(200)", "is character varying(200), but must be text", false),
        (
            "alter name type text collate \"POSIX\"",
            "is text collate \"POSIX\", but must be text collate \"C\"",
            false,
        ),
        (
            "drop constraint redlock_lease_pkey",
            "the column name of the table \"locks\".redlock_lease is not unique",
            false,
        ),
        ("drop label, drop since", "has no column label", false),
        ("drop since", "has no column since", false),
        ("alter label type varchar(64)", "the column label of", false),
        (
            "drop label, add label text not null default ''",
            "the column label of the table \"locks\".redlock_lease must allow null",
            false,
        ),
        ("alter expires type timestamp", "is timestamp without time zone", true),
        ("drop number", "has no column number", true),
        ("drop expires", "has no column expires", true),
        ("drop token", "has no column token", true),
        ("drop name", "has no column name", true),
    ] {
        serves(&manager, "other").await;
        let guard = manager.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        admin.batch_execute(&format!("alter table locks.redlock_lease {wrong}")).await.unwrap();
        let error = impatient(&server.url()).connect().await.expect_err(wrong).to_string();
        assert!(error.contains(difference), "{wrong}: {error}");
        assert_eq!(
            error.contains("this ends all locks, so stop the services"),
            ends_locks,
            "{error}"
        );
        let (_, remedy) = error.rsplit_once(": ").unwrap();
        if !wrong.contains("varchar") && !wrong.contains("POSIX") && !wrong.contains("timestamp") {
            eventually("a running manager names the remedy", SOON, async || {
                let error = manager.lock("other").try_acquire().await.err()?;
                error.diagnostics().to_string().contains(remedy).then_some(())
            })
            .await;
        }
        admin.batch_execute(remedy).await.unwrap_or_else(|error| panic!("{remedy}: {error}"));
        let next = connect(&server.url()).await;
        serves(&manager, "other").await;
        if !ends_locks {
            assert!(next.lock(KEY).try_acquire().await.unwrap_err().is_contended(), "{wrong}");
        }
        drop(guard);
        serves(&next, KEY).await;
    }
}

#[tokio::test]
async fn a_replica_is_an_error_with_its_remedy() {
    let Some(primary) = start().await else { return };
    let replica = primary.start_replica(false).await;
    let error = impatient(&replica.url()).connect().await.expect_err("a replica");
    assert!(error.to_string().contains("the URL must lead to the primary server"), "{error}");
}

#[tokio::test]
async fn a_database_of_another_encoding_is_an_error_with_its_remedy() {
    let Some(server) = start().await else { return };
    let create =
        "create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0";
    server.admin().await.batch_execute(create).await.unwrap();
    let url = server.url().replace("/postgres?", "/latin?");
    let error = impatient(&url).connect().await.expect_err("another encoding");
    let remedy = "create database .. encoding 'UTF8'";
    assert!(error.to_string().contains(remedy), "{error}");
}

/// A crash of the server could forget locks from now on.
#[tokio::test]
async fn a_server_that_starts_again_with_a_wrong_setting_gets_no_operation() {
    let Some(mut server) = start().await else { return };
    let manager = impatient(&server.url()).connect().await.unwrap();
    server.admin().await.batch_execute("alter system set fsync = off").await.unwrap();
    serves(&manager, KEY).await;
    server.restart().await;
    eventually("the error", SOON, async || {
        let error = manager.lock(KEY).try_acquire().await.expect_err("a wrong setting");
        format!("{error:?}").contains("alter system set fsync = on").then_some(())
    })
    .await;
}

/// A role may have settings for all of its sessions.
#[tokio::test]
async fn the_settings_of_a_role_do_not_change_its_locks() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    // A function that none of the statements may find.
    let clock = "create schema fast; grant usage on schema fast to app; \
        create function fast.clock_timestamp() returns timestamptz language sql \
            as $$ select pg_catalog.clock_timestamp() + interval '1 day' $$";
    admin.batch_execute(clock).await.unwrap();
    for setting in [
        "search_path = fast, pg_catalog",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'German'",
        "intervalstyle = 'iso_8601'",
        "statement_timeout = '10s'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "client_min_messages = 'debug1'",
        "standard_conforming_strings = off",
        "row_security = off",
    ] {
        admin.batch_execute(&format!("alter role app set {setting}")).await.unwrap();
    }
    let manager = impatient(&server.url()).connect().await.unwrap();
    serves(&manager, KEY).await;
    let guard = manager.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert!(manager.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    let rest = server.locks_rest(KEY).await.unwrap();
    assert!(rest <= LONG && rest > LONG / 2, "{rest:?}");
    guard.release().await.unwrap();
    no_lock_is_left(&server).await;
}

/// A role may not end the session of another role, and does not see when that began. While the session lasts, it may still
/// execute an acquisition.
#[tokio::test]
async fn a_node_with_a_new_role_waits_for_the_end_of_its_former_session() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let role = "create role next login; grant usage on schema locks to next; \
                grant select, insert, update, delete on locks.redlock_lease to next";
    admin.batch_execute(role).await.unwrap();
    let file: String = admin.query_one("show hba_file", &[]).await.unwrap().get(0);
    let rules = format!(
        "copy (values ('local all postgres trust'), ('host all all 127.0.0.1/32 trust')) to '{file}'"
    );
    admin.batch_execute(&rules).await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    let proxy = Proxy::to_port(server.port()).await;
    let url = format!("{}&connections=1", server.url_at("127.0.0.1", proxy.port()));
    let is_next = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_next);
    let credentials = move |_| {
        let role = if is_next.load(Ordering::Relaxed) { "next" } else { "app" };
        let credentials = Credentials::new("unused-by-trust").username(role);
        std::future::ready(Ok::<_, std::io::Error>(credentials))
    };
    // The silent connection must not break before the role changes.
    let builder = impatient(&url).node_timeout(SOON).expire(LONG);
    let manager = builder.credentials(credentials).connect().await.unwrap();
    serves(&manager, KEY).await;
    switch.store(true, Ordering::Relaxed);
    let held_back = HeldBack::acquisition(&server, &proxy, &manager).await;
    eventually("the error names the remedy", SOON, async || {
        let error = manager.lock(KEY).try_acquire().await.expect_err("the former session");
        format!("{error:?}").contains("grant pg_signal_backend to").then_some(())
    })
    .await;
    admin.batch_execute("grant pg_signal_backend to next").await.unwrap();
    serves(&manager, KEY).await;
    held_back.arrive(&server).await;
    no_lock_is_left(&server).await;
}

/// A process number is used again after a restart. The start of the process of another role is hidden.
#[tokio::test]
async fn a_process_of_another_role_is_not_the_former_session() {
    let Some(server) = start().await else { return };
    let other = server.admin().await;
    other.batch_execute("set application_name = 'redlock'").await.unwrap();
    let process: i32 = other.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let sql = "select oid from pg_roles where rolname = 'app'";
    let role: u32 = other.query_one(sql, &[]).await.unwrap().get(0);
    let config = format!("host=127.0.0.1 port={} user=app dbname=postgres", server.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    let end = include_str!("../../redlock-core/src/store/postgres/sql/end.sql");
    assert!(client.query(end, &[&process, &1_i64, &role]).await.unwrap().is_empty());
}
