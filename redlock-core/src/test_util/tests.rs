//! Test nodes under a manager, and by themselves.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout};

use super::*;
use crate::LockManager;
use crate::error::{ConnectError, HoldError, LockError, NodeError, Vote};
use crate::key::LockKey;
use crate::lock::{Dialect, Keys, LockSpec, Mode, Token};
use crate::node::{
    Action, Ask, FairOrder, Node, NodeStatus, Op, ProcessId, QueueAction, QueueOp, Ticket,
};

const LEASE: Duration = Duration::from_secs(30);
const ACQUIRE: Action = Action::Acquire { lease: LEASE, fenced: false, ask: Ask::FIRST };
const RELEASE: Action = Action::Release { min_hold: None };

/// An operation on a lock, with a token of its own.
fn op(action: Action) -> Op {
    let key = LockKey::new("a").unwrap();
    let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
    Op::new(&spec, Token::random(Dialect::Plain), action)
}

/// The vote of a failed node on one acquisition.
fn failure(error: &LockError) -> NodeError {
    match error.votes().and_then(|votes| votes.iter().next()) {
        Some((_, Some(Vote::Failed(error)))) => error.clone(),
        other => panic!("{error}: {other:?}"),
    }
}

#[tokio::test]
async fn leases_run_out_when_the_clock_advances() {
    let test = TestLocks::new(1);
    for locks in [test.manager(), test.builder().connect().await.unwrap()] {
        let guard = locks.lock("a").expire(LEASE).try_acquire().await.unwrap();
        test.clock().advance(LEASE / 2).await;
        assert!(guard.is_valid());
        let left = test.nodes()[0].time_to_live("a").unwrap();
        assert!(left <= LEASE / 2 && left > LEASE / 3, "{left:?}");
        test.clock().advance(LEASE / 2).await;
        assert!(!guard.is_valid());
        assert!(test.nodes()[0].is_empty());
    }
}

/// A jump would take the lease, because the renewals within it would come late.
#[tokio::test]
async fn a_lease_is_renewed_while_the_clock_advances() {
    let test = TestLocks::new(3);
    let guard = test.manager().lock("a").expire(LEASE).renew(true).try_acquire().await.unwrap();
    test.clock().advance(LEASE * 100).await;
    assert!(guard.is_valid());
    assert!(test.nodes().iter().all(|node| node.len() == 1));
    tokio::time::advance(LEASE * 2).await;
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn a_failed_node_refuses_at_once_and_votes_again_when_it_has_recovered() {
    let test = TestLocks::new(1);
    let (locks, node) = (test.manager(), &test.nodes()[0]);
    node.fail();
    let begun = Instant::now();
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    assert!(matches!(failure(&error), NodeError::NotConnected(_)), "{error}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    node.recover();
    locks.lock("a").try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_frozen_node_is_silent_for_the_node_timeout() {
    let test = TestLocks::new(1);
    let timeout = Duration::from_secs(7);
    let locks = test.builder().node_timeout(timeout).connect().await.unwrap();
    test.nodes()[0].freeze();
    let begun = Instant::now();
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(failure(&error), NodeError::NoReply(_)), "{error}");
    assert!((timeout..timeout * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn one_of_three_nodes_may_fail_or_freeze() {
    let test = TestLocks::new(3);
    for disturb in [TestNode::fail, TestNode::freeze] {
        disturb(&test.nodes()[1]);
        assert!(test.manager().is_available());
        let guard = test.manager().lock("a").try_acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    test.nodes()[2].fail();
    assert!(!test.manager().is_available());
    test.manager().lock("a").try_acquire().await.unwrap_err();
}

#[tokio::test]
async fn a_manager_waits_until_its_nodes_have_recovered() {
    let test = TestLocks::new(3);
    let [first, second, _] = test.nodes() else { panic!("three nodes") };
    first.fail();
    second.freeze();
    let locks = test.manager();
    let mut available = Box::pin(locks.wait_available());
    assert!(available.as_mut().now_or_never().is_none());
    second.recover();
    assert!(available.now_or_never().is_some());
}

/// The nodes of the second manager recover after the end of its runtime.
#[test]
fn a_manager_is_never_available_again_after_the_end_of_its_runtime() {
    let [home, other] = [(); 2].map(|()| Builder::new_current_thread().enable_all().build());
    let (home, other) = (home.unwrap(), other.unwrap());
    let up = LockManager::in_memory();
    let test = home.block_on(async {
        up.wait_available().await;
        TestLocks::new(1)
    });
    let recovers = test.manager();
    test.nodes()[0].fail();
    let mut waiting = Box::pin(recovers.wait_available());
    home.block_on(async { assert!(futures_util::poll!(&mut waiting).is_pending()) });
    drop(home);
    test.nodes()[0].recover();
    other.block_on(async {
        tokio::time::pause();
        timeout(600 * LEASE, up.wait_available()).await.expect_err("the runtime has ended");
        timeout(600 * LEASE, waiting).await.expect_err("the runtime has ended");
    });
    assert!(!up.is_available() && !recovers.is_available());
}

#[tokio::test]
async fn a_manager_does_not_connect_while_a_majority_has_failed_or_is_frozen() {
    let test = TestLocks::new(3);
    for disturb in [TestNode::fail, TestNode::freeze] {
        test.nodes()[..2].iter().for_each(disturb);
        let error = test.builder().connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::Unavailable { connected: 1, .. }), "{error}");
        test.nodes()[0].recover();
        test.builder().connect().await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_node_delays_its_answers_and_not_its_locks() {
    let test = TestLocks::new(1);
    let delay = Duration::from_millis(300);
    test.nodes()[0].delay(delay);
    let begun = Instant::now();
    let requests = ["a", "b", "c"].map(|key| test.manager().lock(key).try_acquire());
    let guards = futures_util::future::join_all(requests);
    tokio::pin!(guards);
    assert!(guards.as_mut().now_or_never().is_none());
    assert_eq!(test.nodes()[0].len(), 3, "executed at once");
    for guard in guards.await {
        guard.unwrap().keep_until_expiry();
    }
    assert!((delay..delay * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());

    test.nodes()[0].delay(Duration::from_secs(60));
    let error = test.manager().lock("d").try_acquire().await.unwrap_err();
    assert!(matches!(failure(&error), NodeError::NoReply(_)), "{error}");
}

#[tokio::test]
async fn a_node_that_forgets_ends_a_lock_at_its_next_extension() {
    let test = TestLocks::new(1);
    let guard = test.manager().lock("a").try_acquire().await.unwrap();
    test.nodes()[0].forget();
    assert!(test.nodes()[0].is_empty());
    assert!(guard.is_valid(), "the holder does not know yet");
    let error = guard.extend(LEASE).await.unwrap_err();
    assert!(matches!(error, HoldError::Lost(_)), "{error}");
    assert!(!guard.is_valid());
}

/// As a server that is restarted without its data.
#[tokio::test]
async fn a_node_that_forgets_numbers_holders_from_the_beginning() {
    let node = TestNode::new(&TestClock::new());
    let fenced = Action::Acquire { lease: LEASE, fenced: true, ask: Ask::FIRST };
    let acquire = op(fenced);
    let beginning = node.call(acquire.clone()).await.number.unwrap();
    let far_away = 2 * beginning;
    let confirm = Op { action: Action::Confirm { number: far_away }, ..acquire };
    assert_eq!(node.call(confirm).await.vote, Vote::Agreed);
    node.forget();
    let number = node.call(op(fenced)).await.number.unwrap();
    assert!(number < far_away, "{number}");
}

/// Otherwise a release would be overtaken by the acquisition that it cleans up after.
#[tokio::test]
async fn a_node_that_thaws_executes_what_it_was_sent_in_that_order() {
    let clock = TestClock::new();
    let node = TestNode::new(&clock);
    node.freeze();
    let acquire = op(ACQUIRE);
    let release = Op { action: RELEASE, ..acquire.clone() };
    let [mut first, mut second] = [acquire, release].map(|op| node.call(op));
    let unsent = node.call(op(ACQUIRE));
    assert!((&mut first).now_or_never().is_none());
    assert!((&mut second).now_or_never().is_none());
    drop(unsent);
    node.recover();
    assert!(node.is_empty());
    assert_eq!(first.await.vote, Vote::Agreed);
    assert_eq!(second.await.vote, Vote::Agreed);
}

#[tokio::test]
async fn operations_without_an_answer_fail_when_the_node_does() {
    let clock = TestClock::new();
    let broke = |vote| matches!(vote, Vote::Failed(NodeError::ConnectionBroke(_)));

    let frozen = TestNode::new(&clock);
    frozen.freeze();
    let mut reply = frozen.call(op(ACQUIRE));
    assert!((&mut reply).now_or_never().is_none());
    frozen.fail();
    assert!(broke(reply.await.vote));
    frozen.recover();
    assert!(frozen.is_empty(), "what was not read is gone");

    let slow = TestNode::new(&clock);
    slow.delay(LEASE);
    let mut reply = slow.call(op(ACQUIRE));
    assert!((&mut reply).now_or_never().is_none());
    let begun = Instant::now();
    slow.fail();
    assert!(broke(reply.await.vote));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(slow.len(), 1, "it was executed");
}

/// As a server that is stopped and continued: a process that was late with its ticket has it then.
#[tokio::test]
async fn a_fair_queue_follows_the_behaviour_of_its_node() {
    let node = TestNode::new(&TestClock::new());
    let process = ProcessId::random();
    let send = |action| node.queue(QueueOp::new(&op(ACQUIRE).spec, process, action));
    let first = async || send(QueueAction::Inspect).await.unwrap().first.map(|first| first.number);
    let enter = |number| QueueAction::Enter { tickets: [Ticket::new(number, LEASE)].into() };

    node.freeze();
    let mut entering = send(enter(7));
    assert!((&mut entering).now_or_never().is_none());
    node.recover();
    assert_eq!(entering.await.unwrap().first.unwrap().number, 7);
    assert_eq!(first().await, Some(7));

    node.freeze();
    let mut leaving = send(QueueAction::Leave { numbers: [7].into() });
    assert!((&mut leaving).now_or_never().is_none());
    node.fail();
    assert!(matches!(leaving.await, Err(NodeError::ConnectionBroke(_))));
    assert!(matches!(send(enter(8)).await, Err(NodeError::NotConnected(_))));
    node.recover();
    assert_eq!(first().await, Some(7), "what was not read is gone");

    node.delay(LEASE);
    let begun = Instant::now();
    send(QueueAction::Leave { numbers: [7].into() }).await.unwrap();
    assert!(begun.elapsed() >= LEASE);
    node.recover();
    assert_eq!(first().await, None);
}

#[tokio::test]
async fn a_failure_between_the_call_and_the_first_poll_counts() {
    let node = TestNode::new(&TestClock::new());
    let reply = node.call(op(ACQUIRE));
    node.fail();
    let vote = reply.now_or_never().unwrap().vote;
    assert!(matches!(vote, Vote::Failed(NodeError::NotConnected(_))), "{vote}");
    assert!(node.is_empty());
}

#[tokio::test]
async fn the_status_follows_the_behaviour() {
    let node = TestNode::new(&TestClock::new());
    let status = node.status();
    assert_eq!(status.get(), NodeStatus::Up);
    node.fail();
    assert!(matches!(status.get(), NodeStatus::Down(NodeError::NotConnected(_))));
    node.freeze();
    assert_eq!(status.get(), NodeStatus::Connecting);
    node.delay(LEASE);
    assert_eq!(status.get(), NodeStatus::Up);
}

/// A guard may be dropped in any thread.
#[tokio::test]
async fn a_slow_node_is_asked_outside_of_the_runtime() {
    let test = TestLocks::new(1);
    let guard = test.manager().lock("a").try_acquire().await.unwrap();
    test.nodes()[0].delay(Duration::from_millis(100));
    std::thread::spawn(move || drop(guard)).join().unwrap();
    assert!(test.nodes()[0].is_empty());
    test.manager().shutdown().await;
}

#[tokio::test]
async fn managers_over_the_same_nodes_exclude_each_other() {
    let test = TestLocks::new(3);
    let other_copy = test.builder().connect().await.unwrap();
    let guard = other_copy.lock("a").try_acquire().await.unwrap();
    let error = test.manager().lock("a").try_acquire().await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    guard.release().await.unwrap();
    test.manager().lock("a").try_acquire().await.unwrap().release().await.unwrap();
}

/// The guide says so. Waits follow tokio's time in any case.
#[tokio::test(start_paused = true)]
async fn paused_time_alone_does_not_move_the_leases_of_a_memory_node() {
    let second = Duration::from_secs(1);
    for (locks, ends) in [(LockManager::in_memory(), false), (TestLocks::new(1).manager(), true)] {
        let request = || locks.lock("order:42").expire(second * 60);
        request().try_acquire().await.unwrap().keep_until_expiry();
        tokio::time::advance(second * 61).await;
        let begun = Instant::now();
        let acquired = request().wait_time(second * 5).acquire().await;
        assert_eq!(acquired.is_ok(), ends, "{acquired:?}");
        assert_eq!(begun.elapsed() >= second * 5, !ends, "{:?}", begun.elapsed());
    }
}

/// Without the turn, writers that never rest would starve the readers of a test.
#[tokio::test]
async fn a_node_gives_readers_the_turn_for_which_they_ask() {
    let test = TestLocks::new(1);
    let node = &test.nodes()[0];
    let one = op(ACQUIRE).spec;
    let set = LockSpec::new(
        Keys::collect(["a", "b"].map(LockKey::new)).unwrap(),
        Mode::Exclusive,
        Dialect::Plain,
    );
    for (asks, exclusive) in [(false, &one), (true, &one), (false, &set), (true, &set)] {
        let acquire = Op::new(exclusive, Token::random(Dialect::Plain), ACQUIRE);
        let release = Op::new(exclusive, acquire.token, RELEASE);
        let _subscription = node.subscribe(&one, std::sync::Arc::new(|| {}));
        let _turn = asks.then(|| node.turns().unwrap().request_turn(&one));
        for op in [acquire, release] {
            assert_eq!(node.call(op).await.vote, Vote::Agreed);
        }
        assert_eq!(node.time_to_live("a").is_some(), asks, "{exclusive:?}");
        assert_eq!(node.time_to_live("b"), None);
        test.clock().advance(crate::node::TURN).await;
        assert_eq!(node.time_to_live("a"), None);
    }
}
