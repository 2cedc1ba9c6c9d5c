//! TLS by rustls.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::{TlsOptions, client_config};
use crate::error::{NodeError, legible};

/// The message `SSLRequest` of the protocol ("Message Formats" in the documentation of PostgreSQL).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The answer of a server that speaks TLS.
const WILLING: u8 = b'S';

/// Encrypts a connection to a server whose certificate is valid for `host`.
pub(super) async fn encrypt(
    mut socket: TcpStream,
    host: &str,
    options: &TlsOptions,
) -> Result<TlsStream<TcpStream>, NodeError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| NodeError::Tls("the host has no valid name".into()))?;
    let config = client_config(options).await?;
    socket.write_all(&SSL_REQUEST).await.map_err(|error| failed(&error))?;
    // One byte: whatever else arrived before the handshake would not be encrypted.
    if socket.read_u8().await.map_err(|error| failed(&error))? != WILLING {
        return Err(NodeError::Tls(
            "the server does not speak TLS: set ssl = on, or write sslmode=disable".into(),
        ));
    }
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, socket).await.map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> NodeError {
    match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(words) => NodeError::Tls(legible(&words.to_string()).into()),
        None => NodeError::NotConnected(error.to_string().into()),
    }
}
