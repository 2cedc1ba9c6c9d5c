//! TLS by rustls.

mod any_certificate;
mod client_certificate;
mod configuration;
mod explain;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client};

use crate::access::{TlsOptions, read_files};
use crate::error::NodeError;
use client_certificate::CertificateRequest;
use configuration::client_config;

pub(crate) use configuration::check;

/// A connection with TLS. Its errors say what is wrong with the certificates.
#[derive(Debug)]
pub(crate) struct TlsStream {
    stream: client::TlsStream<TcpStream>,
    request: Arc<CertificateRequest>,
    /// Whether the server has sent anything after the handshake. With TLS 1.3 it checks the client's certificate only
    /// after the client has finished the handshake.
    is_accepted: bool,
}

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
pub(crate) async fn handshake(
    stream: TcpStream,
    host: &str,
    options: &TlsOptions,
) -> io::Result<TlsStream> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let options = options.clone();
    let config = read_files(options.files(), move || client_config(&options));
    let (config, request) = config.await?.map_err(failed)?;
    match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(stream) => Ok(TlsStream { stream, request, is_accepted: false }),
        Err(error) => Err(explained(error, &request, false)),
    }
}

fn failed(reason: String) -> io::Error {
    io::Error::other(NodeError::Tls(reason.into()))
}

/// Returns the error in words that name the cause, or the error itself if TLS is not the cause.
fn explained(error: io::Error, request: &CertificateRequest, is_accepted: bool) -> io::Error {
    match explain::reason(&error, request, is_accepted) {
        Some(reason) => io::Error::new(error.kind(), NodeError::Tls(reason.into())),
        None => error,
    }
}

impl TlsStream {
    /// Returns the socket below.
    #[cfg(any(test, unix))]
    pub(crate) fn tcp(&self) -> &TcpStream {
        self.stream.get_ref().0
    }

    fn explain<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| explained(error, &self.request, self.is_accepted))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let mut read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if read.is_ok() && !self.is_accepted {
            if buffer.filled().len() > before {
                self.is_accepted = true;
            } else {
                // A server that refuses the client's certificate may close the connection without an alert.
                let words = "the server closed the connection";
                read = Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
            }
        }
        Poll::Ready(self.explain(read))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.explain(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(self.explain(flushed))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Returns the error of a client after the handshake with a server that closes the connection without an alert.
    async fn closed(requests_certificate: bool) -> io::Error {
        ensure_crypto_provider();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let server = if requests_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(cert.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder(roots.into()).allow_unauthenticated();
            ServerConfig::builder().with_client_cert_verifier(verifier.build().unwrap())
        } else {
            ServerConfig::builder().with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let server = server.with_single_cert(vec![cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            TlsAcceptor::from(Arc::new(server)).accept(stream).await.unwrap()
        };
        let options = TlsOptions::new().ca_pem(cert.pem());
        let (client, server) = tokio::join!(handshake(tcp, "localhost", &options), accept);
        drop(server);
        client.unwrap().read(&mut [0]).await.unwrap_err()
    }

    #[test]
    #[cfg(unix)]
    fn a_certificate_that_hangs_occupies_one_thread() {
        use std::time::Duration;

        use tokio::time::timeout;

        let dir = tempfile::tempdir().unwrap();
        let (hung, file) = (dir.path().join("hung"), dir.path().join("file"));
        // A read of a FIFO hangs until a writer opens it.
        assert!(std::process::Command::new("mkfifo").arg(&hung).status().unwrap().success());
        std::fs::write(&file, "no certificate").unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(2).build().unwrap();
        let attempt = async |ca: &std::path::Path, limit: Duration| {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let options = TlsOptions::new().ca_file(ca);
            timeout(limit, handshake(tcp, "localhost", &options)).await
        };
        let other = runtime.block_on(async {
            for _ in 0..3 {
                assert!(attempt(&hung, Duration::from_millis(20)).await.is_err());
            }
            attempt(&file, Duration::from_secs(60)).await
        });
        // Ends the read that hangs.
        std::fs::write(&hung, "").unwrap();
        runtime.shutdown_background();
        let error = other.expect("the other file is read").unwrap_err();
        assert!(error.to_string().contains("contains no certificate"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_requests_a_certificate_and_closes_the_connection_requires_one() {
        let error = closed(true).await.to_string();
        assert!(error.starts_with("TLS: the server requires a client certificate"), "{error}");
        let error = closed(false).await;
        assert!(error.get_ref().is_none_or(|error| !error.is::<NodeError>()), "{error}");
    }
}
