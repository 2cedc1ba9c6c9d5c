//! Locks of several keys: all or none, on each kind of node that can hold them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use redlock_core::{LockError, LockGuard, LockKey, LockManager, LockState, ReleaseError, scope};
use redlock_tests::{Nodes, eventually, held_briefly, on_each_kind_of_nodes};

const LONG: Duration = Duration::from_secs(300);
const SHORT: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(60);

on_each_kind_of_nodes! {
    [
        memory_x1: Nodes::memory(1),
        memory_x5: Nodes::memory(5),
        redis_x1: Nodes::redis(1).await,
    ]
    if_all_kinds [
        every_redis_x5: Nodes::redis(5).await,
        every_sentinel: Nodes::sentinel(1).await,
    ]
    [
        a_set_excludes_each_of_its_keys_and_every_overlapping_set,
        a_refused_set_leaves_nothing_on_any_node,
        a_refusal_names_the_first_held_key_and_its_rest,
        a_refusal_names_a_holder_that_has_all_keys_that_are_held,
        all_keys_have_the_requested_lease,
        a_released_or_dropped_set_is_gone_from_every_node,
        an_extended_set_lasts_longer_on_each_key,
        a_set_is_renewed_on_each_key,
        a_set_without_renewal_is_lost_when_its_lease_runs_out,
        the_loss_of_one_key_is_the_loss_of_the_set,
        a_waiting_set_holds_no_key,
        a_waiter_for_a_set_gets_it_when_the_last_of_its_keys_is_released,
        a_waiter_for_a_set_gets_it_when_the_leases_of_crashed_holders_end,
        a_waiter_for_one_key_gets_it_from_a_set,
        waiting_for_a_set_ends_at_its_wait_time,
        a_fenced_set_has_one_number_above_those_of_each_key,
        a_kept_set_stays_until_its_lease_runs_out,
        a_set_with_a_min_hold_stays_for_that_time,
        a_set_is_lost_and_released_by_a_shutdown,
        overlapping_sets_of_many_callers_never_overlap,
    ]
}

/// One holder of a key could have a quorum behind another holder of another key, which the nodes name first.
async fn a_refusal_names_a_holder_that_has_all_keys_that_are_held(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let named = async |keys: [&str; 3]| {
        let error = other.lock_all(keys).expire(LONG).try_acquire().await.unwrap_err();
        assert!(error.is_contended(), "{error:?}");
        let votes = error.votes().unwrap().iter().filter_map(|(_, vote)| vote);
        votes.map(|vote| vote.holder().is_some()).collect::<HashSet<_>>()
    };
    let _set = one.lock_all(["a", "b"]).expire(LONG).try_acquire().await.unwrap();
    let _third = one.lock("c").expire(LONG).try_acquire().await.unwrap();
    for key in ["a", "b", "c"] {
        nodes.all_hold(key).await;
    }
    for (keys, is_named) in
        [(["a", "b", "free"], true), (["a", "c", "free"], false), (["b", "free", "a"], true)]
    {
        assert_eq!(named(keys).await, HashSet::from([is_named]), "{keys:?}");
    }
}

fn texts(keys: &[LockKey]) -> Vec<&str> {
    keys.iter().map(LockKey::as_str).collect()
}

fn contended_at(error: &LockError) -> &str {
    assert!(error.is_contended(), "{error:?}");
    error.key().unwrap().as_str()
}

async fn two(nodes: &Nodes) -> (LockManager, LockManager) {
    (nodes.manager().await, nodes.manager().await)
}

async fn a_set_excludes_each_of_its_keys_and_every_overlapping_set(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let guard = one.lock_all(["c", "a", "b", "a"]).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(texts(guard.keys()), ["a", "b", "c"]);
    assert!(guard.is_valid());
    for locks in [&one, &other] {
        for key in ["a", "b", "c"] {
            let error = locks.lock(key).try_acquire().await.unwrap_err();
            assert_eq!(contended_at(&error), key);
            let error = locks.lock_all([key, "x"]).try_acquire().await.unwrap_err();
            assert_eq!(contended_at(&error), key);
        }
        locks.lock_all(["d", "e"]).try_acquire().await.unwrap().release().await.unwrap();
    }
    guard.release().await.unwrap();
    other.lock_all(["a", "b", "c"]).try_acquire().await.unwrap().release().await.unwrap();
}

async fn a_refused_set_leaves_nothing_on_any_node(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let held = one.lock("c").expire(LONG).try_acquire().await.unwrap();
    nodes.all_hold("c").await;
    for _ in 0..3 {
        other.lock_all(["a", "b", "c"]).expire(LONG).try_acquire().await.unwrap_err();
    }
    assert_eq!(nodes.locks().await, nodes.len());
    held.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_refusal_names_the_first_held_key_and_its_rest(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let _held = [
        one.lock("c").expire(LONG).try_acquire().await.unwrap(),
        one.lock("b").expire(LONG / 2).try_acquire().await.unwrap(),
    ];
    for locks in [&one, &other] {
        let error = locks.lock_all(["a", "b", "c"]).try_acquire().await.unwrap_err();
        assert_eq!(contended_at(&error), "b");
        let LockError::Contended { remaining: Some(remaining), .. } = error else {
            panic!("{error:?}");
        };
        assert!(remaining > LONG / 4 && remaining <= LONG / 2, "{remaining:?}");
    }
}

async fn all_keys_have_the_requested_lease(nodes: Nodes) {
    let locks = nodes.manager().await;
    let _guard = locks.lock_all(["a", "b"]).expire(LONG).try_acquire().await.unwrap();
    for key in ["a", "b"] {
        nodes.all_hold(key).await;
        for left in nodes.remaining(key).await {
            assert!(left.unwrap() > LONG * 9 / 10 && left.unwrap() <= LONG, "{left:?}");
        }
    }
}

async fn a_released_or_dropped_set_is_gone_from_every_node(nodes: Nodes) {
    let locks = nodes.manager().await;
    let set = || locks.lock_all(["a", "b", "c"]).expire(LONG);
    set().try_acquire().await.unwrap().release().await.unwrap();
    nodes.become_empty().await;
    drop(set().try_acquire().await.unwrap());
    nodes.become_empty().await;
}

async fn an_extended_set_lasts_longer_on_each_key(nodes: Nodes) {
    let locks = nodes.manager().await;
    let guard = locks.lock_all(["a", "b"]).expire(LONG / 10).try_acquire().await.unwrap();
    nodes.all_hold("b").await;
    guard.extend(LONG).await.unwrap();
    // An extension is never shortened by a later one.
    guard.extend(SHORT).await.unwrap();
    assert!(guard.remaining() > LONG / 2);
    for key in ["a", "b"] {
        eventually("the lease is extended on each node", SOON, async || {
            let times = nodes.remaining(key).await;
            times.iter().all(|left| left.unwrap() > LONG / 2).then_some(())
        })
        .await;
    }
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_set_is_renewed_on_each_key(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let lease = Duration::from_millis(1500);
    let guard = one.lock_all(["a", "b"]).expire(lease).renew(true).try_acquire().await.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < lease * 2 {
        for key in ["a", "b"] {
            let error = other.lock(key).try_acquire().await.unwrap_err();
            assert_eq!(contended_at(&error), key);
        }
        tokio::time::sleep(lease / 20).await;
    }
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.unwrap();
}

async fn a_set_without_renewal_is_lost_when_its_lease_runs_out(nodes: Nodes) {
    let locks = nodes.manager().await;
    let set = || locks.lock_all(["a", "b"]).expire(SHORT).try_acquire();
    let guard = held_briefly(set).await;
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    // The validity ends before the lease on the nodes does.
    nodes.become_empty().await;
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error:?}");
}

/// Another client has removed one of the keys, and a third one has it.
async fn the_loss_of_one_key_is_the_loss_of_the_set(nodes: Nodes) {
    let (locks, other) = (nodes.manager().await, nodes.manager().await);
    let set = || locks.lock_all(["a", "b", "c"]).expire(LONG);
    for then_taken in [false, true] {
        let (extended, released) = (set().try_acquire().await.unwrap(), ["d", "e"]);
        let released = locks.lock_all(released).expire(LONG).try_acquire().await.unwrap();
        for key in ["b", "d"] {
            nodes.all_hold(key).await;
            assert!(nodes.delete(key).await);
            if then_taken {
                other.lock(key).expire(LONG).try_acquire().await.unwrap().keep_until_expiry();
                nodes.all_hold(key).await;
            }
        }
        let error = extended.extend(LONG).await.unwrap_err();
        assert!(matches!(error, redlock_core::HoldError::Lost(_)), "{error:?}");
        tokio::time::timeout(SOON, extended.lost()).await.unwrap();
        let error = released.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error:?}");
        drop(extended);
        // Their other keys are free again, and the keys of another holder stay.
        let left = if then_taken { nodes.len() * 2 } else { 0 };
        eventually("only the other holder's keys are left", SOON, async || {
            (nodes.locks().await == left).then_some(())
        })
        .await;
    }
}

async fn a_waiting_set_holds_no_key(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let held = one.lock("b").expire(LONG).try_acquire().await.unwrap();
    nodes.all_hold("b").await;
    let waiting = other.lock_all(["a", "b", "c"]).expire(LONG).wait_time(SOON);
    let waiting = tokio::spawn(waiting.acquire());
    let begun = Instant::now();
    while begun.elapsed() < SHORT {
        for key in ["a", "c"] {
            one.lock(key).try_acquire().await.unwrap().release().await.unwrap();
        }
    }
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(texts(guard.keys()), ["a", "b", "c"]);
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

/// One key is held in the waiter's own process, one in another, one after another is released.
async fn a_waiter_for_a_set_gets_it_when_the_last_of_its_keys_is_released(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let mut held = vec![
        one.lock("a").expire(LONG).try_acquire().await.unwrap(),
        other.lock("b").expire(LONG).try_acquire().await.unwrap(),
        one.lock_all(["c", "d"]).expire(LONG).try_acquire().await.unwrap(),
        other.lock("d0").expire(LONG).try_acquire().await.unwrap(),
    ];
    let set = one.lock_all(["a", "b", "c", "d0", "e"]).expire(LONG).wait_time(SOON);
    let waiting = tokio::spawn(set.acquire());
    while let Some(last) = held.pop() {
        tokio::time::sleep(SHORT / 5).await;
        assert!(!waiting.is_finished());
        last.release().await.unwrap();
    }
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_waiter_for_a_set_gets_it_when_the_leases_of_crashed_holders_end(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let crashed = [one.lock("a").expire(SHORT), one.lock("c").expire(SHORT * 2)];
    for request in crashed {
        // The guard neither releases nor renews, like the guard of a crashed process.
        std::mem::forget(held_briefly(|| request.clone().try_acquire()).await);
    }
    let set = other.lock_all(["a", "b", "c"]).expire(LONG).wait_time(SOON);
    let guard = set.acquire().await.unwrap();
    guard.release().await.unwrap();
}

async fn a_waiter_for_one_key_gets_it_from_a_set(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let guard = one.lock_all(["a", "b", "c"]).expire(LONG).try_acquire().await.unwrap();
    let waiters = [&one, &other].map(|locks| {
        ["a", "b", "c"].map(|key| {
            let request = locks.lock(key).expire(LONG).wait_time(SOON);
            tokio::spawn(async move { request.acquire().await.unwrap().release().await.unwrap() })
        })
    });
    for key in ["a", "b", "c"] {
        // A caller of the holder's process waits in that process.
        nodes.are_waited_for(key, 1).await;
    }
    guard.release().await.unwrap();
    for waiter in waiters.into_iter().flatten() {
        waiter.await.unwrap();
    }
    nodes.become_empty().await;
}

async fn waiting_for_a_set_ends_at_its_wait_time(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let _held = other.lock("b").expire(LONG).try_acquire().await.unwrap();
    let local = one.lock("c").expire(LONG).try_acquire().await.unwrap();
    for (keys, named) in [(["a", "b"], "b"), (["a", "c"], "c"), (["b", "c"], "c")] {
        let begun = Instant::now();
        let error = one.lock_all(keys).wait_time(SHORT).acquire().await.unwrap_err();
        assert_eq!(contended_at(&error), named, "{keys:?}");
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
    }
    local.release().await.unwrap();
}

async fn a_fenced_set_has_one_number_above_those_of_each_key(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let number = async |key: &str| {
        let guard = other.lock(key).fenced(true).try_acquire().await.unwrap();
        let number = guard.fencing_token().unwrap().number();
        guard.release().await.unwrap();
        number
    };
    let mut last = 0;
    for _ in 0..3 {
        for key in ["a", "b", "c"] {
            last = number(key).await.max(last);
        }
        let set = one.lock_all(["a", "b", "c"]).fenced(true).try_acquire().await.unwrap();
        let of_set = set.fencing_token().unwrap().number();
        assert!(of_set > last, "{of_set} {last}");
        set.release().await.unwrap();
        for key in ["a", "b", "c"] {
            let next = number(key).await;
            assert!(next > of_set, "{key}: {next} {of_set}");
        }
    }
}

async fn a_kept_set_stays_until_its_lease_runs_out(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let lease = Duration::from_secs(2);
    let begun = Instant::now();
    one.lock_all(["a", "b"]).expire(lease).try_acquire().await.unwrap().keep_until_expiry();
    for key in ["a", "b"] {
        let error = one.lock(key).try_acquire().await.unwrap_err();
        assert_eq!(contended_at(&error), key);
    }
    let guard = other.lock_all(["a", "b"]).wait_time(SOON).acquire().await.unwrap();
    assert!(begun.elapsed() >= lease * 9 / 10, "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}

async fn a_set_with_a_min_hold_stays_for_that_time(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let begun = Instant::now();
    let set = one.lock_all(["a", "b"]).expire(LONG).min_hold(SHORT);
    set.try_acquire().await.unwrap().release().await.unwrap();
    for key in ["a", "b"] {
        let guard = other.lock(key).wait_time(SOON).acquire().await.unwrap();
        assert!(begun.elapsed() >= SHORT * 9 / 10, "{:?}", begun.elapsed());
        guard.release().await.unwrap();
    }
}

async fn a_set_is_lost_and_released_by_a_shutdown(nodes: Nodes) {
    let (one, other) = two(&nodes).await;
    let held = one.lock_all(["a", "b"]).expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(one.lock_all(["b", "c"]).wait_time(SOON).acquire());
    let foreign = other.lock("x").expire(LONG).try_acquire().await.unwrap();
    let far = tokio::spawn(one.lock_all(["x", "y"]).wait_time(SOON).acquire());
    nodes.are_waited_for("x", 1).await;
    one.shutdown().await;
    assert_eq!(held.state(), LockState::Lost);
    for waiting in [waiting, far] {
        let error = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, LockError::ShutDown), "{error:?}");
    }
    foreign.release().await.unwrap();
    nodes.become_empty().await;
}

async fn overlapping_sets_of_many_callers_never_overlap(nodes: Nodes) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const KEYS: usize = 6;
    let managers = [nodes.manager().await, nodes.manager().await];
    let held: Arc<[AtomicBool; KEYS]> = Arc::default();
    let callers = (0..8).map(|caller: usize| {
        let (locks, held) = (managers[caller % 2].clone(), Arc::clone(&held));
        tokio::spawn(async move {
            for round in 0..12 {
                let keys = [0, 1, 3].map(|step| (caller * 5 + round * 7 + step) % KEYS);
                let set = locks.lock_all(keys.map(|key| format!("key:{key}"))).expire(LONG);
                let guard: LockGuard = set.wait_forever().acquire().await.unwrap();
                for key in keys {
                    assert!(!held[key].swap(true, Ordering::SeqCst), "two holders of {key}");
                }
                tokio::task::yield_now().await;
                for key in keys {
                    held[key].store(false, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
        })
    });
    let finished = futures_util::future::join_all(callers.collect::<Vec<_>>());
    for caller in tokio::time::timeout(SOON * 3, finished).await.unwrap() {
        caller.unwrap();
    }
    nodes.become_empty().await;
}

/// A lock of its own scope is refused at once, because the caller would wait for itself.
#[tokio::test]
async fn a_scope_does_not_wait_for_its_own_keys() {
    let locks = Nodes::memory(1).manager().await;
    let already_held = |error: LockError, expected: &str| {
        assert!(matches!(error, LockError::AlreadyHeld { .. }), "{error:?}");
        assert_eq!(error.key().unwrap().as_str(), expected);
    };
    scope(async {
        let set = || locks.lock_all(["a", "b"]).expire(LONG).wait_forever();
        let guard = set().acquire().await.unwrap();
        already_held(set().acquire().await.unwrap_err(), "a");
        already_held(locks.lock("b").wait_forever().acquire().await.unwrap_err(), "b");
        let overlapping = || locks.lock_all(["b", "c"]).wait_forever();
        already_held(overlapping().acquire().await.unwrap_err(), "b");
        already_held(overlapping().reentrant(true).acquire().await.unwrap_err(), "b");
        already_held(locks.lock("a").reentrant(true).try_acquire().await.unwrap_err(), "a");
        let shared = set().reentrant(true).acquire().await.unwrap();
        drop(guard);
        assert!(shared.is_valid());
        shared.release().await.unwrap();
        let one = locks.lock("b").try_acquire().await.unwrap();
        already_held(set().reentrant(true).acquire().await.unwrap_err(), "b");
        one.release().await.unwrap();
        set().acquire().await.unwrap().release().await.unwrap();
    })
    .await;
}

/// Lists of two keys and of one: code that was tested with one article must not fail with the first cart of two.
const LISTS: [&[&str]; 3] = [&["a", "b"], &["a"], &["a", "a"]];

#[tokio::test]
async fn nodes_and_dialects_without_sets_refuse_them() {
    let option = |error: LockError| match error {
        LockError::InvalidOption(error) => (error.option().to_owned(), error.to_string()),
        other => panic!("{other:?}"),
    };
    let locks = Nodes::actor(1).manager().await;
    for keys in LISTS {
        let (name, message) = option(locks.lock_all(keys).try_acquire().await.unwrap_err());
        assert_eq!(name, "keys");
        assert_eq!(
            message,
            "keys is a list, but must be one key: the node actor-1 does not support several keys"
        );
    }

    let locks = Nodes::memory(1).redisson().manager().await;
    for keys in LISTS {
        let (name, message) = option(locks.lock_all(keys).try_acquire().await.unwrap_err());
        assert_eq!(name, "dialect");
        assert_eq!(
            message,
            "dialect is redisson, but the lock of a list of keys must be plain, because an RLock of Redisson has one key"
        );
    }
}
