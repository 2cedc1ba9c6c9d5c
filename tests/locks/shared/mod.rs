//! Behaviours of shared locks. Most run on one node and on several, in memory and on real servers.

/// Generates tests of these behaviours for each kind of nodes.
macro_rules! on_each_kind {
    ($behaviours:tt) => {
        redlock_tests::on_each_kind_of_nodes! {
            [
                memory_x1: Nodes::memory(1),
                memory_x5: Nodes::memory(5),
                redis_x1: Nodes::redis(1).await,
                redis_x5: Nodes::redis(5).await,
            ]
            if_all_kinds [
                every_sentinel: Nodes::sentinel(1).await,
                every_cluster: Nodes::cluster().await,
            ]
            $behaviours
        }
    };
}

mod entries;
mod leases;
mod permits;
mod readers_and_writers;
mod waiting_writers;

use std::time::Duration;

use redlock_core::{LockGuard, LockManager, LockRequest};
use redlock_tests::{Nodes, eventually, held_briefly};
use tokio::time::timeout;

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
/// A lease whose end a test waits for.
const SHORT: Duration = Duration::from_millis(300);
/// A lease that is renewed in time even on a busy machine.
const RENEWED: Duration = Duration::from_millis(1500);
/// How long the mark of a waiting writer lasts, unless the writer withdraws it.
const MARK: Duration = Duration::from_secs(1);
/// Deadline for actions that take no time on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// More than a server needs to notice that a lock has ended. A server may have set the lock as late as its acquisition
/// returned, so the last end is a lease and this margin after that.
const MARGIN: Duration = Duration::from_millis(50);
const KEY: &str = "catalogue{1}";

fn shared(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).shared(true).expire(LONG)
}

fn exclusive(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).expire(LONG)
}

fn permit(locks: &LockManager, permits: u32) -> LockRequest {
    locks.lock(KEY).permits(permits).expire(LONG)
}

async fn managers(nodes: &Nodes) -> [LockManager; 3] {
    [nodes.manager().await, nodes.manager().await, nodes.manager().await]
}

async fn is_contended(request: LockRequest) -> bool {
    match request.try_acquire().await {
        Ok(guard) => {
            guard.release().await.unwrap();
            false
        }
        Err(error) => {
            assert!(error.is_contended(), "{error:?}");
            true
        }
    }
}

/// Acquires a lock that ends soon.
async fn short(request: LockRequest) -> LockGuard {
    held_briefly(|| request.clone().expire(SHORT).try_acquire()).await
}

/// Starts to wait for a lock, in a task. Returns when callers of so many managers listen for its release.
async fn waiting(
    nodes: &Nodes,
    request: LockRequest,
    managers: usize,
) -> tokio::task::JoinHandle<LockGuard> {
    let task = tokio::spawn(async move { request.wait_forever().acquire().await.unwrap() });
    nodes.are_waited_for(KEY, managers).await;
    task
}

/// Waits until a waiting writer has left its mark, which keeps out further readers or holders of permits.
async fn is_stopped(request: impl Fn() -> LockRequest) {
    eventually("the writer stops the others", SOON, async || {
        is_contended(request()).await.then_some(())
    })
    .await;
}

async fn soon(task: tokio::task::JoinHandle<LockGuard>) -> LockGuard {
    timeout(SOON, task).await.unwrap().unwrap()
}
