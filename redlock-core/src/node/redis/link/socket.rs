//! The sockets below the connections: TCP, TLS and unix sockets.

use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use bb8_redis::redis::ConnectionAddr;
use bb8_redis::redis::io::tcp::{TcpSettings, socket2::SockRef};
use futures_util::future::select_ok;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

#[cfg(feature = "tls")]
use super::tls;
use crate::access::TlsOptions;
#[cfg(feature = "unstable-simulation")]
use crate::simulation::dial::Stream;

/// A socket that is connected to a server.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "unstable-simulation")]
    Simulated(Box<dyn Stream>),
    /// The client's end of a pipe inside a test.
    #[cfg(test)]
    Duplex(tokio::io::DuplexStream),
}

impl Socket {
    /// Connects to a server, including the TLS handshake if there is one.
    pub(crate) async fn connect(
        server: &ConnectionAddr,
        tcp: &TcpSettings,
        #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "there is no TLS"))]
        tls: &TlsOptions,
    ) -> io::Result<Self> {
        match server {
            ConnectionAddr::Tcp(host, port) => connect_tcp(host, *port, tcp).await.map(Self::Tcp),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                let stream = connect_tcp(host, *port, tcp).await?;
                Ok(Self::Tls(Box::new(tls::handshake(stream, host, tls).await?)))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns another descriptor of the same socket, or `None` if the socket has no descriptor.
    #[cfg(unix)]
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        let descriptor = match self {
            Self::Tcp(stream) => stream.as_fd(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.get_ref().0.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            #[cfg(feature = "unstable-simulation")]
            Self::Simulated(_) => return None,
            #[cfg(test)]
            Self::Duplex(_) => return None,
        };
        descriptor.try_clone_to_owned().ok()
    }
}

/// Tries every address of the host at once. The first connection wins.
async fn connect_tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let attempts: Vec<_> = addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let (stream, _) = select_ok(attempts).await?;
    apply(settings, &stream)?;
    Ok(stream)
}

fn apply(settings: &TcpSettings, stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

/// Calls a method of the inner stream.
macro_rules! delegate {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            #[cfg(feature = "tls")]
            Socket::Tls($stream) => $call,
            #[cfg(unix)]
            Socket::Unix($stream) => $call,
            #[cfg(feature = "unstable-simulation")]
            Socket::Simulated($stream) => $call,
            #[cfg(test)]
            Socket::Duplex($stream) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
