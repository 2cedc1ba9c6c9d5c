//! Readers share a lock, and exclude writers.

use redlock_core::{HoldError, LockError, scope};
use redlock_tests::Nodes;
use tokio::time::timeout;

use super::{SOON, exclusive, is_contended, is_stopped, managers, shared, soon, waiting};

on_each_kind! {
    [
        readers_share_the_lock_and_exclude_writers,
        a_writer_excludes_readers_and_writers,
        a_writer_waits_for_the_last_reader,
        a_reader_waits_for_the_writer,
        a_downgrade_lets_readers_in_but_no_writer,
        a_scope_reads_twice_and_never_waits_for_itself,
        readers_are_not_numbered,
    ]
}

async fn readers_share_the_lock_and_exclude_writers(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let mut readers = Vec::new();
    for locks in [&one, &one, &two, &three, &two] {
        let reader = shared(locks).try_acquire().await.unwrap();
        assert!(reader.is_valid() && reader.is_shared());
        readers.push(reader);
    }
    for reader in readers {
        for locks in [&one, &two, &three] {
            assert!(is_contended(exclusive(locks)).await);
        }
        reader.release().await.unwrap();
    }
    nodes.become_empty().await;
    assert!(!is_contended(exclusive(&three)).await);
}

async fn a_writer_excludes_readers_and_writers(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let writer = exclusive(&one).try_acquire().await.unwrap();
    assert!(!writer.is_shared());
    for locks in [&one, &two] {
        assert!(is_contended(shared(locks)).await && is_contended(exclusive(locks)).await);
    }
    writer.release().await.unwrap();
    for locks in [&one, &two] {
        assert!(!is_contended(shared(locks)).await && !is_contended(exclusive(locks)).await);
    }
    nodes.become_empty().await;
}

async fn a_writer_waits_for_the_last_reader(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    // A caller waits for a reader of its own process in that process.
    for (writers, listening) in [(&one, 0), (&three, 1)] {
        let readers =
            [shared(&one).try_acquire().await.unwrap(), shared(&two).try_acquire().await.unwrap()];
        let writer = waiting(&nodes, exclusive(writers), listening).await;
        let [first, last] = readers;
        first.release().await.unwrap();
        assert!(!writer.is_finished());
        last.release().await.unwrap();
        soon(writer).await.release().await.unwrap();
        nodes.become_empty().await;
    }
}

async fn a_reader_waits_for_the_writer(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let writer = exclusive(&one).try_acquire().await.unwrap();
    let readers = [
        waiting(&nodes, shared(&two), 1).await,
        waiting(&nodes, shared(&two), 1).await,
        waiting(&nodes, shared(&one), 1).await,
    ];
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    // All of them hold the lock at the same time.
    let [first, second, third] = readers;
    let guards = [soon(first).await, soon(second).await, soon(third).await];
    assert!(guards.iter().all(|guard| guard.is_valid()));
    for guard in guards {
        guard.release().await.unwrap();
    }
    nodes.become_empty().await;
}

async fn a_downgrade_lets_readers_in_but_no_writer(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let writer = exclusive(&one).try_acquire().await.unwrap();
    let readers = [waiting(&nodes, shared(&two), 1).await, waiting(&nodes, shared(&one), 1).await];
    let handle = writer.handle();
    writer.downgrade().await.unwrap();
    assert!(writer.is_shared() && writer.is_valid() && handle.is_shared());
    for reader in readers {
        soon(reader).await.release().await.unwrap();
    }
    assert!(is_contended(exclusive(&three)).await);
    writer.release().await.unwrap();
    nodes.become_empty().await;
    assert!(!is_contended(exclusive(&three)).await);
}

async fn a_scope_reads_twice_and_never_waits_for_itself(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    scope(async {
        let first = shared(&one).try_acquire().await.unwrap();
        let writer = waiting(&nodes, exclusive(&two), 1).await;
        // The writer waits for the scope. The second reader of the scope must not wait for the writer.
        let second = timeout(SOON, shared(&one).wait_forever().acquire()).await.unwrap().unwrap();
        for reentrant in [false, true] {
            let own = exclusive(&one).reentrant(reentrant).wait_forever().acquire();
            let own = timeout(SOON, own).await.unwrap().unwrap_err();
            assert!(matches!(own, LockError::AlreadyHeld { .. }), "{own:?}");
        }
        first.release().await.unwrap();
        assert!(!writer.is_finished());
        second.release().await.unwrap();
        soon(writer).await.release().await.unwrap();

        let writer = exclusive(&one).try_acquire().await.unwrap();
        let refused = shared(&one).wait_forever().acquire();
        let refused = timeout(SOON, refused).await.unwrap().unwrap_err();
        assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
        let reads = shared(&one).reentrant(true).try_acquire().await.unwrap();
        let in_use = writer.downgrade().await.unwrap_err();
        assert!(matches!(in_use, HoldError::InvalidOption(_)), "{in_use:?}");
        reads.release().await.unwrap();
        writer.release().await.unwrap();
    })
    .await;
    nodes.become_empty().await;
}

async fn readers_are_not_numbered(nodes: Nodes) {
    let [one, ..] = managers(&nodes).await;
    let error = shared(&one).fenced(true).try_acquire().await.unwrap_err();
    assert!(
        matches!(&error, LockError::InvalidOption(error) if error.option() == "fenced"),
        "{error:?}"
    );
    // A numbered writer waits for readers, and leaves its mark.
    let reader = shared(&one).try_acquire().await.unwrap();
    let locks = nodes.manager().await;
    let writer = tokio::spawn(exclusive(&locks).fenced(true).wait_forever().acquire());
    is_stopped(|| shared(&one)).await;
    reader.release().await.unwrap();
    let writer = timeout(SOON, writer).await.unwrap().unwrap().unwrap();
    assert!(writer.fencing_token().unwrap().number() > 0);
    writer.release().await.unwrap();
    nodes.become_empty().await;
}
