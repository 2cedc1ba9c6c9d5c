//! Callers that get a part of the votes, in paused time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::tests::{SECOND, acquisitions, nodes, wait};

const MILLI: Duration = Duration::from_millis(1);

/// Those who split the votes give their parts back at the same time, and each hears of that.
#[tokio::test(start_paused = true)]
async fn what_the_others_give_back_does_not_hurry_who_got_a_part_too() {
    let (locks, nodes) = nodes(3);
    for node in &nodes[..2] {
        node.occupy(60 * SECOND);
    }
    let waiter = tokio::spawn(async move { wait(&locks, "a").await.map(drop) });
    for _ in 0..1000 {
        for node in &nodes {
            node.announce();
        }
        sleep(MILLI).await;
    }
    let attempts = acquisitions(&nodes[0]);
    assert!((8..=20).contains(&attempts), "{attempts} attempts in 1 s");
    waiter.abort();
}

/// A holder with no more than a quorum leaves a node on which the waiter is the first each time.
#[tokio::test(start_paused = true)]
async fn who_gets_a_part_of_the_votes_asks_seldom_and_hears_of_the_release() {
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
        node.announce();
    }
    let released = Instant::now();
    let acquired = waiter.await.unwrap().unwrap();
    assert!(acquired - released <= 401 * MILLI, "{:?}", acquired - released);
}
