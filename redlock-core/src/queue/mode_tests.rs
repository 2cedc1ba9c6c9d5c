//! Holders and waiters of one process whose modes are compatible, in paused time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::tests::{SECOND, settle, two_processes};
use super::{Queues, WaitOutcome, WaiterOptions};
use crate::Dialect;
use crate::ballot::{Attempt, Enquiry, Lease};
use crate::key::LockKey;
use crate::lease::Held;
use crate::lock::Mode::Exclusive;
use crate::lock::{LockName, LockSpec, Mode};
#[cfg(feature = "test-util")]
use crate::test_util::TestLocks;

const LEASE: Duration = Duration::from_secs(30);

/// The queue of one key. The nodes know no shared mode, so the test grants each lock in their place.
#[derive(Clone)]
struct Process {
    queues: Arc<Queues>,
    key: LockKey,
}

impl Process {
    fn new() -> Self {
        let (locks, _, _) = two_processes(1);
        Self { queues: Arc::clone(locks.queues()), key: LockKey::new("a").unwrap() }
    }

    fn spec(&self, mode: Mode) -> LockSpec {
        LockSpec::new(LockName::new("", &self.key), mode, Dialect::Plain)
    }

    /// Adds a holder, as if the nodes had granted the lock.
    fn grant(&self, mode: Mode, lease: Duration) -> Arc<Held> {
        let clock = Arc::clone(&self.queues.ballot.clock);
        let attempt = Attempt::new(&self.spec(mode), self.key.clone(), false, Enquiry::default());
        let now = clock.now();
        let lease = Lease::new(now, now, lease);
        let held = Held::new(attempt, clock, lease, None);
        self.queues.admit(&held, None, now).unwrap();
        held
    }

    /// Adds a waiter. Its task returns the lock when the waiter has it.
    fn wait(&self, mode: Mode) -> JoinHandle<Arc<Held>> {
        let options = WaiterOptions {
            expire: LEASE,
            accepts_hand_over: true,
            fenced: false,
            scope: None,
            since: Instant::now(),
            fair: None,
        };
        let waiter = self.queues.join(&self.spec(mode), 0, &self.key, options).unwrap();
        let process = self.clone();
        tokio::spawn(async move {
            let held = loop {
                match waiter.wait().await {
                    WaitOutcome::AskNodes => break process.grant(mode, LEASE),
                    WaitOutcome::HandedOver(held) => break held,
                    WaitOutcome::HeldByScope(_) => panic!("the waiter has no scope"),
                    WaitOutcome::LeaveMark => {}
                }
            };
            assert_eq!(held.attempt().spec().mode(), mode, "handed over in another mode");
            held
        })
    }

    /// Releases the lock of a holder, or hands it over to a waiter.
    fn release(&self, held: &Arc<Held>) {
        held.end_by_holder();
        drop(self.queues.hand_over_or_permit(held));
    }

    /// Returns for how long a caller that requests the lock in this mode would have to wait.
    fn local_conflict_remaining(&self, mode: Mode) -> Option<Duration> {
        Some(self.queues.local_conflict(&self.spec(mode))?.remaining)
    }
}

async fn still_waits(waiter: &JoinHandle<Arc<Held>>) -> bool {
    settle().await;
    !waiter.is_finished()
}

/// Returns the lock of a waiter that no other caller blocks any more.
async fn entered(waiter: JoinHandle<Arc<Held>>) -> Arc<Held> {
    assert!(!still_waits(&waiter).await, "the waiter was not woken");
    waiter.await.unwrap()
}

/// The lock stays held until each of the holders has released it.
#[tokio::test(start_paused = true)]
async fn compatible_holders_hold_the_lock_side_by_side() {
    for leases in [[5 * SECOND, LEASE], [LEASE, 5 * SECOND]] {
        let process = Process::new();
        let holders = leases.map(|lease| process.grant(Mode::SHARED, lease));
        assert_eq!(process.local_conflict_remaining(Mode::SHARED), None);
        assert!(
            process.local_conflict_remaining(Exclusive) > Some(5 * SECOND),
            "of two leases, the longer counts"
        );

        let third = entered(process.wait(Mode::SHARED)).await;
        for holder in &holders {
            assert!(process.local_conflict_remaining(Exclusive).is_some());
            process.release(holder);
        }
        assert!(process.local_conflict_remaining(Exclusive).is_some());
        process.release(&third);
        assert_eq!(process.local_conflict_remaining(Exclusive), None);
        assert!(process.queues.is_empty());
    }
}

/// Whichever holder leaves first, the other one still has the lock.
#[tokio::test(start_paused = true)]
async fn an_exclusive_waiter_enters_when_the_last_compatible_holder_has_left() {
    for order in [[0, 1], [1, 0]] {
        let process = Process::new();
        let holders = [(), ()].map(|()| process.grant(Mode::SHARED, LEASE));
        let waiter = process.wait(Exclusive);
        assert!(still_waits(&waiter).await);
        process.release(&holders[order[0]]);
        assert!(still_waits(&waiter).await, "holder {} still has the lock", order[1]);
        process.release(&holders[order[1]]);
        process.release(&entered(waiter).await);
        assert!(process.queues.is_empty());
    }
}

/// Holders that overrun their leases block the waiter no longer than the longest lease.
#[tokio::test(start_paused = true)]
async fn an_exclusive_waiter_enters_when_the_leases_of_all_compatible_holders_are_over() {
    for leases in [[5 * SECOND, LEASE], [LEASE, 5 * SECOND]] {
        let (process, begun) = (Process::new(), Instant::now());
        let _holders = leases.map(|lease| process.grant(Mode::SHARED, lease));
        process.wait(Exclusive).await.unwrap();
        // The validity ends before the lease, by 1 % of the lease and 2 ms.
        let waited = begun.elapsed().as_millis();
        assert!((29_600..=30_010).contains(&waited), "{waited} ms");
    }
}

/// Without this rule, callers that share the lock could keep an exclusive waiter out for ever.
#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_overtake_an_exclusive_waiter_although_it_suits_the_holder() {
    let process = Process::new();
    let holder = process.grant(Mode::SHARED, LEASE);
    let (exclusive, later) = (process.wait(Exclusive), process.wait(Mode::SHARED));
    assert!(still_waits(&exclusive).await);
    assert!(still_waits(&later).await, "it overtook the exclusive waiter");
    process.release(&holder);
    let holder = entered(exclusive).await;
    assert!(still_waits(&later).await);
    process.release(&holder);
    process.release(&entered(later).await);
    assert!(process.queues.is_empty());
}

/// None of them waits until another one has left.
#[tokio::test(start_paused = true)]
async fn consecutive_waiters_with_compatible_modes_enter_together() {
    let process = Process::new();
    let holder = process.grant(Exclusive, LEASE);
    let waiters = [(), (), ()].map(|()| process.wait(Mode::SHARED));
    let exclusive = process.wait(Exclusive);
    for waiter in &waiters {
        assert!(still_waits(waiter).await);
    }
    process.release(&holder);
    let mut together = Vec::new();
    for waiter in waiters {
        together.push(entered(waiter).await);
    }
    for holder in together {
        assert!(still_waits(&exclusive).await);
        process.release(&holder);
    }
    process.release(&entered(exclusive).await);
    assert!(process.queues.is_empty());
}

/// The nodes hold the lock in the mode of the former holder: a caller that wants the lock alone would
/// share it with others, and a caller that wants to share it would keep the others out.
#[tokio::test(start_paused = true)]
async fn a_lock_is_handed_over_in_the_same_mode_only() {
    for (former, next) in
        [(Exclusive, Mode::SHARED), (Mode::SHARED, Exclusive), (Exclusive, Exclusive)]
    {
        let process = Process::new();
        let holder = process.grant(former, LEASE);
        let waiter = process.wait(next);
        assert!(still_waits(&waiter).await);
        process.release(&holder);
        let held = entered(waiter).await;
        let was_handed_over = Arc::ptr_eq(held.attempt(), holder.attempt());
        assert_eq!(was_handed_over, former == next, "{former:?} to {next:?}");
    }
}

/// The nodes have granted the lock to the next holder, so the former holder's lock is lost.
#[tokio::test(start_paused = true)]
async fn a_holder_that_overran_its_lease_is_forgotten_when_a_conflicting_lock_is_granted() {
    for (former, next) in
        [(Exclusive, Exclusive), (Exclusive, Mode::SHARED), (Mode::SHARED, Exclusive)]
    {
        let process = Process::new();
        let overrun = process.grant(former, SECOND);
        process.release(&process.wait(next).await.unwrap());
        assert!(process.queues.is_empty(), "{former:?}, then {next:?}");
        process.release(&overrun);
    }
}

/// The subscription of a waiter stays after it has left, as long as other callers of the process wait.
#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_waiter_is_notified_after_a_waiter_of_another_mode_has_subscribed() {
    const MOMENT: Duration = Duration::from_millis(10);
    for (first, second) in [(Mode::SHARED, Exclusive), (Exclusive, Mode::SHARED)] {
        let nodes = TestLocks::new(1);
        let (process, other) = (nodes.manager(), nodes.builder().connect().await.unwrap());
        let holder = other.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let wait = |mode| {
            let request = process.lock("a").expire(LEASE).wait_forever();
            let request = if mode == Exclusive { request } else { request.shared() };
            tokio::spawn(request.acquire())
        };
        let subscribed = wait(first);
        tokio::time::sleep(MOMENT).await;
        let next = wait(second);
        tokio::time::sleep(MOMENT).await;
        subscribed.abort();
        tokio::time::sleep(MOMENT).await;
        let begun = Instant::now();
        // The nodes notify only readers.
        holder.downgrade().await.unwrap();
        tokio::time::sleep(MOMENT).await;
        if second == Exclusive {
            assert!(!next.is_finished());
            holder.release().await.unwrap();
        }
        drop(next.await.unwrap().unwrap());
        assert!(begun.elapsed() < 3 * MOMENT, "{second}: {:?}", begun.elapsed());
    }
}
