//! The ballot, on nodes that the test controls, in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::attempt::Attempt;
use super::attempt::tests::{attempt as new_attempt, attempt_on};
use super::{Ballot, HoldError, ReleaseError, validity};
use crate::clock::Clock;
use crate::clock::fake::{FakeClock, RuntimeClock};
use crate::error::{LockError, NodeError, Vote};
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode, Operation};

const EXPIRE: Duration = Duration::from_secs(5);
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

pub(super) struct Setup {
    pub(super) nodes: Vec<Arc<FakeNode>>,
    pub(super) ballot: Ballot,
}

impl Setup {
    pub(super) fn new(nodes: usize) -> Self {
        Self::with_clock(nodes, Arc::new(RuntimeClock::new()))
    }

    pub(super) fn with_clock(nodes: usize, clock: Arc<dyn Clock>) -> Self {
        let nodes: Vec<_> =
            (1..=nodes).map(|number| FakeNode::start(&format!("node-{number}"))).collect();
        let dynamic = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
        let ballot = Ballot::new(dynamic, NODE_TIMEOUT, clock, Arc::default());
        Self { nodes, ballot }
    }

    pub(super) fn set(&self, modes: &[FakeMode]) {
        for (node, mode) in self.nodes.iter().zip(modes) {
            node.set(*mode);
        }
    }

    fn is_free(&self) -> bool {
        self.nodes.iter().all(|node| !node.is_held())
    }

    /// Waits for up to a second, much less than any lease, until the nodes are free. Returns
    /// whether they are.
    pub(super) async fn free(&self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(1);
        while !self.is_free() {
            if Instant::now() > deadline {
                return false;
            }
            sleep(Duration::from_millis(1)).await;
        }
        true
    }
}

fn attempt() -> Arc<Attempt> {
    new_attempt("order:42")
}

const UP: FakeMode = FakeMode::Up(Duration::ZERO);
const FROZEN: FakeMode = FakeMode::Frozen;
const DOWN: FakeMode = FakeMode::Down;

/// Decide at quorum. Another library waits for the slowest node: 502 ms if one of three hangs.
#[tokio::test(start_paused = true)]
async fn a_quorum_grants_without_waiting_for_the_others() {
    for modes in [[UP, UP, UP, FROZEN, FROZEN], [DOWN, FROZEN, UP, UP, UP]] {
        let setup = Setup::new(5);
        setup.set(&modes);
        let start = Instant::now();
        setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

/// A node that needs a second command to set the lock must not send it for an abandoned attempt.
#[tokio::test(start_paused = true)]
async fn an_attempt_is_abandoned_when_it_is_dropped_or_refused() {
    let setup = Setup::new(3);
    let kept = attempt();
    setup.ballot.acquire(&kept, EXPIRE).await.unwrap();
    assert!(!kept.is_abandoned());
    let refused = attempt();
    setup.ballot.acquire(&refused, EXPIRE).await.unwrap_err();
    assert!(refused.is_abandoned());
    let dropped = attempt();
    drop(setup.ballot.acquire(&dropped, EXPIRE).now_or_never());
    assert!(dropped.is_abandoned());
}

#[tokio::test(start_paused = true)]
async fn a_ballot_of_any_size_grants_only_with_a_majority() {
    for (nodes, may_fail) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (7, 3)] {
        for down in 0..=nodes {
            let setup = Setup::new(nodes);
            setup.nodes[..down].iter().for_each(|node| node.set(DOWN));
            let granted = setup.ballot.acquire(&attempt(), EXPIRE).await.is_ok();
            assert_eq!(granted, down <= may_fail, "{down} of {nodes} down");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_quorum_refuses_without_waiting_for_the_others() {
    let setup = Setup::new(5);
    setup.nodes[..3].iter().for_each(|node| node.occupy(Duration::from_secs(3)));
    setup.set(&[UP, UP, UP, FROZEN, FROZEN]);
    let start = Instant::now();
    let refusal = setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let LockError::Contended { remaining, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!(remaining, Some(Duration::from_secs(3)));
}

/// Another library never decides on a split of one to one.
#[tokio::test(start_paused = true)]
async fn a_split_vote_is_no_refusal_and_is_released() {
    let setup = Setup::new(2);
    setup.nodes[0].occupy(Duration::from_secs(3));
    let refusal = setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    assert!(refusal.is_split() && !refusal.is_contended(), "{refusal:?}");
    setup.nodes[0].forget();
    assert!(setup.free().await);
}

/// The silent nodes may have the same holder as one of the others.
#[tokio::test(start_paused = true)]
async fn refusals_because_of_different_holders_wait_for_the_other_votes() {
    let setup = Setup::new(5);
    let occupy = |holders: [&str; 5]| {
        for (node, holder) in setup.nodes.iter().zip(holders) {
            node.occupy_by(holder, Duration::from_secs(3));
        }
    };
    let acquire = async || {
        let start = Instant::now();
        let refusal = setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
        (refusal, start.elapsed())
    };
    occupy(["one", "two", "three", "one", "one"]);
    let slow = FakeMode::Up(NODE_TIMEOUT / 2);
    setup.set(&[UP, UP, UP, slow, slow]);
    let (refusal, elapsed) = acquire().await;
    assert!(refusal.is_contended(), "{refusal:?}");
    assert!(elapsed >= NODE_TIMEOUT / 2, "{elapsed:?}");
    occupy(["one", "two", "three", "one", "two"]);
    let (refusal, _) = acquire().await;
    assert!(refusal.is_split(), "{refusal:?}");
    setup.set(&[UP, UP, UP, slow, FROZEN]);
    let (refusal, elapsed) = acquire().await;
    assert!(refusal.is_contended(), "the frozen node may have the first holder: {refusal:?}");
    assert!(elapsed <= NODE_TIMEOUT + Duration::from_millis(2), "{elapsed:?}");
    // A lease that is over before the silent node counts as failed.
    let short = NODE_TIMEOUT / 4;
    let refusal = setup.ballot.acquire(&attempt(), short).await.unwrap_err();
    assert!(refusal.is_contended(), "{refusal:?}");
}

#[tokio::test(start_paused = true)]
async fn silent_nodes_cost_the_timeout_and_no_more() {
    let setup = Setup::new(3);
    setup.set(&[UP, FROZEN, FROZEN]);
    let start = Instant::now();
    let refusal = setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    assert!(start.elapsed() <= NODE_TIMEOUT + Duration::from_millis(2), "{:?}", start.elapsed());
    let LockError::Unavailable { votes, .. } = refusal else { panic!("{refusal:?}") };
    let votes: Vec<_> = votes.iter().map(|(_, vote)| vote.cloned().unwrap()).collect();
    let silent = Vote::Failed(NodeError::NoReply(NODE_TIMEOUT));
    assert_eq!(votes, [Vote::Agreed, silent.clone(), silent]);
}

/// An abandoned attempt leaves nothing behind. In another library, a lock that is granted after the
/// decision stays.
#[tokio::test(start_paused = true)]
async fn late_grants_of_a_refused_attempt_are_released() {
    let setup = Setup::new(3);
    setup.set(&[UP, FROZEN, FROZEN]);
    setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    setup.set(&[UP, UP, UP]);
    assert!(setup.free().await);
    for node in &setup.nodes {
        assert!(matches!(node.log()[..], [Operation::Acquire(..), Operation::Release(_)]));
    }
}

/// The reply is lost after the node has set the lock. A lost reply does not mean "not acquired".
#[tokio::test(start_paused = true)]
async fn a_lock_whose_reply_was_lost_is_cleaned_up() {
    let setup = Setup::new(1);
    setup.set(&[FakeMode::AnswerLost]);
    setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    assert!(setup.nodes[0].is_held());
    setup.set(&[UP]);
    assert!(setup.free().await);
}

/// A step of the clock is noticed while the reply is on its way.
#[tokio::test(start_paused = true)]
async fn a_grant_that_does_not_count_is_cleaned_up() {
    let setup = Setup::new(1);
    setup.set(&[FakeMode::ClockStepped]);
    setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    assert!(setup.free().await);
    assert_eq!(setup.nodes[0].releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_sent_no_acquisition_is_sent_no_release() {
    let setup = Setup::new(1);
    setup.set(&[FakeMode::Quarantined]);
    setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    setup.ballot.home.finish_tasks(Duration::from_secs(1)).await;
    assert_eq!(setup.nodes[0].log(), []);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refused_is_sent_no_release() {
    let setup = Setup::new(3);
    setup.nodes[..2].iter().for_each(|node| node.occupy(Duration::from_secs(3)));
    setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    setup.ballot.home.finish_tasks(Duration::from_secs(1)).await;
    let releases: Vec<_> = setup.nodes.iter().map(|node| node.releases()).collect();
    assert_eq!(releases, [0, 0, 1]);
}

/// An abandoned attempt leaves nothing behind, at every await point and in every state of the
/// nodes.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_at_any_poll_leaves_nothing_behind() {
    let slow = FakeMode::Up(Duration::from_millis(3));
    for modes in [[UP, UP, UP], [slow, UP, slow], [FROZEN, UP, FROZEN], [FROZEN, FROZEN, FROZEN]] {
        for polls in 0.. {
            let setup = Setup::new(3);
            setup.set(&modes);
            let attempt = attempt();
            let completed = {
                let mut attempt = Box::pin(setup.ballot.acquire(&attempt, EXPIRE));
                let mut polled = 0;
                std::future::poll_fn(|cx| {
                    if polled == polls {
                        return std::task::Poll::Ready(false);
                    }
                    polled += 1;
                    attempt.as_mut().poll(cx).map(|granted| granted.is_ok())
                })
                .await
            };
            let has_ended = polls > 60;
            setup.set(&[UP, UP, UP]);
            if completed {
                break;
            }
            assert!(setup.free().await, "dropped after {polls} polls with {modes:?}");
            if has_ended {
                break;
            }
        }
    }
}

/// Every lock has a deadline: votes that take longer than the lease grant nothing.
#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_the_lease_is_released() {
    let clock = FakeClock::default();
    let setup = Setup::with_clock(3, Arc::new(clock.clone()));
    setup.set(&[FakeMode::Up(Duration::from_millis(10)); 3]);
    let attempt = attempt();
    let attempt = setup.ballot.acquire(&attempt, EXPIRE);
    let suspend = async {
        sleep(Duration::from_millis(5)).await;
        clock.advance(Duration::from_secs(6));
    };
    let (refusal, ()) = tokio::join!(attempt, suspend);
    let refusal = refusal.unwrap_err();
    assert!(matches!(refusal, LockError::TimedOut { .. }), "{refusal:?}");
    setup.set(&[UP; 3]);
    assert!(setup.free().await);
}

/// Every lock has a deadline. The leases on the nodes begin later.
#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_before_the_operation_is_sent() {
    const LATENCY: Duration = Duration::from_millis(20);
    let setup = Setup::new(3);
    setup.set(&[FakeMode::Up(LATENCY); 3]);
    let attempt = attempt_on("order:42", &setup.ballot.clock);
    let before = setup.ballot.clock.now();
    setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    let lease = *attempt.lease();
    assert!(lease.granted.since(before) >= LATENCY);
    assert_eq!(lease.since.since(before), Duration::ZERO);
    let before = setup.ballot.clock.now();
    let since = setup.ballot.extend(&attempt, EXPIRE).await.unwrap();
    assert_eq!(since.since(before), Duration::ZERO);
}

/// Only the owner releases.
#[tokio::test(start_paused = true)]
async fn a_release_never_removes_the_lock_of_the_next_holder() {
    let setup = Setup::new(3);
    let (first, second) = (attempt(), attempt());
    setup.ballot.acquire(&first, EXPIRE).await.unwrap();
    let lease = *first.lease();
    sleep(EXPIRE).await;
    setup.ballot.acquire(&second, EXPIRE).await.unwrap();
    let release =
        setup.ballot.release(first, setup.ballot.clock.now(), lease.since.plus(EXPIRE)).await;
    assert!(matches!(release, Err(ReleaseError::Lost(_))), "{release:?}");
    assert!(setup.nodes.iter().filter(|node| node.is_held()).count() >= 2);
}

#[tokio::test(start_paused = true)]
async fn a_release_reaches_nodes_that_were_late_or_down() {
    let setup = Setup::new(5);
    let attempt = attempt();
    setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    let lease = *attempt.lease();
    sleep(Duration::from_millis(1)).await;
    setup.set(&[UP, UP, UP, FROZEN, DOWN]);
    let release =
        setup.ballot.release(attempt, setup.ballot.clock.now(), lease.since.plus(EXPIRE)).await;
    assert!(release.is_ok(), "{release:?}");
    assert!(setup.nodes[3].is_held() && setup.nodes[4].is_held());
    sleep(Duration::from_millis(300)).await;
    setup.set(&[UP; 5]);
    assert!(setup.free().await);
}

/// A release that no node confirms is abandoned when the lease has ended on all nodes.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_until_the_lease_has_run_out() {
    let setup = Setup::new(1);
    let attempt = attempt_on("order:42", &setup.ballot.clock);
    setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    let lease = *attempt.lease();
    setup.set(&[DOWN]);
    let release =
        setup.ballot.release(attempt, setup.ballot.clock.now(), lease.since.plus(EXPIRE)).await;
    assert!(matches!(release, Err(ReleaseError::Unavailable { .. })), "{release:?}");
    let start = Instant::now();
    setup.ballot.home.finish_tasks(Duration::from_secs(60)).await;
    assert!(start.elapsed() <= EXPIRE, "{:?}", start.elapsed());
}

/// A failed extension is not a release. Another library unlocks all nodes when an extension fails.
#[tokio::test(start_paused = true)]
async fn a_failed_extension_is_not_a_release() {
    let setup = Setup::new(3);
    let attempt = attempt();
    setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    setup.set(&[UP, DOWN, FROZEN]);
    let extension = setup.ballot.extend(&attempt, EXPIRE).await;
    assert!(matches!(extension, Err(HoldError::Unavailable { .. })), "{extension:?}");
    assert!(setup.nodes.iter().all(|node| node.is_held()));
    setup.set(&[UP; 3]);
    let extension = setup.ballot.extend(&attempt, EXPIRE).await;
    assert!(extension.is_ok(), "{extension:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_a_quorum_denies_is_a_loss() {
    let setup = Setup::new(3);
    let attempt = attempt();
    setup.ballot.acquire(&attempt, EXPIRE).await.unwrap();
    setup.nodes[0].forget();
    let extension = setup.ballot.extend(&attempt, EXPIRE).await;
    assert!(extension.is_ok(), "{extension:?}");
    setup.nodes[1].forget();
    let extension = setup.ballot.extend(&attempt, EXPIRE).await;
    assert!(matches!(extension, Err(HoldError::Lost(_))), "{extension:?}");
}

/// In a process that was delayed, replies lie unread in its sockets. The ballot waits for a server
/// that is not known to be silent (decide at quorum).
#[tokio::test(start_paused = true)]
async fn a_ballot_waits_for_nodes_that_are_not_known_to_be_silent() {
    let setup = Setup::new(3);
    setup.set(&[FROZEN; 3]);
    setup.nodes.iter().for_each(|node| node.set_reports_silence(false));
    let attempt = attempt();
    let thaw = async {
        sleep(NODE_TIMEOUT * 20).await;
        setup.set(&[UP; 3]);
    };
    let (granted, ()) = tokio::join!(setup.ballot.acquire(&attempt, EXPIRE), thaw);
    granted.unwrap();
}

/// A silent node counts as failed while the ballot waits for the others. Its vote still counts if
/// it replies before the decision.
#[tokio::test(start_paused = true)]
async fn the_vote_of_a_silent_node_counts_if_it_replies_before_the_decision() {
    let setup = Setup::new(3);
    setup.set(&[FROZEN, FROZEN, UP]);
    setup.nodes[1].set_reports_silence(false);
    let attempt = attempt();
    let start = Instant::now();
    let thaw = async {
        sleep(NODE_TIMEOUT * 3).await;
        setup.nodes[0].set(UP);
    };
    let (granted, ()) = tokio::join!(setup.ballot.acquire(&attempt, EXPIRE), thaw);
    granted.unwrap();
    assert_eq!(start.elapsed(), NODE_TIMEOUT * 3);
}

/// If a server falls silent between two replies, the node does not know that the server owes a
/// reply. The ballot asks for the silence of the node long before the limit is over.
#[tokio::test(start_paused = true)]
async fn a_node_has_the_time_to_find_out_that_its_server_is_silent() {
    let setup = Setup::new(3);
    setup.set(&[FROZEN; 3]);
    setup.nodes.iter().for_each(|node| node.measure_silence_from_first_look());
    let start = Instant::now();
    let refusal = setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap_err();
    assert!(matches!(refusal, LockError::Unavailable { .. }), "{refusal:?}");
    assert!(start.elapsed() < NODE_TIMEOUT * 3 / 2, "{:?}", start.elapsed());
}

/// The ballot blames no node that is not known to be silent: the lease was too short.
#[tokio::test(start_paused = true)]
async fn a_round_that_outlasts_its_lease_is_timed_out() {
    for (expire, is_known) in [(EXPIRE, false), (NODE_TIMEOUT / 2, true)] {
        let setup = Setup::new(3);
        setup.set(&[FROZEN; 3]);
        setup.nodes.iter().for_each(|node| node.set_reports_silence(is_known));
        let start = Instant::now();
        let attempt = attempt_on("order:42", &setup.ballot.clock);
        let refusal = setup.ballot.acquire(&attempt, expire).await.unwrap_err();
        let LockError::TimedOut { elapsed, votes, .. } = refusal else { panic!("{refusal:?}") };
        assert!(votes.iter().all(|(_, vote)| vote.is_none()), "a node is blamed: {votes}");
        assert_eq!(elapsed, start.elapsed());
        // Timers count in whole milliseconds.
        let left = validity::remaining(expire, elapsed);
        assert!(left.is_zero() && elapsed < expire, "{elapsed:?} of {expire:?}");
    }
}

/// If no task awaits a reply any more, its command may never be sent. The node would not have the
/// lock.
#[tokio::test(start_paused = true)]
async fn the_late_replies_of_a_granted_round_are_awaited() {
    let setup = Setup::new(3);
    setup.set(&[UP, UP, FROZEN]);
    setup.ballot.acquire(&attempt(), EXPIRE).await.unwrap();
    sleep(NODE_TIMEOUT).await;
    assert_eq!(setup.nodes[2].abandoned(), 0);
    setup.set(&[UP; 3]);
    sleep(NODE_TIMEOUT).await;
    assert!(setup.nodes.iter().all(|node| node.is_held() && node.releases() == 0));
}
