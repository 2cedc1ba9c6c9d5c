//! Connections whose server is played by the test.

use std::sync::Arc;

use bb8_redis::redis::RedisConnectionInfo;
use bb8_redis::redis::aio::MultiplexedConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::metered_socket::MeteredSocket;
use super::pool::settings;
use super::socket::Socket;
use super::{Connection, Identity};
use crate::node::redis::script::Script;

/// Returns a connection, and the end of its server, which the test plays. The names of the scripts
/// serve as their digests.
pub(crate) async fn played_connection() -> (Connection, DuplexStream) {
    let (client, server) = tokio::io::duplex(4096);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let (socket, traffic) = MeteredSocket::new(Socket::Duplex(client));
    let connection = MultiplexedConnection::new_with_config(&info, socket, settings()).await;
    let (handle, driver) = connection.unwrap();
    tokio::spawn(driver);
    let names = Script::ALL.map(|script| script.name().to_owned());
    (Connection::new(handle, Arc::default(), traffic, names, Identity::default()), server)
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
