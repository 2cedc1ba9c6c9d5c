//! Waiters that get a minority of the votes, in paused time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::tests::{SECOND, acquisitions, nodes, settle, wait};
#[cfg(feature = "test-util")]
use crate::{LockManager, test_util::TestLocks};

const MILLI: Duration = Duration::from_millis(1);

/// The votes are split between several waiters. All of them release their attempts at the same time, and
/// each waiter is notified of the releases of the others.
#[tokio::test(start_paused = true)]
async fn releases_during_a_split_vote_do_not_shorten_the_back_off() {
    let (locks, nodes) = nodes(3);
    for (node, other) in nodes.iter().zip(["one", "two"]) {
        node.occupy_by(other, 60 * SECOND);
    }
    let waiter = tokio::spawn(async move { wait(&locks, "a").await.map(drop) });
    for _ in 0..1000 {
        for node in &nodes {
            node.publish_release();
        }
        sleep(MILLI).await;
    }
    let attempts = acquisitions(&nodes[0]);
    assert!((8..=20).contains(&attempts), "{attempts} attempts in 1 s");
    waiter.abort();
}

/// The holder has just a quorum, so the waiter is granted the lock by the remaining node in each
/// attempt.
#[tokio::test(start_paused = true)]
async fn a_waiter_with_a_minority_of_votes_polls_rarely_and_notices_the_release() {
    let (locks, nodes) = nodes(3);
    for node in &nodes[..2] {
        node.occupy(60 * SECOND);
    }
    let waiter = tokio::spawn(async move { wait(&locks, "a").await.map(|_| Instant::now()) });
    sleep(10 * SECOND).await;
    let polls = acquisitions(&nodes[0]);
    assert!((15..=60).contains(&polls), "{polls} polls in 10 s");
    for node in &nodes[..2] {
        node.forget();
        node.publish_release();
    }
    let released = Instant::now();
    let acquired = waiter.await.unwrap().unwrap();
    assert!(acquired - released <= 401 * MILLI, "{:?}", acquired - released);
}

/// Otherwise a lock that was handed over would lie idle, and a shutdown would wait.
#[tokio::test(start_paused = true)]
async fn a_pause_after_split_votes_ends_with_a_hand_over_and_with_a_shutdown() {
    for shuts_down in [false, true] {
        let (locks, nodes) = nodes(3);
        for node in &nodes[..2] {
            node.occupy(3600 * SECOND);
        }
        let waiter = tokio::spawn({
            let locks = locks.clone();
            async move { (wait(&locks, "a").await, Instant::now()) }
        });
        sleep(10 * SECOND).await;
        let polls = acquisitions(&nodes[0]);
        while acquisitions(&nodes[0]) == polls {
            sleep(MILLI).await;
        }
        // The next pause has begun, and lasts for at least 200 ms.
        settle().await;
        if shuts_down {
            locks.shutdown().await;
        } else {
            nodes[..2].iter().for_each(|node| node.forget());
            let holder = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
            holder.release().await.unwrap();
        }
        let begun = Instant::now();
        let (result, ended) = waiter.await.unwrap();
        assert_eq!(ended, begun, "shuts down: {shuts_down}");
        assert_eq!(result.is_err(), shuts_down, "{result:?}");
    }
}

/// A writer that reaches two of three nodes never rests, so each attempt of the reader gets the vote of the third node.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_reader_with_a_minority_of_votes_gets_a_turn_after_four_releases() {
    const HOLD: Duration = Duration::from_millis(500);
    let nodes = TestLocks::new(3);
    let two = LockManager::builder().test_clock(nodes.clock());
    let two = two.node(nodes.nodes()[0].clone()).node(nodes.nodes()[1].clone());
    let two = two.connect().await.unwrap();
    let first = two.lock("a").try_acquire().await.unwrap();
    let begun = Instant::now();
    let reader = nodes.manager().lock("a").shared(true).wait_forever().acquire();
    let reader = tokio::spawn(reader);
    let writer = tokio::spawn(async move {
        let mut holder = first;
        loop {
            sleep(HOLD).await;
            holder.release().await.unwrap();
            holder = match two.lock("a").try_acquire().await {
                Ok(guard) => guard,
                Err(_) => two.lock("a").wait_forever().acquire().await.unwrap(),
            };
        }
    });
    let reader = tokio::time::timeout(10 * SECOND, reader).await;
    drop(reader.expect("a turn of the readers").unwrap().unwrap());
    assert!(begun.elapsed() < 5 * HOLD, "{:?}", begun.elapsed());
    writer.abort();
}
