//! Slots that move while callers lock keys in them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::{KeyState, LockManager};
use redlock_tests::{Nodes, RedisCluster, eventually};
use tokio::task::JoinSet;

use super::{SOON, connect};

const CALLERS: usize = 64;
const KEYS: usize = 16;

/// The callers of one slot.
#[derive(Default)]
struct Load {
    holders: [AtomicUsize; KEYS],
    overlaps: AtomicUsize,
    errors: Mutex<Vec<String>>,
    grants: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    /// Waits until this many more locks were granted.
    async fn grants(&self, count: usize) {
        let before = self.grants.load(Ordering::SeqCst);
        eventually("locks are granted", SOON, async || {
            (self.grants.load(Ordering::SeqCst) >= before + count).then_some(())
        })
        .await;
    }

    /// Locks one of the keys again and again.
    async fn call(self: Arc<Self>, locks: LockManager, caller: usize) {
        let key = caller % KEYS;
        while !self.is_over.load(Ordering::SeqCst) {
            // A waiter polls if it misses a message. A waiter that needs this long is an error.
            let request = locks.lock(format!("{{slot}}:{key}")).expire(SOON).wait_time(SOON);
            // A fenced lock has two keys, so that the servers answer `TRYAGAIN` while only one of them has moved.
            let is_fenced = !key.is_multiple_of(2);
            let guard = match request.fenced(is_fenced).acquire().await {
                Ok(guard) => guard,
                Err(error) => {
                    self.errors.lock().unwrap().push(format!("{error}: {}", error.diagnostics()));
                    continue;
                }
            };
            if self.holders[key].fetch_add(1, Ordering::SeqCst) > 0 && guard.is_valid() {
                self.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            self.grants.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.holders[key].fetch_sub(1, Ordering::SeqCst);
            if let Err(error) = guard.release().await {
                self.errors.lock().unwrap().push(format!("{error}: {}", error.diagnostics()));
            }
        }
    }
}

/// With `REDLOCK_ALL_NODES=1`, it moves two hundred times.
#[tokio::test]
async fn locks_stay_exclusive_while_their_slot_moves() {
    let moves = if Nodes::all_kinds() { 200 } else { 15 };
    let cluster = RedisCluster::start().await;
    // Two managers stand for two processes. A busy machine takes long for a move, in which the servers answer `TRYAGAIN`.
    let connect = || redlock_tests::builder([cluster.url()]).node_timeout(SOON / 2).connect();
    let managers = [connect().await.unwrap(), connect().await.unwrap()];
    let slot = cluster.slot("{slot}").await;
    let load = Arc::new(Load::default());
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let locks = managers[caller / KEYS % 2].clone();
        callers.spawn(Arc::clone(&load).call(locks, caller));
    }
    let mut owner = cluster.owner("{slot}").await;
    for _ in 0..moves {
        let next = (owner + 1) % 3;
        cluster.begin_move(slot, owner, next).await;
        load.grants(CALLERS).await;
        cluster.finish_move(slot, owner, next).await;
        load.grants(CALLERS).await;
        owner = next;
    }
    load.is_over.store(true, Ordering::SeqCst);
    callers.join_all().await;
    let grants = load.grants.load(Ordering::SeqCst);
    let errors = load.errors.lock().unwrap().clone();
    println!("{moves} moves, {grants} grants, {} errors", errors.len());
    assert_eq!(load.overlaps.load(Ordering::SeqCst), 0);
    // For a moment the servers may redirect to each other, which is a failed vote that the caller would repeat.
    let is_redirect = |error: &String| ["MOVED", "ASK"].iter().any(|word| error.contains(word));
    assert!(errors.iter().all(is_redirect) && errors.len() < grants / 10, "{errors:?}");
    let is_lock = |key: &String| !key.contains("redlock:fencing");
    assert_eq!(cluster.keys().await.into_iter().find(is_lock), None);
}

/// Before the move ends, the servers answer `ASK`, and after it `MOVED`.
#[tokio::test]
async fn status_and_break_follow_a_slot_that_moves() {
    let key = "{slot}:a";
    let cluster = RedisCluster::start().await;
    let (locks, ops) = (connect(&cluster).await, connect(&cluster).await);
    let (slot, mut owner) = (cluster.slot(key).await, cluster.owner(key).await);
    for is_over in [true, false] {
        let guard = locks.lock(key).expire(SOON * 10).try_acquire().await.unwrap();
        let next = (owner + 1) % 3;
        cluster.begin_move(slot, owner, next).await;
        if is_over {
            cluster.finish_move(slot, owner, next).await;
        }
        let status = ops.status(key).await.unwrap();
        assert_eq!(status.state(), KeyState::Exclusive, "{status:?}");
        assert_eq!(status.holders()[0].label(), locks.owner_label(), "{status:?}");
        ops.break_lock(key, &status.holders()[0]).await.unwrap();
        // The key is on no server now, so that the source of the move redirects to its target.
        let status = ops.status(key).await.unwrap();
        assert_eq!(status.state(), KeyState::Free, "{status:?}");
        guard.extend(SOON).await.unwrap_err();
        if !is_over {
            cluster.finish_move(slot, owner, next).await;
        }
        owner = next;
    }
}
