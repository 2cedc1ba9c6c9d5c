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

use crate::access::TlsOptions;
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
    // Files may be on a slow disk.
    let config = tokio::task::spawn_blocking(move || client_config(&options));
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
                // A server that refuses the client's certificate may close the connection without a word.
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
