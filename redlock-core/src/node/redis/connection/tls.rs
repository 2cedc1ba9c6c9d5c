//! TLS by rustls, with the system's root certificates.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// Makes sure that rustls has a crypto provider. If the application has installed a provider, rustls uses
/// that one.
pub(crate) fn ensure_crypto_provider() {
    use rustls::crypto::{CryptoProvider, ring};

    if CryptoProvider::get_default().is_none() {
        // Fails if another thread was faster, and then there is a provider.
        let _ = ring::default_provider().install_default();
    }
}

/// Makes a TLS connection to a server whose certificate is valid for `host`.
pub(crate) async fn handshake(stream: TcpStream, host: &str) -> io::Result<TlsStream> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(Arc::new(configuration()?)).connect(name, stream).await
}

/// Reads the root certificates anew for each connection, because they may be renewed.
fn configuration() -> io::Result<ClientConfig> {
    let mut loaded = rustls_native_certs::load_native_certs();
    if let Some(error) = loaded.errors.pop() {
        return Err(io::Error::other(error));
    }
    let mut roots = RootCertStore::empty();
    for certificate in loaded.certs {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}
