//! The socket of a connection, with TLS or without.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_postgres::config::Host;

#[cfg(feature = "tls")]
use super::tls;
use crate::access::TlsOptions;
use crate::error::NodeError;
use crate::node::watch::keepalive::keep_alive;

/// A socket of any kind.
pub(super) type ServerSocket = Box<dyn SocketStream>;

pub(super) trait SocketStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> SocketStream for T {}

/// Connects to a host.
pub(super) async fn open(
    host: &Host,
    port: u16,
    tls: Option<&TlsOptions>,
) -> Result<ServerSocket, NodeError> {
    let failed = |error: io::Error| NodeError::NotConnected(error.to_string().into());
    match host {
        Host::Tcp(host) => {
            let socket = TcpStream::connect((host.as_str(), port)).await.map_err(failed)?;
            socket.set_nodelay(true).map_err(failed)?;
            keep_alive(&socket).map_err(failed)?;
            match tls {
                #[cfg(feature = "tls")]
                Some(options) => Ok(Box::new(tls::start_tls(socket, host, options).await?)),
                _ => Ok(Box::new(socket)),
            }
        }
        // PostgreSQL knows no TLS here.
        #[cfg(unix)]
        Host::Unix(folder) => {
            let socket = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await;
            Ok(Box::new(socket.map_err(failed)?))
        }
    }
}
