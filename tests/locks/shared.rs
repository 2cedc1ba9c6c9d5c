//! Behaviours of shared locks. Each runs on one node and on several, in memory and on real servers.

use std::time::{Duration, Instant};

use redlock_core::{
    HoldError, LockError, LockGuard, LockManager, LockRequest, ReleaseError, scope,
};
use redlock_tests::{
    Nodes, RedisServer, Servers, connect, eventually, held_briefly, on_each_kind_of_nodes,
};
use tokio::time::timeout;

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
/// A lease whose end a test waits for.
const SHORT: Duration = Duration::from_millis(300);
/// A lease that is renewed in time even on a busy machine.
const RENEWED: Duration = Duration::from_millis(1500);
/// How long the mark of a waiting writer lasts, unless the writer withdraws it.
const MARK: Duration = Duration::from_secs(1);
/// Deadline for actions that take no time on an idle machine.
const SOON: Duration = Duration::from_secs(10);
/// More than a server needs to notice that a lock has ended. A server may have set the lock as late as its acquisition
/// returned, so the last end is a lease and this margin after that.
const MARGIN: Duration = Duration::from_millis(50);
const KEY: &str = "catalogue{1}";

on_each_kind_of_nodes! {
    [
        memory_x1: Nodes::memory(1),
        memory_x5: Nodes::memory(5),
        redis_x1: Nodes::redis(1).await,
        sentinel_x1: Nodes::sentinel(1).await,
        redis_x5: Nodes::redis(5).await,
    ]
    if_all_kinds [every_cluster: Nodes::cluster().await,]
    [
        readers_share_the_lock_and_exclude_writers,
        a_writer_excludes_readers_and_writers,
        a_writer_waits_for_the_last_reader,
        a_reader_waits_for_the_writer,
        each_reader_has_its_own_end,
        readers_that_crash_do_not_outlive_their_leases,
        a_waiting_writer_stops_new_readers,
        a_writer_that_gives_up_lets_readers_in,
        a_dead_writers_mark_ends,
        readers_that_are_overtaken_get_a_turn,
        a_reader_extends_its_lease_and_reports_its_loss,
        an_extension_never_shortens_the_lease_of_a_reader,
        a_late_release_of_a_reader_keeps_the_others,
        a_downgrade_lets_readers_in_but_no_writer,
        a_scope_reads_twice_and_never_waits_for_itself,
        a_held_reader_stays_for_its_minimum_time,
        readers_are_not_numbered,
        a_set_waits_for_the_readers_of_its_keys,
    ]
}

on_each_kind_of_nodes! {
    [
        memory: Nodes::memory(1),
        redis: Nodes::redis(1).await,
        sentinel: Nodes::sentinel(1).await,
    ]
    if_all_kinds [every_cluster_with_permits: Nodes::cluster().await,]
    [
        permits_limit_the_number_of_holders,
        callers_with_different_permits_each_keep_to_their_own,
        a_waiter_for_a_permit_counts_the_holders_with_more_permits,
        readers_and_holders_of_permits_exclude_each_other,
        the_permit_of_a_dead_holder_returns,
        waiters_for_permits_are_woken_in_order,
        a_writer_waits_for_all_permits,
    ]
}

on_each_kind_of_nodes! {
    [
        several_memory: Nodes::memory(3),
        several_redis: Nodes::redis(3).await,
    ]
    [
        permits_are_refused,
    ]
}

fn shared(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).shared().expire(LONG)
}

fn exclusive(locks: &LockManager) -> LockRequest {
    locks.lock(KEY).expire(LONG)
}

async fn managers(nodes: &Nodes) -> [LockManager; 3] {
    [nodes.manager().await, nodes.manager().await, nodes.manager().await]
}

async fn is_contended(request: LockRequest) -> bool {
    match request.try_acquire().await {
        Ok(guard) => {
            guard.release().await.unwrap();
            false
        }
        Err(error) => {
            assert!(error.is_contended(), "{error:?}");
            true
        }
    }
}

/// Acquires a lock that ends soon.
async fn short(request: LockRequest) -> LockGuard {
    held_briefly(|| request.clone().expire(SHORT).try_acquire()).await
}

/// Starts to wait for a lock, in a task. Returns when callers of so many managers listen for its release.
async fn waiting(
    nodes: &Nodes,
    request: LockRequest,
    managers: usize,
) -> tokio::task::JoinHandle<LockGuard> {
    let task = tokio::spawn(async move { request.wait_forever().acquire().await.unwrap() });
    nodes.are_waited_for(KEY, managers).await;
    task
}

/// Waits until a waiting writer has left its mark, which keeps out further readers or holders of permits.
async fn is_stopped(request: impl Fn() -> LockRequest) {
    eventually("the writer stops the others", SOON, async || {
        is_contended(request()).await.then_some(())
    })
    .await;
}

/// Checks that a writer withdraws its mark when it gives up: a reader gets in before the mark can have ended by itself.
/// On a busy machine it takes several rounds to see that.
async fn a_reader_gets_in_after(reader: LockRequest, mut gives_up: impl AsyncFnMut()) {
    eventually("a reader gets in before the mark ends", SOON, async || {
        let begun = Instant::now();
        gives_up().await;
        let entering = timeout(SOON, reader.clone().wait_forever().acquire());
        entering.await.unwrap().unwrap().release().await.unwrap();
        (begun.elapsed() < MARK).then_some(())
    })
    .await;
}

async fn soon(task: tokio::task::JoinHandle<LockGuard>) -> LockGuard {
    timeout(SOON, task).await.unwrap().unwrap()
}

async fn readers_share_the_lock_and_exclude_writers(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let mut readers = Vec::new();
    for locks in [&one, &one, &two, &three, &two] {
        let reader = shared(locks).try_acquire().await.unwrap();
        assert!(reader.is_valid() && reader.is_shared());
        readers.push(reader);
    }
    for reader in readers {
        for locks in [&one, &two, &three] {
            assert!(is_contended(exclusive(locks)).await);
        }
        reader.release().await.unwrap();
    }
    nodes.become_empty().await;
    assert!(!is_contended(exclusive(&three)).await);
}

async fn a_writer_excludes_readers_and_writers(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let writer = exclusive(&one).try_acquire().await.unwrap();
    assert!(!writer.is_shared());
    for locks in [&one, &two] {
        assert!(is_contended(shared(locks)).await && is_contended(exclusive(locks)).await);
    }
    writer.release().await.unwrap();
    for locks in [&one, &two] {
        assert!(!is_contended(shared(locks)).await && !is_contended(exclusive(locks)).await);
    }
    nodes.become_empty().await;
}

async fn a_writer_waits_for_the_last_reader(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    // A caller waits for a reader of its own process in that process.
    for (writers, listening) in [(&one, 0), (&three, 1)] {
        let readers =
            [shared(&one).try_acquire().await.unwrap(), shared(&two).try_acquire().await.unwrap()];
        let writer = waiting(&nodes, exclusive(writers), listening).await;
        let [first, last] = readers;
        first.release().await.unwrap();
        assert!(!writer.is_finished());
        last.release().await.unwrap();
        soon(writer).await.release().await.unwrap();
        nodes.become_empty().await;
    }
}

async fn a_reader_waits_for_the_writer(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let writer = exclusive(&one).try_acquire().await.unwrap();
    let readers = [
        waiting(&nodes, shared(&two), 1).await,
        waiting(&nodes, shared(&two), 1).await,
        waiting(&nodes, shared(&one), 1).await,
    ];
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    // All of them hold the lock at the same time.
    let [first, second, third] = readers;
    let guards = [soon(first).await, soon(second).await, soon(third).await];
    assert!(guards.iter().all(|guard| guard.is_valid()));
    for guard in guards {
        guard.release().await.unwrap();
    }
    nodes.become_empty().await;
}

/// The extensions of one reader do not prolong the lease of another one.
async fn each_reader_has_its_own_end(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let long = shared(&two).expire(LONG / 2).try_acquire().await.unwrap();
    let short = short(shared(&one)).await;
    let last_end = Instant::now() + SHORT + MARGIN;
    long.extend(LONG).await.unwrap();
    let lost = timeout(SOON, short.lost()).await;
    assert!(lost.is_ok() && !short.is_valid() && long.is_valid());
    tokio::time::sleep_until(last_end.into()).await;
    assert!(matches!(short.release().await, Err(ReleaseError::Expired { .. })));
    // The lock of the second reader is the last obstacle.
    long.release().await.unwrap();
    exclusive(&three).try_acquire().await.unwrap().release().await.unwrap();
    nodes.become_empty().await;
}

/// Redisson and `DistributedLock` keep the entry of a crashed reader as long as other readers extend the key.
async fn readers_that_crash_do_not_outlive_their_leases(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let living = shared(&two).expire(RENEWED).renew(true).try_acquire().await.unwrap();
    std::mem::forget(short(shared(&one)).await);
    let writer = waiting(&nodes, exclusive(&three), 1).await;
    tokio::time::sleep(RENEWED * 3 / 2).await;
    assert!(!writer.is_finished() && living.is_valid());
    living.release().await.unwrap();
    soon(writer).await.release().await.unwrap();
    nodes.become_empty().await;
}

/// Otherwise readers that never rest would keep the writer out for ever.
async fn a_waiting_writer_stops_new_readers(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    let writer = waiting(&nodes, exclusive(&two), 1).await;
    for locks in [&one, &two, &three] {
        is_stopped(|| shared(locks)).await;
    }
    reader.release().await.unwrap();
    let writer = soon(writer).await;
    let next = waiting(&nodes, shared(&three), 1).await;
    assert!(!next.is_finished());
    writer.release().await.unwrap();
    soon(next).await.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_writer_that_gives_up_lets_readers_in(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    a_reader_gets_in_after(shared(&three), async || {
        let writer = tokio::spawn(exclusive(&two).wait_forever().acquire());
        is_stopped(|| shared(&three)).await;
        writer.abort();
    })
    .await;
    a_reader_gets_in_after(shared(&three), async || {
        let refused = exclusive(&two).wait_time(MARK / 10).acquire().await.unwrap_err();
        assert!(refused.is_contended(), "{refused:?}");
    })
    .await;
    reader.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_dead_writers_mark_ends(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    // The process of the writer ends without a word.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let dying = nodes.builder();
    let dying = runtime.spawn(async move {
        let locks = dying.connect().await.unwrap();
        std::mem::forget(locks.clone());
        std::mem::forget(tokio::spawn(exclusive(&locks).wait_forever().acquire()));
    });
    dying.await.unwrap();
    is_stopped(|| shared(&three)).await;
    runtime.shutdown_background();
    let next = timeout(SOON, shared(&three).wait_forever().acquire()).await;
    next.unwrap().unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    assert!(!is_contended(exclusive(&two)).await);
    nodes.become_empty().await;
}

/// Without the turn, the writer that releases the lock gets it again before a reader of another process has received
/// the message about the release.
async fn readers_that_are_overtaken_get_a_turn(nodes: Nodes) {
    let [writers, others, readers] = managers(&nodes).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let tasks = [writers, others].map(|locks| {
        let stop = stop.clone();
        tokio::spawn(async move {
            let mut turns = 0;
            while !stop.is_cancelled() {
                let guard = exclusive(&locks).wait_forever().acquire().await.unwrap();
                turns += 1;
                guard.release().await.unwrap();
            }
            turns
        })
    });
    for _ in 0..5 {
        let reader = shared(&readers).wait_forever().acquire();
        timeout(SOON, reader).await.unwrap().unwrap().release().await.unwrap();
    }
    stop.cancel();
    let mut turns = 0;
    for task in tasks {
        turns += timeout(SOON, task).await.unwrap().unwrap();
    }
    println!("{turns} turns of writers");
    nodes.become_empty().await;
}

async fn a_reader_extends_its_lease_and_reports_its_loss(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let reader = eventually("an extension in time", SOON, async || {
        let reader = short(shared(&one)).await;
        reader.extend(LONG).await.ok().map(|()| reader)
    })
    .await;
    tokio::time::sleep(SHORT).await;
    assert!(reader.is_valid() && reader.remaining() > LONG / 2);
    assert!(is_contended(exclusive(&two)).await);
    reader.release().await.unwrap();

    // On a busy machine a renewal may come too late.
    let renewed = eventually("renewals in time", SOON, async || {
        let renewed = shared(&one).expire(RENEWED).renew(true).try_acquire().await.ok()?;
        tokio::time::sleep(RENEWED * 3 / 2).await;
        let is_refused = is_contended(exclusive(&two)).await;
        renewed.is_valid().then_some((renewed, is_refused))
    })
    .await;
    assert!(renewed.1);
    renewed.0.release().await.unwrap();

    let lost = short(shared(&one)).await;
    timeout(SOON, lost.lost()).await.unwrap();
    assert!(matches!(lost.extend(LONG).await, Err(HoldError::Lost { .. })));
    nodes.become_empty().await;
}

/// Only the owner releases.
async fn a_late_release_of_a_reader_keeps_the_others(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let (late, dropped) = (short(shared(&one)).await, short(shared(&three)).await);
    let last_end = Instant::now() + SHORT + MARGIN;
    timeout(SOON, async { tokio::join!(late.lost(), dropped.lost()) }).await.unwrap();
    tokio::time::sleep_until(last_end.into()).await;
    let reader = shared(&two).try_acquire().await.unwrap();
    assert!(matches!(late.release().await, Err(ReleaseError::Expired { .. })));
    drop(dropped);
    three.shutdown().await;
    assert!(is_contended(exclusive(&one)).await, "the late release has removed another reader");
    reader.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_downgrade_lets_readers_in_but_no_writer(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let writer = exclusive(&one).try_acquire().await.unwrap();
    let readers = [waiting(&nodes, shared(&two), 1).await, waiting(&nodes, shared(&one), 1).await];
    let handle = writer.handle();
    writer.downgrade().await.unwrap();
    assert!(writer.is_shared() && writer.is_valid() && handle.is_shared());
    for reader in readers {
        soon(reader).await.release().await.unwrap();
    }
    assert!(is_contended(exclusive(&three)).await);
    writer.release().await.unwrap();
    nodes.become_empty().await;
    assert!(!is_contended(exclusive(&three)).await);
}

async fn an_extension_never_shortens_the_lease_of_a_reader(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let reader = shared(&one).try_acquire().await.unwrap();
    nodes.all_hold(KEY).await;
    let other = shared(&two).expire(SHORT).try_acquire().await.unwrap();
    reader.extend(SHORT).await.unwrap();
    drop(other);
    for left in nodes.times_to_live(KEY).await {
        assert!(left > Some(LONG / 2), "{left:?}");
    }
    assert!(reader.is_valid());
    reader.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_scope_reads_twice_and_never_waits_for_itself(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    scope(async {
        let first = shared(&one).try_acquire().await.unwrap();
        let writer = waiting(&nodes, exclusive(&two), 1).await;
        // The writer waits for the scope. The second reader of the scope must not wait for the writer.
        let second = timeout(SOON, shared(&one).wait_forever().acquire()).await.unwrap().unwrap();
        for reentrant in [false, true] {
            let own = exclusive(&one).reentrant(reentrant).wait_forever().acquire();
            let own = timeout(SOON, own).await.unwrap().unwrap_err();
            assert!(matches!(own, LockError::AlreadyHeld { .. }), "{own:?}");
        }
        first.release().await.unwrap();
        assert!(!writer.is_finished());
        second.release().await.unwrap();
        soon(writer).await.release().await.unwrap();

        let writer = exclusive(&one).try_acquire().await.unwrap();
        let refused = shared(&one).wait_forever().acquire();
        let refused = timeout(SOON, refused).await.unwrap().unwrap_err();
        assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
        let reads = shared(&one).reentrant(true).try_acquire().await.unwrap();
        let in_use = writer.downgrade().await.unwrap_err();
        assert!(matches!(in_use, HoldError::InvalidOption(_)), "{in_use:?}");
        reads.release().await.unwrap();
        writer.release().await.unwrap();
    })
    .await;
    nodes.become_empty().await;
}

async fn a_held_reader_stays_for_its_minimum_time(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let begun = Instant::now();
    let reader = shared(&one).min_hold(SHORT).try_acquire().await.unwrap();
    reader.release().await.unwrap();
    assert!(!is_contended(shared(&two)).await);
    let writer = exclusive(&two).wait_forever().acquire().await.unwrap();
    assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
    writer.release().await.unwrap();
    nodes.become_empty().await;
}

async fn readers_are_not_numbered(nodes: Nodes) {
    let [one, ..] = managers(&nodes).await;
    let error = shared(&one).fenced().try_acquire().await.unwrap_err();
    assert!(
        matches!(&error, LockError::InvalidOption(error) if error.option() == "fenced"),
        "{error:?}"
    );
    // A numbered writer waits for readers, and leaves its mark.
    let reader = shared(&one).try_acquire().await.unwrap();
    let locks = nodes.manager().await;
    let writer = tokio::spawn(exclusive(&locks).fenced().wait_forever().acquire());
    is_stopped(|| shared(&one)).await;
    reader.release().await.unwrap();
    let writer = timeout(SOON, writer).await.unwrap().unwrap().unwrap();
    assert!(writer.fencing_token().unwrap().number() > 0);
    writer.release().await.unwrap();
    nodes.become_empty().await;
}

/// The set leaves its mark only at the keys that are shared, and only if no key is held exclusively.
async fn a_set_waits_for_the_readers_of_its_keys(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let set = |locks: &LockManager| locks.lock_all(["a{1}", KEY, "z{1}"]).expire(LONG);
    let readers =
        [shared(&one).try_acquire().await.unwrap(), shared(&two).try_acquire().await.unwrap()];
    let refused = set(&three).try_acquire().await.unwrap_err();
    assert!(refused.is_contended() && refused.key().unwrap().as_str() == KEY, "{refused:?}");
    let other = two.lock("z{1}").expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(set(&three).wait_forever().acquire());
    tokio::time::sleep(MARGIN * 2).await;
    assert!(!is_contended(shared(&one)).await, "a set that waits for another key stops readers");
    other.release().await.unwrap();
    is_stopped(|| shared(&one)).await;
    for reader in readers {
        assert!(!waiting.is_finished());
        reader.release().await.unwrap();
    }
    let guard = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    for locks in [&one, &three] {
        assert!(is_contended(shared(locks)).await);
    }
    let several = guard.downgrade().await.unwrap_err();
    assert!(matches!(several, HoldError::InvalidOption(_)), "{several:?}");
    guard.release().await.unwrap();
    nodes.become_empty().await;

    // A caller that gives up leaves no mark.
    let reader = shared(&one).try_acquire().await.unwrap();
    a_reader_gets_in_after(shared(&two), async || {
        let gives_up = set(&three).fenced().wait_time(MARK / 10).acquire().await;
        assert!(gives_up.unwrap_err().is_contended());
    })
    .await;
    drop(reader);
    nodes.become_empty().await;

    for (option, request) in [
        ("shared", set(&one).shared()),
        ("permits", set(&one).permits(2)),
        ("fair", set(&one).fair()),
    ] {
        let error = request.try_acquire().await.unwrap_err();
        assert!(
            matches!(&error, LockError::InvalidOption(error) if error.option() == option),
            "{error:?}"
        );
    }
}

fn permit(locks: &LockManager, permits: u32) -> LockRequest {
    locks.lock(KEY).permits(permits).expire(LONG)
}

async fn permits_limit_the_number_of_holders(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    for (first, last) in [(&one, &one), (&one, &two), (&two, &one)] {
        let holders = [
            permit(first, 3).try_acquire().await.unwrap(),
            permit(first, 3).try_acquire().await.unwrap(),
            permit(last, 3).try_acquire().await.unwrap(),
        ];
        for locks in [&one, &two] {
            assert!(is_contended(permit(locks, 3)).await);
        }
        let [holder, others @ ..] = holders;
        holder.release().await.unwrap();
        assert!(!is_contended(permit(&two, 3)).await);
        drop(others);
        nodes.become_empty().await;
    }
}

async fn callers_with_different_permits_each_keep_to_their_own(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let _holders = [
        permit(&one, 2).try_acquire().await.unwrap(),
        permit(&one, 2).try_acquire().await.unwrap(),
    ];
    for locks in [&one, &two] {
        assert!(is_contended(permit(locks, 1)).await && is_contended(permit(locks, 2)).await);
        assert!(!is_contended(permit(locks, 3)).await);
    }
}

/// The process of the waiter may not hand it the permit of another holder.
async fn a_waiter_for_a_permit_counts_the_holders_with_more_permits(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let first = permit(&one, 2).try_acquire().await.unwrap();
    let mut others = Vec::new();
    for locks in [&one, &two] {
        others.push(permit(locks, 5).try_acquire().await.unwrap());
    }
    let waiter = waiting(&nodes, permit(&one, 2), 0).await;
    first.release().await.unwrap();
    nodes.all_hold(KEY).await;
    tokio::time::sleep(MARGIN).await;
    assert!(!waiter.is_finished(), "the waiter is a third holder of two permits");
    others.pop().unwrap().release().await.unwrap();
    soon(waiter).await.release().await.unwrap();
    others.pop().unwrap().release().await.unwrap();
    nodes.become_empty().await;
}

async fn readers_and_holders_of_permits_exclude_each_other(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let holder = permit(&one, 2).try_acquire().await.unwrap();
    for locks in [&one, &two] {
        assert!(is_contended(shared(locks)).await && !is_contended(permit(locks, 2)).await);
    }
    let reader = waiting(&nodes, shared(&two), 1).await;
    holder.release().await.unwrap();
    let reader = soon(reader).await;
    for locks in [&one, &two] {
        assert!(is_contended(permit(locks, 2)).await && !is_contended(shared(locks)).await);
    }
    let next = waiting(&nodes, permit(&one, 2), 1).await;
    reader.release().await.unwrap();
    soon(next).await.release().await.unwrap();
    nodes.become_empty().await;
}

async fn the_permit_of_a_dead_holder_returns(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    std::mem::forget(short(permit(&one, 2)).await);
    // It does not write in the meantime.
    let living = permit(&one, 2).try_acquire().await.unwrap();
    let next = permit(&two, 2).wait_forever().acquire();
    let next = timeout(SOON, next).await.unwrap().unwrap();
    assert!(living.is_valid());
    living.release().await.unwrap();
    next.release().await.unwrap();
    nodes.become_empty().await;
}

async fn waiters_for_permits_are_woken_in_order(nodes: Nodes) {
    let [one, two, _] = managers(&nodes).await;
    let holders = [
        permit(&one, 2).try_acquire().await.unwrap(),
        permit(&two, 2).try_acquire().await.unwrap(),
    ];
    let first = waiting(&nodes, permit(&two, 2), 1).await;
    let second = waiting(&nodes, permit(&two, 2), 1).await;
    let third = waiting(&nodes, permit(&two, 2), 1).await;
    let [a, b] = holders;
    a.release().await.unwrap();
    let first = soon(first).await;
    assert!(!second.is_finished() && !third.is_finished());
    b.release().await.unwrap();
    let second = soon(second).await;
    assert!(!third.is_finished());
    first.release().await.unwrap();
    soon(third).await.release().await.unwrap();
    second.release().await.unwrap();
    nodes.become_empty().await;
}

async fn a_writer_waits_for_all_permits(nodes: Nodes) {
    let [one, two, three] = managers(&nodes).await;
    let holders = [
        permit(&one, 5).try_acquire().await.unwrap(),
        permit(&two, 5).try_acquire().await.unwrap(),
    ];
    let writer = waiting(&nodes, exclusive(&three), 1).await;
    is_stopped(|| permit(&two, 5)).await;
    for holder in holders {
        assert!(!writer.is_finished());
        holder.release().await.unwrap();
    }
    let writer = soon(writer).await;
    assert!(is_contended(permit(&two, 5)).await);
    writer.release().await.unwrap();
    nodes.become_empty().await;
}

/// Of three holders of two permits, each could have the votes of other nodes.
async fn permits_are_refused(nodes: Nodes) {
    let locks = nodes.manager().await;
    let error = permit(&locks, 2).try_acquire().await.unwrap_err();
    assert!(
        matches!(&error, LockError::InvalidOption(error) if error.option() == "permits"),
        "{error:?}"
    );
    assert!(error.to_string().contains("3 nodes"), "{error}");
}

/// A server whose memory is full refuses commands that need memory, unless a script has written before.
#[tokio::test]
async fn a_full_server_refuses_new_keys_only() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let (one, two) = (connect([server.url()]).await, connect([server.url()]).await);
    let request = |key: &str| one.lock(key).expire(LONG);
    // All scripts are loaded.
    request("other").shared().try_acquire().await.unwrap().release().await.unwrap();
    let reader = request(KEY).shared().try_acquire().await.unwrap();
    let permit = request("permit").permits(2).try_acquire().await.unwrap();
    let writer = request("writer").try_acquire().await.unwrap();
    let kept = request("kept").shared().min_hold(LONG / 2).try_acquire().await.unwrap();
    probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
    for free in [request("free"), request("free").shared(), request("free").permits(2)] {
        let error = free.try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.diagnostics().to_string().contains("OOM"), "{}", error.diagnostics());
    }
    reader.extend(LONG * 2).await.unwrap();
    permit.extend(LONG * 2).await.unwrap();
    writer.downgrade().await.unwrap();
    writer.extend(LONG * 2).await.unwrap();
    for key in [KEY, "permit", "writer"] {
        assert!(probe.time_to_live(key).await > Some(LONG * 3 / 2), "{key}");
    }
    kept.release().await.unwrap();
    let left = probe.time_to_live("kept").await;
    assert!(left > Some(Duration::ZERO) && left <= Some(LONG / 2), "{left:?}");
    let another = two.lock(KEY).shared().expire(LONG).try_acquire().await.unwrap();
    for guard in [reader, another, permit, writer] {
        guard.release().await.unwrap();
    }
    assert_eq!(probe.keys().await, ["kept"]);
}

/// After a step of the server's clock by an hour, the end of a turn or of a dead writer's mark is an hour away.
#[tokio::test]
async fn entries_from_before_a_step_of_the_clock_keep_nobody_out() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let locks = connect([server.url()]).await;
    for (entry, request) in
        [("t", exclusive(&locks)), ("w:dead", shared(&locks)), ("w:dead", permit(&locks, 2))]
    {
        let time: (i64, i64) = probe.command(["TIME"]).await;
        let end = ((time.0 + 3600) * 1000).to_string();
        probe.command::<()>(["ZADD", KEY, "0", "shared", &format!("-{end}"), entry]).await;
        probe.command::<()>(["PEXPIREAT", KEY, &end]).await;
        let guard = timeout(SOON, request.wait_forever().acquire()).await.unwrap().unwrap();
        // The key ends with its last entry.
        assert!(probe.time_to_live(KEY).await <= Some(LONG), "{entry}");
        guard.release().await.unwrap();
        assert_eq!(probe.keys().await, [""; 0], "{entry}");
    }
}

/// The mark of a writer that has given up may be left on a node that has lost the lock. It refuses a plain acquisition.
#[tokio::test]
async fn an_exclusive_lock_is_restored_over_the_marks_of_writers() {
    let servers = Servers::start(3).await;
    let locks = connect(servers.urls()).await;
    let guard = exclusive(&locks).try_acquire().await.unwrap();
    let mut probe = servers[0].probe().await;
    eventually("the lock is restored before the mark ends", SOON, async || {
        let time: (i64, i64) = probe.command(["TIME"]).await;
        let end = time.0 * 1000 + time.1 / 1000 + 1000;
        probe.command::<()>(["DEL", KEY]).await;
        probe.command::<()>(["ZADD", KEY, "0", "shared", &format!("-{end}"), "w:left"]).await;
        probe.command::<()>(["PEXPIREAT", KEY, &end.to_string()]).await;
        guard.extend(LONG).await.unwrap();
        loop {
            let kind: String = probe.command(["TYPE", KEY]).await;
            let time: (i64, i64) = probe.command(["TIME"]).await;
            if kind == "string" || time.0 * 1000 + time.1 / 1000 >= end {
                return (kind == "string" && time.0 * 1000 + time.1 / 1000 < end).then_some(());
            }
        }
    })
    .await;
    guard.release().await.unwrap();
}

/// The lease on a server may end before the minimum time, if somebody else has shortened it.
#[tokio::test]
async fn a_minimum_time_never_prolongs_the_lease_of_a_reader() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let locks = connect([server.url()]).await;
    let reader = shared(&locks).min_hold(LONG).try_acquire().await.unwrap();
    let entries: Vec<String> = probe.command(["ZRANGE", KEY, "-1", "-1"]).await;
    let time: (i64, i64) = probe.command(["TIME"]).await;
    let end = ((time.0 + 60) * 1000).to_string();
    probe.command::<()>(["ZADD", KEY, &end, &entries[0]]).await;
    reader.release().await.unwrap();
    let score: i64 = probe.command(["ZSCORE", KEY, &entries[0]]).await;
    assert_eq!(score.to_string(), end);
}
