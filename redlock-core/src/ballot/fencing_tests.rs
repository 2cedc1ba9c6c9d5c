//! The numbers of fenced locks, over nodes whose counters stand where the test says.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::attempt::Attempt;
use super::attempt::tests::attempt as new_attempt;
use super::tests::Setup;
use super::{Extension, Grant, Refusal};
use crate::clock::fake::FakeClock;
use crate::error::{NodeError, Vote};
use crate::fencing_token::FencingToken;
use crate::node::Node;
use crate::node::fake::{Mode, Operation};

const EXPIRE: Duration = Duration::from_secs(5);
const UP: Mode = Mode::Up(Duration::ZERO);
const DOWN: Mode = Mode::Down;
const FROZEN: Mode = Mode::Frozen;

fn attempt() -> Arc<Attempt> {
    let attempt = new_attempt("order:42");
    Arc::new(attempt.fenced())
}

fn setup(counters: &[i64]) -> Setup {
    let setup = Setup::new(counters.len());
    setup.nodes.iter().zip(counters).for_each(|(node, count)| node.set_counter(*count));
    setup
}

/// Acquires over the nodes that are up, and releases on all.
async fn turn(setup: &Setup, modes: &[Mode]) -> FencingToken {
    setup.set(modes);
    let attempt = attempt();
    let Grant { since, token, .. } = setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    setup.set(&vec![UP; modes.len()]);
    setup.ballot.release(attempt, since.after(EXPIRE)).await;
    assert!(setup.free().await);
    token.unwrap()
}

/// Acquires, and lets something happen when the first two nodes have granted it, before its number is
/// confirmed.
async fn acquire_until(
    setup: &Setup,
    attempt: &Arc<Attempt>,
    strike: impl FnOnce(),
) -> Result<Grant, Refusal> {
    let mut acquire = Box::pin(setup.ballot.acquire(attempt, EXPIRE));
    assert!(acquire.as_mut().now_or_never().is_none());
    while setup.nodes[..2].iter().any(|node| !node.is_held()) {
        tokio::task::yield_now().await;
    }
    strike();
    acquire.await
}

/// Kleppmann's sleeper must not have the greater number: the counters stand at 0, 0 and 2, the first
/// holder is granted by the last two nodes, the second by the first two.
#[tokio::test(start_paused = true)]
async fn the_maximum_of_the_counters_is_not_enough() {
    let setup = setup(&[0, 0, 2]);
    let mut maxima = Vec::new();
    for majority in [[1, 2], [0, 1]] {
        let (attempt, mut number) = (attempt(), None);
        for node in majority {
            let reply = setup.nodes[node].call(attempt.acquire(EXPIRE)).await;
            assert_eq!(reply.vote, Vote::Granted);
            number = number.max(reply.number);
        }
        maxima.push(number.unwrap());
        for node in majority {
            setup.nodes[node].call(attempt.release()).await;
        }
    }
    assert_eq!(maxima, [3, 2], "the later holder has the smaller one");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_written_back_is_exceeded_by_every_later_one() {
    let setup = setup(&[0, 0, 2]);
    let first = turn(&setup, &[DOWN, UP, UP]).await;
    let second = turn(&setup, &[UP, UP, DOWN]).await;
    let third = turn(&setup, &[UP, DOWN, UP]).await;
    assert_eq!(first.number(), 3);
    assert!(first < second && second < third, "{first}, {second}, {third}");
}

/// Every pair of majorities, from counters that stand far apart.
#[tokio::test(start_paused = true)]
async fn numbers_grow_over_all_majorities() {
    let majorities: Vec<[Mode; 5]> = (0_u32..32)
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

/// The only node has counted it itself: one round trip.
#[tokio::test(start_paused = true)]
async fn one_node_is_asked_once() {
    let setup = setup(&[41]);
    let granted = setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap();
    assert_eq!(granted.token.unwrap().number(), 42);
    assert!(matches!(setup.nodes[0].log()[..], [Operation::Acquire(..)]));
}

/// Handed out without it, a number would be worth nothing.
#[tokio::test(start_paused = true)]
async fn without_a_confirmed_number_nothing_is_granted_and_nothing_stays() {
    for after in [FROZEN, DOWN] {
        let setup = Setup::new(3);
        // The third answers after the others have granted and failed.
        setup.set(&[UP, UP, FROZEN]);
        let attempt = attempt();
        let begun = Instant::now();
        let refused =
            acquire_until(&setup, &attempt, || setup.nodes[0].set(after)).await.unwrap_err();
        assert!(matches!(refused, Refusal::Unavailable(_)), "{refused:?}");
        assert!(begun.elapsed() < Duration::from_millis(200));
        assert!(attempt.is_abandoned());
        setup.set(&[UP; 3]);
        assert!(setup.free().await);
    }
}

/// Two of three do not answer, one of them from the beginning: nobody else holds the lock.
#[tokio::test(start_paused = true)]
async fn a_node_that_did_not_grant_it_neither_confirms_nor_says_that_it_is_gone() {
    for third in [DOWN, Mode::Quarantined, FROZEN] {
        let setup = Setup::new(3);
        setup.set(&[UP, UP, third]);
        let attempt = attempt();
        let refused = acquire_until(&setup, &attempt, || setup.nodes[1].set(FROZEN)).await;
        let Err(Refusal::Unavailable(votes)) = refused else { panic!("{third:?}: {refused:?}") };
        let failed = votes.iter().filter(|(_, vote)| matches!(vote, Some(Vote::Failed(_))));
        assert_eq!(failed.count(), 2, "{third:?}: {votes}");
        if third == DOWN {
            let third = votes.iter().nth(2).unwrap().1;
            assert!(matches!(third, Some(Vote::Failed(NodeError::NotConnected(_)))), "{votes}");
        }
    }
}

/// One of three is held by another, which is no more than a minority: what fails is the quorum.
#[tokio::test(start_paused = true)]
async fn a_number_that_is_not_confirmed_is_not_told_as_held_by_another() {
    let setup = Setup::new(3);
    setup.nodes[2].occupy(EXPIRE);
    let attempt = attempt();
    let refused = acquire_until(&setup, &attempt, || setup.nodes[1].set(FROZEN)).await;
    let Err(Refusal::Unavailable(votes)) = refused else { panic!("{refused:?}") };
    let third = votes.iter().nth(2).unwrap().1;
    assert!(matches!(third, Some(Vote::Held { .. })), "{votes}");
}

/// A node of another kind may forget the number, or give one that tells no holders apart.
#[tokio::test(start_paused = true)]
async fn a_node_that_grants_a_fenced_lock_without_a_number_does_not_count() {
    let setup = setup(&[-10, i64::MAX - 1, 0]);
    let refused = setup.ballot.acquire(&attempt(), EXPIRE).await;
    let Err(Refusal::Unavailable(votes)) = refused else { panic!("{refused:?}") };
    let failed = Vote::Failed(NodeError::NotUnderstood);
    assert_eq!(votes.iter().filter(|(_, vote)| *vote == Some(&failed)).count(), 2, "{votes}");
    assert!(setup.free().await);
}

/// The second round trip counts, too, and so does the time that the machine slept meanwhile.
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
        setup.set(&[Mode::Up(Duration::from_millis(10)); 3]);
        sleep(Duration::from_millis(5)).await;
        clock.suspend(EXPIRE + Duration::from_secs(1));
    };
    let (refused, ()) = tokio::join!(attempt, suspend);
    assert!(matches!(refused, Err(Refusal::TimedOut { .. })), "{refused:?}");
}

/// The lease may be over, or its nodes restarted, before the number is written back.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_is_not_confirmed() {
    let setup = Setup::new(3);
    setup.nodes.iter().for_each(|node| node.set(Mode::Up(Duration::from_millis(10))));
    let attempt = attempt();
    let forget = async {
        sleep(Duration::from_millis(15)).await;
        setup.nodes[..2].iter().for_each(|node| node.forget());
    };
    let (refused, ()) = tokio::join!(setup.ballot.acquire(&attempt, EXPIRE), forget);
    assert!(matches!(refused, Err(Refusal::Contended { .. })), "{refused:?}");
    assert!(setup.free().await);
}

/// Of four nodes two prevent a quorum: those that deny it decide, as in an extension, whatever the others
/// do. Told as unavailable, the lock would be handed on.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_is_not_told_as_unavailable() {
    let setup = Setup::new(4);
    let attempt = attempt();
    let granted = setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    setup.nodes[..2].iter().for_each(|node| node.forget());
    // All four answer before any is looked at.
    setup.set(&[UP, UP, Mode::AnswerLost, Mode::AnswerLost]);
    let denied = setup.ballot.confirm(&attempt, granted.token.unwrap(), EXPIRE, None).await;
    assert!(matches!(denied, Err(Refusal::Contended { .. })), "{denied:?}");
    let denied = setup.ballot.extend(&attempt, EXPIRE).await;
    assert!(matches!(denied, Extension::Lost(_)), "{denied:?}");
}

/// Invariant 6, with one more await.
#[tokio::test(start_paused = true)]
async fn dropped_at_any_point_a_fenced_acquisition_leaves_nothing() {
    for polls in 0..20 {
        let setup = Setup::new(3);
        setup.nodes.iter().for_each(|node| node.set(Mode::Up(Duration::from_millis(1))));
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
    panic!("it was never acquired");
}

/// The confirmation is worth nothing when the lease is over, however long a node may be silent.
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
    assert!(matches!(refusal, Refusal::TimedOut { .. }), "{refusal:?}");
    assert!(begun.elapsed() <= LEASE, "{:?}", begun.elapsed());
}
