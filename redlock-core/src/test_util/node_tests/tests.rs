//! For each mistake of a node, a behaviour that fails. That nodes without a mistake pass is shown by the conformance tests.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;

use super::*;
use crate::error::Vote;
use crate::lock::{Dialect, HolderId, LockSpec, Mode};
use crate::node::{
    Action, Ask, Found, FoundHolder, Inspection, LookFuture, Notify, Op, Removal, RemovalFuture,
    Reply, ReplyFuture, StatusReceiver, Subscription, delegate,
};
use crate::test_util::TestClock;
use crate::{LockKey, LockManagerBuilder, MemoryNode};

/// A node in memory, whose author has made a mistake.
#[derive(Debug, Clone)]
struct Mistaken {
    store: MemoryNode,
    clock: TestClock,
    call: fn(&MemoryNode, Op) -> ReplyFuture,
    claim: fn(&mut Capabilities),
    look: fn(&MemoryNode, &LockSpec) -> Found,
    remove: fn(&MemoryNode, &LockSpec, HolderId) -> Removal,
    notifies: bool,
    /// Whether each node has an ID of its own.
    has_own_id: bool,
}

impl Mistaken {
    fn new(call: fn(&MemoryNode, Op) -> ReplyFuture) -> Self {
        let clock = TestClock::new();
        let store = MemoryNode::with_clock(Arc::new(clock.clone()));
        let (look, remove) = (MemoryNode::look_at, MemoryNode::remove_holder);
        let (claim, notifies, has_own_id): (fn(&mut _), _, _) = (|_| {}, true, false);
        Self { store, clock, call, claim, look, remove, notifies, has_own_id }
    }
}

impl TestStore for Mistaken {
    fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.test_clock(&self.clock).node(self.clone())
    }

    fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
        TestStore::remaining(&self.store, name)
    }

    fn locks(&self) -> StoreFuture<'_, usize> {
        TestStore::locks(&self.store)
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        TestStore::delete(&self.store, name)
    }

    /// Nobody notices that it is frozen. After its end, all locks are gone.
    fn fault(&mut self, fault: StoreFault) -> StoreFuture<'_, bool> {
        if fault == StoreFault::Kill {
            self.store.forget();
        }
        Box::pin(async { true })
    }
}

impl Node for Mistaken {
    delegate! { store;
        fn name(&self) -> &Arc<str>;
        fn status(&self) -> StatusReceiver;
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.store.capabilities();
        (self.claim)(&mut capabilities);
        capabilities
    }

    fn store_id(&self) -> Option<Arc<str>> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let own = || format!("own:{}", IDS.fetch_add(1, Ordering::Relaxed)).into();
        if self.has_own_id { Some(own()) } else { self.store.store_id() }
    }

    fn call(&self, op: Op) -> ReplyFuture {
        (self.call)(&self.store, op)
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        if self.notifies { self.store.subscribe(spec, notify) } else { Subscription::new(|| {}) }
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        Some(self)
    }
}

impl Inspection for Mistaken {
    fn look(&self, spec: &LockSpec) -> LookFuture {
        Box::pin(std::future::ready(Ok((self.look)(&self.store, spec))))
    }

    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture {
        Box::pin(std::future::ready(Ok((self.remove)(&self.store, spec, holder))))
    }
}

fn is_acquire(op: &Op) -> bool {
    matches!(op.action, Action::Acquire { .. })
}

fn is_release(op: &Op) -> bool {
    matches!(op.action, Action::Release { .. })
}

/// Executes an operation with another action.
fn instead(store: &MemoryNode, op: &Op, action: Action) -> Reply {
    store.execute(&Op::new(&op.spec, op.token, action))
}

fn set(lease: Duration) -> Action {
    Action::Acquire { lease, fenced: false, ask: Ask::FIRST }
}

/// The node executes the operation on a lock with these keys.
fn with_spec(store: &MemoryNode, op: &Op, spec: &LockSpec) -> ReplyFuture {
    ReplyFuture::ready(store.execute(&Op::new(spec, op.token, op.action)))
}

fn renamed(op: &Op, rename: impl Fn(&LockKey) -> String) -> LockSpec {
    let key = LockKey::new(rename(op.spec.key())).unwrap();
    LockSpec::new(key, op.spec.mode(), op.spec.dialect())
}

/// Changes the reply.
fn reply(store: &MemoryNode, op: &Op, change: impl Fn(Reply) -> Reply) -> ReplyFuture {
    ReplyFuture::ready(change(store.execute(op)))
}

async fn fails<F: Future<Output = ()>>(
    behaviour: impl FnOnce(TestStores) -> F,
    node: Mistaken,
    rule: &str,
) {
    let failed = AssertUnwindSafe(behaviour(node.into())).catch_unwind().await;
    let panic = failed.expect_err("the behaviour passes despite the mistake");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref().copied()).expect("a message");
    assert!(text.contains(rule), "{text}");
}

/// Writes a test for each mistake of [`Node::call`]: the behaviour that fails, and a part of its message.
macro_rules! mistakes {
    ($($mistake:ident: $behaviour:ident, $rule:literal, $call:expr;)+) => {
        $(#[tokio::test]
        async fn $mistake() {
            fails($behaviour, Mistaken::new($call), $rule).await;
        })+
    };
}

mistakes! {
    every_acquisition_is_granted: a_held_lock_excludes_its_own_and_other_managers, "is refused", |store, op| {
        if is_acquire(&op) { store.remove(op.spec.name()) }
        store.call(op)
    };
    callers_beside_each_other_are_granted: only_one_of_many_callers_holds_the_lock_at_a_time, "(redlock_core::node::Action)",
    |store, op| {
        if is_acquire(&op) { store.remove(op.spec.name()) }
        store.call(op)
    };
    a_token_is_refused_by_itself: an_acquisition_by_its_holder_is_granted_again, "the vote is Agreed", |store, op| {
        let is_held = is_acquire(&op) && store.time_to_live(op.spec.name()).is_some();
        if is_held { ReplyFuture::ready(Vote::held(None)) } else { store.call(op) }
    };
    a_refusal_removes_the_lock: a_refusal_changes_nothing_and_reports_the_remaining_lease, "a refusal changes nothing",
    |store, op| reply(store, &op, |reply| {
        if matches!(reply.vote, Vote::Held { .. }) { store.remove(op.spec.name()) }
        reply
    });
    a_refusal_reports_a_wrong_rest: a_refusal_changes_nothing_and_reports_the_remaining_lease, "remaining lease",
    |store, op| reply(store, &op, |reply| match reply.vote {
        Vote::Held { .. } => Vote::held(Some(LONG * 2)).into(),
        _ => reply,
    });
    a_refusal_names_its_caller: a_refusal_names_the_holder_or_nobody, "by the id of its token",
    |store, op| reply(store, &op, |reply| match reply.vote {
        Vote::Held { remaining, .. } => {
            Vote::held_by(op.token.holder_id(), remaining).into()
        }
        _ => reply,
    });
    an_extension_sets_the_lease: an_extension_neither_shortens_nor_revives_a_lease, "never shortens it",
    |store, op| match op.action {
        Action::Extend { lease } => {
            instead(store, &op, Action::Release { min_hold: Some(lease) });
            store.call(op)
        }
        _ => store.call(op),
    };
    an_extension_revives_a_lease: an_extension_neither_shortens_nor_revives_a_lease, "the vote is NotHeld",
    |store, op| match op.action {
        Action::Extend { lease } => ReplyFuture::ready(instead(store, &op, set(lease))),
        _ => store.call(op),
    };
    an_extension_does_nothing: an_extended_lease_lasts_longer_and_is_never_shortened, "the longer lease",
    |store, op| match op.action {
        Action::Extend { .. } => ReplyFuture::ready(Vote::Agreed),
        _ => store.call(op),
    };
    a_release_ignores_the_token: a_late_release_reports_the_loss_and_keeps_the_next_holders_lock, "is voted NotHeld",
    |store, op| {
        if !is_release(&op) { return store.call(op) }
        store.remove(op.spec.name());
        ReplyFuture::ready(Vote::Agreed)
    };
    a_release_with_min_hold_ignores_the_token: only_the_token_of_the_holder_releases, "the vote is NotHeld",
    |store, op| match op.action {
        Action::Release { min_hold: Some(_) } => ReplyFuture::ready(Vote::Agreed),
        _ => store.call(op),
    };
    a_release_ignores_min_hold: a_release_with_min_hold_shortens_the_lease_and_never_extends_it, "shortens the lease",
    |store, op| match op.action {
        Action::Release { .. } => {
            ReplyFuture::ready(instead(store, &op, Action::Release { min_hold: None }))
        }
        _ => store.call(op),
    };
    a_release_sets_min_hold: a_release_with_min_hold_shortens_the_lease_and_never_extends_it, "never extends it",
    |store, op| match op.action {
        Action::Release { min_hold: Some(lease) } => {
            instead(store, &op, Action::Release { min_hold: None });
            ReplyFuture::ready(instead(store, &op, set(lease)))
        }
        _ => store.call(op),
    };
    a_release_does_nothing: shutdown_releases_held_locks_and_refuses_new_requests, "removes the lock", |store, op| {
        if is_release(&op) { ReplyFuture::ready(Vote::Agreed) } else { store.call(op) }
    };
    a_release_of_a_dropped_guard_does_nothing: a_dropped_guard_releases, "no lock is left", |store, op| {
        if is_release(&op) { ReplyFuture::ready(Vote::Agreed) } else { store.call(op) }
    };
    a_lock_is_checked_before_it_is_set: of_callers_at_once_one_is_granted, "in one step", |store, op| {
        let store = store.clone();
        ReplyFuture::new(async move {
            let is_free = store.time_to_live(op.spec.name()).is_none();
            tokio::task::yield_now().await;
            if is_acquire(&op) && is_free { store.remove(op.spec.name()) }
            store.execute(&op)
        })
    };
    a_release_overtakes_its_acquisition: a_release_is_executed_after_its_acquisition, "first polled",
    |store, op| {
        let store = store.clone();
        ReplyFuture::new(async move {
            if is_acquire(&op) { tokio::task::yield_now().await }
            store.execute(&op)
        })
    };
    a_release_overtakes_an_abandoned_acquisition: an_abandoned_acquisition_leaves_no_lock, "first polled",
    |store, op| {
        let store = store.clone();
        // Every second release overtakes its acquisition.
        let number: u64 = op.spec.name()[6..].parse().unwrap();
        let delay = Duration::from_millis(if is_acquire(&op) { 2 } else { number % 2 * 4 });
        ReplyFuture::new(async move {
            let execution = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                store.execute(&op)
            });
            execution.await.unwrap()
        })
    };
    an_operation_is_executed_before_its_first_poll: a_future_that_was_never_polled_executes_nothing, "the vote is",
    |store, op| {
        let reply = store.execute(&op);
        ReplyFuture::new(async { reply })
    };
    a_lease_never_ends: a_lock_frees_itself_when_its_lease_runs_out, "free after its lease",
    |store, op| match op.action {
        Action::Acquire { .. } => ReplyFuture::ready(instead(store, &op, set(LONG))),
        _ => store.call(op),
    };
    the_lease_of_a_crashed_holder_never_ends: a_waiter_gets_the_lock_when_the_lease_of_a_crashed_holder_ends,
    "frees the lock by itself", |store, op| match op.action {
        Action::Acquire { .. } => ReplyFuture::ready(instead(store, &op, set(LONG))),
        _ => store.call(op),
    };
    leases_have_their_own_length: the_nodes_store_the_requested_lease, "the lease of the operation",
    |store, op| match op.action {
        Action::Acquire { lease, .. } => ReplyFuture::ready(instead(store, &op, set(lease * 2))),
        _ => store.call(op),
    };
    a_number_is_repeated: each_number_is_greater_than_all_before, "the number after 1000000007",
    |store, op| reply(store, &op, |reply| Reply { number: Some(7), ..reply });
    a_number_is_too_great: each_number_is_greater_than_all_before, "to 2^53 - 1",
    |store, op| reply(store, &op, |reply| Reply { number: Some(1 << 53), ..reply });
    confirm_does_nothing: each_number_is_greater_than_all_before, "greater than all before",
    |store, op| match op.action {
        Action::Confirm { number: 1_000.. } => instead_of_confirm(store, &op),
        _ => store.call(op),
    };
    a_deleted_lock_is_extended: a_deleted_lock_is_not_held, "the vote is NotHeld",
    |store, op| match op.action {
        Action::Extend { lease } => ReplyFuture::ready(instead(store, &op, set(lease))),
        _ => store.call(op),
    };
    keys_are_compared_without_case: different_keys_are_different_locks, "the vote is Agreed",
    |store, op| with_spec(store, &op, &renamed(&op, |key| key.name().to_lowercase()));
    long_keys_are_cut: different_keys_are_different_locks, "no lock is at",
    |store, op| with_spec(store, &op, &renamed(&op, |key| key.name().chars().take(64).collect()));
    the_prefix_is_ignored: prefixes_keep_applications_apart, "has the lock \"shop:order:42\"",
    |store, op| with_spec(store, &op, &renamed(&op, |key| key.as_str().to_owned()));
    readers_exclude_each_other: a_shared_lock_has_several_holders_and_excludes_others, "the vote is Agreed",
    |store, op| with_spec(store, &op, &op.spec.with_mode(Mode::Exclusive));
    only_the_first_key_is_set: a_lock_of_several_keys_is_set_on_all_or_none, "the vote is Held",
    |store, op| with_spec(store, &op, &op.spec.of_key(op.spec.key()));
    no_number_despite_the_claim: requests_that_the_node_does_not_support_are_refused, "grants an option that",
    |store, op| reply(store, &op, |reply| Reply { number: None, ..reply });
    a_runtime_is_needed: a_node_works_outside_of_a_runtime, "#threads-and-runtimes", |store, op| {
        let store = store.clone();
        ReplyFuture::new(async move {
            Handle::current();
            store.execute(&op)
        })
    };
    a_frozen_store_replies: a_lock_that_is_dropped_while_the_store_is_frozen_is_released_later, "votes Failed",
    MemoryNode::call;
    an_operation_on_a_frozen_store_is_granted: an_operation_on_a_frozen_store_ends, "does not answer",
    MemoryNode::call;
}

/// Changes the holders that a look shows.
fn changed(
    store: &MemoryNode,
    spec: &LockSpec,
    change: impl Fn(FoundHolder) -> FoundHolder,
) -> Found {
    let found = store.look_at(spec);
    Found { holders: found.holders.into_iter().map(change).collect(), ..found }
}

#[tokio::test]
async fn a_look_shows_nobody() {
    let node = Mistaken { look: |_, _| Found::free(), ..Mistaken::new(MemoryNode::call) };
    fails(a_look_shows_each_holder_with_its_label, node, "the id of each holder").await;
}

#[tokio::test]
async fn a_look_shows_no_label() {
    let look: fn(&MemoryNode, &LockSpec) -> Found =
        |store, spec| changed(store, spec, |holder| holder.of_owner(None, None));
    let node = Mistaken { look, ..Mistaken::new(MemoryNode::call) };
    fails(a_look_shows_each_holder_with_its_label, node, "the label and the time").await;
}

#[tokio::test]
async fn a_look_shows_a_wrong_rest() {
    let look: fn(&MemoryNode, &LockSpec) -> Found = |store, spec| {
        changed(store, spec, |holder| FoundHolder { remaining: Some(LONG * 2), ..holder })
    };
    let node = Mistaken { look, ..Mistaken::new(MemoryNode::call) };
    fails(a_look_shows_each_holder_with_its_label, node, "the rest of the lease").await;
}

#[tokio::test]
async fn a_removal_ignores_the_id() {
    let remove: fn(&MemoryNode, &LockSpec, HolderId) -> Removal = |store, spec, id| {
        let holders = store.look_at(spec).holders;
        store.remove_holder(spec, holders.first().map_or(id, |holder| holder.id))
    };
    let node = Mistaken { remove, ..Mistaken::new(MemoryNode::call) };
    fails(a_removal_ends_this_holder_and_no_other, node, "and no other").await;
}

#[tokio::test]
async fn a_removal_does_nothing() {
    let remove: fn(&MemoryNode, &LockSpec, HolderId) -> Removal = |store, spec, id| {
        let is_held = store.look_at(spec).holders.iter().any(|holder| holder.id == id);
        if is_held { Removal::removed(None) } else { Removal::NotHeld }
    };
    let node = Mistaken { remove, ..Mistaken::new(MemoryNode::call) };
    fails(a_removal_ends_this_holder_and_no_other, node, "the vote is NotHeld").await;
}

#[tokio::test]
async fn a_removal_notifies_nobody() {
    let node = Mistaken { notifies: false, ..Mistaken::new(MemoryNode::call) };
    let rule = "a removal notifies the subscribers";
    fails(a_removal_ends_this_holder_and_no_other, node, rule).await;
}

#[tokio::test]
async fn a_look_shows_the_lock_of_another_dialect() {
    let look: fn(&MemoryNode, &LockSpec) -> Found = |store, spec| {
        let plain = LockSpec::new(spec.key().clone(), spec.mode(), Dialect::Plain);
        store.look_at(&plain)
    };
    let node = Mistaken { look, ..Mistaken::new(MemoryNode::call) };
    let rule = "a value of another dialect has no holders";
    fails(a_lock_of_another_dialect_is_foreign_to_an_inspection, node, rule).await;
}

fn instead_of_confirm(store: &MemoryNode, op: &Op) -> ReplyFuture {
    reply(store, &Op::new(&op.spec, op.token, Action::Confirm { number: 1 }), |reply| reply)
}

#[tokio::test]
async fn subscribers_are_not_notified() {
    let node = Mistaken { notifies: false, ..Mistaken::new(MemoryNode::call) };
    let rule = "a release notifies a subscriber";
    fails(a_release_notifies_the_subscribers_of_other_nodes, node, rule).await;
}

#[tokio::test]
async fn each_node_has_an_id_of_its_own() {
    let node = Mistaken { has_own_id: true, ..Mistaken::new(MemoryNode::call) };
    fails(nodes_over_one_store_have_the_same_id, node, "::store_id").await;
}

#[tokio::test]
async fn a_store_forgets_despite_the_claim_to_keep() {
    let claim = |capabilities: &mut Capabilities| capabilities.durable = true;
    let node = Mistaken { claim, ..Mistaken::new(MemoryNode::call) };
    fails(a_restarted_store_grants_locks_and_has_those_that_it_keeps, node, "::durable").await;
}
