//! The socket of a connection, with TLS or without.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_postgres::config::Host;

#[cfg(feature = "tls")]
use super::tls;
use crate::access::TlsOptions;
use crate::error::NodeError;
use crate::store::kit::keepalive::keep_alive;

/// A socket of any kind.
pub(super) type ServerSocket = Box<dyn SocketStream>;

pub(super) trait SocketStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> SocketStream for T {}

/// The name of a server, and the address to which it has led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedAddress {
    host: String,
    port: u16,
    pub(super) address: SocketAddr,
}

impl NamedAddress {
    /// Looks the present addresses of the name up.
    pub(super) async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((&*self.host, self.port)).await?.collect())
    }
}

/// Connects to a host. Returns its address if the host is a name.
pub(super) async fn open(
    host: &Host,
    port: u16,
    tls: Option<&TlsOptions>,
) -> Result<(ServerSocket, Option<NamedAddress>), NodeError> {
    let failed = |error: io::Error| NodeError::NotConnected(error.to_string().into());
    match host {
        Host::Tcp(host) => {
            let socket = TcpStream::connect((host.as_str(), port)).await.map_err(failed)?;
            socket.set_nodelay(true).map_err(failed)?;
            keep_alive(&socket).map_err(failed)?;
            let is_name = host.parse::<IpAddr>().is_err();
            let address = socket.peer_addr().ok().filter(|_| is_name);
            let address = address.map(|address| NamedAddress { host: host.clone(), port, address });
            let socket: ServerSocket = match tls {
                #[cfg(feature = "tls")]
                Some(options) => Box::new(tls::start_tls(socket, host, options).await?),
                _ => Box::new(socket),
            };
            Ok((socket, address))
        }
        // PostgreSQL knows no TLS here.
        #[cfg(unix)]
        Host::Unix(folder) => {
            let socket = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await;
            Ok((Box::new(socket.map_err(failed)?), None))
        }
    }
}
