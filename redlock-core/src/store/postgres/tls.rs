//! Asks a server for TLS.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::access::TlsOptions;
use crate::error::NodeError;
use crate::store::kit::encrypt::encrypt;

/// The message `SSLRequest` of the protocol ("Message Formats" in the documentation of PostgreSQL).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The answer of a server that speaks TLS.
const WILLING: u8 = b'S';

/// Encrypts a connection to a server whose certificate is valid for `host`.
pub(super) async fn start_tls(
    mut socket: TcpStream,
    host: &str,
    options: &TlsOptions,
) -> Result<TlsStream<TcpStream>, NodeError> {
    let failed = |error: io::Error| NodeError::NotConnected(error.to_string().into());
    socket.write_all(&SSL_REQUEST).await.map_err(failed)?;
    // One byte: whatever else arrived before the handshake would not be encrypted.
    if socket.read_u8().await.map_err(failed)? != WILLING {
        return Err(NodeError::Tls(
            "the server does not speak TLS: set ssl = on, or write sslmode=disable".into(),
        ));
    }
    encrypt(socket, host, options).await
}
