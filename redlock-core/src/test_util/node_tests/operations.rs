//! Behaviours of a node that is called without a manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;

use super::{BRIEF, KEY, LONG, PATIENCE, TestStores, contract, eventually, lease, nodes_of};
use crate::LockManager;
use crate::error::Vote;
use crate::key::LockKey;
use crate::lock::{Dialect, HolderId, Keys, LockSpec, Mode, OwnerLabel, Token};
use crate::node::{Action, Ask, Fencing, Node, Op, Reply, ReplyFuture};

pub(super) const RELEASE: Action = Action::Release { min_hold: None };
/// The greatest number that every store and every client can represent.
const GREATEST_NUMBER: i64 = (1 << 53) - 1;

/// A node of a manager that connects it, but sends nothing.
pub(super) struct Alone {
    locks: LockManager,
    node: Arc<dyn Node>,
    long: Duration,
}

/// A token that requests a lock.
#[derive(Clone)]
pub(super) struct Caller {
    node: Arc<dyn Node>,
    spec: LockSpec,
    token: Token,
}

impl Alone {
    /// Connects a node to the first store.
    pub(super) async fn connect(stores: &TestStores) -> Self {
        let connected = stores.builder_of(0).connect().await;
        let locks = connected.unwrap_or_else(|error| panic!("{error}"));
        let node = Arc::clone(&nodes_of(&locks)[0]);
        let long = lease(&locks, LONG);
        Self { locks, node, long }
    }

    /// Returns a caller with a token of its own.
    pub(super) fn caller(&self, keys: &[&str], mode: Mode) -> Caller {
        let keys = Keys::collect(keys.iter().map(LockKey::new));
        let keys = keys.unwrap_or_else(|error| panic!("{error}"));
        let (prefix, dialect) =
            (&self.locks.context().prefix, self.locks.context().defaults.dialect);
        let spec = LockSpec::with_prefix(prefix, &keys, mode, dialect);
        Caller { node: Arc::clone(&self.node), spec, token: Token::random(dialect) }
    }

    pub(super) fn exclusive(&self, key: &str) -> Caller {
        self.caller(&[key], Mode::Exclusive)
    }

    pub(super) fn acquire(&self) -> Action {
        acquire(self.long, false)
    }

    /// Returns an extension, which only the holder is granted.
    pub(super) fn extend(&self) -> Action {
        Action::Extend { lease: self.long }
    }

    /// Returns the lease of its acquisitions.
    pub(super) fn long(&self) -> Duration {
        self.long
    }

    /// Returns whether the node has shared locks.
    pub(super) fn shares(&self) -> bool {
        self.node.capabilities().shared && self.locks.context().defaults.dialect == Dialect::Plain
    }
}

fn acquire(lease: Duration, fenced: bool) -> Action {
    Action::Acquire { lease, fenced, ask: Ask::FIRST }
}

impl Caller {
    /// Returns a caller for the same lock, with a token that has the label of the manager.
    pub(super) fn labelled(self, alone: &Alone) -> Self {
        let context = alone.locks.context();
        let clock = &*context.ballot.clock;
        let token = context.owner.token(self.spec.dialect(), clock, clock.now());
        Self { token, ..self }
    }

    /// Returns a caller with the same token for the same key in another dialect.
    pub(super) fn in_dialect(&self, dialect: Dialect) -> Self {
        let spec = LockSpec::new(self.spec.key().clone(), self.spec.mode(), dialect);
        Self { spec, ..self.clone() }
    }

    pub(super) fn node(&self) -> &dyn Node {
        &*self.node
    }

    pub(super) fn spec(&self) -> &LockSpec {
        &self.spec
    }

    pub(super) fn holder_id(&self) -> HolderId {
        self.token.holder_id()
    }

    pub(super) fn label_and_since(&self) -> (Option<OwnerLabel>, Option<SystemTime>) {
        (self.token.label(), self.token.since())
    }

    pub(super) fn call(&self, action: Action) -> ReplyFuture {
        self.node.call(Op::new(&self.spec, self.token, action))
    }

    async fn reply(&self, action: Action) -> Reply {
        let reply = tokio::time::timeout(PATIENCE, self.call(action)).await;
        reply.unwrap_or_else(|_| panic!("the node did not reply to {action:?} within {PATIENCE:?}"))
    }

    /// Checks the vote on an action.
    async fn votes(&self, action: Action, expected: &Vote, when: &str) -> Reply {
        let reply = self.reply(action).await;
        let vote = &reply.vote;
        assert!(
            std::mem::discriminant(vote) == std::mem::discriminant(expected),
            "the node voted {vote:?} on {action:?}, although {when}. The contract says: then the vote is {expected:?} \
             (redlock_core::node::Action)"
        );
        reply
    }

    pub(super) async fn is_granted(&self, action: Action) -> Reply {
        self.votes(action, &Vote::Agreed, "the lock is free or the token holds it").await
    }

    async fn is_refused(&self, action: Action) -> Reply {
        self.votes(action, &Vote::held(None), "other tokens hold the lock").await
    }

    pub(super) async fn does_not_hold(&self, action: Action) {
        self.votes(action, &Vote::NotHeld, "the token does not hold the lock").await;
    }

    /// Returns the lease that the store has for this lock.
    async fn left(&self, stores: &TestStores) -> Duration {
        stores[0].remaining(self.spec.name()).await.unwrap_or_default()
    }

    /// Acquires the lock for a short time, and waits until the lease is over.
    async fn loses_its_lease(&self, alone: &Alone, stores: &TestStores) {
        self.is_granted(acquire(lease(&alone.locks, BRIEF), false)).await;
        let is_over = async || stores[0].remaining(self.spec.name()).await.is_none();
        eventually("the store frees a lock when its lease is over", is_over).await;
    }
}

/// A manager sets its lock again on a node that seems to have lost it. Passes for the dialect of Redisson, which counts
/// the acquisitions of a holder.
pub async fn an_acquisition_by_its_holder_is_granted_again(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    if alone.locks.context().defaults.dialect != Dialect::Plain {
        return;
    }
    let [holder, other] = [alone.exclusive(KEY), alone.exclusive(KEY)];
    holder.is_granted(alone.acquire()).await;
    let Action::Acquire { lease, fenced, .. } = alone.acquire() else { return };
    // A node that knows marks may refuse any other acquisition by its holder.
    let ask = Ask { met_marks: true, waits: true, ..Ask::FIRST };
    let again = Action::Acquire { lease, fenced, ask };
    holder.is_granted(again).await;
    other.is_refused(alone.acquire()).await;
    holder.is_granted(RELEASE).await;
    other.is_granted(alone.acquire()).await;
}

/// The refused token holds nothing, and the lease of the holder stays as it is.
pub async fn a_refusal_changes_nothing_and_reports_the_remaining_lease(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let [holder, other] = [alone.exclusive(KEY), alone.exclusive(KEY)];
    let half = lease(&alone.locks, alone.long / 2);
    holder.is_granted(acquire(half, false)).await;
    let refusal = other.is_refused(alone.acquire()).await;
    let left = holder.left(&stores).await;
    contract!(
        left <= half && left + PATIENCE > half,
        "::Action",
        "a refusal changes nothing",
        "after a refusal, the lease of the holder is {left:?} instead of {half:?}"
    );
    if let Vote::Held { remaining: Some(remaining), .. } = refusal.vote {
        contract!(
            remaining <= half && remaining + PATIENCE >= half,
            "::Vote::Held",
            "a refusal reports the remaining lease of the holder, or nothing",
            "the node reported {remaining:?} for a lease of {half:?}"
        );
    }
    other.does_not_hold(Action::Extend { lease: alone.long }).await;
    other.does_not_hold(RELEASE).await;
    holder.is_granted(RELEASE).await;
}

/// Every node has the same id for a holder, also after an extension. A wrong id could make a caller ask again and again
/// although somebody has the lock, or give up although nobody has it.
pub async fn a_refusal_names_the_holder_or_nobody(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    for _ in 0..2 {
        let [holder, other] = [alone.exclusive(KEY), alone.exclusive(KEY)];
        holder.is_granted(alone.acquire()).await;
        for extends in [false, true] {
            if extends {
                holder.is_granted(Action::Extend { lease: alone.long }).await;
            }
            let refusal = other.is_refused(alone.acquire()).await;
            let (id, named) = (holder.token.holder_id(), refusal.vote.holder());
            contract!(
                named.is_none_or(|named| named == id),
                "::Vote::Held",
                "a refusal names the holder by the id of its token, or nobody",
                "the node named {named:?} instead of {id}"
            );
        }
        holder.is_granted(RELEASE).await;
    }
}

/// An extension to a shorter lease is granted without an effect. No action revives a lease that is over.
pub async fn an_extension_neither_shortens_nor_revives_a_lease(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let holder = alone.exclusive(KEY);
    let [long, half] = [alone.long, lease(&alone.locks, alone.long / 2)];
    holder.is_granted(acquire(half, false)).await;
    for (lease, expected) in [(half / 2, half), (long, long)] {
        holder.is_granted(Action::Extend { lease }).await;
        let left = holder.left(&stores).await;
        contract!(
            left <= expected && left + PATIENCE > expected,
            "::Action::Extend",
            "it extends the lease to at least this time from now, and never shortens it",
            "the extension of a lease of {half:?} to {lease:?} left {left:?}"
        );
    }
    let late = alone.exclusive("late");
    late.loses_its_lease(&alone, &stores).await;
    late.does_not_hold(Action::Extend { lease: long }).await;
    let next = alone.exclusive("late");
    next.is_granted(alone.acquire()).await;
}

/// The actions of other tokens, and of a token whose lease is over, change nothing.
pub async fn only_the_token_of_the_holder_releases(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let [late, holder] = [alone.exclusive(KEY), alone.exclusive(KEY)];
    late.loses_its_lease(&alone, &stores).await;
    late.does_not_hold(RELEASE).await;
    holder.is_granted(alone.acquire()).await;
    for other in [late, alone.exclusive(KEY)] {
        other.does_not_hold(RELEASE).await;
        if alone.node.capabilities().min_hold {
            other.does_not_hold(Action::Release { min_hold: Some(BRIEF) }).await;
        }
        other.does_not_hold(Action::Extend { lease: alone.long }).await;
    }
    let left = holder.left(&stores).await;
    contract!(
        left > alone.long / 2,
        "::Action",
        "an operation by a token that does not hold the lock changes nothing",
        "operations of other tokens left {left:?} of the lease of the holder"
    );
    holder.is_granted(RELEASE).await;
    holder.does_not_hold(RELEASE).await;
}

/// The lock stays for the rest of the time, and then frees itself. Passes if the node does not claim
/// [`min_hold`](crate::node::Capabilities::min_hold).
pub async fn a_release_with_min_hold_shortens_the_lease_and_never_extends_it(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    if !alone.node.capabilities().min_hold {
        return;
    }
    let [long, half] = [alone.long, lease(&alone.locks, alone.long / 2)];
    for (key, expire, min_hold) in [("shorter", long, half), ("longer", half, long)] {
        let holder = alone.exclusive(key);
        holder.is_granted(acquire(expire, false)).await;
        holder.is_granted(Action::Release { min_hold: Some(min_hold) }).await;
        let left = holder.left(&stores).await;
        contract!(
            left <= half && left + PATIENCE > half,
            "::Action::Release",
            "a release with min_hold shortens the lease to this time, and never extends it",
            "a release with min_hold {min_hold:?} left {left:?} of a lease of {expire:?}"
        );
        alone.exclusive(key).is_refused(alone.acquire()).await;
    }
}

/// The release is polled while the reply to the acquisition is on its way.
pub async fn a_release_is_executed_after_its_acquisition(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    for number in 0..50 {
        let holder = alone.exclusive(&format!("order:{number}"));
        // `join` polls the futures in this order.
        let both = futures_util::future::join(holder.call(alone.acquire()), holder.call(RELEASE));
        let (acquired, released) = both.await;
        contract!(
            [&acquired.vote, &released.vote] == [&Vote::Agreed; 2],
            "#order",
            "operations are executed in the order in which their futures were first polled",
            "an acquisition and its release were voted {:?} and {:?}",
            acquired.vote,
            released.vote
        );
    }
    let left = stores.locks().await;
    contract!(
        left == 0,
        "#order",
        "a release never overtakes its acquisition",
        "{left} locks stay"
    );
}

/// The callers use two nodes over the same store, which checks and sets a lock in one step.
pub async fn of_callers_at_once_one_is_granted(stores: TestStores) {
    let (here, there) = (Alone::connect(&stores).await, Alone::connect(&stores).await);
    for number in 0..50 {
        let key = format!("order:{number}");
        let callers = [&here, &there].map(|alone| [(); 4].map(|()| alone.exclusive(&key)));
        let replies = callers.as_flattened().iter().map(|caller| caller.reply(here.acquire()));
        let replies = futures_util::future::join_all(replies).await;
        let granted = replies.iter().filter(|reply| reply.vote == Vote::Agreed).count();
        contract!(
            granted == 1,
            "::Action",
            "an acquisition sets a lock if there is none, in one step",
            "of {} acquisitions at once, {granted} were granted",
            replies.len()
        );
    }
}

/// A caller drops the future of an operation before its first poll. Passes if the node replies inside of
/// [`call`](Node::call), as a store in memory may.
pub async fn a_future_that_was_never_polled_executes_nothing(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let [dropped, holder] = [alone.exclusive(KEY), alone.exclusive(KEY)];
    let acquisition = dropped.call(alone.acquire());
    if acquisition.as_ready().is_some() {
        return;
    }
    holder.is_granted(alone.acquire()).await;
    drop(holder.call(RELEASE));
    dropped.is_refused(alone.acquire()).await;
    drop(acquisition);
    holder.is_granted(RELEASE).await;
    alone.exclusive(KEY).is_granted(alone.acquire()).await;
}

/// A release by one node notifies the subscribers of another node over the same store. Notifications may get lost, so
/// several releases follow each other. Passes if the store does not [notify](super::TestStore::notifies).
pub async fn a_release_notifies_the_subscribers_of_other_nodes(stores: TestStores) {
    if !stores[0].notifies() {
        return;
    }
    let (here, there) = (Alone::connect(&stores).await, Alone::connect(&stores).await);
    let min_hold = Some(lease(&here.locks, BRIEF)).filter(|_| here.node.capabilities().min_hold);
    for min_hold in [None].into_iter().chain(min_hold.map(Some)) {
        let key = format!("kept:{}", min_hold.is_some());
        let holder = there.exclusive(&key);
        let notified = Arc::new(AtomicBool::new(false));
        let notify = {
            let notified = Arc::clone(&notified);
            Arc::new(move || notified.store(true, Ordering::SeqCst))
        };
        let mut subscription = here.node.subscribe(&here.exclusive(&key).spec, notify);
        if let Some(ready) = subscription.take_ready() {
            let ready = tokio::time::timeout(PATIENCE, ready).await;
            contract!(
                ready.is_ok(),
                "::Subscription::ready_after",
                "the future completes when the subscription is in effect, or can never be",
                "a subscription was not ready within {PATIENCE:?}"
            );
        }
        eventually(
            "a release notifies a subscriber, see redlock_core::node::Node::subscribe (if waiters poll, \
             TestStore::notifies returns false)",
            async || {
                if holder.reply(there.acquire()).await.vote == Vote::Agreed {
                    holder.is_granted(Action::Release { min_hold }).await;
                }
                notified.load(Ordering::SeqCst)
            },
        )
        .await;
    }
}

/// Each holder gets a greater number. Passes if the node does not claim [`Fencing`].
pub async fn each_number_is_greater_than_all_before(stores: TestStores) {
    let (here, there) = (Alone::connect(&stores).await, Alone::connect(&stores).await);
    let fencing = here.node.capabilities().fencing;
    if fencing == Fencing::None {
        return;
    }
    let mut last = 0;
    for turn in 0..10 {
        let alone = if turn % 2 == 0 { &here } else { &there };
        let holder = alone.exclusive(KEY);
        let number = holder.is_granted(acquire(alone.long, true)).await.number;
        contract!(
            number.is_some_and(|number| (last + 1..=GREATEST_NUMBER).contains(&number)),
            "::Reply::number",
            "each number is greater than all before, from 1 to 2^53 - 1",
            "the number after {last} is {number:?}"
        );
        last = number.unwrap_or_default();
        if fencing == Fencing::Quorum {
            let number = last + 1_000_000_000;
            // A lower number changes nothing.
            for number in [number, last] {
                holder.is_granted(Action::Confirm { number }).await;
            }
            alone
                .exclusive(KEY)
                .does_not_hold(Action::Confirm { number: number + 1_000_000 })
                .await;
            last = number;
        }
        holder.is_granted(RELEASE).await;
    }
}

/// Keys with unusual characters, and long ones, name different locks.
pub async fn different_keys_are_different_locks(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let long = |end: &str| format!("{}{end}", "x".repeat(199));
    let keys = [
        "a",
        "A",
        "a ",
        "a'b",
        "a\"b",
        "a`b",
        "a%b",
        "a%%b",
        "a%20b",
        "a/b",
        "a\\b",
        "a{b}",
        "a;--",
        "$1",
        "\u{1f512}",
    ];
    // Two spellings of é.
    let keys = keys.into_iter().chain(["\u{e9}", "e\u{301}"]).map(str::to_owned);
    let keys: Vec<_> = keys.chain([long("a"), long("b")]).collect();
    let count = keys.len();
    for key in &keys {
        let holder = alone.exclusive(key);
        holder.is_granted(alone.acquire()).await;
        let left = holder.left(&stores).await;
        contract!(
            !left.is_zero(),
            "::LockSpec::name",
            "the lock has this name",
            "no lock is at {key:?}"
        );
    }
    let locks = stores.locks().await;
    contract!(
        locks == count,
        "#writing-a-node",
        "locks differ by their names",
        "{locks} of {count} locks are held"
    );
}

/// The ID comes from the store. Passes if the node does not know it.
pub async fn nodes_over_one_store_have_the_same_id(stores: TestStores) {
    let (one, other) = (Alone::connect(&stores).await, Alone::connect(&stores).await);
    let [one, other] = [one, other].map(|alone| alone.node.store_id());
    contract!(
        one == other,
        "::Node::store_id",
        "two nodes over one store have the same ID",
        "two nodes over one store have the IDs {one:?} and {other:?}"
    );
}

/// A guard may be dropped in a thread without a runtime.
pub async fn a_node_works_outside_of_a_runtime(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let holder = alone.exclusive(KEY);
    for action in [alone.acquire(), Action::Extend { lease: alone.long }, RELEASE] {
        let holder = holder.clone();
        let first_poll = move || {
            drop(holder.node.subscribe(&holder.spec, Arc::new(|| {})));
            let mut reply = holder.call(action);
            let ready = (&mut reply).now_or_never();
            (reply, ready)
        };
        let polled = std::thread::spawn(first_poll).join();
        let Ok((reply, ready)) = polled else {
            panic!(
                "the node panicked in a thread without a runtime. The contract says: `call`, `subscribe`, and the \
                 first poll of a future may happen on any thread (redlock_core::node#threads-and-runtimes)"
            )
        };
        let reply = match ready {
            Some(reply) => reply,
            None => tokio::time::timeout(PATIENCE, reply).await.unwrap_or_else(|_| {
                panic!(
                    "the node did not reply to {action:?}. The contract says: the first poll sends the operation \
                     (redlock_core::node#threads-and-runtimes)"
                )
            }),
        };
        assert_eq!(reply.vote, Vote::Agreed, "{action:?} outside of a runtime");
    }
}

/// The store has lost the lock. Passes if the store cannot [delete](super::TestStore::delete) a lock.
pub async fn a_deleted_lock_is_not_held(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    let holder = alone.exclusive(KEY);
    holder.is_granted(alone.acquire()).await;
    if !stores.delete(holder.spec.name()).await {
        return;
    }
    holder.does_not_hold(Action::Extend { lease: alone.long }).await;
    if alone.node.capabilities().fencing == Fencing::Quorum {
        holder.does_not_hold(Action::Confirm { number: 1 }).await;
    }
    holder.does_not_hold(RELEASE).await;
    alone.exclusive(KEY).is_granted(alone.acquire()).await;
}

/// Passes if the node does not claim [`shared`](crate::node::Capabilities::shared).
pub async fn a_shared_lock_has_several_holders_and_excludes_others(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    if !alone.node.capabilities().shared || alone.locks.context().defaults.dialect != Dialect::Plain
    {
        return;
    }
    let [one, other] = [alone.caller(&[KEY], Mode::SHARED), alone.caller(&[KEY], Mode::SHARED)];
    let writer = alone.exclusive(KEY);
    one.is_granted(alone.acquire()).await;
    other.is_granted(alone.acquire()).await;
    for reader in [one, other] {
        writer.is_refused(alone.acquire()).await;
        reader.is_granted(RELEASE).await;
    }
    writer.is_granted(alone.acquire()).await;
    alone.caller(&[KEY], Mode::SHARED).is_refused(alone.acquire()).await;
}

/// Passes if the node does not claim [`several_keys`](crate::node::Capabilities::several_keys).
pub async fn a_lock_of_several_keys_is_set_on_all_or_none(stores: TestStores) {
    let alone = Alone::connect(&stores).await;
    if !alone.node.capabilities().several_keys
        || alone.locks.context().defaults.dialect != Dialect::Plain
    {
        return;
    }
    let [a, b, c] = ["{set}:a", "{set}:b", "{set}:c"];
    let [holder, other] = [[a, b], [b, c]].map(|keys| alone.caller(&keys, Mode::Exclusive));
    holder.is_granted(alone.acquire()).await;
    other.is_refused(alone.acquire()).await;
    let single = alone.exclusive(c);
    single.is_granted(alone.acquire()).await;
    single.is_granted(RELEASE).await;
    holder.is_granted(RELEASE).await;
    other.is_granted(alone.acquire()).await;
}
