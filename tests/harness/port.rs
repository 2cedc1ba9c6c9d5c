//! Free ports for servers that need a fixed port.
//!
//! Test processes run at the same time. Each takes blocks of ports for itself, so that no two processes reserve the same
//! port. The lock of a block is a listener on its first port: the kernel ends the lock together with the process.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The range of the ports for servers. With [`SECOND`] added, they are still below the ephemeral ports of Linux and the
/// BSDs. An outgoing connection could take an ephemeral port while its server is down for a restart. A client that keeps
/// connecting to such a port could even connect to itself.
const RANGE: std::ops::Range<u16> = 11_000..21_000;
/// How much higher the second port of a member of a cluster is. The second ports lie above [`RANGE`].
const SECOND: u16 = 10_000;
/// The number of ports in a block. The first one is the lock.
const BLOCK: u16 = 64;
/// A process that has fewer ports takes another block instead of a port that one of its earlier servers had.
const REUSE: usize = 200;
/// The longest time until another process ends and leaves a block.
const PATIENCE: Duration = Duration::from_secs(60);

static PORTS: LazyLock<Mutex<Ports>> = LazyLock::new(Mutex::default);

/// The ports of this process.
#[derive(Debug, Default)]
struct Ports {
    /// A listener for each block.
    locks: Vec<TcpListener>,
    /// The ports of all blocks.
    all: Vec<u16>,
    /// The index of the port that is tried next.
    next: usize,
    /// The ports of all servers of this process, including servers that are down.
    reserved: HashSet<u16>,
}

impl Ports {
    fn reserve(&mut self, is_free: impl Fn(u16) -> bool) -> u16 {
        let mut tried = 0;
        loop {
            if self.next == self.all.len() {
                if self.all.len() < REUSE || tried >= self.all.len() {
                    self.take_block();
                } else {
                    self.next = 0;
                }
            }
            let port = self.all[self.next];
            (self.next, tried) = (self.next + 1, tried + 1);
            // A program that is not a test may have taken the port.
            if !self.reserved.contains(&port) && is_free(port) {
                self.reserved.insert(port);
                return port;
            }
        }
    }

    /// Takes a block that no other process has.
    fn take_block(&mut self) {
        let blocks = (RANGE.end - RANGE.start) / BLOCK;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let random = rand::random_range(0..blocks);
            for block in (0..blocks).map(|block| (block + random) % blocks) {
                let first = RANGE.start + block * BLOCK;
                if let Ok(lock) = listen(first) {
                    self.locks.push(lock);
                    self.all.extend(first + 1..first + BLOCK);
                    return;
                }
            }
            assert!(Instant::now() < deadline, "other test processes have all ports");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// A port that was free when it was reserved, and that no other test process reserves. A program that is not a test may
/// still take it, so the caller must check that its own server answers there.
#[derive(Debug)]
pub(crate) struct Port(u16);

impl Port {
    pub(crate) fn reserve() -> Self {
        Self::reserve_if(|port| listen(port).is_ok())
    }

    /// Reserves a port whose second port, 10,000 above it, is free too.
    pub(crate) fn reserve_for_cluster() -> Self {
        Self::reserve_if(|port| [port, port + SECOND].into_iter().all(|port| listen(port).is_ok()))
    }

    fn reserve_if(is_free: impl Fn(u16) -> bool) -> Self {
        Self(PORTS.lock().unwrap_or_else(PoisonError::into_inner).reserve(is_free))
    }

    pub(crate) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        PORTS.lock().unwrap_or_else(PoisonError::into_inner).reserved.remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second process has a value of its own, too.
    #[test]
    fn two_processes_share_no_port() {
        let (mut one, mut other) = (Ports::default(), Ports::default());
        let ports: HashSet<u16> =
            (0..100).flat_map(|_| [one.reserve(|_| true), other.reserve(|_| true)]).collect();
        assert_eq!(ports.len(), 200);
    }

    #[test]
    fn a_port_is_reserved_again_only_after_many_others() {
        let mut ports = Ports::default();
        let first = ports.reserve(|_| true);
        for _ in 1..REUSE {
            let port = ports.reserve(|_| true);
            assert!(port != first && RANGE.contains(&port), "{port}");
            ports.reserved.remove(&port);
        }
        ports.reserved.remove(&first);
        let taken = ports.locks.len();
        while ports.reserve(|port| port == first) != first {}
        assert_eq!(ports.locks.len(), taken, "a port that is free again needs no further block");
    }
}
