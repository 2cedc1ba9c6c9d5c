//! A flood of keys and callers leaves nothing in the memory of the process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::{LockError, LockManager, MemoryNode, scope};

const LONG: Duration = Duration::from_secs(300);

impl LockManager {
    fn has_no_entries(&self) -> bool {
        self.context.queues.is_empty() && self.context.keeper.is_empty()
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_keys_and_callers_leaves_no_entry() {
    let node = MemoryNode::new();
    let connect = async || {
        let builder = LockManager::builder().memory_node(&node).max_waiters(3);
        builder.connect().await.unwrap()
    };
    let (locks, other) = (connect().await, connect().await);
    let is_clean = || {
        node.is_empty()
            && node.subscriptions() == 0
            && locks.has_no_entries()
            && other.has_no_entries()
    };
    let request = |number: usize| locks.lock(format!("key:{number}")).expire(LONG).renew(true);

    let guards = join_all((0..500).map(|number| request(number).acquire())).await;
    assert_eq!(node.len(), 500);
    let waiting = |number: usize| request(number % 500).wait_time(Duration::from_secs(1)).acquire();
    let refused = join_all((0..2500).map(waiting)).await;
    let too_many =
        |result: &&Result<_, LockError>| matches!(result, Err(LockError::TooManyWaiters { .. }));
    assert_eq!(refused.iter().filter(too_many).count(), 1000);
    assert!(refused.iter().all(Result::is_err));
    drop(guards);
    assert!(is_clean());

    // The same keys, held by another process, and waiters in scopes.
    let guards = join_all((0..500).map(|number| other.lock(format!("key:{number}")).try_acquire()));
    let guards = guards.await;
    let waiters: Vec<_> = (0..500)
        .map(|number| {
            let acquire = request(number).wait_time(LONG).acquire();
            tokio::spawn(scope(async { acquire.await.map(|guard| guard.is_valid()) }))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.subscriptions(), 500);
    for (number, waiter) in waiters.iter().enumerate() {
        if number % 2 == 0 {
            waiter.abort();
        }
    }
    drop(guards);
    for (number, waiter) in waiters.into_iter().enumerate() {
        assert_eq!(waiter.await.is_ok_and(|held| held.unwrap()), number % 2 == 1);
    }
    assert!(is_clean());
    assert_eq!(Arc::strong_count(&locks.context), 1, "a request or guard is left");
}
