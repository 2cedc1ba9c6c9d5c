//! Encrypts connections by rustls.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client_config::client_config;
use crate::access::TlsOptions;
use crate::error::{NodeError, legible};

/// Encrypts a connection to a server whose certificate is valid for `host`.
pub(crate) async fn encrypt(
    socket: TcpStream,
    host: &str,
    options: &TlsOptions,
) -> Result<TlsStream<TcpStream>, NodeError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| NodeError::Tls("the host has no valid name".into()))?;
    let config = client_config(options).await?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
    connected.map_err(|error: io::Error| {
        match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(words) => NodeError::Tls(legible(&words.to_string()).into()),
            None => NodeError::NotConnected(error.to_string().into()),
        }
    })
}
