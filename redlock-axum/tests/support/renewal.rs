//! Whether a held lock is still renewed, told from its time to live alone.
//!
//! A lock that is lost is no proof that its renewal has ended: a machine that is busy may hold up a
//! renewal for longer than the lease.

use std::time::{Duration, Instant};

use redlock_axum::MemoryNode;

/// Watches a renewed lock until its renewal is overdue: `Some(true)`. `Some(false)` where that is not
/// so for ten leases, and `None` where this process was held up and cannot tell.
///
/// A renewal is due when a third of the lease is over, so at most half of the lease is left only where
/// none has come, or for the moment in which this process catches up with its timers.
pub(crate) async fn has_ended(node: &MemoryNode, key: &str, lease: Duration) -> Option<bool> {
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

/// Asks again where the answer is that [`has_ended`] cannot tell.
pub(crate) async fn ask(mut answer: impl AsyncFnMut() -> String) -> String {
    for _ in 0..20 {
        let answer = answer().await;
        if answer != "None" {
            return answer;
        }
    }
    panic!("this machine is too busy for the test");
}
