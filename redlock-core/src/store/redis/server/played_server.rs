//! Connections whose server is played by the test.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::connection::{Connection, Shas};
use crate::store::redis::link::socket::Socket;
use crate::store::redis::link::{Event, Link};

/// Returns a connection that reads in slices, and the end of its server, which the test plays. The names of the scripts
/// serve as their digests.
pub(crate) fn played_connection() -> (Connection, DuplexStream) {
    played_connection_with(|_| {})
}

/// As [`played_connection`], with a function that receives the events.
pub(crate) fn played_connection_with(
    on_event: impl Fn(Event) + Send + Sync + 'static,
) -> (Connection, DuplexStream) {
    played_connection_through(4096, on_event)
}

/// As [`played_connection_with`], over a connection that holds this number of bytes in each direction.
pub(crate) fn played_connection_through(
    capacity: usize,
    on_event: impl Fn(Event) + Send + Sync + 'static,
) -> (Connection, DuplexStream) {
    let (client, server) = tokio::io::duplex(capacity);
    let link = Link::start(Socket::played(client), true, on_event);
    let shas = Shas::played();
    let (identity, missing, native) = Default::default();
    let takes_subscriptions = true;
    (Connection { link, shas, identity, missing, native, takes_subscriptions }, server)
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
