//! The tests of the contract of a [node](crate::node), for authors of nodes.
//!
//! 1. Add `redlock-core` with its feature `test-util`, and tokio with `macros` and `rt`, to the `dev-dependencies`.
//! 2. Implement [`TestStore`] for the store of the node. Three methods are enough; each of the others lets more tests
//!    run. If the waiters of the node poll, [`notifies`](TestStore::notifies) returns `false`.
//! 3. Write an async function that starts an empty store, and call [`node_tests!`](crate::node_tests) with it. The macro
//!    writes one `#[tokio::test]` for each behaviour in this module.
//! 4. Call it once more with [several stores](crate::node_tests#several-stores), if managers may have several of them.
//!
//! Each test starts stores of its own. If a node does not claim a [capability](crate::node::Capabilities), the tests
//! check that the manager refuses requests which need it. The message of a failed test has the mistake of the node, the
//! rule of the contract, and the place of the rule on the page of [`node`](crate::node).
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use redlock_core::test_util::node_tests::{StoreFuture, TestStore};
//! use redlock_core::{LockManagerBuilder, MemoryNode};
//!
//! /// The nodes over this store share their locks.
//! #[derive(Debug)]
//! struct MyStore(MemoryNode);
//!
//! impl TestStore for MyStore {
//!     fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
//!         builder.node(self.0.clone())
//!     }
//!
//!     fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
//!         Box::pin(async move { self.0.time_to_live(name) })
//!     }
//!
//!     fn locks(&self) -> StoreFuture<'_, usize> {
//!         Box::pin(async { self.0.len() })
//!     }
//! }
//!
//! async fn store() -> MyStore {
//!     MyStore(MemoryNode::new())
//! }
//!
//! mod one {
//!     redlock_core::node_tests!(super::store);
//! }
//!
//! async fn stores() -> Vec<MyStore> {
//!     vec![store().await, store().await, store().await]
//! }
//!
//! mod three {
//!     redlock_core::node_tests!(several: super::stores);
//! }
//! ```

mod inspecting;
mod locking;
mod operations;
mod outages;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::LockManager;
use crate::node::{Capabilities, Node};

pub use inspecting::{
    a_lock_of_another_dialect_is_foreign_to_an_inspection, a_look_shows_each_holder_with_its_label,
    a_removal_ends_this_holder_and_no_other,
};
pub use locking::{
    a_dropped_guard_releases, a_held_lock_excludes_its_own_and_other_managers,
    a_late_release_reports_the_loss_and_keeps_the_next_holders_lock,
    a_lock_frees_itself_when_its_lease_runs_out,
    a_waiter_gets_the_lock_when_the_lease_of_a_crashed_holder_ends,
    an_abandoned_acquisition_leaves_no_lock, an_extended_lease_lasts_longer_and_is_never_shortened,
    only_one_of_many_callers_holds_the_lock_at_a_time, prefixes_keep_applications_apart,
    requests_that_the_node_does_not_support_are_refused,
    shutdown_releases_held_locks_and_refuses_new_requests, the_nodes_store_the_requested_lease,
};
pub use operations::{
    a_deleted_lock_is_not_held, a_future_that_was_never_polled_executes_nothing,
    a_lock_of_several_keys_is_set_on_all_or_none, a_node_works_outside_of_a_runtime,
    a_refusal_changes_nothing_and_reports_the_remaining_lease,
    a_refusal_names_the_holder_or_nobody, a_release_is_executed_after_its_acquisition,
    a_release_notifies_the_subscribers_of_other_nodes,
    a_release_with_min_hold_shortens_the_lease_and_never_extends_it,
    a_shared_lock_has_several_holders_and_excludes_others,
    an_acquisition_by_its_holder_is_granted_again,
    an_extension_neither_shortens_nor_revives_a_lease, different_keys_are_different_locks,
    each_number_is_greater_than_all_before, nodes_over_one_store_have_the_same_id,
    of_callers_at_once_one_is_granted, only_the_token_of_the_holder_releases,
};
pub use outages::{
    a_lock_that_is_dropped_while_the_store_is_frozen_is_released_later,
    a_restarted_store_grants_locks_and_has_those_that_it_keeps,
    an_operation_on_a_frozen_store_ends,
};
pub use store::{StoreFault, StoreFuture, TestStore, TestStores};

/// A lease longer than any test, if the nodes grant it: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
/// A lease whose end a test waits for.
const BRIEF: Duration = Duration::from_millis(150);
/// Deadline for actions that take no time on an idle machine.
const PATIENCE: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

/// Panics if the node broke a rule. The message has the mistake, the rule, and its place on the page of
/// [`node`](crate::node).
macro_rules! contract {
    ($kept:expr, $section:literal, $rule:literal, $($did:tt)+) => {
        assert!(
            $kept,
            "{}. The contract says: {} (redlock_core::node{})",
            format_args!($($did)+), $rule, $section,
        )
    };
}
use contract;

/// Writes a `#[tokio::test]` for each behaviour of [`test_util::node_tests`](crate::test_util::node_tests).
///
/// The argument is the path of an async function that starts an empty store, and returns a
/// [`TestStore`](crate::test_util::node_tests::TestStore). Call the macro in a module of its own.
///
/// # Several stores
///
/// With `several:` in front of the path, the function returns stores that vote together, as a `Vec` or as
/// [`TestStores`](crate::test_util::node_tests::TestStores). These tests leave out the behaviours of a single node.
///
/// # Stores that cannot be started
///
/// A test passes if the function returns no stores, because a program is not installed. The function should say so.
#[macro_export]
macro_rules! node_tests {
    ($start:path) => {
        $crate::node_tests!(several: $start);
        $crate::node_tests! { @each $start:
            a_deleted_lock_is_not_held
            a_future_that_was_never_polled_executes_nothing
            a_lock_of_another_dialect_is_foreign_to_an_inspection
            a_lock_of_several_keys_is_set_on_all_or_none
            a_lock_that_is_dropped_while_the_store_is_frozen_is_released_later
            a_look_shows_each_holder_with_its_label
            a_node_works_outside_of_a_runtime
            a_refusal_changes_nothing_and_reports_the_remaining_lease
            a_refusal_names_the_holder_or_nobody
            a_release_is_executed_after_its_acquisition
            a_release_notifies_the_subscribers_of_other_nodes
            a_release_with_min_hold_shortens_the_lease_and_never_extends_it
            a_removal_ends_this_holder_and_no_other
            a_restarted_store_grants_locks_and_has_those_that_it_keeps
            a_shared_lock_has_several_holders_and_excludes_others
            an_acquisition_by_its_holder_is_granted_again
            an_extension_neither_shortens_nor_revives_a_lease
            an_operation_on_a_frozen_store_ends
            different_keys_are_different_locks
            each_number_is_greater_than_all_before
            nodes_over_one_store_have_the_same_id
            of_callers_at_once_one_is_granted
            only_the_token_of_the_holder_releases
        }
    };
    (several: $start:path) => {
        $crate::node_tests! { @each $start:
            a_dropped_guard_releases
            a_held_lock_excludes_its_own_and_other_managers
            a_late_release_reports_the_loss_and_keeps_the_next_holders_lock
            a_lock_frees_itself_when_its_lease_runs_out
            a_waiter_gets_the_lock_when_the_lease_of_a_crashed_holder_ends
            an_abandoned_acquisition_leaves_no_lock
            an_extended_lease_lasts_longer_and_is_never_shortened
            only_one_of_many_callers_holds_the_lock_at_a_time
            prefixes_keep_applications_apart
            requests_that_the_node_does_not_support_are_refused
            shutdown_releases_held_locks_and_refuses_new_requests
            the_nodes_store_the_requested_lease
        }
    };
    (@each $start:path: $($behaviour:ident)+) => {
        $(#[tokio::test]
        async fn $behaviour() {
            let stores = $crate::test_util::node_tests::TestStores::from($start().await);
            if !stores.is_empty() {
                $crate::test_util::node_tests::$behaviour(stores).await;
            }
        })+
    };
}

/// Polls until `condition` holds.
async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, holds).await.is_ok();
    assert!(in_time, "after {PATIENCE:?} it is still not true that {what}");
}

fn nodes_of(locks: &LockManager) -> &[Arc<dyn Node>] {
    &locks.context().ballot.nodes
}

/// Returns the lease nearest to `lease` that all nodes grant.
fn lease(locks: &LockManager, lease: Duration) -> Duration {
    let clamp = |lease: Duration, Capabilities { shortest_lease, longest_lease, .. }| {
        lease.clamp(shortest_lease, longest_lease)
    };
    nodes_of(locks).iter().map(|node| node.capabilities()).fold(lease, clamp)
}
