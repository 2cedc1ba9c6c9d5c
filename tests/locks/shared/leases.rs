//! Each reader has a lease of its own.

use std::time::Instant;

use redlock_core::{HoldError, ReleaseError};
use redlock_tests::{Nodes, eventually};
use tokio::time::timeout;

use super::{
    KEY, LONG, MARGIN, RENEWED, SHORT, SOON, exclusive, is_contended, managers, shared, short,
    soon, waiting,
};

on_each_kind! {
    [
        each_reader_has_its_own_end,
        readers_that_crash_do_not_outlive_their_leases,
        a_reader_extends_its_lease_and_reports_its_loss,
        an_extension_never_shortens_the_lease_of_a_reader,
        a_late_release_of_a_reader_keeps_the_others,
        a_held_reader_stays_for_its_minimum_time,
    ]
}

/// The extensions of one reader do not prolong the lease of another one.
async fn each_reader_has_its_own_end(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let long = shared(&two).expire(LONG / 2).try_acquire().await.unwrap();
    let short = short(shared(&one)).await;
    let last_end = Instant::now() + SHORT + MARGIN;
    long.extend(LONG).await.unwrap();
    let lost = timeout(SOON, short.lost()).await;
    assert!(lost.is_ok() && !short.is_valid() && long.is_valid());
    tokio::time::sleep_until(last_end.into()).await;
    assert!(matches!(short.release().await, Err(ReleaseError::Lost(_))));
    // The lock of the second reader is the last obstacle.
    long.release().await.unwrap();
    exclusive(&three).try_acquire().await.unwrap().release().await.unwrap();
    nodes.become_empty().await;
}

/// Redisson and `DistributedLock` keep the entry of a crashed reader as long as other readers extend the key.
async fn readers_that_crash_do_not_outlive_their_leases(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let living = shared(&two).expire(RENEWED).renew(true).try_acquire().await.unwrap();
    std::mem::forget(short(shared(&one)).await);
    let writer = waiting(&nodes, exclusive(&three), 1).await;
    tokio::time::sleep(RENEWED * 3 / 2).await;
    assert!(!writer.is_finished() && living.is_valid());
    living.release().await.unwrap();
    soon(writer).await.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_reader_extends_its_lease_and_reports_its_loss(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let reader = eventually("an extension in time", SOON, async || {
        let reader = short(shared(&one)).await;
        reader.extend(LONG).await.ok().map(|()| reader)
    })
    .await;
    tokio::time::sleep(SHORT).await;
    assert!(reader.is_valid() && reader.remaining() > LONG / 2);
    assert!(is_contended(exclusive(&two)).await);
    reader.release().await.unwrap();

    // On a busy machine a renewal may come too late.
    let renewed = eventually("renewals in time", SOON, async || {
        let renewed = shared(&one).expire(RENEWED).renew(true).try_acquire().await.ok()?;
        tokio::time::sleep(RENEWED * 3 / 2).await;
        let is_refused = is_contended(exclusive(&two)).await;
        renewed.is_valid().then_some((renewed, is_refused))
    })
    .await;
    assert!(renewed.1);
    renewed.0.release().await.unwrap();

    let lost = short(shared(&one)).await;
    timeout(SOON, lost.lost()).await.unwrap();
    assert!(matches!(lost.extend(LONG).await, Err(HoldError::Lost(_))));
    nodes.become_empty().await;
}

async fn an_extension_never_shortens_the_lease_of_a_reader(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    nodes.all_hold(KEY).await;
    let other = shared(&two).expire(SHORT).try_acquire().await.unwrap();
    reader.extend(SHORT).await.unwrap();
    drop(other);
    for left in nodes.remaining(KEY).await {
        assert!(left > Some(LONG / 2), "{left:?}");
    }
    assert!(reader.is_valid());
    reader.release().await.unwrap();
    nodes.become_empty().await;
}

/// Only the owner releases.
async fn a_late_release_of_a_reader_keeps_the_others(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let (late, dropped) = (short(shared(&one)).await, short(shared(&three)).await);
    let last_end = Instant::now() + SHORT + MARGIN;
    timeout(SOON, async { tokio::join!(late.lost(), dropped.lost()) }).await.unwrap();
    tokio::time::sleep_until(last_end.into()).await;
    let reader = shared(&two).try_acquire().await.unwrap();
    assert!(matches!(late.release().await, Err(ReleaseError::Lost(_))));
    drop(dropped);
    three.shutdown().await;
    assert!(is_contended(exclusive(&one)).await, "the late release has removed another reader");
    reader.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_held_reader_stays_for_its_minimum_time(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let begun = Instant::now();
    let reader = shared(&one).min_hold(SHORT).try_acquire().await.unwrap();
    reader.release().await.unwrap();
    assert!(!is_contended(shared(&two)).await);
    let writer = exclusive(&two).wait_forever().acquire().await.unwrap();
    assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
    writer.release().await.unwrap();
    nodes.become_empty().await;
}
