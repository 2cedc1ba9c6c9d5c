//! Reads the reason of a server that closes new connections at once.

use std::time::Duration;

use bb8_redis::redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The longest wait for a reason. A server that rejects a client sends the reason as soon as it has accepted
/// the connection.
const REASON_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest reason in bytes. No server sends a longer one.
const MAX_REASON_LEN: usize = 1024;

/// Returns the reason why a server rejects new connections: `ERR max number of clients reached`, or
/// `DENIED ..` in the protected mode.
///
/// Opens another connection and sends nothing over it: the reason gets lost if the server closes a
/// connection on which the client's first command is still on its way.
pub(crate) async fn reason(address: &ConnectionAddr) -> Option<String> {
    let listen = async {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                read(TcpStream::connect((host.as_str(), *port)).await.ok()?).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => read(UnixStream::connect(path).await.ok()?).await,
            _ => None,
        }
    };
    timeout(REASON_TIMEOUT, listen).await.ok().flatten()
}

/// Returns the first sentence of the error, or `None` if the server sends anything but an error.
async fn read(stream: impl AsyncRead) -> Option<String> {
    let mut stream = std::pin::pin!(stream.take(MAX_REASON_LEN as u64));
    let mut bytes = Vec::new();
    // The stream may end with an error. The bytes before it count.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes);
    let error = text.strip_prefix('-')?.trim_end();
    let sentence = error.split_once(". ").map_or(error, |(first, _)| first);
    Some(crate::node::redis::error::escape_control_characters(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_sentence_of_an_error_is_the_reason() {
        let full = "-ERR max number of clients reached\r\n";
        assert_eq!(read(full.as_bytes()).await.unwrap(), "ERR max number of clients reached");
        let protected = "-DENIED Redis is running in protected mode. To connect, do this.\r\n";
        let reason = read(protected.as_bytes()).await.unwrap();
        assert_eq!(reason, "DENIED Redis is running in protected mode");
        let two_lines = "-ERR max\x1b[2J\r\n2026 WARN a lock was lost\r\n";
        assert_eq!(
            read(two_lines.as_bytes()).await.unwrap(),
            r"ERR max\u{1b}[2J\r\n2026 WARN a lock was lost"
        );
        assert_eq!(read(&b""[..]).await, None);
        assert_eq!(read(&b"HTTP/1.1 400 Bad Request"[..]).await, None);
    }
}
