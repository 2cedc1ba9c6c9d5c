//! Free ports for servers that need a fixed port.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The range of the ports for servers, below the ephemeral ports of Linux and the BSDs. An outgoing
/// connection could take an ephemeral port while its server is down for a restart. A client that keeps
/// connecting to such a port could even connect to itself.
const RANGE: std::ops::Range<u16> = 10_000..32_000;

/// The ports of all servers of this process, including servers that are down.
static RESERVED: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port that was free when it was reserved. Another process may still take it, so the caller must check
/// that its own server answers there.
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

    /// Reserves a port whose second port, 10,000 above it, is neither an ephemeral port nor one of [`RANGE`].
    pub(crate) fn reserve_for_cluster() -> Self {
        loop {
            let port = Self::reserve();
            let second = port.0.saturating_add(10_000);
            if (RANGE.end..32_768).contains(&second)
                && TcpListener::bind((Ipv4Addr::LOCALHOST, second)).is_ok()
            {
                return port;
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
