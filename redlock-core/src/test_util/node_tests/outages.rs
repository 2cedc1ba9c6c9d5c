//! Behaviours of a node whose store fails.

use super::locking::acquire;
use super::{KEY, LONG, StoreFault, TestStores, contract, eventually, lease, nodes_of};

/// A release that the store did not confirm is repeated when the store replies again. Passes if the store cannot freeze.
pub async fn a_lock_that_is_dropped_while_the_store_is_frozen_is_released_later(
    mut stores: TestStores,
) {
    let locks = stores.manager().await;
    let request = || locks.lock(KEY).expire(lease(&locks, LONG));
    let guard = acquire(request()).await;
    if !stores.fault(StoreFault::Freeze).await {
        return;
    }
    drop(guard);
    let refused = locks.lock("other").try_acquire().await;
    contract!(
        refused.as_ref().is_err_and(|error| !error.is_contended()),
        "#failures",
        "a node that has no result for an operation votes Failed",
        "an acquisition on a frozen store returned {refused:?}"
    );
    stores.fault(StoreFault::Thaw).await;
    stores.become_empty().await;
    eventually("the node grants locks again", async || request().try_acquire().await.is_ok()).await;
}

/// The node connects to a store that was restarted. A store that claims to [keep](crate::node::Capabilities::kept) its
/// locks still has them. Passes if the store cannot be restarted.
pub async fn a_restarted_store_grants_locks_and_has_those_that_it_keeps(mut stores: TestStores) {
    let locks = stores.manager().await;
    let request = || locks.lock(KEY).expire(lease(&locks, LONG));
    let guard = acquire(request()).await;
    if !stores.fault(StoreFault::Kill).await {
        return;
    }
    stores.fault(StoreFault::Restart).await;
    let is_kept = nodes_of(&locks).iter().all(|node| node.capabilities().kept);
    contract!(
        !is_kept || stores.remaining(KEY).await.iter().all(Option::is_some),
        "::Capabilities::kept",
        "the store keeps its locks until their leases end, also when it is restarted",
        "a restarted store has forgotten a lock"
    );
    drop(guard);
    stores.become_empty().await;
    eventually("the node grants locks again", async || request().try_acquire().await.is_ok()).await;
}
