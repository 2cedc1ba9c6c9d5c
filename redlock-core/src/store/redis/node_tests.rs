//! How a node of one server executes operations.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::RedisNode;
use super::played_node::{self, HELD, LEASE, PlayedCluster, PlayedNode, RELEASE, spec};
use super::server::played_server::serve;
use crate::clock::SystemClock;
use crate::error::{LockError, NodeError, Vote};
use crate::key::LockKey;
use crate::lock::{Dialect, LockSpec, Mode, Token};
use crate::manager::LockManager;
use crate::node::{Action, Ask, KeyRules, Node, Op, Remote, Reply};
use crate::request::LockRequest;
use crate::store::kit::gate::Closures;
use crate::store::memory::MemoryNode;
use crate::validity;

const NO_SCRIPT: &str = "-NOSCRIPT No matching script.\r\n";

fn op(action: Action) -> Op {
    Op::new(&spec(), Token::random(Dialect::Plain), action)
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_sent_only_releases() {
    const NODE_TIMEOUT: Duration = Duration::from_millis(50);
    let PlayedNode { node, mut server, .. } = PlayedNode::new(NODE_TIMEOUT);
    let acquire = Action::Acquire { lease: LEASE, fenced: true, ask: Ask::FIRST };
    let extend = Action::Extend { lease: LEASE };
    let mut first = node.call(op(acquire));
    assert!(futures_util::poll!(&mut first).is_pending());
    sleep(NODE_TIMEOUT * 2).await;
    for action in [acquire, extend, Action::Confirm { number: 1 }] {
        let reply = node.call(op(action));
        let vote = reply.as_ready().map(|reply| &reply.vote);
        assert!(matches!(vote, Some(Vote::Failed(NodeError::NoReply(_)))), "{reply:?}");
    }
    let mut release = node.call(op(Action::Release { min_hold: None }));
    assert!(futures_util::poll!(&mut release).is_pending());
    // The reply to the first command shows that the server works.
    serve(&mut server, "acquire", "$1\r\n7\r\n", || {}).await;
    assert_eq!(first.await, Reply::new(Vote::Agreed).with_number(7));
    assert!(node.call(op(extend)).as_ready().is_none());
}

/// A `{` in the prefix leaves no name for the counter and the queue in the slot of the lock. Other nodes have no slots.
#[tokio::test]
async fn fenced_and_fair_locks_need_a_prefix_with_a_place_for_their_keys_on_redis() {
    let over = |prefix, node| {
        LockManager::builder().prefix(prefix).build(vec![node], Arc::new(SystemClock))
    };
    let redis = |prefix| over(prefix, Arc::new(PlayedNode::new(LEASE).node));
    let requests: [fn(LockRequest) -> LockRequest; 2] =
        [|request| request.fenced(true), |request| request.fair(true)];
    for request in requests {
        let error = request(redis("a{b").lock("a")).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
        let message = error.to_string();
        let expected = "prefix is \"a{b\", but must be without `{`, or with a hash tag such as `{locks}:`, \
                        for fenced and fair locks on the Redis node ";
        assert!(message.starts_with(expected), "{message}");
        request(redis("{shop}:").lock("a")).check().unwrap();
        let memory = over("a{b", Arc::new(MemoryNode::new()));
        request(memory.lock("a")).check().unwrap();
    }
    redis("a{b").lock("a").check().unwrap();
}

/// The former master may still grant the lock to another caller. But the lock must not end at the promoted server.
#[tokio::test(start_paused = true)]
async fn a_promoted_server_extends_at_once_but_its_vote_counts_only_after_the_margin() {
    let played = PlayedNode::new(LEASE);
    let promotion = Closures::after_promotion(LEASE, LEASE / 10, Instant::now());
    played.owner().gate.close(promotion);
    let PlayedNode { node, mut server, .. } = played;
    let mut extend = async |reply: &str| {
        let granted = serve(&mut server, "extend", reply, || {});
        tokio::join!(node.call(op(Action::Extend { lease: LEASE })), granted).0.vote
    };
    let vote = extend(":1\r\n").await;
    assert!(matches!(vote, Vote::Failed(NodeError::Promoted { .. })), "{vote:?}");
    assert_eq!(extend(":0\r\n").await, Vote::NotHeld, "a lock that it does not have is lost");
    sleep(LEASE / 10).await;
    assert_eq!(extend(":1\r\n").await, Vote::Agreed);
}

/// The refusal is certain at this point. The look-up of the remaining TTL must not make the
/// vote late.
#[tokio::test(start_paused = true)]
async fn the_ttl_after_a_refusal_is_looked_up_only_until_the_round_ends() {
    const SECOND: Duration = Duration::from_secs(1);
    for (node_timeout, lease, round) in [
        (SECOND, 30 * SECOND, SECOND),
        (30 * SECOND, SECOND, validity::remaining(SECOND, Duration::ZERO)),
    ] {
        let PlayedNode { node, mut server, .. } = PlayedNode::new(node_timeout);
        let acquire = Action::Acquire { lease, fenced: false, ask: Ask::FIRST };
        let refuse = serve(&mut server, "SET", "_\r\n", || {});
        let reply = async { tokio::join!(node.call(op(acquire)), refuse).0 };
        let reply = timeout(round, reply).await;
        assert_eq!(reply.unwrap().vote, Vote::held(None), "{lease:?}");
    }
}

fn redisson_op() -> Op {
    let key = LockKey::new("order:42").unwrap();
    let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Redisson);
    Op::new(&spec, Token::random(Dialect::Redisson), acquire(true))
}

fn acquire(lookup: bool) -> Action {
    Action::Acquire { lease: LEASE, fenced: false, ask: Ask { skip_lookup: !lookup, ..Ask::FIRST } }
}

/// Begins the release of an attempt. Its command follows on the connection.
fn release(node: &RedisNode, op: &Op) -> crate::node::ReplyFuture {
    let mut release = node.call(Op { action: RELEASE, ..op.clone() });
    assert!(futures_util::FutureExt::now_or_never(&mut release).is_none());
    release
}

/// The clean-up of this attempt is already on its way. A second acquisition would arrive after
/// it.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_released_is_not_sent_again() {
    let PlayedNode { node, mut server, .. } = PlayedNode::new(LEASE);
    let op = redisson_op();
    let acquire = node.call(op.clone());
    let played = async {
        serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
        let mut released = None;
        let begin = std::cell::RefCell::new(&mut released);
        serve(&mut server, "LOAD", "+sha\r\n", || **begin.borrow_mut() = Some(release(&node, &op)))
            .await;
        serve(&mut server, "redisson/release", ":0\r\n", || {}).await;
        released.unwrap().await
    };
    let both = async { tokio::join!(acquire, played) };
    let (acquired, released) = timeout(LEASE, both).await.expect("nothing else is sent");
    assert!(matches!(acquired.vote, Vote::Failed(_)), "{acquired:?}");
    assert_eq!(released.vote, Vote::NotHeld);
}

/// The attempt is released while the acquisition is on its way, so the grant comes too late.
#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_its_release_is_released_again() {
    let PlayedNode { node, state, mut server } = PlayedNode::new(LEASE);
    let op = redisson_op();
    let acquire = node.call(op.clone());
    let played = async {
        serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
        serve(&mut server, "LOAD", "+sha\r\n", || {}).await;
        // The command of the release has overtaken this one.
        let release = || drop(state.pending.release(&op.token));
        serve(&mut server, "redisson/acquire", "+OK\r\n", release).await;
        serve(&mut server, "redisson/release", ":1\r\n", || {}).await;
    };
    let both = async { tokio::join!(acquire, played) };
    timeout(LEASE, both).await.expect("the lock is released again");
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_was_sent_once_is_released_once() {
    let PlayedNode { node, state, mut server } = PlayedNode::new(LEASE);
    let op = redisson_op();
    let acquire = node.call(op.clone());
    let release = || drop(state.pending.release(&op.token));
    let played = serve(&mut server, "redisson/acquire", "+OK\r\n", release);
    let both = async { tokio::join!(acquire, played) };
    // The server would never reply to a second release.
    let (reply, ()) = timeout(LEASE, both).await.unwrap();
    assert_eq!(reply.vote, Vote::Agreed);
    assert!(state.pending.release(&op.token).is_empty());
}

/// After a published release, waiters that were woken in vain must not delay the new holder
/// with look-ups.
#[tokio::test]
async fn the_ttl_after_a_refusal_is_looked_up_only_on_request() {
    let PlayedNode { node, mut server, .. } = PlayedNode::new(LEASE);
    let refuse = serve(&mut server, "SET", "_\r\n", || {});
    let (reply, ()) = tokio::join!(node.call(op(acquire(false))), refuse);
    assert_eq!(reply.vote, Vote::held(None));

    let look_up = async {
        serve(&mut server, "SET", "_\r\n", || {}).await;
        serve(&mut server, "acquire", "*2\r\n:0\r\n:1500\r\n", || {}).await;
    };
    let (reply, ()) = tokio::join!(node.call(op(acquire(true))), look_up);
    assert_eq!(reply.vote, Vote::held(Some(Duration::from_millis(1500))));
}

/// An acquisition that was dropped outside of a runtime is polled there to its end.
#[tokio::test]
async fn outside_of_a_runtime_the_ttl_is_not_looked_up() {
    let PlayedNode { node, mut server, .. } = PlayedNode::new(LEASE);
    let mut acquire = node.call(op(acquire(true)));
    assert!(futures_util::poll!(&mut acquire).is_pending());
    serve(&mut server, "SET", "_\r\n", || {}).await;
    // The driver of the connection reads the reply.
    sleep(Duration::from_millis(50)).await;
    let polled = std::thread::spawn(move || futures_util::FutureExt::now_or_never(acquire));
    assert_eq!(polled.join().unwrap().unwrap().vote, Vote::held(None));
}

/// If the command was pending for long, the step may be older than the reply by as much.
#[tokio::test]
async fn a_grant_does_not_count_if_a_step_is_noticed_before_its_reply() {
    let PlayedNode { node, state, mut server } = PlayedNode::new(LEASE);
    for (stepped, granted) in [(false, true), (true, false)] {
        let step = || {
            if stepped {
                let owner = state.map.owner_of(0).unwrap();
                owner.gate.close(Closures::after_clock_step(LEASE, Duration::from_secs(1)));
            }
        };
        let acquire = node.call(op(HELD));
        let (reply, ()) = tokio::join!(acquire, serve(&mut server, "SET", "+OK\r\n", step));
        assert_eq!(reply.vote == Vote::Agreed, granted, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_granting_while_one_of_its_masters_is() {
    let node = played_node::node("redis://a:1");
    assert!(!node.is_granting(), "it has not been started");
    let played = PlayedNode::new(LEASE);
    assert!(played.node.is_granting());
    played.owner().gate.close(Closures::after_restart(LEASE, None, None));
    assert!(!played.node.is_granting());
    tokio::time::advance(LEASE).await;
    assert!(played.node.is_granting());

    let cluster = PlayedCluster::new();
    cluster.state.map.insert_owner(0, "b:2");
    for is_granting in [true, false] {
        let number = usize::from(!is_granting);
        cluster.master(number).gate.close(Closures::after_restart(LEASE, None, None));
        assert_eq!(cluster.node.is_granting(), is_granting);
    }
}

/// A plain server could otherwise lead the password to another one.
#[tokio::test(start_paused = true)]
async fn a_single_server_redirects_nothing() {
    for kind in ["MOVED", "ASK"] {
        let PlayedNode { node, state, mut server } = PlayedNode::new(LEASE);
        let redirect = format!("-{kind} 3999 127.0.0.1:1\r\n");
        let acquire = node.call(op(HELD));
        let (reply, ()) = tokio::join!(acquire, serve(&mut server, "SET", &redirect, || {}));
        assert!(matches!(reply.vote, Vote::Failed(NodeError::Server(_))), "{reply:?}");
        assert_eq!(state.map.all().len(), 1, "{kind}");
    }
}

/// The former master may have granted the lock to another caller when the server extended it.
#[tokio::test(start_paused = true)]
async fn an_extension_that_was_sent_within_the_margin_does_not_count_after_it() {
    let played = PlayedNode::new(LEASE);
    let promotion = Closures::after_promotion(LEASE, LEASE / 10, Instant::now());
    played.owner().gate.close(promotion);
    let PlayedNode { node, mut server, .. } = played;
    let mut extend = node.call(op(Action::Extend { lease: LEASE }));
    assert!(futures_util::poll!(&mut extend).is_pending());
    tokio::time::advance(LEASE / 5).await;
    serve(&mut server, "extend", ":1\r\n", || {}).await;
    let vote = extend.await.vote;
    assert!(matches!(vote, Vote::Failed(NodeError::Promoted { .. })), "{vote:?}");
}

/// A server whose scripts are flushed all the time must not keep the caller for ever.
#[tokio::test(start_paused = true)]
async fn a_script_is_loaded_once_for_an_operation() {
    let PlayedNode { node, mut server, .. } = PlayedNode::new(LEASE);
    let acquire = node.call(redisson_op());
    let played = async {
        serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
        serve(&mut server, "LOAD", "+sha\r\n", || {}).await;
        serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
    };
    let both = async { tokio::join!(acquire, played) };
    let (reply, ()) = timeout(LEASE, both).await.expect("nothing else is sent");
    let Vote::Failed(reason) = &reply.vote else { panic!("{reply:?}") };
    assert!(reason.to_string().contains("NOSCRIPT"), "{reason}");
}

/// A script runs on one server, and the slots of a cluster lie on several.
#[test]
fn only_a_cluster_limits_which_keys_are_locked_together() {
    let keys = |names: [&str; 2]| names.map(|name| LockKey::new(name).unwrap());
    for (url, allows_all) in [
        ("redis://localhost", true),
        ("redis+sentinel://s1,s2,s3/shop", true),
        ("redis-cluster://a:1,b:2", false),
    ] {
        let node = super::played_node::node(url);
        assert!(node.check_keys(&keys(["{tag}:one", "{tag}:two"])).is_ok(), "{url}");
        assert_eq!(node.check_keys(&keys(["one", "two"])).is_ok(), allows_all, "{url}");
    }
}
