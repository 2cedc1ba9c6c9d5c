//! Tests of the servers.

use std::time::Duration;

use rustix::process::Pid;
use tokio_postgres::{Client, NoTls};

use super::{PgBouncer, PostgresOptions, PostgresServer};
use crate::process::is_gone;
use crate::{eventually, skip};

const SOON: Duration = Duration::from_secs(120);
/// The longest time in which a server that runs answers.
const SHORT: Duration = Duration::from_millis(300);

async fn start(options: PostgresOptions) -> Option<PostgresServer> {
    options.start().await.inspect_err(|why| skip(why)).ok()
}

/// Connects as the role `app`.
async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    // The client knows no parameter `schema`.
    let url = url.split('?').next().unwrap_or_default();
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn answers(client: &Client) -> bool {
    let reply = tokio::time::timeout(SHORT, client.batch_execute("select 1")).await;
    matches!(reply, Ok(Ok(())))
}

async fn insert(client: &Client, name: &str) -> Result<u64, tokio_postgres::Error> {
    let sql = "insert into locks.redlock_lease values ($1, 'x', clock_timestamp() + interval '1 minute', 1)";
    client.execute(sql, &[&name]).await
}

#[tokio::test]
async fn the_role_of_the_service_can_write_locks_and_nothing_else() {
    let Some(server) = start(PostgresServer::options()).await else { return };
    let app = connect(&server.url()).await.unwrap();
    insert(&app, "a").await.unwrap();
    assert_eq!(server.locks_count().await, 1);
    let rest = server.locks_rest("a").await.unwrap();
    assert!(rest > Duration::from_secs(30) && rest <= Duration::from_secs(60), "{rest:?}");
    assert_eq!(server.locks_rest("b").await, None);
    app.batch_execute("create table locks.other ()").await.unwrap_err();
    assert!(server.delete_lock("a").await && !server.delete_lock("a").await);
    assert_eq!(server.locks_count().await, 0);
}

/// All processes of the server stop, so that a connection that is open gets no answer either.
#[tokio::test]
async fn a_frozen_server_answers_on_no_connection_until_thawed() {
    let Some(mut server) = start(PostgresServer::options()).await else { return };
    let app = connect(&server.url()).await.unwrap();
    eventually("the server answers", SOON, async || answers(&app).await.then_some(())).await;
    server.freeze();
    assert!(!answers(&app).await);
    server.thaw();
    eventually("the server answers", SOON, async || answers(&app).await.then_some(())).await;
}

#[tokio::test]
async fn a_frozen_server_can_be_killed_and_restarts_with_its_data() {
    let Some(mut server) = start(PostgresServer::options()).await else { return };
    let (port, app) = (server.port(), connect(&server.url()).await.unwrap());
    insert(&app, "a").await.unwrap();
    let sql = "select pid from pg_stat_activity";
    let processes = server.admin().await.query(sql, &[]).await.unwrap();
    server.freeze();
    server.kill();
    for process in processes {
        let id = Pid::from_raw(process.get(0)).unwrap();
        assert!(is_gone(id), "no process of the server is left");
    }
    assert!(connect(&server.url()).await.is_err());
    server.restart().await;
    assert_eq!((server.port(), server.locks_count().await), (port, 1));
    server.stop();
    server.restart().await;
    assert_eq!(server.locks_count().await, 1);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn no_server_leaves_shared_memory() {
    let is_there = |id: &str| {
        let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        segments.lines().any(|line| line.split_whitespace().nth(1) == Some(id))
    };
    for is_killed in [false, true] {
        let Some(mut server) = start(PostgresServer::options()).await else { return };
        let id = server.shared_memory().unwrap();
        if is_killed {
            server.kill();
        }
        assert!(is_there(&id));
        drop(server);
        assert!(!is_there(&id), "killed: {is_killed}");
    }
}

#[tokio::test]
async fn connections_of_one_role_can_be_ended() {
    let Some(server) = start(PostgresServer::options()).await else { return };
    let (app, admin) = (connect(&server.url()).await.unwrap(), server.admin().await);
    assert_eq!(server.terminate_backends("app").await, 1);
    eventually("the connection ends", SOON, async || app.is_closed().then_some(())).await;
    assert!(answers(&admin).await);
}

#[tokio::test]
async fn a_role_with_a_password_needs_it() {
    let options = PostgresServer::options().password("swordfish");
    let Some(server) = start(options).await else { return };
    connect(&server.url()).await.unwrap();
    connect(&server.url().replace("swordfish", "other")).await.unwrap_err();
}

#[tokio::test]
async fn a_server_with_tls_refuses_connections_without_it() {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let paths = ["certificate", "key"].map(|name| dir.path().join(name));
    std::fs::write(&paths[0], certificate.cert.pem()).unwrap();
    std::fs::write(&paths[1], certificate.signing_key.serialize_pem()).unwrap();
    let Some(server) = start(PostgresServer::options().tls(&paths[0], &paths[1])).await else {
        return;
    };
    let error = connect(&server.url()).await.unwrap_err();
    assert!(format!("{error:?}").contains("no encryption"), "{error:?}");
}

/// A commit waits for a synchronous replica.
#[tokio::test]
async fn a_synchronous_replica_has_each_write_and_can_be_promoted() {
    let Some(mut primary) = start(PostgresServer::options()).await else { return };
    let mut replica = primary.start_replica(true).await;
    let app = connect(&primary.url()).await.unwrap();
    insert(&app, "a").await.unwrap();
    replica.freeze();
    assert!(tokio::time::timeout(SHORT, insert(&app, "b")).await.is_err());
    primary.kill();
    replica.thaw();
    replica.promote().await;
    assert!(replica.locks_rest("a").await.is_some());
    insert(&connect(&replica.url()).await.unwrap(), "c").await.unwrap();
}

/// An asynchronous replica may miss the last writes.
#[tokio::test]
async fn a_commit_does_not_wait_for_an_asynchronous_replica() {
    let Some(mut primary) = start(PostgresServer::options()).await else { return };
    let mut replica = primary.start_replica(false).await;
    replica.freeze();
    insert(&connect(&primary.url()).await.unwrap(), "a").await.unwrap();
    primary.kill();
    replica.thaw();
    replica.promote().await;
}

/// Two clients share one connection to the server.
#[tokio::test]
async fn a_pooler_gives_its_connection_to_another_client_after_each_transaction() {
    let options = PostgresServer::options().password("open pool");
    let Some(server) = start(options).await else { return };
    let pooler = match PgBouncer::start(&server).await {
        Ok(pooler) => pooler,
        Err(why) => return skip(&why),
    };
    let mut backends = Vec::new();
    for _ in 0..2 {
        let client = connect(&pooler.url()).await.unwrap();
        let rows = client.simple_query("select pg_backend_pid()").await.unwrap();
        let pid = rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        backends.push((client, pid.unwrap()));
    }
    assert_eq!(backends[0].1, backends[1].1);
}
