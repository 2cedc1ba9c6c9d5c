//! Connections that break.

use crate::{KEY, LONG, SOON, connect, is_connected, is_contended, no_lock_is_left, serves, start};
use redlock_core::LockError;
use redlock_tests::{Direction, Proxy, Traffic, eventually};

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
    is_connected(&holder).await;
    guard.release().await.unwrap();
    serves(&other, KEY).await;
}

/// The connection ends before, within and after a statement and its reply.
#[tokio::test]
async fn a_connection_that_breaks_at_any_byte_leaves_no_lock_behind() {
    let Some(server) = start().await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let url = format!("{}&connections=1", server.url_at("127.0.0.1", proxy.port()));
    let manager = connect(&url).await;
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
    let Some(server) = start().await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let manager = connect(&server.url_at("127.0.0.1", proxy.port())).await;
    serves(&manager, KEY).await;
    let connections = proxy.connections();
    let received = || -> usize {
        connections.iter().map(|connection| connection.received(Direction::ToServer)).sum()
    };
    for connection in &connections {
        connection.set(Direction::ToServer, Traffic::Hold);
    }
    let before = received();
    let attempt = tokio::spawn(manager.lock(KEY).expire(LONG).try_acquire());
    eventually("the proxy holds the statement back", SOON, async || {
        (received() > before).then_some(())
    })
    .await;
    connections.iter().for_each(redlock_tests::Connection::reset_client);
    assert!(matches!(attempt.await.unwrap(), Err(LockError::Unavailable { .. })));
    // The release of the attempt goes over the next connection of this key. A later operation of the key shows that the
    // release is done.
    serves(&manager, KEY).await;
    for connection in &connections {
        connection.set(Direction::ToServer, Traffic::Pass);
    }
    eventually("the former connections are over", SOON, async || {
        let is_over = |connection: &redlock_tests::Connection| connection.is_over();
        connections.iter().all(is_over).then_some(())
    })
    .await;
    no_lock_is_left(&server).await;
    serves(&connect(&server.url()).await, KEY).await;
}
