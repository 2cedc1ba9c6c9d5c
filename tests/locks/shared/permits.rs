//! Permits limit the number of holders.

use redlock_core::LockError;
use redlock_tests::{Nodes, on_each_kind_of_nodes};
use tokio::time::timeout;

use super::{
    KEY, MARGIN, SOON, exclusive, is_contended, is_stopped, managers, permit, shared, short, soon,
    waiting,
};

on_each_kind_of_nodes! {
    [
        memory: Nodes::memory(1),
        redis: Nodes::redis(1).await,
    ]
    if_all_kinds [
        every_sentinel_with_permits: Nodes::sentinel(1).await,
        every_cluster_with_permits: Nodes::cluster().await,
    ]
    [
        permits_limit_the_number_of_holders,
        callers_with_different_permits_each_keep_to_their_own,
        a_waiter_for_a_permit_counts_the_holders_with_more_permits,
        readers_and_holders_of_permits_exclude_each_other,
        the_permit_of_a_dead_holder_returns,
        waiters_for_permits_are_woken_in_order,
        a_writer_waits_for_all_permits,
    ]
}

on_each_kind_of_nodes! {
    [
        several_memory: Nodes::memory(3),
        several_redis: Nodes::redis(3).await,
    ]
    [
        permits_are_refused,
    ]
}

async fn permits_limit_the_number_of_holders(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    for (first, last) in [(&one, &one), (&one, &two), (&two, &one)] {
        let holders = [
            permit(first, 3).try_acquire().await.unwrap(),
            permit(first, 3).try_acquire().await.unwrap(),
            permit(last, 3).try_acquire().await.unwrap(),
        ];
        for locks in [&one, &two] {
            assert!(is_contended(permit(locks, 3)).await);
        }
        let [holder, others @ ..] = holders;
        holder.release().await.unwrap();
        assert!(!is_contended(permit(&two, 3)).await);
        drop(others);
        nodes.become_empty().await;
    }
}

async fn callers_with_different_permits_each_keep_to_their_own(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let _holders = [
        permit(&one, 2).try_acquire().await.unwrap(),
        permit(&one, 2).try_acquire().await.unwrap(),
    ];
    for locks in [&one, &two] {
        assert!(is_contended(permit(locks, 1)).await && is_contended(permit(locks, 2)).await);
        assert!(!is_contended(permit(locks, 3)).await);
    }
}

/// The process of the waiter may not hand it the permit of another holder.
async fn a_waiter_for_a_permit_counts_the_holders_with_more_permits(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let first = permit(&one, 2).try_acquire().await.unwrap();
    let mut others = Vec::new();
    for locks in [&one, &two] {
        others.push(permit(locks, 5).try_acquire().await.unwrap());
    }
    let waiter = waiting(&nodes, permit(&one, 2), 0).await;
    first.release().await.unwrap();
    nodes.all_hold(KEY).await;
    tokio::time::sleep(MARGIN).await;
    assert!(!waiter.is_finished(), "the waiter is a third holder of two permits");
    others.pop().unwrap().release().await.unwrap();
    soon(waiter).await.release().await.unwrap();
    others.pop().unwrap().release().await.unwrap();
    nodes.become_empty().await;
}

async fn readers_and_holders_of_permits_exclude_each_other(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let holder = permit(&one, 2).try_acquire().await.unwrap();
    for locks in [&one, &two] {
        assert!(is_contended(shared(locks)).await && !is_contended(permit(locks, 2)).await);
    }
    let reader = waiting(&nodes, shared(&two), 1).await;
    holder.release().await.unwrap();
    let reader = soon(reader).await;
    for locks in [&one, &two] {
        assert!(is_contended(permit(locks, 2)).await && !is_contended(shared(locks)).await);
    }
    let next = waiting(&nodes, permit(&one, 2), 1).await;
    reader.release().await.unwrap();
    soon(next).await.release().await.unwrap();
    nodes.become_empty().await;
}

async fn the_permit_of_a_dead_holder_returns(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    std::mem::forget(short(permit(&one, 2)).await);
    // It does not write in the meantime.
    let living = permit(&one, 2).try_acquire().await.unwrap();
    let next = permit(&two, 2).wait_forever().acquire();
    let next = timeout(SOON, next).await.unwrap().unwrap();
    assert!(living.is_valid());
    living.release().await.unwrap();
    next.release().await.unwrap();
    nodes.become_empty().await;
}

async fn waiters_for_permits_are_woken_in_order(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let holders = [
        permit(&one, 2).try_acquire().await.unwrap(),
        permit(&two, 2).try_acquire().await.unwrap(),
    ];
    let first = waiting(&nodes, permit(&two, 2), 1).await;
    let second = waiting(&nodes, permit(&two, 2), 1).await;
    let third = waiting(&nodes, permit(&two, 2), 1).await;
    let [a, b] = holders;
    a.release().await.unwrap();
    let first = soon(first).await;
    assert!(!second.is_finished() && !third.is_finished());
    b.release().await.unwrap();
    let second = soon(second).await;
    assert!(!third.is_finished());
    first.release().await.unwrap();
    soon(third).await.release().await.unwrap();
    second.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_writer_waits_for_all_permits(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let holders = [
        permit(&one, 5).try_acquire().await.unwrap(),
        permit(&two, 5).try_acquire().await.unwrap(),
    ];
    let writer = waiting(&nodes, exclusive(&three), 1).await;
    is_stopped(|| permit(&two, 5)).await;
    for holder in holders {
        assert!(!writer.is_finished());
        holder.release().await.unwrap();
    }
    let writer = soon(writer).await;
    assert!(is_contended(permit(&two, 5)).await);
    writer.release().await.unwrap();
    nodes.become_empty().await;
}

/// Of three holders of two permits, each could have the votes of other nodes.
async fn permits_are_refused(nodes: Nodes) {
    let locks = nodes.manager().await;
    let error = permit(&locks, 2).try_acquire().await.unwrap_err();
    assert!(
        matches!(&error, LockError::InvalidOption(error) if error.option() == "permits"),
        "{error:?}"
    );
    assert!(error.to_string().contains("3 nodes"), "{error}");
}
