//! The TLS handshake of a connection.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::TlsOptions;
use crate::error::NodeError;
use crate::store::kit::client_config::client_config;
use crate::store::redis::error;

/// Makes a TLS connection to a server whose certificate is valid for `host`.
pub(super) async fn handshake(
    stream: TcpStream,
    host: &str,
    options: &TlsOptions,
) -> Result<TlsStream<TcpStream>, NodeError> {
    let failed = |error: io::Error| error::not_connected(&error.into());
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other).map_err(failed)?;
    let config = client_config(options).await?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(failed)
}
