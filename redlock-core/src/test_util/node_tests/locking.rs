//! Behaviours of managers over one store or several.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::{BRIEF, KEY, LONG, PATIENCE, TestStores, contract, eventually, lease, nodes_of};
use crate::error::{LockError, ReleaseError};
use crate::lock::Dialect;
use crate::node::{Capabilities, Fencing};
use crate::request::LockRequest;
use crate::{LockGuard, LockManager};

/// Acquires a lock that no caller holds.
pub(super) async fn acquire(request: LockRequest) -> LockGuard {
    match request.try_acquire().await {
        Ok(guard) => guard,
        Err(error) => panic!(
            "the nodes refused a free lock: {}. The contract says: an acquisition of a free lock is granted \
             (redlock_core::node::Action)",
            error.diagnostics()
        ),
    }
}

fn request(locks: &LockManager, key: &str) -> LockRequest {
    locks.lock(key).expire(lease(locks, LONG))
}

/// Acquires a lock with a lease that ends soon. Tries again if the lease is over before the reply arrives.
async fn acquire_briefly(locks: &LockManager, key: &str) -> LockGuard {
    let mut expire = lease(locks, BRIEF);
    loop {
        match locks.lock(key).expire(expire).wait_time(PATIENCE).acquire().await {
            Ok(guard) => return guard,
            Err(error) if expire > PATIENCE => panic!("{}", error.diagnostics()),
            Err(_) => expire *= 2,
        }
    }
}

async fn is_refused(locks: &LockManager, key: &str) {
    let refused = request(locks, key).try_acquire().await;
    contract!(
        refused.as_ref().is_err_and(LockError::is_contended),
        "::Action",
        "while other tokens hold the lock, an acquisition is refused",
        "the acquisition of a held lock returned {refused:?}"
    );
}

async fn release(guard: LockGuard) {
    let released = guard.release().await;
    contract!(
        released.is_ok(),
        "::Action",
        "a release by the token that holds the lock is granted",
        "the release of a held lock returned {released:?}"
    );
}

/// While a lock is held, all managers are refused. After its release, it is free and gone from every store.
pub async fn a_held_lock_excludes_its_own_and_other_managers(stores: TestStores) {
    let (one, other) = (stores.manager().await, stores.manager().await);
    let guard = acquire(request(&one, KEY)).await;
    is_refused(&one, KEY).await;
    is_refused(&other, KEY).await;
    release(guard).await;
    stores.become_empty().await;
    release(acquire(request(&other, KEY)).await).await;
}

/// A guard that is dropped releases its lock in the background.
pub async fn a_dropped_guard_releases(stores: TestStores) {
    let locks = stores.manager().await;
    drop(acquire(request(&locks, KEY)).await);
    stores.become_empty().await;
    release(acquire(request(&locks, KEY)).await).await;
}

/// Every lock has a deadline, because its holder may crash.
pub async fn a_lock_frees_itself_when_its_lease_runs_out(stores: TestStores) {
    let (one, other) = (stores.manager().await, stores.manager().await);
    let guard = acquire_briefly(&one, KEY).await;
    let mut next = None;
    eventually("the lock is free after its lease", async || {
        next = request(&other, KEY).try_acquire().await.ok();
        next.is_some()
    })
    .await;
    contract!(
        !guard.is_valid(),
        "::Action",
        "a lock is held until its lease is over, which is counted from the execution of the operation",
        "the nodes granted a lock that another guard still holds"
    );
}

/// Only the owner releases. The holder of a lock whose lease has run out does not remove the lock of the next holder.
pub async fn a_late_release_reports_the_loss_and_keeps_the_next_holders_lock(stores: TestStores) {
    const OTHER: &str = "other";
    let (one, other) = (stores.manager().await, stores.manager().await);
    let (late, dropped) = (acquire_briefly(&one, KEY).await, acquire_briefly(&one, OTHER).await);
    stores.become_empty().await;
    let next = [acquire(request(&other, KEY)).await, acquire(request(&other, OTHER)).await];
    stores.all_hold(KEY).await;
    stores.all_hold(OTHER).await;

    let released = late.release().await;
    contract!(
        matches!(&released, Err(ReleaseError::Lost(lost)) if lost.votes.len() == stores.len()),
        "::Action",
        "a release by a token that does not hold the lock is voted NotHeld",
        "the release of a lock that another holder has returned {released:?}"
    );
    drop(dropped);
    one.shutdown().await;
    for key in [KEY, OTHER] {
        contract!(
            stores.remaining(key).await.iter().all(Option::is_some),
            "::Action",
            "a release by a token that does not hold the lock changes nothing",
            "a late release removed the lock {key:?} of the next holder"
        );
    }
    join_all(next.map(release)).await;
}

/// The store has the lease of the request, and the default lease of the manager.
pub async fn the_nodes_store_the_requested_lease(stores: TestStores) {
    let locks = stores.manager().await;
    let (long, short) = (lease(&locks, LONG), lease(&locks, LONG / 4));
    let locks = stores.builder().expire(short).connect().await;
    let locks = locks.unwrap_or_else(|error| panic!("{error}"));
    let _own = acquire(request(&locks, "own")).await;
    let _default = acquire(locks.lock("default")).await;
    for (key, requested) in [("own", long), ("default", short)] {
        stores.all_hold(key).await;
        for left in stores.remaining(key).await {
            let left = left.unwrap_or_default();
            contract!(
                left <= requested && left + PATIENCE > requested,
                "::Action::Acquire",
                "the store frees the lock after the lease of the operation",
                "a store has {left:?} left of a lease of {requested:?}"
            );
        }
    }
}

/// An extension to a longer lease counts, and one to a shorter lease changes nothing.
pub async fn an_extended_lease_lasts_longer_and_is_never_shortened(stores: TestStores) {
    let locks = stores.manager().await;
    let long = lease(&locks, LONG);
    let half = lease(&locks, long / 2);
    let guard = acquire(locks.lock(KEY).expire(half)).await;
    stores.all_hold(KEY).await;
    for expire in [long, half / 2] {
        let extended = guard.extend(lease(&locks, expire)).await;
        contract!(
            extended.is_ok(),
            "::Action::Extend",
            "an extension by the token that holds the lock is granted",
            "the extension to {expire:?} returned {extended:?}"
        );
    }
    eventually("each store has the longer lease after a shorter extension", async || {
        stores.remaining(KEY).await.iter().all(|left| left.is_some_and(|left| left > half))
    })
    .await;
}

/// A crashed holder releases nothing: its lease ends without a notification.
pub async fn a_waiter_gets_the_lock_when_the_lease_of_a_crashed_holder_ends(stores: TestStores) {
    let (one, other) = (stores.manager().await, stores.manager().await);
    let crashed = acquire_briefly(&one, KEY).await;
    let next = request(&other, KEY).wait_time(PATIENCE).acquire().await;
    contract!(
        next.is_ok() && !crashed.is_valid(),
        "::Action::Acquire",
        "the store frees the lock by itself when the lease is over",
        "a waiter for the end of a lease of {BRIEF:?} got {next:?}"
    );
}

/// The name of a lock on the store begins with the prefix of its manager.
pub async fn prefixes_keep_applications_apart(stores: TestStores) {
    let mut guards = Vec::new();
    for prefix in ["shop:", "bank:"] {
        let locks = stores.builder().prefix(prefix).connect().await;
        let locks = locks.unwrap_or_else(|error| panic!("{error}"));
        guards.push(acquire(request(&locks, KEY)).await);
        stores.all_hold(&format!("{prefix}{KEY}")).await;
    }
    join_all(guards.into_iter().map(release)).await;
    stores.become_empty().await;
}

/// `shutdown` waits for the releases. Without it, the locks of a process that ends stay until their leases end.
pub async fn shutdown_releases_held_locks_and_refuses_new_requests(stores: TestStores) {
    let locks = stores.manager().await;
    let held = acquire(request(&locks, "held")).await;
    let renewed = acquire(locks.lock("renewed")).await;
    drop(acquire(request(&locks, "dropped")).await);
    locks.shutdown().await;
    let left = stores.locks().await;
    contract!(
        left == 0,
        "::Action::Release",
        "a granted release removes the lock",
        "{left} locks were left after all releases"
    );
    assert!(!held.is_valid() && !renewed.is_valid(), "a shutdown ends all guards");
    held.lost().await;
    let refused = request(&locks, "late").try_acquire().await;
    assert!(matches!(refused, Err(LockError::ShutDown)), "{refused:?} after the shutdown");
    drop((held, renewed));
    locks.shutdown().await;
    assert_eq!(stores.locks().await, 0, "a guard that was dropped after the shutdown set a lock");
}

/// A caller that drops its future after the operation was sent leaves no lock behind.
pub async fn an_abandoned_acquisition_leaves_no_lock(stores: TestStores) {
    let locks = stores.manager().await;
    for number in 0..50 {
        let acquisition = request(&locks, &format!("order:{number}")).try_acquire();
        let _ = tokio::time::timeout(Duration::ZERO, acquisition).await;
    }
    locks.shutdown().await;
    let left = stores.locks().await;
    contract!(
        left == 0,
        "#order",
        "operations are executed in the order in which their futures were first polled",
        "{left} of 50 locks were set after their release"
    );
}

/// The manager refuses an option that a node does not claim, with an error that names the node. It grants an option that
/// all nodes claim.
pub async fn requests_that_the_node_does_not_support_are_refused(stores: TestStores) {
    let locks = stores.manager().await;
    let nodes: Vec<_> = nodes_of(&locks).iter().map(|node| node.capabilities()).collect();
    let all = |claims: fn(&Capabilities) -> bool| nodes.iter().all(claims);
    let fenced = all(|node| node.fencing == Fencing::Quorum)
        || nodes.len() == 1 && nodes[0].fencing == Fencing::Alone;
    let is_fair = nodes_of(&locks).iter().all(|node| node.fair_order().is_some());
    let is_plain = locks.context().defaults.dialect == Dialect::Plain;
    for (option, is_claimed, request) in [
        ("fenced", fenced, request(&locks, KEY).fenced(true)),
        ("fair", is_fair, request(&locks, KEY).fair(true)),
        ("shared", is_plain && all(|node| node.shared), request(&locks, KEY).shared(true)),
        ("keys", is_plain && all(|node| node.several_keys), locks.lock_all(["{a}:1", "{a}:2"])),
        ("min_hold", all(|node| node.min_hold), request(&locks, "kept").min_hold(BRIEF)),
    ] {
        match request.try_acquire().await {
            Ok(guard) if is_claimed => release(guard).await,
            Err(LockError::InvalidOption(error))
                if !is_claimed
                    && error.option() == option
                    && locks.nodes().any(|node| error.to_string().contains(node)) => {}
            // The dialect of Redisson has no such locks.
            Err(LockError::InvalidOption(_)) if !is_plain => {}
            result => panic!(
                "the request with {option} returned {result:?}. The contract says: the manager grants an option that \
                 all nodes claim, and refuses any other with an error that names the node \
                 (redlock_core::node#capabilities)"
            ),
        }
    }
}

/// Two managers stand for two processes. Each caller waits again right after its release.
pub async fn only_one_of_many_callers_holds_the_lock_at_a_time(stores: TestStores) {
    const CALLERS: usize = 8;
    const TURNS: usize = 5;
    let managers = [stores.manager().await, stores.manager().await];
    let inside = Arc::new(AtomicBool::new(false));
    let callers = (0..CALLERS).map(|caller| {
        let (locks, inside) = (managers[caller % 2].clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            for _ in 0..TURNS {
                let waiting = request(&locks, KEY).wait_time(LONG).acquire().await;
                let guard = waiting.unwrap_or_else(|error| panic!("{}", error.diagnostics()));
                contract!(
                    !inside.swap(true, Ordering::SeqCst),
                    "::Action",
                    "a lock is granted to one token at a time",
                    "the nodes granted a held lock to another caller"
                );
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                inside.store(false, Ordering::SeqCst);
                release(guard).await;
            }
        })
    });
    for caller in join_all(callers).await {
        caller.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    stores.become_empty().await;
}
