//! Behaviours of a node that offers an inspection. Each passes without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::operations::{Alone, Caller, RELEASE};
use super::{KEY, PATIENCE, TestStores, contract, eventually};
use crate::error::NodeError;
use crate::lock::{Dialect, HolderId, Mode};
use crate::node::{Found, FoundKind, Removal};

async fn answer<T>(asked: impl Future<Output = Result<T, NodeError>>) -> T {
    let answer = tokio::time::timeout(PATIENCE, asked).await;
    let answer = answer.unwrap_or_else(|_| panic!("the node did not answer within {PATIENCE:?}"));
    answer.unwrap_or_else(|error| panic!("the node did not answer: {error}"))
}

/// Returns what the node has at the key of this caller; `None` without an inspection.
async fn look(caller: &Caller) -> Option<Found> {
    Some(answer(caller.node().inspection()?.look(caller.spec())).await)
}

/// Removes the holder with this id; `None` without an inspection.
async fn remove(caller: &Caller, holder: HolderId) -> Option<Removal> {
    Some(answer(caller.node().inspection()?.remove(caller.spec(), holder)).await)
}

/// Checks that a look shows exactly these holders.
async fn shows(alone: &Alone, kind: FoundKind, holders: &[&Caller], key: &str) {
    let Some(found) = look(&alone.exclusive(key)).await else { return };
    let mut expected: Vec<_> = holders.iter().map(|holder| holder.holder_id()).collect();
    let mut ids: Vec<_> = found.holders.iter().map(|holder| holder.id).collect();
    expected.sort();
    ids.sort();
    contract!(
        (found.kind, &ids) == (kind, &expected),
        "::Inspection::look",
        "a look shows the kind of the lock and the id of each holder",
        "a look at {key:?} showed {found:?} instead of {kind:?} with {expected:?}"
    );
    for holder in &found.holders {
        let caller = holders.iter().find(|caller| caller.holder_id() == holder.id);
        let named = caller.map(|caller| caller.label_and_since());
        contract!(
            named == Some((holder.label.clone(), holder.since)),
            "::FoundHolder",
            "a holder has the label and the time of its token, or neither",
            "a look showed {holder:?} instead of {named:?}"
        );
        contract!(
            holder.remaining.is_none_or(|rest| rest <= alone.long() && !rest.is_zero()),
            "::FoundHolder::remaining",
            "it is the rest of the lease",
            "a look showed {holder:?} for a lease of {:?}",
            alone.long()
        );
    }
}

/// Without a label, with one, and after a release.
pub async fn a_look_shows_each_holder_with_its_label(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    shows(&alone, FoundKind::Free, &[], KEY).await;
    for holder in [alone.exclusive(KEY), alone.exclusive(KEY).labelled(&alone)] {
        holder.is_granted(alone.acquire()).await;
        shows(&alone, FoundKind::Exclusive, &[&holder], KEY).await;
        shows(&alone, FoundKind::Free, &[], "other").await;
        holder.is_granted(RELEASE).await;
        shows(&alone, FoundKind::Free, &[], KEY).await;
    }
    if alone.shares() {
        let reader = || alone.caller(&[KEY], Mode::SHARED);
        let [one, other] = [reader(), reader().labelled(&alone)];
        one.is_granted(alone.acquire()).await;
        other.is_granted(alone.acquire()).await;
        shows(&alone, FoundKind::Shared, &[&one, &other], KEY).await;
    }
}

/// Checks the answer to a removal.
async fn removes(holder: &Caller, id: HolderId, expected: bool) {
    let Some(removal) = remove(holder, id).await else { return };
    contract!(
        matches!(removal, Removal::Removed { .. }) == expected
            && (expected || removal == Removal::NotHeld),
        "::Inspection::remove",
        "it removes the holder with this id, and no other",
        "the removal of {id} was {removal:?}, although the id is{} that of the holder",
        if expected { "" } else { " not" }
    );
}

/// The holder has its lock no more, another holder keeps it, and the subscribers are notified.
pub async fn a_removal_ends_this_holder_and_no_other(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    if alone.exclusive(KEY).node().inspection().is_none() {
        return;
    }
    let [former, present, elsewhere] =
        [alone.exclusive(KEY), alone.exclusive(KEY).labelled(&alone), alone.exclusive("other")];
    removes(&present, present.holder_id(), false).await;
    present.is_granted(alone.acquire()).await;
    elsewhere.is_granted(alone.acquire()).await;
    for stranger in [former.holder_id(), elsewhere.holder_id()] {
        removes(&present, stranger, false).await;
    }
    shows(&alone, FoundKind::Exclusive, &[&present], KEY).await;
    present.is_granted(alone.extend()).await;

    let notified = Arc::new(AtomicBool::new(false));
    let notify = Arc::clone(&notified);
    let notify = Arc::new(move || notify.store(true, Ordering::SeqCst));
    let mut subscription = present.node().subscribe(present.spec(), notify);
    if let Some(ready) = subscription.take_ready() {
        let _ = tokio::time::timeout(PATIENCE, ready).await;
    }
    removes(&present, present.holder_id(), true).await;
    present.does_not_hold(alone.extend()).await;
    removes(&present, present.holder_id(), false).await;
    if stores[0].notifies() {
        let what = "a removal notifies the subscribers, see redlock_core::node::Inspection::remove";
        eventually(what, async || notified.load(Ordering::SeqCst)).await;
    }
    // A store with a queue may have given the lock to the place of the subscriber.
    drop(subscription);
    let is_free = async || look(&present).await.is_some_and(|found| found.kind == FoundKind::Free);
    eventually("the key is free after the removal", is_free).await;
    shows(&alone, FoundKind::Exclusive, &[&elsewhere], "other").await;
    former.is_granted(alone.acquire()).await;
    former.is_granted(RELEASE).await;

    if alone.shares() {
        let [one, other] = [alone.caller(&[KEY], Mode::SHARED), alone.caller(&[KEY], Mode::SHARED)];
        one.is_granted(alone.acquire()).await;
        other.is_granted(alone.acquire()).await;
        removes(&alone.exclusive(KEY), one.holder_id(), true).await;
        one.does_not_hold(RELEASE).await;
        shows(&alone, FoundKind::Shared, &[&other], KEY).await;
        other.is_granted(RELEASE).await;
    }
}

/// Nodes that know both dialects keep them apart. Passes for other nodes.
pub async fn a_lock_of_another_dialect_is_foreign_to_an_inspection(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let holder = alone.exclusive(KEY);
    let capabilities = holder.node().capabilities();
    if !capabilities.redisson || holder.node().inspection().is_none() {
        return;
    }
    let dialect = match holder.spec().dialect() {
        Dialect::Plain => Dialect::Redisson,
        Dialect::Redisson => Dialect::Plain,
    };
    holder.is_granted(alone.acquire()).await;
    let stranger = holder.in_dialect(dialect);
    let found = look(&stranger).await;
    let removal = remove(&stranger, holder.holder_id()).await;
    contract!(
        matches!(
            (&found, &removal),
            (Some(Found { kind: FoundKind::Foreign(_), .. }), Some(Removal::Foreign(_)))
        ) && found.as_ref().is_some_and(|found| found.holders.is_empty()),
        "::FoundKind::Foreign",
        "a value of another dialect has no holders, and is never removed",
        "the node answered {found:?} and {removal:?}"
    );
    shows(&alone, FoundKind::Exclusive, &[&holder], KEY).await;
    holder.is_granted(RELEASE).await;
}
