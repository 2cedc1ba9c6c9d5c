//! Behaviours of a node whose store fails.

use std::time::Duration;

use super::locking::acquire;
use super::operations::Alone;
use super::{KEY, LONG, StoreFault, TestStores, contract, eventually, lease, nodes_of};
use crate::error::Vote;

/// The longest time in which a node ends a connection that does not answer.
const SILENCE: Duration = Duration::from_secs(60);

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

/// Nobody but the node ends the future of an operation. Passes if the store cannot freeze.
pub async fn an_operation_on_a_frozen_store_ends(mut stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let (before, after) = (alone.exclusive(KEY), alone.exclusive(KEY));
    before.is_granted(alone.acquire()).await;
    if !stores.fault(StoreFault::Freeze).await {
        return;
    }
    let reply = tokio::time::timeout(SILENCE, after.call(alone.acquire())).await;
    stores.fault(StoreFault::Thaw).await;
    contract!(
        reply.as_ref().is_ok_and(|reply| matches!(reply.vote, Vote::Failed(_))),
        "#failures",
        "a node ends a connection that does not answer, and its operations vote Failed",
        "{SILENCE:?} after a store was frozen, an operation had the result {reply:?}"
    );
}

/// The node connects to a store that was restarted. A store that claims to [keep](crate::node::Capabilities::durable) its
/// locks still has them. Passes if the store cannot be restarted.
pub async fn a_restarted_store_grants_locks_and_has_those_that_it_keeps(mut stores: TestStores) {
    let locks = stores.manager().await;
    let request = || locks.lock(KEY).expire(lease(&locks, LONG));
    let guard = acquire(request()).await;
    if !stores.fault(StoreFault::Kill).await {
        return;
    }
    stores.fault(StoreFault::Restart).await;
    let is_durable = nodes_of(&locks).iter().all(|node| node.capabilities().durable);
    contract!(
        !is_durable || stores.remaining(KEY).await.iter().all(Option::is_some),
        "::Capabilities::durable",
        "the store keeps its locks until their leases end, also when it is restarted",
        "a restarted store has forgotten a lock"
    );
    drop(guard);
    stores.become_empty().await;
    eventually("the node grants locks again", async || request().try_acquire().await.is_ok()).await;
}
