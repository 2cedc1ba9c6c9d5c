//! Lets the kernel notice that the machine of a server has disappeared, also while nothing is sent.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The idle time after which the kernel sends keepalive probes. With the kernel's default, the disappearance
/// of a server's machine would be noticed only after two hours.
const IDLE: Duration = Duration::from_secs(5);
/// The time between two keepalive probes.
const INTERVAL: Duration = Duration::from_secs(2);
/// The longest time for which sent data or a probe may stay unacknowledged, on systems with this option.
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Sets the options of a new connection.
pub(crate) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL))?;
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}
