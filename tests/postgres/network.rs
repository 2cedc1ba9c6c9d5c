//! Connections that are slow or break.

use std::time::Duration;

use redlock_core::{LockError, LockManager};
use redlock_tests::{Connection, Direction, PostgresServer, Proxy, Traffic, eventually, skip};

use crate::{
    KEY, LONG, SOON, connect, connect_patient, is_contended, is_held, no_lock_is_left, serves,
    start,
};

#[tokio::test]
async fn a_lock_outlasts_its_connections() {
    let Some(server) = start().await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let holder = connect(&server.url_at("127.0.0.1", proxy.port())).await;
    let other = connect(&server.url()).await;
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    proxy.reset();
    is_contended(&other, KEY).await;
    assert!(guard.is_valid());
    is_held(&guard).await;
    guard.release().await.unwrap();
    serves(&other, KEY).await;
}

/// The proxy delays the data of each connection by another time, so that the connections overtake each other.
#[tokio::test]
async fn locks_exclude_each_other_over_slow_connections() {
    let Some(server) = start().await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let url = server.url_at("127.0.0.1", proxy.port());
    let (one, other) = (connect_patient(&url).await, connect_patient(&url).await);
    for (connection, delay) in proxy.connections().iter().zip((10..).step_by(30)) {
        connection.set_both(Traffic::Delay(Duration::from_millis(delay)));
    }
    for key in ["a", "b", "c", "d"] {
        let guard = one.lock(key).expire(LONG).try_acquire().await.unwrap();
        is_contended(&other, key).await;
        let waiter = tokio::spawn(other.lock(key).wait_time(LONG).acquire());
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    no_lock_is_left(&server).await;
}

/// The connection ends before, within and after a statement and its reply.
#[tokio::test]
async fn a_connection_that_breaks_at_any_byte_leaves_no_lock_behind() {
    let Some(server) = start().await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let url = format!("{}&connections=1", server.url_at("127.0.0.1", proxy.port()));
    let manager = connect(&url).await;
    serves(&manager, KEY).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bytes in (0..300).step_by(37) {
            serves(&manager, KEY).await;
            for connection in proxy.connections() {
                connection.set(direction, Traffic::ResetAfter(bytes));
            }
            if let Ok(guard) = manager.lock(KEY).expire(LONG).try_acquire().await {
                drop(guard);
            }
            no_lock_is_left(&server).await;
            // The next connections pass everything.
            proxy.reset();
        }
    }
}

/// A network may deliver a statement after the client has given its connection up. By then the server must not execute it,
/// because the release of the lock was executed before it.
#[tokio::test]
async fn a_statement_that_arrives_after_its_connection_sets_no_lock() {
    let options = PostgresServer::options().setting("log_statement", "all");
    let Ok(server) = options.start().await.inspect_err(|why| skip(why)) else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let url = format!("{}&connections=1", server.url_at("127.0.0.1", proxy.port()));
    let manager = connect(&url).await;
    let held_back = HeldBack::acquisition(&server, &proxy, &manager).await;
    // The acquisition does not reach the server, so that this is its release.
    eventually("the release arrives", SOON, async || {
        server.log().contains(&format!("$1 = '{}'", HeldBack::key())).then_some(())
    })
    .await;
    // The release was executed before these statements.
    serves(&manager, &HeldBack::key()).await;
    held_back.arrive(&server).await;
    assert_eq!(server.locks_count().await, 0);
}

/// The network holds an acquisition back, whose caller has given its connection up.
pub(crate) struct HeldBack {
    connections: Vec<Connection>,
    /// The processes of the server behind the connections.
    sessions: Vec<i32>,
}

impl HeldBack {
    /// Returns the key of the lock. A ping is shorter.
    pub(crate) fn key() -> String {
        KEY.repeat(25)
    }

    /// Makes an acquisition, holds it back, and breaks the connections of the client.
    pub(crate) async fn acquisition(
        server: &PostgresServer,
        proxy: &Proxy,
        manager: &LockManager,
    ) -> Self {
        let connections = proxy.connections();
        let sessions = server.sessions().await;
        let received = || -> Vec<_> {
            let received = |connection: &Connection| connection.received(Direction::ToServer);
            connections.iter().map(received).collect()
        };
        for connection in &connections {
            connection.set(Direction::ToServer, Traffic::Hold);
        }
        let before = received();
        let attempt = tokio::spawn(manager.lock(Self::key()).expire(LONG).try_acquire());
        eventually("the proxy holds the acquisition back", SOON, async || {
            let mut more = received().into_iter().zip(&before).map(|(now, before)| now - before);
            more.any(|more| more > Self::key().len()).then_some(())
        })
        .await;
        connections.iter().for_each(Connection::reset_client);
        assert!(matches!(attempt.await.unwrap(), Err(LockError::Unavailable { .. })));
        Self { connections, sessions }
    }

    /// Delivers the acquisition, and waits for the end of the sessions that get it.
    pub(crate) async fn arrive(self, server: &PostgresServer) {
        for connection in &self.connections {
            connection.set(Direction::ToServer, Traffic::Pass);
        }
        let admin = server.admin().await;
        eventually("the former sessions are over", SOON, async || {
            let sql = "select from pg_stat_activity where pid = any($1)";
            admin.query(sql, &[&self.sessions]).await.unwrap().is_empty().then_some(())
        })
        .await;
    }
}
