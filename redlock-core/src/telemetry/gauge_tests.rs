//! The gauges of held locks and of waiting callers, in paused time.
#![allow(clippy::float_cmp, reason = "the gauges have whole numbers")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::test_util::TestLocks;
use crate::{Holder, LockGuard, LockManager, LockManagerBuilder, LockRequest, MemoryNode, scope};

const SECOND: Duration = Duration::from_secs(1);

/// Keeps the values of all gauges, by name. A snapshot of `metrics-util` sets them to zero.
#[derive(Debug, Default)]
pub(super) struct Gauges(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Gauges {
    /// Returns the sum of the gauges with this name.
    pub(super) fn value(&self, name: &str) -> f64 {
        let gauges = self.0.lock().unwrap();
        let values = gauges.iter().filter(|(key, _)| key.split(' ').next() == Some(name));
        values.map(|(_, value)| f64::from_bits(value.load(Ordering::SeqCst))).sum()
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let labels = key.labels().map(|label| format!(" {}", label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        Gauge::from_arc(Arc::clone(self.0.lock().unwrap().entry(name).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct Setup<'a> {
    gauges: &'a Gauges,
    locks: LockManager,
    node: MemoryNode,
}

impl Setup<'_> {
    fn request(&self) -> LockRequest {
        self.locks.lock("a").named("a").expire(5 * SECOND).wait_time(60 * SECOND)
    }

    async fn guard(&self) -> LockGuard {
        self.request().acquire().await.unwrap()
    }

    /// Returns how many locks the snapshot has, and how many waiters.
    fn in_snapshot(&self) -> [f64; 2] {
        let snapshot = self.locks.snapshot();
        let waiters = snapshot.waiting.iter().map(|key| key.waiters).sum();
        [snapshot.held.len(), waiters].map(|count: usize| f64::from(u32::try_from(count).unwrap()))
    }

    fn in_gauges(&self) -> [f64; 2] {
        ["redlock_held", "redlock_waiting"].map(|name| self.gauges.value(name))
    }

    /// Checks that the gauges have these values, and the snapshot too.
    #[track_caller]
    fn check(&self, held: u32, waiting: u32) {
        assert_eq!(self.in_snapshot(), [held, waiting].map(f64::from), "snapshot");
        assert_eq!(self.in_gauges(), [held, waiting].map(f64::from), "gauges");
    }
}

/// Runs a test with the gauges of a manager on one node.
fn with_gauges(test: impl AsyncFnOnce(Setup<'_>)) {
    let gauges = Gauges::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    metrics::with_local_recorder(&gauges, || {
        runtime.unwrap().block_on(async {
            let clock = Arc::new(RuntimeClock::new());
            let node = MemoryNode::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
            let nodes = vec![Arc::new(node.clone()) as Arc<dyn Node>];
            let locks = LockManagerBuilder::with_nodes(nodes, clock);
            test(Setup { gauges: &gauges, locks, node }).await;
        });
    });
    assert_eq!(["redlock_held", "redlock_waiting"].map(|name| gauges.value(name)), [0.0; 2]);
}

#[test]
fn a_lock_counts_from_its_first_guard_to_its_last() {
    with_gauges(async |setup| {
        setup.check(0, 0);
        let guard = setup.guard().await;
        setup.check(1, 0);
        guard.downgrade().await.unwrap();
        let reader = setup.request().shared(true).try_acquire().await.unwrap();
        setup.check(2, 0);
        drop(guard);
        setup.check(1, 0);
        reader.release().await.unwrap();
        setup.check(0, 0);
        scope(async {
            let guard = setup.guard().await;
            let joined = setup.request().reentrant(true).acquire().await.unwrap();
            setup.check(1, 0);
            drop(guard);
            setup.check(1, 0);
            drop(joined);
            setup.check(0, 0);
        })
        .await;
        let several = setup.locks.lock_all(["a", "b"]).try_acquire().await.unwrap();
        setup.check(1, 0);
        drop(several);
        setup.check(0, 0);
    });
}

/// The nodes have one lock for all of them.
#[test]
fn each_reader_that_shares_a_lock_counts() {
    with_gauges(async |setup| {
        let reader = || setup.request().shared(true);
        let status = async || {
            let status = setup.locks.status("a").await.unwrap();
            status.holders().iter().map(Holder::local_guards).collect::<Vec<_>>()
        };
        let writer = setup.guard().await;
        let mut waiting = [0; 4].map(|_| Box::pin(reader().acquire()));
        for waiter in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        setup.check(1, 4);
        writer.release().await.unwrap();
        let [first, second, third, dropped] = waiting;
        let first = first.await.unwrap();
        // They have joined its lock, and do not have their guards yet.
        setup.check(1, 0);
        let (second, third) = (second.await.unwrap(), third.await.unwrap());
        assert!(!first.has_joined() && second.has_joined() && third.has_joined());
        setup.check(3, 0);
        drop(dropped);
        setup.check(3, 0);
        let short = reader().expire(SECOND).try_acquire().await.unwrap();
        assert!(short.has_joined());
        setup.check(4, 0);
        assert_eq!(status().await, [4]);
        let held = setup.locks.snapshot().held;
        assert!(held.iter().all(|one| one.id == held[0].id && one.guards == 1));
        // The nodes know the acquisition of this guard alone.
        drop(first);
        setup.check(3, 0);
        assert_eq!(status().await, [3]);
        sleep(SECOND).await;
        setup.check(2, 0);
        assert_eq!(status().await, [2]);
        drop(short);
        second.release().await.unwrap();
        setup.check(1, 0);
        assert_eq!(status().await, [1]);
        setup.node.forget();
        third.extend(5 * SECOND).await.unwrap_err();
        setup.check(0, 0);
        assert_eq!(status().await, [0; 0]);
    });
}

/// It has no place in a line that it could leave.
#[test]
fn a_reader_that_waits_for_the_answer_of_another_one_does_not_count() {
    with_gauges(async |setup| {
        let nodes = TestLocks::new(1);
        nodes.nodes()[0].delay(Duration::from_millis(10));
        let setup = Setup { locks: nodes.manager(), ..setup };
        let [mut asks, mut joins, mut dropped] =
            [0; 3].map(|_| Box::pin(setup.request().shared(true).try_acquire()));
        for reader in [&mut asks, &mut joins, &mut dropped] {
            assert!(reader.as_mut().now_or_never().is_none());
        }
        setup.check(0, 0);
        drop(dropped);
        setup.check(0, 0);
        let (asked, joined) = (asks.await.unwrap(), joins.await.unwrap());
        assert!(!asked.has_joined() && joined.has_joined());
        setup.check(2, 0);
    });
}

/// Its own lease is over before it takes the lock that it has joined. It joins the lock of a third reader.
#[test]
fn a_reader_that_takes_its_lock_too_late_waits_no_longer() {
    with_gauges(async |setup| {
        let reader = || setup.request().shared(true);
        let writer = setup.guard().await;
        let [mut first, mut late] = [0; 2].map(|_| Box::pin(reader().acquire()));
        assert!(first.as_mut().now_or_never().is_none() && late.as_mut().now_or_never().is_none());
        writer.release().await.unwrap();
        let first = first.await.unwrap();
        setup.check(1, 0);
        sleep(5 * SECOND).await;
        let third = reader().try_acquire().await.unwrap();
        let late = late.await.unwrap();
        assert!(!first.is_valid() && !third.has_joined() && late.has_joined());
        setup.check(2, 0);
    });
}

#[test]
fn a_waiter_counts_until_it_has_the_lock_or_gives_up() {
    with_gauges(async |setup| {
        let guard = setup.guard().await;
        let mut dropped = Box::pin(setup.request().acquire());
        assert!(dropped.as_mut().now_or_never().is_none());
        let mut waiter = Box::pin(setup.request().acquire());
        assert!(waiter.as_mut().now_or_never().is_none());
        setup.check(1, 2);
        drop(dropped);
        setup.check(1, 1);
        setup.request().try_acquire().await.unwrap_err();
        setup.check(1, 1);
        // The lock is handed over. Until the waiter takes it, nobody has it.
        drop(guard);
        setup.check(0, 0);
        let guard = waiter.await.unwrap();
        setup.check(1, 0);
        let mut waiter = Box::pin(setup.request().acquire());
        assert!(waiter.as_mut().now_or_never().is_none());
        drop(guard);
        // The lock that was handed over is not taken.
        drop(waiter);
        setup.check(0, 0);
        let guard = setup.guard().await;
        setup.request().wait_time(SECOND).acquire().await.unwrap_err();
        setup.check(1, 0);
        // A lock of several keys.
        let several = setup.locks.lock_all(["b", "a"]).named("a").wait_time(60 * SECOND);
        let mut several = Box::pin(several.acquire());
        assert!(several.as_mut().now_or_never().is_none());
        setup.check(1, 1);
        drop(guard);
        let several = several.await.unwrap();
        setup.check(1, 0);
        drop(several);
    });
}

#[test]
fn a_lock_that_is_lost_counts_no_longer() {
    with_gauges(async |setup| {
        let denied = setup.guard().await;
        setup.node.forget();
        denied.extend(5 * SECOND).await.unwrap_err();
        setup.check(0, 0);
        drop(denied);
        setup.check(0, 0);
        // Nobody releases it, and its lease runs out.
        std::mem::forget(setup.guard().await);
        setup.check(1, 0);
        sleep(6 * SECOND).await;
        setup.check(0, 0);
        // Its release finds it gone.
        let gone = setup.guard().await;
        setup.node.forget();
        gone.release().await.unwrap_err();
        setup.check(0, 0);
    });
}

#[test]
fn work_that_panics_and_work_that_is_cancelled_count_no_longer() {
    with_gauges(async |setup| {
        let panics = setup.request().run(async |_| panic!("as the test wants"));
        let panics: Result<Result<(), _>, _> =
            std::panic::AssertUnwindSafe(panics).catch_unwind().await;
        assert!(panics.is_err());
        setup.check(0, 0);
        let hangs = setup.request().run(async |_| std::future::pending::<()>().await);
        let mut hangs = Box::pin(timeout(SECOND, hangs));
        assert!(hangs.as_mut().now_or_never().is_none());
        setup.check(1, 0);
        hangs.await.unwrap_err();
        setup.check(0, 0);
    });
}

#[test]
fn nothing_counts_after_a_shutdown() {
    with_gauges(async |setup| {
        let guard = setup.guard().await;
        let other = setup.locks.lock("b").named("b").try_acquire().await.unwrap();
        let waiter = tokio::spawn(setup.request().acquire());
        sleep(SECOND).await;
        setup.check(2, 1);
        setup.locks.shutdown().await;
        waiter.await.unwrap().unwrap_err();
        setup.check(0, 0);
        drop((guard, other));
        setup.check(0, 0);
    });
}

/// Callers come, give up, hold, lose and pass on their locks in many orders.
#[test]
fn the_gauges_agree_with_the_snapshot_under_load() {
    with_gauges(async |setup| {
        let mut callers = tokio::task::JoinSet::new();
        for number in 0..200_u64 {
            let key = ["a", "b", "c"][usize::try_from(number % 3).unwrap()];
            let request = setup.locks.lock(key).named(key).expire(5 * SECOND);
            let request =
                request.shared(number % 4 == 0).wait_time(Duration::from_millis(number * 50));
            callers.spawn(async move {
                sleep(Duration::from_millis(number * 7 % 400)).await;
                let hold = async |guard: LockGuard| {
                    sleep(Duration::from_millis(number * 13 % 90)).await;
                    match number % 5 {
                        0 => drop(guard),
                        1 => std::mem::forget(guard),
                        _ => guard.release_or_log().await,
                    }
                };
                let work = async {
                    hold(request.acquire().await.ok()?).await;
                    Some(())
                };
                let patience = Duration::from_millis(100 + number * 37 % 5000);
                let _: Result<Option<()>, _> = timeout(patience, work).await;
            });
        }
        let mut seen = 0.0_f64;
        while !callers.is_empty() {
            sleep(Duration::from_millis(3)).await;
            while callers.try_join_next().is_some() {}
            // The keeper notices the end of a lease at the next millisecond of the timers.
            for _ in 0..5 {
                if setup.in_gauges() != setup.in_snapshot() {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            assert_eq!(setup.in_gauges(), setup.in_snapshot());
            seen = seen.max(setup.gauges.value("redlock_waiting"));
        }
        assert!(seen > 10.0, "hardly a caller has waited: {seen}");
        sleep(10 * SECOND).await;
        setup.check(0, 0);
    });
}
