//! Holders and waiters of one process whose modes are compatible, in paused time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::tests::{SECOND, settle};
use crate::lock::Mode;
use crate::lock::Mode::Exclusive;
use crate::test_util::TestLocks;
use crate::{LockError, LockGuard, LockManager, LockRequest};

const LEASE: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(10);

type Waiter = JoinHandle<Result<LockGuard, LockError>>;

/// The callers of one key.
struct Process(LockManager);

impl Process {
    fn new() -> Self {
        Self(TestLocks::new(1).manager())
    }

    fn request(&self, mode: Mode, lease: Duration) -> LockRequest {
        let request = self.0.lock("a").expire(lease);
        if mode == Exclusive { request } else { request.shared(true) }
    }

    async fn grant(&self, mode: Mode, lease: Duration) -> LockGuard {
        self.request(mode, lease).try_acquire().await.unwrap()
    }

    /// Adds a waiter, and lets it wait.
    async fn wait(&self, mode: Mode) -> Waiter {
        let waiter = tokio::spawn(self.request(mode, LEASE).wait_forever().acquire());
        settle().await;
        waiter
    }

    /// Returns for how long a caller that requests the lock in this mode would have to wait for the holders of this process.
    async fn conflict(&self, mode: Mode) -> Option<Duration> {
        match self.request(mode, LEASE).try_acquire().await {
            Ok(_) => None,
            Err(LockError::Contended { remaining, votes, .. }) if votes.is_empty() => remaining,
            Err(error) => panic!("{error}"),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.queues().is_empty()
    }
}

async fn release(guard: LockGuard) {
    guard.release().await.unwrap();
}

async fn still_waits(waiter: &Waiter) -> bool {
    settle().await;
    !waiter.is_finished()
}

/// Returns the lock of a waiter that no other caller blocks any more.
async fn entered(waiter: Waiter) -> LockGuard {
    assert!(!still_waits(&waiter).await, "the waiter was not woken");
    waiter.await.unwrap().unwrap()
}

/// The lock stays held until each of the holders has released it.
#[tokio::test(start_paused = true)]
async fn compatible_holders_hold_the_lock_side_by_side() {
    for leases in [[5 * SECOND, LEASE], [LEASE, 5 * SECOND]] {
        let process = Process::new();
        let [one, other] = leases.map(|lease| process.grant(Mode::SHARED, lease));
        let (one, other) = (one.await, other.await);
        assert_eq!(process.conflict(Mode::SHARED).await, None);
        let longest = process.conflict(Exclusive).await;
        assert!(longest > Some(5 * SECOND), "of two leases, the longer counts");

        let third = entered(process.wait(Mode::SHARED).await).await;
        for holder in [one, other] {
            assert!(process.conflict(Exclusive).await.is_some());
            release(holder).await;
        }
        assert!(process.conflict(Exclusive).await.is_some());
        release(third).await;
        assert_eq!(process.conflict(Exclusive).await, None);
        settle().await;
        assert!(process.is_empty());
    }
}

/// Whichever holder leaves first, the other one still has the lock.
#[tokio::test(start_paused = true)]
async fn an_exclusive_waiter_enters_when_the_last_compatible_holder_has_left() {
    for second_first in [false, true] {
        let process = Process::new();
        let mut holders =
            [process.grant(Mode::SHARED, LEASE).await, process.grant(Mode::SHARED, LEASE).await];
        if second_first {
            holders.reverse();
        }
        let [first, last] = holders;
        let waiter = process.wait(Exclusive).await;
        assert!(still_waits(&waiter).await);
        release(first).await;
        assert!(still_waits(&waiter).await, "the other holder still has the lock");
        release(last).await;
        release(entered(waiter).await).await;
        assert!(process.is_empty());
    }
}

/// Holders that overrun their leases block the waiter no longer than the longest lease.
#[tokio::test(start_paused = true)]
async fn an_exclusive_waiter_enters_when_the_leases_of_all_compatible_holders_are_over() {
    for leases in [[5 * SECOND, LEASE], [LEASE, 5 * SECOND]] {
        let (process, begun) = (Process::new(), Instant::now());
        let [one, other] = leases.map(|lease| process.grant(Mode::SHARED, lease));
        let _holders = (one.await, other.await);
        let _writer = process.wait(Exclusive).await.await.unwrap().unwrap();
        let waited = begun.elapsed().as_millis();
        assert!((29_600..=30_010).contains(&waited), "{waited} ms");
    }
}

/// Without this rule, callers that share the lock could keep an exclusive waiter out for ever.
#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_overtake_an_exclusive_waiter_although_it_suits_the_holder() {
    let process = Process::new();
    let holder = process.grant(Mode::SHARED, LEASE).await;
    let (exclusive, later) = (process.wait(Exclusive).await, process.wait(Mode::SHARED).await);
    assert!(still_waits(&exclusive).await);
    assert!(still_waits(&later).await, "it overtook the exclusive waiter");
    release(holder).await;
    let holder = entered(exclusive).await;
    assert!(still_waits(&later).await);
    release(holder).await;
    release(entered(later).await).await;
    assert!(process.is_empty());
}

/// None of them waits until another one has left.
#[tokio::test(start_paused = true)]
async fn consecutive_waiters_with_compatible_modes_enter_together() {
    let process = Process::new();
    let holder = process.grant(Exclusive, LEASE).await;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(process.wait(Mode::SHARED).await);
    }
    let exclusive = process.wait(Exclusive).await;
    for waiter in &waiters {
        assert!(still_waits(waiter).await);
    }
    release(holder).await;
    let mut together = Vec::new();
    for waiter in waiters {
        together.push(entered(waiter).await);
    }
    for holder in together {
        assert!(still_waits(&exclusive).await);
        release(holder).await;
    }
    release(entered(exclusive).await).await;
    assert!(process.is_empty());
}

/// The nodes hold the lock in the mode of the former holder: a caller that wants the lock alone would
/// share it with others, and a caller that wants to share it would keep the others out.
#[tokio::test(start_paused = true)]
async fn a_lock_is_handed_over_in_the_same_mode_only() {
    for (former, next) in
        [(Exclusive, Mode::SHARED), (Mode::SHARED, Exclusive), (Exclusive, Exclusive)]
    {
        let process = Process::new();
        let holder = process.grant(former, LEASE).await;
        let waiter = process.wait(next).await;
        assert!(still_waits(&waiter).await);
        let attempt = Arc::clone(holder.held().attempt());
        release(holder).await;
        let next_holder = entered(waiter).await;
        let was_handed_over = Arc::ptr_eq(&attempt, next_holder.held().attempt());
        assert_eq!(was_handed_over, former == next, "{former:?} to {next:?}");
        assert_eq!(next_holder.is_shared(), next.is_shared());
    }
}

/// The nodes have granted the lock to the next holder, so the former holder's lock is lost.
#[tokio::test(start_paused = true)]
async fn a_holder_that_overran_its_lease_is_forgotten_when_a_conflicting_lock_is_granted() {
    for (former, next) in
        [(Exclusive, Exclusive), (Exclusive, Mode::SHARED), (Mode::SHARED, Exclusive)]
    {
        let process = Process::new();
        let overrun = process.grant(former, SECOND).await;
        release(process.wait(next).await.await.unwrap().unwrap()).await;
        assert!(process.is_empty(), "{former:?}, then {next:?}");
        overrun.release().await.unwrap_err();
    }
}

/// The subscription of a waiter stays after it has left, as long as other callers of the process wait.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_notified_after_a_waiter_of_another_mode_has_subscribed() {
    for (first, second) in [(Mode::SHARED, Exclusive), (Exclusive, Mode::SHARED)] {
        let nodes = TestLocks::new(1);
        let (process, other) = (nodes.manager(), nodes.builder().connect().await.unwrap());
        let holder = other.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let wait = |mode| {
            let request = process.lock("a").expire(LEASE).wait_forever();
            let request = if mode == Exclusive { request } else { request.shared(true) };
            tokio::spawn(request.acquire())
        };
        let subscribed = wait(first);
        sleep(MOMENT).await;
        let next = wait(second);
        sleep(MOMENT).await;
        subscribed.abort();
        sleep(MOMENT).await;
        let begun = Instant::now();
        // The nodes notify only readers.
        holder.downgrade().await.unwrap();
        sleep(MOMENT).await;
        if second == Exclusive {
            assert!(!next.is_finished());
            holder.release().await.unwrap();
        }
        drop(next.await.unwrap().unwrap());
        assert!(begun.elapsed() < 3 * MOMENT, "{second}: {:?}", begun.elapsed());
    }
}
