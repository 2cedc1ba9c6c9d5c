//! The order of turns, within one process and between processes, in paused time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::tests::{SECOND, one_node, two_processes, wait};
use crate::LockManager;

const MILLI: Duration = Duration::from_millis(1);

/// The process is subscribed to releases because another process held the lock before. It must not
/// take its own subscription for a waiter of another process.
#[tokio::test(start_paused = true)]
async fn a_process_does_not_yield_to_itself() {
    let (here, there, nodes) = two_processes(1);
    let other = there.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
    let turn = async || wait(&here, "a").await.unwrap().release().await.unwrap();
    let turns = futures_util::future::join_all((0..64).map(|_| turn()));
    let release = async {
        sleep(SECOND).await;
        assert_eq!(nodes[0].subscriptions(), 1);
        other.release().await.unwrap();
        Instant::now()
    };
    let (released, _) = tokio::join!(release, turns);
    // Each yield to another process would take two milliseconds.
    assert_eq!(released.elapsed(), Duration::ZERO);
}

/// Both processes always have waiters. Each process notices the other one when it releases the lock
/// for the first time.
#[tokio::test(start_paused = true)]
async fn a_process_has_at_most_four_turns_in_a_row_while_another_process_waits() {
    let (here, there, _) = two_processes(1);
    let turns = Arc::new(Mutex::new(Vec::new()));
    let callers = |locks: &LockManager, name: char| {
        let callers: Vec<_> = (0..40)
            .map(|_| {
                let (locks, turns) = (locks.clone(), Arc::clone(&turns));
                tokio::spawn(async move {
                    for _ in 0..5 {
                        let guard = wait(&locks, "a").await.unwrap();
                        turns.lock().push(name);
                        sleep(MILLI).await;
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        futures_util::future::join_all(callers)
    };
    tokio::join!(callers(&here, 'h'), callers(&there, 't'));
    let turns = turns.lock().clone();
    assert_eq!(turns.len(), 400);
    let runs = turns.chunk_by(|one, next| one == next).map(<[_]>::len);
    // The first run of each process may be longer: the process does not know of the other one yet.
    let runs: Vec<usize> = runs.skip(2).collect();
    assert!(runs.iter().all(|run| *run <= 4), "{runs:?}");
    assert!(runs.len() >= 40, "{runs:?}");
}

/// One subscription serves all waiters, one after another.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_leaves_its_subscription_to_the_next_waiter() {
    let (locks, node) = one_node();
    node.occupy(60 * SECOND);
    let waiters: Vec<_> = (1..=5)
        .map(|seconds| locks.lock("a").wait_time(seconds * SECOND).acquire())
        .map(tokio::spawn)
        .collect();
    for waiter in waiters {
        assert!(waiter.await.unwrap().unwrap_err().is_contended());
    }
    assert_eq!(node.subscriptions(), 1);
}
