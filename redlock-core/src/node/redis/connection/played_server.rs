//! Connections whose server is played by the test.

use std::sync::Arc;

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{ProtocolVersion, RedisConnectionInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::metered_socket::MeteredSocket;
use super::pool::{pushed_to, settings};
use super::socket::Socket;
use super::{Connection, Identity};
use crate::node::redis::script::Script;

/// Returns a connection that reads in slices, and the end of its server, which the test plays. The names of the scripts
/// serve as their digests.
pub(crate) async fn played_connection() -> (Connection, DuplexStream) {
    let (client, server) = tokio::io::duplex(4096);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let (socket, traffic) = MeteredSocket::new(Socket::Duplex(client));
    traffic.read_in_slices();
    let connection = MultiplexedConnection::new_with_config(&info, socket, settings()).await;
    let (handle, driver) = connection.unwrap();
    tokio::spawn(driver);
    let names = Script::ALL.map(|script| script.name().to_owned());
    (Connection::new(handle, Arc::default(), traffic, names, Identity::default()), server)
}

/// Returns a connection that reads in slices, with push messages (RESP3), and the end of its server.
pub(crate) async fn played_connection_with_pushes() -> (Connection, DuplexStream) {
    let (client, mut server) = tokio::io::duplex(4096);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let info = info.set_protocol(ProtocolVersion::RESP3);
    let (socket, traffic) = MeteredSocket::new(Socket::Duplex(client));
    traffic.read_in_slices();
    let health = Arc::default();
    let config = pushed_to(&health, &Arc::default());
    let connect = async {
        let opened = MultiplexedConnection::new_with_config(&info, socket, config).await;
        let (handle, driver) = opened.unwrap();
        tokio::spawn(driver);
        handle
    };
    let (handle, ()) =
        tokio::join!(connect, serve(&mut server, "HELLO", "%1\r\n+proto\r\n:3\r\n", || {}));
    let names = Script::ALL.map(|script| script.name().to_owned());
    (Connection::new(handle, health, traffic, names, Identity::default()), server)
}

/// Reads the next command, which must contain `word`, then calls `meanwhile` and sends `reply`.
pub(crate) async fn serve(
    server: &mut DuplexStream,
    word: &str,
    reply: &str,
    meanwhile: impl Fn(),
) {
    let mut buffer = [0; 4096];
    let count = server.read(&mut buffer).await.unwrap();
    let command = String::from_utf8_lossy(&buffer[..count]);
    assert!(command.contains(word), "{command}");
    meanwhile();
    server.write_all(reply.as_bytes()).await.unwrap();
}
