//! The numbers of fenced locks, on nodes whose counters the test sets.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::attempt::Attempt;
use super::attempt::tests::fenced_attempt;
use super::tests::Setup;
use super::{Grant, HoldError};
use crate::clock::fake::FakeClock;
use crate::error::{LockError, NodeError, Vote};
use crate::fencing_token::FencingToken;
use crate::node::Node;
use crate::node::fake::{FakeMode, Operation};

const EXPIRE: Duration = Duration::from_secs(5);
const UP: FakeMode = FakeMode::Up(Duration::ZERO);
const DOWN: FakeMode = FakeMode::Down;
const FROZEN: FakeMode = FakeMode::Frozen;

fn attempt() -> Arc<Attempt> {
    fenced_attempt("order:42")
}

fn setup(counters: &[i64]) -> Setup {
    let setup = Setup::new(counters.len());
    setup.nodes.iter().zip(counters).for_each(|(node, count)| node.set_counter(*count));
    setup
}

/// Acquires on the nodes that are up, and releases on all nodes. Returns the fencing token.
async fn turn(setup: &Setup, modes: &[FakeMode]) -> FencingToken {
    setup.set(modes);
    let attempt = attempt();
    let Grant { token, .. } = setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    let lease = *attempt.lease();
    setup.set(&vec![UP; modes.len()]);
    let _ = setup.ballot.release(attempt, setup.ballot.clock.now(), lease.since.plus(EXPIRE)).await;
    assert!(setup.free().await);
    token.unwrap()
}

/// Acquires, and calls `strike` when the first two nodes have granted the lock, before its number
/// is confirmed.
async fn acquire_until(
    setup: &Setup,
    attempt: &Arc<Attempt>,
    strike: impl FnOnce(),
) -> Result<Grant, LockError> {
    let mut acquire = Box::pin(setup.ballot.acquire(attempt, EXPIRE));
    assert!(acquire.as_mut().now_or_never().is_none());
    while setup.nodes[..2].iter().any(|node| !node.is_held()) {
        tokio::task::yield_now().await;
    }
    strike();
    acquire.await
}

/// The paused client of Kleppmann's example must not have the greater number. The counters are at
/// 0, 0 and 2. The last two nodes grant the first holder, the first two nodes grant the second one.
#[tokio::test(start_paused = true)]
async fn the_maximum_of_the_counters_is_not_enough() {
    let setup = setup(&[0, 0, 2]);
    let mut maxima = Vec::new();
    for majority in [[1, 2], [0, 1]] {
        let (attempt, mut number) = (attempt(), None);
        for node in majority {
            let reply = setup.nodes[node].call(attempt.acquire_op(EXPIRE)).await;
            assert_eq!(reply.vote, Vote::Agreed);
            number = number.max(reply.number);
        }
        maxima.push(number.unwrap());
        for node in majority {
            setup.nodes[node].call(attempt.release_op()).await;
        }
    }
    assert_eq!(maxima, [3, 2], "the later holder has the smaller number");
}

#[tokio::test(start_paused = true)]
async fn every_later_number_exceeds_a_confirmed_number() {
    let setup = setup(&[0, 0, 2]);
    let first = turn(&setup, &[DOWN, UP, UP]).await;
    let second = turn(&setup, &[UP, UP, DOWN]).await;
    let third = turn(&setup, &[UP, DOWN, UP]).await;
    assert_eq!(first.number(), 3);
    assert!(first < second && second < third, "{first}, {second}, {third}");
}

/// Tries every pair of majorities, with counters that are far apart.
#[tokio::test(start_paused = true)]
async fn numbers_grow_over_all_majorities() {
    let majorities: Vec<[FakeMode; 5]> = (0_u32..32)
        .filter(|bits| bits.count_ones() >= 3)
        .map(|bits| std::array::from_fn(|node| if bits & (1 << node) == 0 { DOWN } else { UP }))
        .collect();
    for first in &majorities {
        for second in &majorities {
            let setup = setup(&[10, 0, 70, 3, 40]);
            let (one, other) = (turn(&setup, first).await, turn(&setup, second).await);
            assert!(one < other, "{one} {other} by {first:?} and {second:?}");
        }
    }
}

/// The only node has counted the number itself, so it needs no confirmation.
#[tokio::test(start_paused = true)]
async fn a_fenced_lock_on_one_node_takes_one_round_trip() {
    let setup = setup(&[41]);
    let granted = setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap();
    assert_eq!(granted.token.unwrap().number(), 42);
    assert!(matches!(setup.nodes[0].log()[..], [Operation::Acquire(..)]));
}

/// A later holder could get a number that is smaller than an unconfirmed one.
#[tokio::test(start_paused = true)]
async fn without_a_confirmed_number_no_lock_is_granted_or_left_behind() {
    for after in [FROZEN, DOWN] {
        let setup = Setup::new(3);
        // The third node replies after the other two have granted the lock and failed.
        setup.set(&[UP, UP, FROZEN]);
        let attempt = attempt();
        let begun = Instant::now();
        let refused =
            acquire_until(&setup, &attempt, || setup.nodes[0].set(after)).await.unwrap_err();
        assert!(matches!(refused, LockError::Unavailable { .. }), "{refused:?}");
        assert!(begun.elapsed() < Duration::from_millis(200));
        assert!(attempt.is_abandoned());
        setup.set(&[UP; 3]);
        assert!(setup.free().await);
    }
}

/// Two of three nodes do not reply, one of them from the beginning. No other caller holds the lock.
#[tokio::test(start_paused = true)]
async fn a_node_that_did_not_grant_the_lock_neither_confirms_nor_denies_its_number() {
    for third in [DOWN, FakeMode::Quarantined, FROZEN] {
        let setup = Setup::new(3);
        setup.set(&[UP, UP, third]);
        let attempt = attempt();
        let refused = acquire_until(&setup, &attempt, || setup.nodes[1].set(FROZEN)).await;
        let Err(LockError::Unavailable { votes, .. }) = refused else {
            panic!("{third:?}: {refused:?}")
        };
        let failed = votes.iter().filter(|(_, vote)| matches!(vote, Some(Vote::Failed(_))));
        assert_eq!(failed.count(), 2, "{third:?}: {votes}");
        if third == DOWN {
            let third = votes.iter().nth(2).unwrap().1;
            assert!(matches!(third, Some(Vote::Failed(NodeError::NotConnected(_)))), "{votes}");
        }
    }
}

/// Another holder has the lock on one of three nodes, a minority. The confirmation fails for want
/// of a quorum.
#[tokio::test(start_paused = true)]
async fn a_number_that_is_not_confirmed_is_not_reported_as_contended() {
    let setup = Setup::new(3);
    setup.nodes[2].occupy(EXPIRE);
    let attempt = attempt();
    let refused = acquire_until(&setup, &attempt, || setup.nodes[1].set(FROZEN)).await;
    let Err(LockError::Unavailable { votes, .. }) = refused else { panic!("{refused:?}") };
    let third = votes.iter().nth(2).unwrap().1;
    assert!(matches!(third, Some(Vote::Held { .. })), "{votes}");
}

/// A custom node may omit the number, or return a number that does not distinguish holders.
#[tokio::test(start_paused = true)]
async fn a_fenced_grant_without_a_valid_number_does_not_count() {
    let setup = setup(&[-10, (1 << 53) - 1, 0]);
    let refused = setup.ballot.acquire(&attempt(), EXPIRE).await;
    let Err(LockError::Unavailable { votes, .. }) = refused else { panic!("{refused:?}") };
    let failed = Vote::Failed(NodeError::UnexpectedReply);
    assert_eq!(votes.iter().filter(|(_, vote)| *vote == Some(&failed)).count(), 2, "{votes}");
    assert!(setup.free().await);
}

/// The second round trip counts towards the lease, and so does the time for which the machine is
/// suspended.
#[tokio::test(start_paused = true)]
async fn a_confirmation_that_comes_after_the_lease_grants_nothing() {
    let clock = FakeClock::default();
    let setup = Setup::with_clock(3, Arc::new(clock.clone()));
    let attempt = attempt();
    let attempt = setup.ballot.acquire(&attempt, EXPIRE);
    let suspend = async {
        while setup.nodes.iter().any(|node| !node.is_held()) {
            tokio::task::yield_now().await;
        }
        setup.set(&[FakeMode::Up(Duration::from_millis(10)); 3]);
        sleep(Duration::from_millis(5)).await;
        clock.advance(EXPIRE + Duration::from_secs(1));
    };
    let (refused, ()) = tokio::join!(attempt, suspend);
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{refused:?}");
}

/// The lease may end, or the nodes may restart, before the number is confirmed.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_is_not_confirmed() {
    let setup = Setup::new(3);
    setup.nodes.iter().for_each(|node| node.set(FakeMode::Up(Duration::from_millis(10))));
    let attempt = attempt();
    let forget = async {
        sleep(Duration::from_millis(15)).await;
        setup.nodes[..2].iter().for_each(|node| node.forget());
    };
    let (refused, ()) = tokio::join!(setup.ballot.acquire(&attempt, EXPIRE), forget);
    assert!(matches!(refused, Err(LockError::Contended { .. })), "{refused:?}");
    assert!(setup.free().await);
}

/// Two of four nodes deny the lock, which prevents a quorum. The votes of the other nodes do not
/// matter: the result is the same as for an extension. If it were `Unavailable`, the lock would be
/// handed over.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_is_not_reported_as_unavailable() {
    let setup = Setup::new(4);
    let attempt = attempt();
    let granted = setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    setup.nodes[..2].iter().for_each(|node| node.forget());
    // All four nodes reply before the ballot reads any reply.
    setup.set(&[UP, UP, FakeMode::AnswerLost, FakeMode::AnswerLost]);
    let denied = setup.ballot.confirm(&attempt, granted.token.unwrap(), EXPIRE, EXPIRE, None).await;
    assert!(matches!(denied, Err(LockError::Contended { .. })), "{denied:?}");
    let denied = setup.ballot.extend(&attempt, EXPIRE).await;
    assert!(matches!(denied, Err(HoldError::Lost(_))), "{denied:?}");
}

/// An abandoned attempt leaves nothing behind. A fenced acquisition has one more await point.
#[tokio::test(start_paused = true)]
async fn a_fenced_acquisition_that_is_dropped_at_any_point_leaves_nothing_behind() {
    for polls in 0..20 {
        let setup = Setup::new(3);
        setup.nodes.iter().for_each(|node| node.set(FakeMode::Up(Duration::from_millis(1))));
        let attempt = attempt();
        let mut acquire = Box::pin(setup.ballot.acquire(&attempt, EXPIRE));
        for _ in 0..polls {
            if acquire.as_mut().now_or_never().is_some() {
                return;
            }
            sleep(Duration::from_micros(300)).await;
        }
        drop(acquire);
        assert!(setup.free().await, "after {polls} polls");
    }
    panic!("the lock was never acquired");
}

/// A confirmation after the end of the lease is worth nothing, even if the node timeout is longer.
#[tokio::test(start_paused = true)]
async fn a_confirmation_takes_no_longer_than_the_lease() {
    const LEASE: Duration = Duration::from_millis(60);
    let mut setup = setup(&[0, 0, 0]);
    setup.ballot.node_timeout = EXPIRE;
    let begun = Instant::now();
    let attempt = attempt();
    let mut acquire = Box::pin(setup.ballot.acquire(&attempt, LEASE));
    assert!(acquire.as_mut().now_or_never().is_none());
    while setup.nodes.iter().any(|node| !node.is_held()) {
        tokio::task::yield_now().await;
    }
    setup.set(&[FROZEN; 3]);
    let refusal = acquire.await.unwrap_err();
    assert!(matches!(refusal, LockError::TimedOut { .. }), "{refusal:?}");
    assert!(begun.elapsed() <= LEASE, "{:?}", begun.elapsed());
}
