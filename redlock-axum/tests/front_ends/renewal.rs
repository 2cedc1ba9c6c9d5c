//! A lock that is renewed while its handler runs.
//!
//! The tests see from the time to live alone whether a lock is still renewed. A lost lock is no
//! proof that its renewal has ended: on a busy machine a renewal may be delayed for longer than the
//! lease.

use std::time::{Duration, Instant};

use axum::Extension;
use redlock_axum::{HeldLock, MemoryNode};

use super::{FrontEnd, KEY};
use crate::support::eventually;

on_each_front_end![a_renewed_lock_outlives_its_first_lease, a_renewal_ends_with_max_hold,];

const LEASE: Duration = Duration::from_millis(400);

async fn a_renewed_lock_outlives_its_first_lease(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = "400ms", renew], [.expire(LEASE).renew(true)],
        async fn handler(lock: HeldLock, Extension(node): Extension<MemoryNode>) -> String {
            tokio::time::sleep(2 * LEASE).await;
            (lock.is_valid() && node.len() == 1).to_string()
        }
    );
    assert_eq!(app.post().await.body, "true");
    assert!(app.node.is_empty());
}

/// A handler that hangs does not hold its lock forever.
async fn a_renewal_ends_with_max_hold(front_end: FrontEnd) {
    let app = app!(
        front_end,
        [expire = "400ms", renew = true, max_hold = "400ms"],
        [.max_hold(LEASE).expire(LEASE).renew(true)],
        async fn handler(lock: HeldLock, Extension(node): Extension<MemoryNode>) -> String {
            let ended = has_ended(&node, KEY, LEASE).await;
            if ended != Some(false) {
                lock.lost().await;
            }
            format!("{ended:?}")
        }
    );
    let ended = ask(async || app.post().await.body).await;
    assert_eq!(ended, "Some(true)");
    eventually("the lease runs out", || app.node.is_empty()).await;
}

/// Watches whether a lock is still renewed. Returns `Some(true)` as soon as a renewal is overdue,
/// `Some(false)` if the lock is renewed for ten leases, and `None` if the lock is gone or this
/// process was delayed for too long to judge.
///
/// A renewal is due when a third of the lease is over. Less than half of the lease is left only if
/// no renewal has come, or for a moment while this process catches up with its timers.
async fn has_ended(node: &MemoryNode, key: &str, lease: Duration) -> Option<bool> {
    let begun = Instant::now();
    let (mut last, mut overdue) = (begun, 0);
    while begun.elapsed() < lease * 10 {
        tokio::time::sleep(lease / 50).await;
        let left = node.time_to_live(key)?;
        let now = Instant::now();
        if now.duration_since(last) > lease / 4 {
            return None;
        }
        last = now;
        overdue = if left < lease / 2 { overdue + 1 } else { 0 };
        if overdue == 3 {
            return Some(true);
        }
    }
    Some(false)
}

/// Repeats the request while [`has_ended`] cannot judge.
async fn ask(mut answer: impl AsyncFnMut() -> String) -> String {
    for _ in 0..20 {
        let answer = answer().await;
        if answer != "None" {
            return answer;
        }
    }
    panic!("this machine is too busy for the test");
}
