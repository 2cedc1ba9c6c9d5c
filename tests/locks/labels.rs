//! Owner labels, status and break over each kind of nodes.

use std::time::Duration;

use redlock_core::{
    BreakError, Dialect, HoldError, KeyState, LockError, LockGuard, LockManager, LockStatus,
    OwnerLabel,
};
use redlock_tests::{Nodes, eventually, on_each_kind_of_nodes};

/// A lease longer than any test. ZooKeeper grants twice this time, too.
const LONG: Duration = Duration::from_secs(200);
const SOON: Duration = Duration::from_secs(60);
const KEY: &str = "order:42";

on_each_kind_of_nodes! {
    [
        memory_x1: Nodes::memory(1),
        memory_x5: Nodes::memory(5),
        redis_x1: Nodes::redis(1).await,
        redis_x5: Nodes::redis(5).await,
        redis_x1_redisson: Nodes::redis(1).await.redisson(),
        postgres_x1: Nodes::postgres(1, 0).await,
        zookeeper_x1: Nodes::zookeeper().await,
        actor_x1: Nodes::actor(1),
        actor_x3: Nodes::actor(3),
    ]
    if_all_kinds [
        every_redis_x5_redisson: Nodes::redis(5).await.redisson(),
        every_sentinel: Nodes::sentinel(1).await,
        every_cluster: Nodes::cluster().await,
    ]
    [
        every_kind_of_lock_shows_its_label,
        labelled_and_unlabelled_copies_exclude_each_other,
        a_break_ends_the_holder_of_another_process_and_wakes_a_waiter,
        a_holder_that_is_broken_notices_it_within_half_of_its_lease,
        a_break_removes_no_holder_but_the_one_that_was_shown,
    ]
}

/// All characters that have a meaning in the stored text, or in a pattern of a script.
fn longest_label() -> OwnerLabel {
    OwnerLabel::new(&"#@/%".repeat(16)).unwrap()
}

async fn manager(nodes: &Nodes, label: &str) -> LockManager {
    nodes.builder().owner_label(label).connect().await.unwrap()
}

/// Two processes: a shop that has locks, with the longest label, and an operator.
struct Scene {
    nodes: Nodes,
    shop: LockManager,
    ops: LockManager,
    label: Option<OwnerLabel>,
    /// Whether the nodes have shared locks.
    shares: bool,
}

impl Scene {
    async fn new(nodes: Nodes) -> Self {
        let label = longest_label();
        let (shop, ops) = (manager(&nodes, label.as_str()).await, manager(&nodes, "ops").await);
        assert_eq!(shop.owner_label(), Some(&label));
        // The Java client parses the owner of its lock.
        let label = (nodes.dialect() == Dialect::Plain).then_some(label);
        let acquired = ops.lock("a").shared(true).try_acquire().await;
        let shares = !matches!(acquired, Err(LockError::InvalidOption(_)));
        drop(acquired);
        nodes.become_empty().await;
        Self { nodes, shop, ops, label, shares }
    }

    fn is_plain(&self) -> bool {
        self.nodes.dialect() == Dialect::Plain
    }

    /// Returns the status of a lock that all nodes have.
    async fn status(&self, key: &str) -> LockStatus {
        self.nodes.all_hold(key).await;
        self.ops.status(key).await.unwrap()
    }

    /// Checks that a refusal and the status show the label.
    async fn shows_label(&self, key: &str, state: KeyState, what: &str) {
        let seen = self.status(key).await;
        let refused = self.ops.lock(key).expire(LONG).try_acquire().await.unwrap_err();
        assert_eq!(refused.holder(), self.label.as_ref(), "{what}: {refused:?}");
        let text = refused.to_string();
        assert!(!text.contains("#@/%"), "{what}: {text}");
        if let Some(label) = &self.label {
            let diagnostics = refused.diagnostics().to_string();
            assert!(diagnostics.contains(&format!("held by {label}")), "{what}: {diagnostics}");
        }
        assert_eq!(seen.state(), state, "{what}: {seen:?}");
        let [holder] = seen.holders() else { panic!("{what}: {seen:?}") };
        assert_eq!(holder.label(), self.label.as_ref(), "{what}: {seen:?}");
        assert_eq!(holder.since().is_some(), self.label.is_some(), "{what}: {seen:?}");
        assert_eq!(holder.nodes(), self.nodes.len(), "{what}: {seen:?}");
        assert!(holder.remaining().is_some_and(|rest| rest <= LONG * 2), "{what}: {seen:?}");
        assert!(!holder.is_own(), "{what}: {seen:?}");
        let own = self.shop.status(key).await.unwrap();
        assert!(own.holders()[0].is_own() || what == "kept", "{what}: {own:?}");
    }

    /// Checks the label, then that an extension and a release work.
    async fn works(&self, guard: LockGuard, keys: &[&str], state: KeyState, what: &str) {
        for key in keys {
            self.shows_label(key, state, what).await;
        }
        guard.extend(LONG * 2).await.unwrap();
        for key in keys {
            self.shows_label(key, state, what).await;
        }
        guard.release().await.unwrap();
        self.nodes.become_empty().await;
        assert_eq!(self.ops.status(keys[0]).await.unwrap().state(), KeyState::Free, "{what}");
    }
}

async fn every_kind_of_lock_shows_its_label(nodes: Nodes) {
    let mut scene = Scene::new(nodes).await;
    let shop = scene.shop.clone();
    let request = || shop.lock(KEY).expire(LONG);
    let exclusive = request().try_acquire().await.unwrap();
    scene.works(exclusive, &[KEY], KeyState::Exclusive, "exclusive").await;
    let fenced = request().fenced(true).try_acquire().await.unwrap();
    scene.works(fenced, &[KEY], KeyState::Exclusive, "fenced").await;

    let handed_over = loop {
        let first = request().try_acquire().await.unwrap();
        let held = shop.snapshot().held.remove(0);
        let waiting = tokio::spawn(request().wait_time(SOON).acquire());
        eventually("a caller waits", SOON, async || {
            (shop.snapshot().waiting.len() == 1).then_some(())
        })
        .await;
        first.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        let seen = scene.status(KEY).await;
        // A hand-over keeps the text on the nodes, with its time. A lock that was held for 100 ms is released on the nodes
        // instead, and the waiter acquires one of its own.
        if seen.holders()[0].id() == held.id {
            break next;
        }
        next.release().await.unwrap();
    };
    scene.works(handed_over, &[KEY], KeyState::Exclusive, "handed over").await;

    if scene.nodes.len() > 1 {
        let restored = request().try_acquire().await.unwrap();
        scene.nodes.all_hold(KEY).await;
        assert!(scene.nodes[0].delete(KEY).await);
        restored.extend(LONG).await.unwrap();
        scene.works(restored, &[KEY], KeyState::Exclusive, "restored").await;
    }
    if scene.nodes.hold_several_keys().await {
        scene.nodes.become_empty().await;
        let several = shop.lock_all(["a", "b"]).expire(LONG).try_acquire().await.unwrap();
        scene.works(several, &["a", "b"], KeyState::Exclusive, "several keys").await;
    }
    if scene.shares {
        let shared = request().shared(true).try_acquire().await.unwrap();
        scene.works(shared, &[KEY], KeyState::Shared, "shared").await;
        let guard = request().try_acquire().await.unwrap();
        scene.nodes.all_hold(KEY).await;
        guard.downgrade().await.unwrap();
        eventually("the downgrade reaches every node", SOON, async || {
            let seen = scene.ops.status(KEY).await.unwrap();
            (seen.state() == KeyState::Shared && seen.holders()[0].nodes() == scene.nodes.len())
                .then_some(())
        })
        .await;
        drop(guard);
        scene.nodes.become_empty().await;
        if scene.nodes.len() == 1 {
            let permit = request().permits(2).try_acquire().await.unwrap();
            scene.works(permit, &[KEY], KeyState::Shared, "permits").await;
        }
    }
    let kept = match request().keep(true).try_acquire().await {
        // A session of ZooKeeper ends with its process, and its locks with it.
        Err(LockError::InvalidOption(error)) if error.option() == "keep" => return,
        kept => kept.unwrap(),
    };
    scene.nodes.all_hold(KEY).await;
    kept.release().await.unwrap();
    scene.shows_label(KEY, KeyState::Exclusive, "kept").await;
    for store in scene.nodes.iter_mut() {
        store.delete(KEY).await;
    }
}

/// Copies of an older version store no label, either.
async fn labelled_and_unlabelled_copies_exclude_each_other(nodes: Nodes) {
    let scene = Scene::new(nodes).await;
    let off = manager(&scene.nodes, "off").await;
    assert_eq!(off.owner_label(), None);
    for (holder, other, label) in
        [(&off, &scene.shop, None), (&scene.shop, &off, scene.label.as_ref())]
    {
        let modes = if scene.shares { &[false, true][..] } else { &[false] };
        for shared in modes {
            let request = || holder.lock(KEY).expire(LONG).shared(*shared);
            let guard = request().try_acquire().await.unwrap();
            scene.nodes.all_hold(KEY).await;
            let refused = other.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
            assert!(refused.is_contended(), "{refused}");
            assert_eq!(refused.holder(), label, "shared: {shared}");
            let seen = other.status(KEY).await.unwrap();
            assert_eq!(seen.holders()[0].label(), label, "{seen:?}");
            let waiting = tokio::spawn(other.lock(KEY).expire(LONG).wait_time(SOON).acquire());
            guard.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
            scene.nodes.become_empty().await;
        }
    }
}

async fn a_break_ends_the_holder_of_another_process_and_wakes_a_waiter(nodes: Nodes) {
    let scene = Scene::new(nodes).await;
    let request = |locks: &LockManager| locks.lock(KEY).expire(LONG).fenced(true);
    let guard = request(&scene.shop).try_acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    let seen = scene.status(KEY).await;
    let waiting = tokio::spawn(request(&scene.ops).wait_time(SOON).acquire());
    let redisson = format!("redisson_lock__channel:{{{KEY}}}");
    scene.nodes.are_waited_for(if scene.is_plain() { KEY } else { &redisson }, 1).await;
    let broken = scene.ops.break_lock(KEY, &seen.holders()[0]).await.unwrap();
    let rest = broken.may_be_valid_for().unwrap();
    assert!(rest + SOON > LONG && rest < LONG + LONG / 50, "{rest:?}");
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > first);
    let error = guard.extend(LONG).await.unwrap_err();
    assert!(matches!(error, HoldError::Lost(_)), "{error}");
    guard.release().await.unwrap_err();
    assert!(next.is_valid());
    next.extend(LONG).await.unwrap();
    next.release().await.unwrap();
    scene.nodes.become_empty().await;
}

async fn a_holder_that_is_broken_notices_it_within_half_of_its_lease(nodes: Nodes) {
    const LEASE: Duration = Duration::from_secs(12);
    let scene = Scene::new(nodes).await;
    let request = scene.shop.lock(KEY).expire(LEASE).renew(true);
    let guard = request.try_acquire().await.unwrap();
    let seen = scene.status(KEY).await;
    scene.ops.break_lock(KEY, &seen.holders()[0]).await.unwrap();
    tokio::time::timeout(LEASE / 2, guard.lost()).await.unwrap();
    drop(guard);
    scene.nodes.become_empty().await;
}

/// The lock of the next holder, and that of another key, are those of other holders.
async fn a_break_removes_no_holder_but_the_one_that_was_shown(nodes: Nodes) {
    let scene = Scene::new(nodes).await;
    let request = |key: &str| scene.shop.lock(key).expire(LONG);
    let former = request(KEY).try_acquire().await.unwrap();
    let seen = scene.status(KEY).await;
    former.release().await.unwrap();
    scene.nodes.become_empty().await;
    let free = scene.ops.break_lock(KEY, &seen.holders()[0]).await;
    assert!(matches!(free, Err(BreakError::NotHeld { .. })), "{free:?}");
    let (present, other) =
        (request(KEY).try_acquire().await.unwrap(), request("other").try_acquire().await.unwrap());
    for key in [KEY, "other"] {
        let result = scene.ops.break_lock(key, &seen.holders()[0]).await;
        assert!(matches!(result, Err(BreakError::NotHeld { .. })), "{key}: {result:?}");
    }
    for guard in [present, other] {
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
    }
    if scene.shares {
        let reader = |locks: &LockManager| locks.lock(KEY).expire(LONG).shared(true);
        let broken = reader(&scene.shop).try_acquire().await.unwrap();
        let beside = reader(&scene.ops).try_acquire().await.unwrap();
        let both = async || {
            let seen = scene.ops.status(KEY).await.unwrap();
            let all = seen.holders().iter().map(redlock_core::Holder::nodes).sum::<usize>();
            (all == 2 * scene.nodes.len()).then_some(seen)
        };
        let seen = eventually("every node has both readers", SOON, both).await;
        let holder = seen.holders().iter().find(|holder| !holder.is_own()).unwrap();
        scene.ops.break_lock(KEY, holder).await.unwrap();
        broken.extend(LONG).await.unwrap_err();
        beside.extend(LONG).await.unwrap();
        beside.release().await.unwrap();
    }
    scene.nodes.become_empty().await;
}
