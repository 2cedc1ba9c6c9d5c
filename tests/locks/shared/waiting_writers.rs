//! A waiting writer leaves a mark, which keeps out new readers. Readers that writers have overtaken get a turn.

use std::time::Instant;

use redlock_core::{HoldError, LockError, LockManager, LockRequest};
use redlock_tests::{Nodes, eventually};
use tokio::time::timeout;

use super::{
    KEY, LONG, MARGIN, MARK, SOON, exclusive, is_contended, is_stopped, managers, shared, soon,
    waiting,
};

on_each_kind! {
    [
        a_waiting_writer_stops_new_readers,
        a_writer_that_gives_up_lets_readers_in,
        a_dead_writers_mark_ends,
        readers_that_are_overtaken_get_a_turn,
        a_set_waits_for_the_readers_of_its_keys,
    ]
}

/// Checks that a writer withdraws its mark when it gives up: a reader gets in before the mark can have ended by itself.
/// On a busy machine it takes several rounds to see that.
async fn a_reader_gets_in_after(reader: LockRequest, mut gives_up: impl AsyncFnMut()) {
    eventually("a reader gets in before the mark ends", SOON, async || {
        let begun = Instant::now();
        gives_up().await;
        let entering = timeout(SOON, reader.clone().wait_forever().acquire());
        entering.await.unwrap().unwrap().release().await.unwrap();
        (begun.elapsed() < MARK).then_some(())
    })
    .await;
}

/// Otherwise readers that never rest would keep the writer out for ever.
async fn a_waiting_writer_stops_new_readers(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    let writer = waiting(&nodes, exclusive(&two), 1).await;
    for locks in [&one, &two, &three] {
        is_stopped(|| shared(locks)).await;
    }
    reader.release().await.unwrap();
    let writer = soon(writer).await;
    let next = waiting(&nodes, shared(&three), 1).await;
    assert!(!next.is_finished());
    writer.release().await.unwrap();
    soon(next).await.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_writer_that_gives_up_lets_readers_in(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    a_reader_gets_in_after(shared(&three), async || {
        let writer = tokio::spawn(exclusive(&two).wait_forever().acquire());
        is_stopped(|| shared(&three)).await;
        writer.abort();
    })
    .await;
    a_reader_gets_in_after(shared(&three), async || {
        let refused = exclusive(&two).wait_time(MARK / 10).acquire().await.unwrap_err();
        assert!(refused.is_contended(), "{refused:?}");
    })
    .await;
    reader.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_dead_writers_mark_ends(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    // The process of the writer ends without a word.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let dying = nodes.builder();
    let dying = runtime.spawn(async move {
        let locks = dying.connect().await.unwrap();
        std::mem::forget(locks.clone());
        std::mem::forget(tokio::spawn(exclusive(&locks).wait_forever().acquire()));
    });
    dying.await.unwrap();
    is_stopped(|| shared(&three)).await;
    runtime.shutdown_background();
    let next = timeout(SOON, shared(&three).wait_forever().acquire()).await;
    next.unwrap().unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    assert!(!is_contended(exclusive(&two)).await);
    nodes.become_empty().await;
}

/// Without the turn, the writer that releases the lock gets it again before a reader of another process has received
/// the message about the release.
async fn readers_that_are_overtaken_get_a_turn(nodes: Nodes) {
    let [writers, others, readers] = managers(&nodes).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let tasks = [writers, others].map(|locks| {
        let stop = stop.clone();
        tokio::spawn(async move {
            let mut turns = 0;
            while !stop.is_cancelled() {
                let guard = exclusive(&locks).wait_forever().acquire().await.unwrap();
                turns += 1;
                guard.release().await.unwrap();
            }
            turns
        })
    });
    for _ in 0..5 {
        let reader = shared(&readers).wait_forever().acquire();
        timeout(SOON, reader).await.unwrap().unwrap().release().await.unwrap();
    }
    stop.cancel();
    let mut turns = 0;
    for task in tasks {
        turns += timeout(SOON, task).await.unwrap().unwrap();
    }
    println!("{turns} turns of writers");
    nodes.become_empty().await;
}

/// The set leaves its mark only at the keys that are shared, and only if no key is held exclusively.
async fn a_set_waits_for_the_readers_of_its_keys(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let set = |locks: &LockManager| locks.lock_all(["a{1}", KEY, "z{1}"]).expire(LONG);
    let readers =
        [shared(&one).try_acquire().await.unwrap(), shared(&two).try_acquire().await.unwrap()];
    let refused = set(&three).try_acquire().await.unwrap_err();
    assert!(refused.is_contended() && refused.key().unwrap().as_str() == KEY, "{refused:?}");
    let other = two.lock("z{1}").expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(set(&three).wait_forever().acquire());
    tokio::time::sleep(MARGIN * 2).await;
    assert!(!is_contended(shared(&one)).await, "a set that waits for another key stops readers");
    other.release().await.unwrap();
    is_stopped(|| shared(&one)).await;
    for reader in readers {
        assert!(!waiting.is_finished());
        reader.release().await.unwrap();
    }
    let guard = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    for locks in [&one, &three] {
        assert!(is_contended(shared(locks)).await);
    }
    let several = guard.downgrade().await.unwrap_err();
    assert!(matches!(several, HoldError::InvalidOption(_)), "{several:?}");
    guard.release().await.unwrap();
    nodes.become_empty().await;

    // A caller that gives up leaves no mark.
    let reader = shared(&one).try_acquire().await.unwrap();
    a_reader_gets_in_after(shared(&two), async || {
        let gives_up = set(&three).fenced(true).wait_time(MARK / 10).acquire().await;
        assert!(gives_up.unwrap_err().is_contended());
    })
    .await;
    drop(reader);
    nodes.become_empty().await;

    for (option, request) in [
        ("shared", set(&one).shared(true)),
        ("permits", set(&one).permits(2)),
        ("fair", set(&one).fair(true)),
    ] {
        let error = request.try_acquire().await.unwrap_err();
        assert!(
            matches!(&error, LockError::InvalidOption(error) if error.option() == option),
            "{error:?}"
        );
    }
}
