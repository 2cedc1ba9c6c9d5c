//! Free ports for servers that have to be told theirs.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Below the ports that Linux and the BSDs hand out to outgoing connections. A port from among those
/// could be taken while its server is down for a restart; a client that keeps trying it could even
/// be connected to itself.
const RANGE: std::ops::Range<u16> = 10_000..32_000;

/// The ports of this process's servers, also of those that are down at the moment.
static RESERVED: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port that nobody listened on a moment ago. Another process may still be faster: whoever starts
/// a server on it has to check that it is this server that answers.
#[derive(Debug)]
pub(crate) struct Port(u16);

impl Port {
    pub(crate) fn reserve() -> Self {
        loop {
            let port = rand::random_range(RANGE);
            let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
            if !reserved.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                reserved.insert(port);
                return Self(port);
            }
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        RESERVED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}
