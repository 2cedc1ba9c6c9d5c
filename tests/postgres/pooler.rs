//! pgbouncer in transaction mode and in session mode.

use redlock_core::{ConnectError, NodeError};
use redlock_tests::{Logs, PgBouncer, PostgresServer, Proxy, builder, eventually, skip};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::NoTls;

use crate::{
    KEY, LONG, SOON, acquire, connect, failure, impatient, is_contended, is_held, no_lock_is_left,
    serves, start,
};

const TRANSACTIONS: &str = "pool_mode = transaction";
/// pgbouncer refuses the settings in the startup parameter `options`, unless it ignores the parameter.
const SESSIONS: &str = "pool_mode = session\nignore_startup_parameters = options";
/// All clients share one session, although each has sent its own parameters.
const ONE_SESSION: &str =
    "pool_mode = transaction\nignore_startup_parameters = options\ndefault_pool_size = 1";
/// The mode that the guide describes for sessions would need only this line.
const HIDDEN: &str = "pool_mode = transaction\nignore_startup_parameters = options";

async fn start_pooled(settings: &str) -> Option<(PostgresServer, PgBouncer)> {
    let server = start().await?;
    let pooler = PgBouncer::start_with(&server, settings).await;
    Some((server, pooler.inspect_err(|why| skip(why)).ok()?))
}

/// Executes a command in a session behind a pooler, as another client of it.
async fn execute(pooler: &PgBouncer, command: &str) {
    let config = format!("host=127.0.0.1 port={} user=app dbname=postgres", pooler.port());
    let (client, connection) = eventually("the pooler accepts a client", SOON, async || {
        tokio_postgres::connect(&config, NoTls).await.ok()
    })
    .await;
    tokio::spawn(connection);
    client.batch_execute(command).await.unwrap();
}

#[tokio::test]
async fn locks_work_behind_a_pooler() {
    let logs = Logs::collect();
    let Some((server, pooler)) = start_pooled(TRANSACTIONS).await else { return };
    let (one, other) = (connect(&pooler.url()).await, connect(&pooler.url()).await);
    let guard = one.lock(KEY).fenced(true).expire(LONG).try_acquire().await.unwrap();
    let number = guard.fencing_token().unwrap();
    is_contended(&other, KEY).await;
    let lines = logs.lines();
    let warning = lines.iter().find(|line| line.contains("set lock_timeout")).unwrap();
    assert!(warning.contains(&pooler.port().to_string()), "it names the node: {warning}");
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

/// The session stays with its client, so that it keeps prepared statements and gets notifications.
#[tokio::test]
async fn a_pooler_in_session_mode_needs_no_parameter() {
    let logs = Logs::collect();
    let options = PostgresServer::options().setting("log_statement", "all");
    let Ok(server) = options.start().await.inspect_err(|why| skip(why)) else { return };
    let pooler = PgBouncer::start_with(&server, SESSIONS).await;
    let Ok(pooler) = pooler.inspect_err(|why| skip(why)) else { return };
    let warnings = || logs.count("WARN", "notifications of the server do not arrive");
    // The notification of the node to itself may be late on a busy machine.
    let manager = eventually("the notification arrives", SOON, async || {
        let ends = || server.log().matches("unlisten redlock_").count();
        let (former_ends, former_warnings) = (ends(), warnings());
        let manager = connect(&pooler.session_url()).await;
        eventually("the node ends its check", SOON, async || (ends() > former_ends).then_some(()))
            .await;
        (warnings() == former_warnings).then_some(manager)
    })
    .await;
    let guard = manager.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    is_contended(&manager, KEY).await;
    guard.release().await.unwrap();
    no_lock_is_left(&server).await;
}

/// The node does not know the mode of a pooler that refuses its settings.
#[tokio::test]
async fn a_pooler_that_refuses_the_settings_is_an_error_with_the_remedy_for_each_mode() {
    for settings in [TRANSACTIONS, "pool_mode = session"] {
        let Some((_server, pooler)) = start_pooled(settings).await else { return };
        let error = impatient(&pooler.session_url()).connect().await.expect_err("a parameter");
        for words in [
            "unsupported startup parameter",
            "in session mode, write ignore_startup_parameters = options",
            "in transaction mode, add pooler=transaction",
        ] {
            assert!(error.to_string().contains(words), "{settings}: {error}");
        }
    }
}

/// The pooler accepts the settings and hides its mode, so that a failover behind it would end no connection.
#[tokio::test]
async fn a_hidden_pooler_in_transaction_mode_is_refused_by_connect() {
    for settings in [ONE_SESSION, HIDDEN] {
        let Some((_server, pooler)) = start_pooled(settings).await else { return };
        for guard in [None, Some(LONG)] {
            let builder = impatient(&pooler.session_url());
            let builder = match guard {
                Some(longest_lease) => builder.restart_guard(longest_lease),
                None => builder,
            };
            let error = builder.connect().await.expect_err("no session");
            assert!(error.to_string().contains("pooler=transaction"), "{settings}: {error}");
        }
    }
}

/// The pool has no session left by which the node could compare.
#[tokio::test]
async fn a_pool_in_session_mode_that_is_just_large_enough_is_accepted() {
    let settings = format!("{SESSIONS}\ndefault_pool_size = 3");
    let Some((server, pooler)) = start_pooled(&settings).await else { return };
    let manager = impatient(&pooler.session_url()).restart_guard(LONG).connect().await.unwrap();
    serves(&manager, KEY).await;
    no_lock_is_left(&server).await;
}

/// The pooler drops the settings that the node sends, and the wait for a standby ends with a warning.
#[tokio::test]
async fn a_role_that_hides_warnings_behind_a_pooler_is_an_error_with_its_remedy() {
    for (settings, url) in
        [(TRANSACTIONS, PgBouncer::url as fn(&_) -> _), (SESSIONS, PgBouncer::session_url)]
    {
        let Some((server, pooler)) = start_pooled(settings).await else { return };
        let hide = "alter role app set client_min_messages = error";
        server.admin().await.batch_execute(hide).await.unwrap();
        let error = impatient(&url(&pooler)).connect().await.expect_err("hidden warnings");
        let remedy = "alter role .. set client_min_messages = warning";
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

/// The pooler drops these settings too.
#[tokio::test]
async fn other_transactions_behind_a_pooler_are_an_error_with_its_remedy() {
    for (setting, remedy) in [
        ("isolation = 'serializable'", "isolation = 'read committed'"),
        ("read_only = on", "read_only = 'off'"),
    ] {
        let Some((server, pooler)) = start_pooled(TRANSACTIONS).await else { return };
        let set = format!("alter role app set default_transaction_{setting}");
        server.admin().await.batch_execute(&set).await.unwrap();
        let error = impatient(&pooler.url()).connect().await.expect_err("another setting");
        let remedy = format!("alter role .. set default_transaction_{remedy}");
        assert!(error.to_string().contains(&remedy), "{error}");
    }
}

/// The pooler may lead to a new primary without the end of a connection, and the node would not notice it.
#[tokio::test]
async fn behind_a_pooler_the_restart_guard_is_refused() {
    let Some((_server, pooler)) = start_pooled(TRANSACTIONS).await else { return };
    let error = impatient(&pooler.url()).restart_guard(LONG).connect().await;
    let Err(ConnectError::InvalidOption(error)) = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("restart_guard"), "{error}");
    assert!(error.to_string().contains(&pooler.port().to_string()), "{error}");
}

/// The process behind the former connection may serve another client by now.
#[tokio::test]
async fn a_new_connection_to_a_pooler_ends_no_session() {
    let options = PostgresServer::options().setting("log_statement", "all");
    let Ok(server) = options.start().await.inspect_err(|why| skip(why)) else { return };
    let pooler = PgBouncer::start_with(&server, TRANSACTIONS).await;
    let Ok(pooler) = pooler.inspect_err(|why| skip(why)) else { return };
    let proxy = Proxy::to_port(pooler.port()).await;
    let port = |port| format!("127.0.0.1:{port}/");
    let url = pooler.url().replace(&port(pooler.port()), &port(proxy.port()));
    let manager = connect(&url).await;
    proxy.reset();
    serves(&manager, KEY).await;
    assert!(!server.log().contains("pg_terminate_backend"), "{}", server.log());
}

/// Two names of the pooler lead to one table, whose lock would be two votes.
#[tokio::test]
async fn two_names_of_a_pooler_for_one_database_are_one_store() {
    let Some(server) = start().await else { return };
    let settings = format!(
        "{TRANSACTIONS}\n[databases]\nother = host=127.0.0.1 port={} dbname=postgres",
        server.port()
    );
    let pooler = PgBouncer::start_with(&server, &settings).await;
    let Ok(pooler) = pooler.inspect_err(|why| skip(why)) else { return };
    let url = pooler.url();
    let other = url.replace("/postgres?", "/other?");
    serves(&connect(&other).await, KEY).await;
    let error = builder([url, other]).connect().await.expect_err("one store");
    assert!(matches!(error, ConnectError::SameServer { .. }), "{error:?}");
}

/// A pooler may append the address of its client to the name of the application.
#[tokio::test]
async fn a_former_session_ends_behind_a_pooler_that_changes_the_name_of_the_application() {
    let settings = format!("{SESSIONS}\napplication_name_add_host = 1");
    let Some((server, pooler)) = start_pooled(&settings).await else { return };
    let _manager = connect(&pooler.session_url()).await;
    let admin = server.admin().await;
    let sql = "select pid, (extract(epoch from backend_start) * 1000000)::bigint, usesysid
        from pg_stat_activity where application_name like 'redlock - 127.0.0.1:%'";
    let sessions = admin.query(sql, &[]).await.unwrap();
    assert!(!sessions.is_empty());
    let end = include_str!("../../redlock-core/src/store/postgres/sql/end.sql");
    for session in sessions {
        let (pid, began, role): (i32, i64, u32) = (session.get(0), session.get(1), session.get(2));
        eventually("the session ends", SOON, async || {
            admin.query(end, &[&pid, &began, &role]).await.unwrap();
            let sql = "select from pg_stat_activity where pid = $1";
            admin.query(sql, &[&pid]).await.unwrap().is_empty().then_some(())
        })
        .await;
    }
}

/// Another service has prepared statements of the same names in the session (42P05).
#[tokio::test]
async fn a_pooler_that_accepts_all_startup_parameters_is_named_when_a_statement_exists() {
    let Some((_server, pooler)) = start_pooled(ONE_SESSION).await else { return };
    let prepare = |index| format!("prepare s{index} as select 1;");
    // The process counts its statements, and all of these tests may be in one process.
    execute(&pooler, &(0..10_000).map(prepare).collect::<String>()).await;
    let error = impatient(&pooler.session_url()).connect().await.expect_err("a second statement");
    assert!(error.to_string().contains("pooler=transaction"), "{error}");
}

/// All connections break. Behind a pooler in transaction mode the waiter polls, and otherwise it listens again.
#[tokio::test]
async fn a_holder_and_a_waiter_outlast_the_end_of_the_pooler() {
    for (settings, url) in
        [(TRANSACTIONS, PgBouncer::url as fn(&_) -> _), (SESSIONS, PgBouncer::session_url)]
    {
        let Some((server, mut pooler)) = start_pooled(settings).await else { return };
        let (holder, other) = (connect(&url(&pooler)).await, connect(&url(&pooler)).await);
        for is_killed in [false, true] {
            let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
            let waiter = tokio::spawn(other.lock(KEY).wait_time(LONG).acquire());
            // A caller that comes during an outage does not wait. The second refusal comes after that of the waiter.
            is_contended(&other, KEY).await;
            is_contended(&other, KEY).await;
            pooler.restart(is_killed).await;
            is_contended(&other, KEY).await;
            assert!(guard.is_valid());
            assert!(!waiter.is_finished(), "{:?}", waiter.await);
            is_held(&guard).await;
            guard.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
        no_lock_is_left(&server).await;
    }
}

/// A pooler that outlasts the failover from its server to a replica. The URL leads to it.
struct Failover {
    primary: PostgresServer,
    replica: PostgresServer,
    proxy: Proxy,
    url: String,
    _pooler: PgBouncer,
}

impl Failover {
    /// Starts both servers, and a pooler in front of the primary one. Skips the test if a program is missing.
    async fn prepare(settings: &str, synchronous: bool) -> Option<Self> {
        let primary = start().await?;
        let replica = primary.start_replica(synchronous).await;
        let proxy = Proxy::to_port(primary.port()).await;
        let settings = format!(
            "{settings}\nserver_login_retry = 1\n[databases]\nmoving = host=127.0.0.1 port={} dbname=postgres",
            proxy.port()
        );
        let pooler = PgBouncer::start_with(&primary, &settings).await;
        let pooler = pooler.inspect_err(|why| skip(why)).ok()?;
        let mode =
            if settings.contains(TRANSACTIONS) { pooler.url() } else { pooler.session_url() };
        let url = mode.replace("/postgres?", "/moving?");
        Some(Self { primary, replica, proxy, url, _pooler: pooler })
    }

    /// Kills the primary server, and lets the pooler lead to the replica.
    async fn happen(&mut self) {
        self.primary.kill();
        self.replica.promote().await;
        self.proxy.lead_to_port(self.replica.port());
    }
}

#[tokio::test]
async fn behind_a_pooler_a_synchronous_replica_that_takes_over_has_every_lock() {
    for settings in [TRANSACTIONS, SESSIONS] {
        let Some(mut failover) = Failover::prepare(settings, true).await else { return };
        let (holder, other) = (connect(&failover.url).await, connect(&failover.url).await);
        let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        failover.happen().await;
        is_contended(&other, KEY).await;
        is_held(&guard).await;
        guard.release().await.unwrap();
        serves(&other, KEY).await;
        no_lock_is_left(&failover.replica).await;
    }
}

/// A case that the guide does not promise to prevent: in transaction mode, nothing tells the node of the failover.
#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_a_renewal_after_a_failover_ends_the_lock_of_the_first_holder()
 {
    let Some(mut failover) = Failover::prepare(TRANSACTIONS, false).await else { return };
    let (holder, other) = (connect(&failover.url).await, connect(&failover.url).await);
    failover.replica.cut_off().await;
    let first = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    failover.happen().await;
    let second = acquire(&other, KEY).await;
    assert!(first.is_valid() && second.is_valid());
    eventually("a renewal is denied", SOON, async || {
        let denied = first.extend(LONG).await.is_err();
        (denied && !first.is_valid()).then_some(())
    })
    .await;
    is_held(&second).await;
    second.release().await.unwrap();
}

#[tokio::test]
async fn behind_a_pooler_in_session_mode_the_restart_guard_keeps_others_out_after_a_failover() {
    let Some(mut failover) = Failover::prepare(SESSIONS, false).await else { return };
    let guarded = async || impatient(&failover.url).restart_guard(LONG).connect().await.unwrap();
    let (holder, other) = (guarded().await, guarded().await);
    failover.replica.cut_off().await;
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    failover.happen().await;
    eventually("the vote of the replica does not count", SOON, async || {
        let error = other.lock(KEY).expire(LONG).try_acquire().await.expect_err("a held lock");
        matches!(failure(&error), NodeError::Promoted { .. }).then_some(())
    })
    .await;
    assert!(guard.is_valid());
}

/// Forwards the messages of one connection, and begins a transaction in front of the first statement. Pgpool-II 4.3.5 does so with
/// `backend_clustering_mode = raw`, and never ends it.
async fn begin_a_transaction(mut client: TcpStream, port: u16) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    let length = client.read_u32().await?;
    let mut startup = vec![0; usize::try_from(length).unwrap() - 4];
    client.read_exact(&mut startup).await?;
    server.write_u32(length).await?;
    server.write_all(&startup).await?;
    until_ready(&mut server, &mut client).await?;
    server.write_all(b"Q\0\0\0\x0abegin\0").await?;
    until_ready(&mut server, &mut tokio::io::sink()).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// Copies the messages of a server until it is ready for a query.
async fn until_ready(
    server: &mut TcpStream,
    to: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    loop {
        let (tag, length) = (server.read_u8().await?, server.read_u32().await?);
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        server.read_exact(&mut body).await?;
        to.write_u8(tag).await?;
        to.write_u32(length).await?;
        to.write_all(&body).await?;
        if tag == b'Z' {
            return Ok(());
        }
    }
}

/// The end of such a connection undoes its grants, so that a second caller gets the lock of a valid guard.
#[tokio::test]
async fn a_connection_inside_of_a_transaction_is_refused() {
    let Some(server) = start().await else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (between, port) = (listener.local_addr().unwrap().port(), server.port());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(begin_a_transaction(client, port));
        }
    });
    for parameter in ["", "&pooler=transaction"] {
        let url = format!("{}{parameter}", server.url_at("127.0.0.1", between));
        let error = impatient(&url).connect().await.expect_err("no grant is committed");
        let words = "a transaction of the connection does not end";
        assert!(error.to_string().contains(words), "{parameter}: {error}");
    }
}
