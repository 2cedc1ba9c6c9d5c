//! Connections to simulated servers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a simulated server, in place of a socket.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static {}

/// A connection that is being opened.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens connections to one simulated server, in place of the operating system's network.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// Opens a connection.
    fn open(&self) -> Dialing;

    /// Returns the addresses of the server's name. Without any, the server has no name.
    fn addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Opens a connection to one of the addresses.
    fn open_at(&self, _address: SocketAddr) -> Dialing {
        self.open()
    }
}
