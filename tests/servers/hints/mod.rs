//! Holders that learn at once that their lock is gone, because the server tracks its keys; and waiters behind locks of other
//! libraries.
//!
//! Each lease is so long that neither its end nor a renewal can be the reason: without the hint, every one of these tests
//! waits for longer than its deadline.

mod holders;
mod hostile;
mod losses;
mod thorough;
mod waiters;

use futures_util::future::join_all;
use redlock_core::{Dialect, LockGuard, LockManager};
use redlock_tests::{Probe, Servers, connect, eventually};

use super::{LONG, SOON, start};

const KEY: &str = "order:42";

/// The way in which a lock gets lost.
#[derive(Debug, Clone, Copy)]
enum Cause {
    Deleted,
    Replaced,
    OfAnotherType,
    Flushed,
    Broken,
    Evicted,
}

impl Cause {
    async fn happen(self, servers: &Servers) {
        if let Self::Broken = self {
            return break_all(&connect(servers.urls()).await).await;
        }
        // All servers at once: a lock that a minority has lost is set again there.
        let mut probes = Vec::new();
        for server in servers.iter() {
            probes.push(server.probe().await);
        }
        join_all(probes.iter_mut().map(|probe| self.happen_on(probe))).await;
        if let Self::Evicted = self {
            // Until now, no server took the lock again.
            let limit = ["CONFIG", "SET", "maxmemory", "0"];
            join_all(probes.iter_mut().map(|probe| probe.command::<()>(limit))).await;
        }
    }

    async fn happen_on(self, probe: &mut Probe) {
        match self {
            Self::Deleted => probe.command::<()>(["DEL", KEY]).await,
            Self::Replaced => probe.command(["SET", KEY, "another", "PX", "300000"]).await,
            Self::OfAnotherType => {
                probe.command::<()>(["DEL", KEY]).await;
                probe.command::<()>(["RPUSH", KEY, "1"]).await;
            }
            Self::Flushed => probe.command(["FLUSHALL"]).await,
            Self::Broken => {}
            Self::Evicted => {
                probe.command::<()>(["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
                probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
                // A command that needs memory evicts all keys first, and is then refused.
                let _ = probe.try_command::<()>(["SET", "filler", "1"]).await;
                assert_eq!(probe.get(KEY).await, None, "the lock is not evicted");
            }
        }
    }
}

async fn break_all(locks: &LockManager) {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let status = locks.status(KEY).dialect(dialect).await.unwrap();
        for holder in status.holders() {
            locks.break_lock(KEY, holder).await.unwrap();
        }
    }
}

async fn is_lost(guard: &LockGuard, what: &str) {
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    assert!(lost.is_ok(), "{what}: the holder does not learn of its loss");
    assert!(!guard.is_valid(), "{what}");
}

/// Waits until each server has read the key of the lock for its holder so often.
async fn tracked(servers: &Servers, reads: u64) {
    for server in servers.iter() {
        let mut probe = server.probe().await;
        eventually("the server tracks the key", SOON, async || {
            let calls = probe.calls().await;
            let caching = calls.get("client|caching").or_else(|| calls.get("client"));
            (caching.copied() >= Some(reads)).then_some(())
        })
        .await;
    }
}

async fn reset(servers: &Servers) {
    for server in servers.iter() {
        server.probe().await.reset_calls().await;
    }
}
