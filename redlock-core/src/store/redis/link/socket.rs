//! The sockets below the connections: TCP, TLS and unix sockets.

use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;

use bb8_redis::redis::io::tcp::socket2::{self, SockRef};
use futures_util::future::select_ok;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::access::TlsOptions;
use crate::error::NodeError;
use crate::store::kit::keepalive::keep_alive;
use crate::store::kit::url::HostPort;

/// The longest frame of a connection for locks. The longest known one is the state of a large cluster, with less than 200 bytes for
/// each server.
pub(super) const MAX_FRAME: u64 = 1024 * 1024;

/// The bytes of a connection in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A socket that is connected to a server.
pub(crate) struct Socket {
    pub(super) stream: Box<dyn ByteStream>,
    /// Another descriptor of the same socket. `None` if the stream is no socket.
    pub(crate) descriptor: Option<socket2::Socket>,
    /// The address of the server, if it was reached by TCP.
    pub(super) address: Option<SocketAddr>,
    /// The longest frame that is read.
    pub(super) max_frame: u64,
}

impl Socket {
    /// Connects to a unix socket.
    #[cfg(unix)]
    pub(super) async fn connect_unix(path: &Path) -> io::Result<Self> {
        let stream = tokio::net::UnixStream::connect(path).await?;
        let descriptor = SockRef::from(&stream).try_clone().ok();
        Ok(Self { stream: Box::new(stream), descriptor, address: None, max_frame: MAX_FRAME })
    }

    /// Makes the TLS connection over a TCP connection, if there are options of TLS.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, clippy::unused_async))]
    pub(super) async fn over_tcp(
        stream: TcpStream,
        host: &str,
        tls: Option<&TlsOptions>,
    ) -> Result<Self, NodeError> {
        let descriptor = SockRef::from(&stream).try_clone().ok();
        let address = stream.peer_addr().ok();
        let stream: Box<dyn ByteStream> = match tls {
            #[cfg(feature = "tls")]
            Some(options) => Box::new(super::tls::handshake(stream, host, options).await?),
            _ => Box::new(stream),
        };
        Ok(Self { stream, descriptor, address, max_frame: MAX_FRAME })
    }

    /// Returns a socket whose server is played in this process.
    #[cfg(any(test, feature = "unstable-simulation"))]
    pub(crate) fn played(stream: impl ByteStream + 'static) -> Self {
        Self { stream: Box::new(stream), descriptor: None, address: None, max_frame: MAX_FRAME }
    }
}

/// Looks the addresses of a server up.
pub(super) async fn look_up(server: &HostPort) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((&*server.host, server.port)).await?.collect())
}

/// Connects to a server by TCP, at one of its addresses.
pub(super) async fn connect_tcp(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let stream = connect_to_first(addresses.into_iter()).await?;
    // Nagle's algorithm delays the second of two commands by a round trip.
    stream.set_nodelay(true)?;
    keep_alive(&stream)?;
    Ok(stream)
}

/// Tries every address of a host at once. The first connection wins.
pub(super) async fn connect_to_first(
    addresses: impl Iterator<Item = SocketAddr>,
) -> io::Result<TcpStream> {
    let attempts: Vec<_> = addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let (stream, _) = select_ok(attempts).await?;
    Ok(stream)
}
