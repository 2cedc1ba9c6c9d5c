//! Drops every future of the library after every poll. No key, task, connection, subscription or place in a
//! wait queue is left behind (an abandoned attempt leaves nothing behind; dropping is always safe).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, poll};
use redlock_axum::redis_lock;
use redlock_core::{
    Dialect, Leader, LockError, LockGuard, LockHandle, LockManager, LockRequest, OnLost, RunError,
    scope,
};
use redlock_tests::{
    Moment, Nodes, Traces, drop_after, eventually, held_briefly, on_each_kind_of_nodes,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(120);
/// A lease, minimum hold or wait time that ends while a test runs.
const BRIEF: Duration = Duration::from_millis(30);
const KEY: &str = "order:42";

on_each_kind_of_nodes! {
    [
        memory_x1: Nodes::memory(1),
        memory_x5: Nodes::memory(5),
        redis_x1: Nodes::redis(1).await,
    ]
    if_all_kinds [
        redis_x5: Nodes::redis(5).await,
        redis_x1_redisson: Nodes::redis(1).await.redisson(),
    ]
    at_every_poll [
        connect,
        try_acquire,
        acquire,
        acquire_fenced,
        acquire_in_a_scope,
        acquire_behind_another_process,
        acquire_behind_a_caller_of_this_process,
        acquire_fenced_behind_another_process,
        acquire_fenced_behind_a_caller_of_this_process,
        acquire_until_wait_time_ends,
        acquire_several_keys,
        acquire_several_keys_behind_another_process,
        acquire_several_keys_behind_a_caller_of_this_process,
        acquire_several_keys_behind_one_holder_after_another,
        release_several_keys,
        try_acquire_fairly,
        acquire_fairly,
        acquire_fairly_behind_another_process,
        acquire_fairly_behind_a_caller_of_this_process,
        acquire_fairly_behind_a_fair_caller,
        release,
        release_fenced,
        release_to_the_next_waiter,
        extend,
        extend_through_a_handle,
        lost,
        shutdown,
        drain,
        a_scope_with_several_locks,
        run,
        run_fenced_behind_another_process,
        lead,
        lead_behind_another_process,
        a_locked_function,
        a_locked_function_that_aborts_on_loss,
        status,
        break_lock,
        break_lock_of_a_holder_that_has_changed,
    ]
}

// The operations on locks are those of a server, but the connection is made another way.
on_each_kind_of_nodes! {
    []
    if_all_kinds [sentinel_x1: Nodes::sentinel(1).await,]
    at_every_poll [
        connect,
        try_acquire,
        acquire,
        release,
        extend,
        shutdown,
    ]
}

on_each_kind_of_nodes! {
    [
        shared_memory_x1: Nodes::memory(1),
        shared_memory_x5: Nodes::memory(5),
        shared_redis_x1: Nodes::redis(1).await,
    ]
    if_all_kinds [shared_redis_x5: Nodes::redis(5).await,]
    at_every_poll [
        read,
        try_read,
        read_beside_a_reader_of_this_process,
        read_beside_a_reader_that_asks,
        try_read_beside_a_reader_that_asks,
        read_behind_a_writer_of_another_process,
        read_behind_a_reader_that_waits_for_a_writer,
        read_behind_a_writer_of_this_process,
        read_fairly_behind_a_writer_of_another_process,
        write_behind_a_reader_of_another_process,
        write_fenced_behind_a_reader_of_another_process,
        write_behind_a_reader_of_this_process,
        lock_several_keys_behind_a_reader_of_another_process,
        downgrade,
        release_a_shared_lock,
    ]
}

on_each_kind_of_nodes! {
    []
    if_all_kinds [
        split_redis_x3: Nodes::redis(3).await,
        split_redis_x5: Nodes::redis(5).await,
    ]
    at_every_poll [acquire_with_split_votes,]
}

on_each_kind_of_nodes! {
    [
        permits_memory: Nodes::memory(1),
        permits_redis: Nodes::redis(1).await,
    ]
    at_every_poll [
        acquire_a_permit,
        acquire_a_permit_behind_another_process,
        acquire_a_permit_behind_a_caller_of_this_process,
    ]
}

on_each_kind_of_nodes! {
    [redis_x1_beside_a_crowd: Nodes::redis(1).await,]
    at_every_poll_beside_a_crowd [acquire_behind_another_process,]
}

on_each_kind_of_nodes! {
    []
    if_all_kinds [every_redis_x1_beside_a_crowd: Nodes::redis(1).await,]
    at_every_poll_beside_a_crowd [
        try_acquire,
        release,
        run,
        acquire,
        acquire_fenced,
        acquire_behind_a_caller_of_this_process,
        acquire_fairly,
        acquire_fairly_behind_another_process,
        release_to_the_next_waiter,
        extend,
    ]
}

on_each_kind_of_nodes! {
    [cluster: Nodes::cluster().await,]
    at_every_poll [
        acquire,
        acquire_behind_another_process,
        release,
    ]
}

on_each_kind_of_nodes! {
    []
    if_all_kinds [every_cluster: Nodes::cluster().await,]
    at_every_poll [
        connect,
        try_acquire,
        acquire_fenced,
        acquire_in_a_scope,
        acquire_behind_a_caller_of_this_process,
        acquire_fenced_behind_another_process,
        acquire_until_wait_time_ends,
        try_acquire_fairly,
        acquire_fairly,
        acquire_fairly_behind_another_process,
        release_fenced,
        release_to_the_next_waiter,
        extend,
        lost,
        shutdown,
        run,
        read,
        read_behind_a_writer_of_another_process,
        write_behind_a_reader_of_another_process,
        downgrade,
        acquire_a_permit_behind_another_process,
    ]
}

mod thorough {
    use super::*;

    on_each_kind_of_nodes! {
        [
            postgres_x1: Nodes::postgres(1, 0).await,
            postgres_x3: Nodes::postgres(3, 0).await,
            zookeeper_x1: Nodes::zookeeper().await,
        ]
        at_every_poll [
            connect,
            try_acquire,
            acquire,
            acquire_fenced,
            acquire_behind_another_process,
            acquire_behind_a_caller_of_this_process,
            acquire_fenced_behind_another_process,
            acquire_until_wait_time_ends,
            release,
            release_fenced,
            release_to_the_next_waiter,
            extend,
            lost,
            shutdown,
            run,
        ]
    }
}

/// Nodes and two managers that stand for two processes. They live as long as the test.
struct Scene {
    nodes: Nodes,
    locks: LockManager,
    other: LockManager,
    /// Whether a lock can stay after its release, for its `min_hold`.
    holds_longer: bool,
}

impl Scene {
    async fn new(nodes: Nodes) -> Self {
        // Dropped waiters that stayed in the queue would take its only places.
        let manager = async || nodes.builder().max_waiters(2).connect().await.unwrap();
        let (locks, other) = (manager().await, manager().await);
        let acquired = request(&locks, MIN_HOLD).try_acquire().await;
        let holds_longer = !matches!(acquired, Err(LockError::InvalidOption(_)));
        drop(acquired);
        let scene = Self { nodes, locks, other, holds_longer };
        is_free(&scene).await;
        scene
    }
}

/// The point at which a future is dropped: after `polls` polls, at `moment`.
#[derive(Debug, Clone, Copy)]
struct Cut {
    polls: usize,
    moment: Moment,
    /// Selects the options of the request.
    variant: usize,
}

impl Cut {
    /// Polls `future` up to the drop point. Returns its output if it completes earlier.
    async fn off<F: Future>(self, future: F) -> Option<F::Output> {
        drop_after(self.polls, self.moment, future).await
    }
}

/// Resolves to true if the tested future completed before it was dropped.
type Done<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// Drops the future after 0, 1, 2, .. polls until it completes before the drop. Checks each time that nothing
/// is left behind.
async fn at_every_poll(nodes: Nodes, future: for<'a> fn(&'a Scene, Cut) -> Done<'a>) {
    let scene = Scene::new(nodes).await;
    let mut traces = Traces::look(&scene.nodes).await;
    drop_at_every_poll(&scene, &mut traces, VARIANTS, future).await;
}

/// Like [`at_every_poll`], while other callers of the manager have so many commands in flight that each write
/// waits for further commands. Futures are dropped during that pause, too.
async fn at_every_poll_beside_a_crowd(
    nodes: Nodes,
    future: for<'a> fn(&'a Scene, Cut) -> Done<'a>,
) {
    /// Several times `BATCH_FROM` of `redlock-core`, the number of commands in flight from which a write waits.
    const CROWD: usize = 64;
    /// The lowest average number of commands in a write.
    const TOGETHER: usize = 3;

    let scene = Scene::new(nodes).await;
    let (start, started) = watch::channel(false);
    let attempts = Arc::new(AtomicUsize::new(0));
    // The lock is never free, so that an attempt leaves nothing behind.
    let call = || {
        let (locks, attempts, mut started) =
            (scene.locks.clone(), Arc::clone(&attempts), started.clone());
        async move {
            started.wait_for(|started| *started).await.unwrap();
            loop {
                let refused = locks.lock("crowd").expire(LONG).try_acquire().await.unwrap_err();
                assert!(refused.is_contended(), "{refused}");
                attempts.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        crowd.spawn(call());
    }
    let mut traces = Traces::look(&scene.nodes).await;
    traces.set_foreign_key("crowd").await;
    start.send(true).unwrap();
    let (before, reads) = (attempts.load(Ordering::Relaxed), traces.reads().await);
    let many = async || (attempts.load(Ordering::Relaxed) > before + 50 * CROWD).then_some(());
    eventually("the crowd makes attempts", SOON, many).await;
    let reads = traces.reads().await - reads;
    let attempts = attempts.load(Ordering::Relaxed) - before;
    assert!(attempts >= reads * TOGETHER, "{attempts} commands in {reads} writes");
    // Each poll takes many times as long as without the crowd, and the options of a request do not change how its
    // commands are written.
    let variants = if Nodes::all_kinds() { VARIANTS } else { 1 };
    drop_at_every_poll(&scene, &mut traces, variants, future).await;
    assert!(crowd.try_join_next().is_none(), "a caller of the crowd has failed");
}

/// Drops the future after 0, 1, 2, .. polls until it completes before the drop.
async fn drop_at_every_poll(
    scene: &Scene,
    traces: &mut Traces<'_>,
    variants: usize,
    future: for<'a> fn(&'a Scene, Cut) -> Done<'a>,
) {
    let all = 0..variants;
    for variant in all.filter(|variant| *variant != MIN_HOLD || scene.holds_longer) {
        for moment in [Moment::AtOnce, Moment::WhenWoken] {
            for polls in 0.. {
                let cut = Cut { polls, moment, variant };
                let done = tokio::time::timeout(SOON, future(scene, cut)).await.unwrap();
                traces.are_gone(&format!("{cut:?}")).await;
                is_free(scene).await;
                traces.are_gone("acquiring the free lock").await;
                if done {
                    assert!(polls > 0);
                    break;
                }
                assert!(polls < 100, "the future never completes");
            }
        }
    }
}

/// Checks that the lock is free: both managers acquire and release it.
async fn is_free(scene: &Scene) {
    for locks in [&scene.locks, &scene.other] {
        let request = locks.lock(KEY).expire(LONG).wait_time(SOON);
        request.acquire().await.unwrap().release().await.unwrap();
    }
}

const VARIANTS: usize = 4;
/// The variant that not all kinds of nodes support.
const MIN_HOLD: usize = 2;

/// A request with options that change how its lock is held and released.
fn request(locks: &LockManager, variant: usize) -> LockRequest {
    let request = locks.lock(KEY).wait_time(LONG);
    match variant {
        0 => request.expire(LONG),
        1 => request.renew(true).max_hold(LONG),
        MIN_HOLD => request.expire(LONG).min_hold(BRIEF),
        _ => request.expire(LONG).reentrant(true),
    }
}

async fn held(locks: &LockManager, variant: usize) -> LockGuard {
    request(locks, variant).try_acquire().await.unwrap()
}

/// A lock that is soon lost.
async fn lost_soon(locks: &LockManager, fenced: bool) -> LockGuard {
    held_briefly(async || locks.lock(KEY).expire(BRIEF).fenced(fenced).try_acquire().await).await
}

fn connect(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        if cut.variant > 0 {
            return cut.polls > 0;
        }
        // Tasks of a dropped connection to a sentinel end with this timeout.
        let builder = scene.nodes.builder().connect_timeout(Duration::from_secs(2));
        let connected = cut.off(builder.connect()).await;
        connected.is_some_and(|manager| manager.is_ok())
    })
}

fn try_acquire(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let acquired = cut.off(request(&scene.locks, cut.variant).try_acquire()).await;
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn acquire(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let acquired = cut.off(request(&scene.locks, cut.variant).acquire()).await;
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

/// One server is free, and each other one has a holder of its own. So the votes of all attempts are split, and the caller is
/// dropped in each of them, and in the pauses between them.
fn acquire_with_split_votes(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let request = match cut.variant {
            0 => scene.locks.lock(KEY),
            1 => scene.locks.lock(KEY).renew(true),
            2 => scene.locks.lock_all([KEY, "order:43"]),
            _ => scene.locks.lock(KEY).fenced(true),
        };
        let mut others = Vec::new();
        for server in scene.nodes.servers().into_iter().skip(1) {
            let mut probe = server.probe().await;
            let holder = format!("another process on {}", server.port());
            probe.command::<()>(["SET", KEY, &holder, "PX", "300000"]).await;
            others.push(probe);
        }
        let acquired = cut.off(request.expire(LONG).try_acquire()).await;
        for probe in &mut others {
            probe.command::<()>(["DEL", KEY]).await;
        }
        acquired.is_some_and(|acquired| {
            let error = acquired.unwrap_err();
            assert!(error.is_split(), "{error:?}");
            true
        })
    })
}

fn acquire_fenced(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let request = request(&scene.locks, cut.variant).fenced(true);
        let acquired = if cut.moment == Moment::AtOnce {
            cut.off(request.acquire()).await
        } else {
            cut.off(request.try_acquire()).await
        };
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn acquire_in_a_scope(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(scope(async move {
        let outer = held(&scene.locks, cut.variant).await;
        let again = request(&scene.locks, cut.variant).reentrant(true).acquire();
        let shared = cut.off(again).await.map(Result::unwrap);
        assert!(outer.is_valid() && shared.as_ref().is_none_or(|shared| shared.is_valid()));
        drop(outer);
        shared.is_some_and(|shared| shared.is_valid())
    }))
}

/// A request for several keys. The dialect of Redisson has one key only.
fn several(scene: &Scene, variant: usize) -> LockRequest {
    let keys =
        if scene.nodes.dialect() == Dialect::Redisson { &SEVERAL[..1] } else { &SEVERAL[..] };
    let keys = keys.iter().map(|key| format!("{KEY}{key}"));
    let request = scene.locks.lock_all(keys).wait_time(LONG);
    match variant {
        0 => request.expire(LONG),
        1 => request.renew(true).max_hold(LONG),
        2 => request.expire(LONG).min_hold(BRIEF),
        _ => request.expire(LONG).reentrant(true),
    }
}

/// The ends of the keys of a set, after [`KEY`].
const SEVERAL: [&str; 3] = ["", ":b", ":c"];

fn acquire_several_keys(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        if cut.variant == 3 {
            let acquired = cut.off(several(scene, 0).fenced(true).acquire()).await;
            return acquired.is_some_and(|guard| guard.unwrap().is_valid());
        }
        let acquired = cut.off(several(scene, cut.variant).acquire()).await;
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn acquire_several_keys_behind_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        behind(holder, cut, Box::pin(several(scene, cut.variant).acquire())).await
    })
}

fn acquire_several_keys_behind_a_caller_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.locks, 0).await;
        behind(holder, cut, Box::pin(several(scene, cut.variant).acquire())).await
    })
}

/// The caller goes on from the queue of one key to that of another.
fn acquire_several_keys_behind_one_holder_after_another(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let here = scene.locks.lock(format!("{KEY}:b")).expire(LONG).try_acquire().await.unwrap();
        let there = scene.other.lock(format!("{KEY}:c")).expire(LONG).try_acquire().await.unwrap();
        let holder = held(&scene.other, 0).await;
        let release_later = tokio::spawn(async {
            tokio::time::sleep(BRIEF / 10).await;
            here.release().await.unwrap();
            tokio::time::sleep(BRIEF / 10).await;
            there.release().await.unwrap();
        });
        let done = behind(holder, cut, Box::pin(several(scene, cut.variant).acquire())).await;
        release_later.await.unwrap();
        done
    })
}

fn release_several_keys(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = several(scene, cut.variant).try_acquire().await.unwrap();
        cut.off(guard.release()).await.is_some_and(|released| released.is_ok())
    })
}

/// Waits behind `holder`, which releases the lock once the wait has begun. With [`Moment::WhenWoken`] the
/// release falls between two polls, so that a dropped waiter never sees its wake-up. With
/// [`Moment::AtOnce`] it comes right before the next poll.
async fn behind<T, E>(
    holder: LockGuard,
    cut: Cut,
    acquire: impl Future<Output = Result<T, E>>,
) -> bool {
    if cut.moment == Moment::WhenWoken {
        let release_task = tokio::spawn(async { drop(holder) });
        let done = cut.off(acquire).await.is_some_and(|acquired| acquired.is_ok());
        release_task.await.unwrap();
        return done;
    }
    let (mut holder, mut polled) = (Some(holder), 0);
    let waiting = async {
        let mut acquire = pin!(acquire);
        poll_fn(|cx| {
            polled += 1;
            if polled == 1 {
                // Schedules the next poll, so that it does not depend on how the waiter waits.
                cx.waker().wake_by_ref();
            } else {
                drop(holder.take());
            }
            acquire.as_mut().poll(cx)
        })
        .await
    };
    cut.off(waiting).await.is_some_and(|acquired| acquired.is_ok())
}

/// A request that shares the lock.
fn shared(locks: &LockManager, variant: usize) -> LockRequest {
    request(locks, variant).shared(true)
}

fn read(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let acquired = cut.off(shared(&scene.locks, cut.variant).acquire()).await;
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn try_read(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let acquired = cut.off(shared(&scene.locks, cut.variant).try_acquire()).await;
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn read_beside_a_reader_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let other = shared(&scene.locks, 0).try_acquire().await.unwrap();
        let acquired = cut.off(shared(&scene.locks, cut.variant).acquire()).await;
        assert!(other.is_valid());
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

/// The other reader joins the lock of the first one, or asks itself. Which one is cut off depends on the variant.
async fn beside_an_asking_reader(scene: &Scene, cut: Cut, waits: bool) -> bool {
    let read = |variant| {
        let request = shared(&scene.locks, variant);
        if waits { request.acquire().boxed() } else { request.try_acquire().boxed() }
    };
    let (first, second) = if cut.variant == 0 {
        tokio::join!(cut.off(read(0)), async { Some(read(0).await) })
    } else {
        tokio::join!(async { Some(read(0).await) }, cut.off(read(0)))
    };
    let is_valid = |guard: &Option<Result<LockGuard, LockError>>| {
        guard.as_ref().is_none_or(|guard| guard.as_ref().unwrap().is_valid())
    };
    assert!(is_valid(&first) && is_valid(&second));
    first.is_some() && second.is_some()
}

fn read_beside_a_reader_that_asks(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(beside_an_asking_reader(scene, cut, true))
}

fn try_read_beside_a_reader_that_asks(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(beside_an_asking_reader(scene, cut, false))
}

fn read_behind_a_writer_of_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        behind(holder, cut, shared(&scene.locks, cut.variant).acquire()).await
    })
}

/// The first reader asks alone, and the second one joins its lock.
fn read_behind_a_reader_that_waits_for_a_writer(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        let first = tokio::spawn(shared(&scene.locks, 0).wait_forever().acquire());
        let done = behind(holder, cut, shared(&scene.locks, cut.variant).acquire()).await;
        drop(first.await.unwrap().unwrap());
        done
    })
}

fn read_behind_a_writer_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.locks, 0).await;
        behind(holder, cut, shared(&scene.locks, cut.variant).acquire()).await
    })
}

fn read_fairly_behind_a_writer_of_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        behind(holder, cut, shared(&scene.locks, cut.variant).fair(true).acquire()).await
    })
}

fn write_behind_a_reader_of_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = shared(&scene.other, 0).try_acquire().await.unwrap();
        behind(holder, cut, request(&scene.locks, cut.variant).acquire()).await
    })
}

fn write_fenced_behind_a_reader_of_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = shared(&scene.other, 0).try_acquire().await.unwrap();
        behind(holder, cut, request(&scene.locks, cut.variant).fenced(true).acquire()).await
    })
}

fn write_behind_a_reader_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = shared(&scene.locks, 0).try_acquire().await.unwrap();
        behind(holder, cut, request(&scene.locks, cut.variant).acquire()).await
    })
}

fn lock_several_keys_behind_a_reader_of_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = shared(&scene.other, 0).try_acquire().await.unwrap();
        behind(holder, cut, Box::pin(several(scene, cut.variant).acquire())).await
    })
}

fn downgrade(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = held(&scene.locks, cut.variant).await;
        cut.off(guard.downgrade()).await.is_some_and(|changed| changed.is_ok()) && guard.is_shared()
    })
}

fn release_a_shared_lock(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = shared(&scene.locks, cut.variant).try_acquire().await.unwrap();
        cut.off(guard.release()).await.is_some_and(|released| released.is_ok())
    })
}

fn acquire_a_permit(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let other = request(&scene.other, 0).permits(2).try_acquire().await.unwrap();
        let acquired = cut.off(request(&scene.locks, cut.variant).permits(2).acquire()).await;
        assert!(other.is_valid());
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn acquire_a_permit_behind_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = request(&scene.other, 0).permits(1).try_acquire().await.unwrap();
        behind(holder, cut, request(&scene.locks, cut.variant).permits(1).acquire()).await
    })
}

fn acquire_a_permit_behind_a_caller_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = request(&scene.locks, 0).permits(1).try_acquire().await.unwrap();
        behind(holder, cut, request(&scene.locks, cut.variant).permits(1).acquire()).await
    })
}

fn acquire_behind_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        behind(holder, cut, request(&scene.locks, cut.variant).acquire()).await
    })
}

fn acquire_behind_a_caller_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.locks, 0).await;
        behind(holder, cut, request(&scene.locks, cut.variant).acquire()).await
    })
}

fn try_acquire_fairly(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let acquired = cut.off(request(&scene.locks, cut.variant).fair(true).try_acquire()).await;
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn acquire_fairly(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let acquired = cut.off(request(&scene.locks, cut.variant).fair(true).acquire()).await;
        acquired.is_some_and(|guard| guard.unwrap().is_valid())
    })
}

fn acquire_fairly_behind_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        behind(holder, cut, request(&scene.locks, cut.variant).fair(true).acquire()).await
    })
}

fn acquire_fairly_behind_a_caller_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.locks, 0).await;
        behind(holder, cut, request(&scene.locks, cut.variant).fair(true).acquire()).await
    })
}

/// The fair caller of another process is first, and gets the lock when its holder releases it.
fn acquire_fairly_behind_a_fair_caller(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.locks, 0).await;
        let mut first = Box::pin(request(&scene.other, 0).fair(true).acquire());
        // Its ticket is in the queue before that of the tested caller.
        let waits = tokio::time::timeout(Duration::from_millis(5), &mut first).await;
        assert!(waits.is_err());
        let first = tokio::spawn(async move { drop(first.await.unwrap()) });
        let done =
            behind(holder, cut, request(&scene.locks, cut.variant).fair(true).acquire()).await;
        first.await.unwrap();
        done
    })
}

fn acquire_fenced_behind_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        let acquire = Box::pin(request(&scene.locks, cut.variant).fenced(true).acquire());
        behind(holder, cut, acquire).await
    })
}

/// The lock is handed over inside the process, and its new fencing number is confirmed.
fn acquire_fenced_behind_a_caller_of_this_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = request(&scene.locks, 0).fenced(true).try_acquire().await.unwrap();
        let acquire = Box::pin(request(&scene.locks, cut.variant).fenced(true).acquire());
        behind(holder, cut, acquire).await
    })
}

fn acquire_until_wait_time_ends(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let locks = if cut.variant.is_multiple_of(2) { &scene.locks } else { &scene.other };
        let _holder = held(locks, 0).await;
        let waiting = request(&scene.locks, cut.variant).wait_time(BRIEF).acquire();
        cut.off(waiting).await.is_some_and(|refused| refused.unwrap_err().is_contended())
    })
}

fn release(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = held(&scene.locks, cut.variant).await;
        cut.off(guard.release()).await.is_some_and(|released| released.is_ok())
    })
}

fn release_fenced(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = request(&scene.locks, cut.variant).fenced(true).try_acquire().await.unwrap();
        cut.off(guard.release()).await.is_some_and(|released| released.is_ok())
    })
}

fn release_to_the_next_waiter(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = held(&scene.locks, cut.variant).await;
        let next = tokio::spawn(request(&scene.locks, 0).acquire());
        tokio::task::yield_now().await;
        let done = cut.off(guard.release()).await.is_some_and(|released| released.is_ok());
        assert!(next.await.unwrap().unwrap().is_valid());
        done
    })
}

fn extend(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = held(&scene.locks, cut.variant).await;
        let done = cut.off(guard.extend(LONG)).await.is_some_and(|extended| extended.is_ok());
        assert!(guard.is_valid(), "an abandoned extension must not release the lock");
        done
    })
}

fn extend_through_a_handle(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = held(&scene.locks, cut.variant).await;
        let handle = guard.handle();
        let extension = handle.extend(LONG);
        if cut.moment == Moment::AtOnce {
            // The extension may still be pending when the guard releases the lock.
            let done = cut.off(extension).await.is_some_and(|extended| extended.is_ok());
            drop(guard);
            done
        } else {
            let released = async {
                let extended = extension.await;
                guard.release().await.unwrap();
                extended
            };
            cut.off(released).await.is_some_and(|extended| extended.is_ok())
        }
    })
}

fn status(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = held(&scene.locks, cut.variant).await;
        let status = cut.off(scene.other.status(KEY).into_future()).await;
        assert!(guard.is_valid());
        status.is_some_and(|status| status.unwrap().holders().len() == 1)
    })
}

fn break_lock(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = held(&scene.locks, cut.variant).await;
        let seen = scene.other.status(KEY).await.unwrap();
        let broken = cut.off(scene.other.break_lock(KEY, &seen.holders()[0]).into_future()).await;
        drop(guard);
        broken.is_some_and(|broken| broken.is_ok())
    })
}

/// The present holder has its lock on every node afterwards.
fn break_lock_of_a_holder_that_has_changed(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let former = held(&scene.locks, 0).await;
        let seen = scene.other.status(KEY).await.unwrap();
        former.release().await.unwrap();
        let present = scene.locks.lock(KEY).expire(LONG).wait_time(SOON).acquire().await.unwrap();
        scene.nodes.all_hold(KEY).await;
        let broken = cut.off(scene.other.break_lock(KEY, &seen.holders()[0]).into_future()).await;
        assert!(broken.as_ref().is_none_or(Result::is_err), "{broken:?}");
        // The removals that were sent have arrived before the answers to these.
        let status = scene.other.status(KEY).await.unwrap();
        assert_eq!(status.holders()[0].nodes(), scene.nodes.len(), "{status:?}");
        present.extend(LONG).await.unwrap();
        present.release().await.unwrap();
        broken.is_some()
    })
}

fn lost(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let guard = lost_soon(&scene.locks, cut.variant != 0).await;
        if cut.variant < 2 {
            cut.off(guard.lost()).await.is_some()
        } else {
            cut.off(guard.handle().lost()).await.is_some()
        }
    })
}

fn shutdown(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        if cut.variant > 1 {
            return cut.polls > 0;
        }
        let locks = scene.nodes.manager().await;
        let guard = held(&locks, cut.variant).await;
        drop(locks.lock("dropped").expire(LONG).try_acquire().await.unwrap());
        let waiting = tokio::spawn(request(&locks, 0).acquire());
        tokio::task::yield_now().await;
        let done = cut.off(locks.shutdown()).await.is_some();
        drop(guard);
        waiting.abort();
        done
    })
}

fn drain(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        if cut.variant > 1 {
            return cut.polls > 0;
        }
        let locks = scene.nodes.manager().await;
        let waiting = tokio::spawn(behind_the_drain(locks.clone(), cut.variant));
        let work = scope(async {
            let outer = held(&locks, cut.variant).await;
            let mut drained = locks.drain();
            // A caller that holds a lock gets another one.
            let inner = locks.lock("other").expire(LONG).wait_forever().acquire().await.unwrap();
            assert!(poll!(&mut drained).is_pending());
            inner.release().await.unwrap();
            outer.release().await.unwrap();
            drained.await;
        });
        let done = cut.off(work).await.is_some();
        waiting.abort();
        done
    })
}

async fn behind_the_drain(locks: LockManager, variant: usize) {
    let _ = request(&locks, variant).wait_forever().acquire().await;
}

fn a_scope_with_several_locks(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let work = scope(async {
            let one = request(&scene.locks, cut.variant).acquire().await.unwrap();
            let two = scene.locks.lock("other").fenced(true).try_acquire().await.unwrap();
            let shared = request(&scene.locks, 3).acquire().await.unwrap();
            one.extend(LONG).await.unwrap();
            one.release().await.unwrap();
            two.release().await.unwrap();
            shared.release().await.unwrap();
        });
        cut.off(work).await.is_some()
    })
}

fn run(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let request = request(&scene.locks, cut.variant).on_lost(OnLost::Abort);
        let work = async |lock: LockHandle| {
            tokio::task::yield_now().await;
            lock.extend(LONG).await
        };
        cut.off(request.run(work)).await.is_some_and(|ran| ran.unwrap().is_ok())
    })
}

fn run_fenced_behind_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        let request = request(&scene.locks, cut.variant).fenced(true);
        let work = async |_| tokio::task::yield_now().await;
        Box::pin(behind(holder, cut, request.run(work))).await
    })
}

async fn lead_once(locks: &LockManager) -> Result<bool, LockError> {
    let work = async |leader: Leader| {
        tokio::task::yield_now().await;
        leader.is_valid()
    };
    locks.lead(KEY).expire(LONG).run(work).await
}

fn lead(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        cut.off(lead_once(&scene.locks)).await.is_some_and(Result::unwrap_or_default)
    })
}

fn lead_behind_another_process(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(&scene.other, 0).await;
        Box::pin(behind(holder, cut, lead_once(&scene.locks))).await
    })
}

#[redis_lock(key = "order:42", manager = locks, expire = "5m", wait_time = "5m")]
async fn locked(locks: &LockManager) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

#[redis_lock(key = "order:42", manager = locks, renew, on_lost = abort)]
async fn stopped(locks: &LockManager) -> Result<(), RunError> {
    tokio::task::yield_now().await;
    let released = locks.lock("other").try_acquire().await?.release().await;
    released.map_err(|_| LockError::ShutDown.into())
}

fn a_locked_function(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move {
        let holder = held(if cut.variant == 0 { &scene.locks } else { &scene.other }, 0).await;
        Box::pin(behind(holder, cut, locked(&scene.locks))).await
    })
}

fn a_locked_function_that_aborts_on_loss(scene: &Scene, cut: Cut) -> Done<'_> {
    Box::pin(async move { cut.off(stopped(&scene.locks)).await.is_some_and(|done| done.is_ok()) })
}
