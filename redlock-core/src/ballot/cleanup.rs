//! Completes releases and awaits replies that no caller waits for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::round::{PendingReplies, Round};
use super::{Attempt, Ballot};
use crate::clock::{Clock, Moment};
use crate::counters::PendingRelease;
use crate::error::{NodeError, Vote, Votes};
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::node::{Action, Node, NodeStatus, ReplyFuture};
use crate::quorum::quorum;

/// The pause before a release that failed on a node is repeated. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause while a node that is up has no connection for the lock. The attempts cost little.
const LONGEST_PAUSE_UNSENT: Duration = Duration::from_millis(500);

impl Drop for Round<'_> {
    /// Waits for the replies that no longer affect the decision. If the reply future of a command is dropped, the
    /// command may never be sent, and the node would not have the lock. A shutdown does not wait for these replies.
    fn drop(&mut self) {
        let replies = self.take_all_pending();
        if !replies.is_empty()
            && let Some(runtime) = self.ballot.home.runtime()
        {
            runtime.spawn(await_all(replies));
        }
    }
}

impl Round<'_> {
    /// Sets the lock again on nodes that may not have it: they were restarted, or could not be reached when the lock was
    /// acquired. A quorum has confirmed an extension of the lock to `expire` in this round.
    pub(super) fn restore(&mut self, attempt: &Arc<Attempt>, expire: Duration) {
        let Ballot { nodes, home, .. } = self.ballot;
        let mut nodes_without_lock: Vec<usize> = (0..nodes.len())
            .filter(|index| matches!(self.tally.vote(*index), Some(Vote::NotHeld)))
            .collect();
        let replies = self.take_all_pending();
        if nodes_without_lock.is_empty() && replies.is_empty() {
            return;
        }
        let Some(runtime) = home.runtime() else { return };
        let (attempt, ballot) = (Arc::clone(attempt), self.ballot.clone());
        runtime.spawn(async move {
            let begun = Instant::now();
            let late = await_all(replies).await.into_iter();
            nodes_without_lock
                .extend(late.filter(|(_, vote)| *vote == Vote::NotHeld).map(|(index, _)| index));
            for index in nodes_without_lock {
                // Skipped if the lease is over soon, or the holder has released the lock.
                if attempt.is_abandoned() || begun.elapsed() > expire / 3 {
                    return;
                }
                restore_on(&ballot, &attempt, index, expire).await;
            }
        });
    }
}

impl Ballot {
    /// Completes a release in the background: repeats it until each node has confirmed it, or its lease has run out there at
    /// `until`.
    ///
    /// The commands are sent at once, in the caller's thread, even in a `Drop` outside of a runtime; a task only waits for
    /// the replies. A command whose reply future is dropped may not be sent.
    ///
    /// `on_gone` is called with the votes of the nodes that do not hold the lock, if they are so many that no quorum can have
    /// held it.
    pub(super) fn complete_release(
        &self,
        attempt: &Arc<Attempt>,
        until: Moment,
        mut nodes: Vec<NodeRelease>,
        on_gone: impl FnOnce(&Votes) + Send + 'static,
    ) {
        // Mostly all nodes have confirmed the release already.
        if nodes.is_empty() {
            return;
        }
        // The first poll sends the commands, whatever happens to the runtime.
        let mut cx = Context::from_waker(Waker::noop());
        // A node that was not asked to set the lock does not hold it.
        let (asked, quorum, mut gone) = (nodes.len(), quorum(self.nodes.len()), Vec::new());
        nodes.retain_mut(|node| match node.poll(&mut cx) {
            Poll::Pending | Poll::Ready(Vote::Failed(_)) => true,
            Poll::Ready(vote) => {
                gone.extend((vote == Vote::NotHeld).then(|| Arc::clone(node.node.name())));
                false
            }
        });
        let report_gone = move |gone: Vec<Arc<str>>| {
            if asked - gone.len() < quorum {
                on_gone(&gone.into_iter().map(|node| (node, Some(Vote::NotHeld))).collect());
            }
        };
        if nodes.is_empty() {
            return report_gone(gone);
        }
        if self.home.has_ended() {
            tracing::warn!(
                lock = %attempt.key(),
                "the Tokio runtime of a manager has ended, so a lock is not released; it ends with its lease"
            );
            return;
        }
        let release = Unconfirmed {
            attempt: Arc::clone(attempt),
            has_ended: false,
            _pending: self.home.counters.begin_release(),
        };
        let (clock, log_limit) = (Arc::clone(&self.clock), Arc::clone(&self.log_limit));
        self.home.spawn(async move {
            gone.extend(release.finish(nodes, until, clock, &log_limit).await);
            report_gone(gone);
        });
    }
}

async fn await_all(replies: PendingReplies) -> Vec<(usize, Vote)> {
    let vote = async |(index, reply): (usize, ReplyFuture)| (index, reply.await.vote);
    join_all(replies.into_iter().map(vote)).await
}

async fn restore_on(ballot: &Ballot, attempt: &Arc<Attempt>, index: usize, expire: Duration) {
    let node = &ballot.nodes[index];
    attempt.record_asked(index);
    // The lease begins here later than on the other nodes: when the acquisition arrives, which is now or before its reply.
    let record_expiry = || {
        let latest = ballot.clock.now().plus(expire);
        attempt.lease().raise_latest_expiry(latest);
    };
    record_expiry();
    let reply = node.call(attempt.restore_op(expire)).await;
    record_expiry();
    let (key, name) = (attempt.key(), node.name());
    if reply.vote == Vote::Agreed {
        tracing::debug!(%key, node = %name, "restored a lock that was missing on a node");
    } else {
        tracing::debug!(
            %key, node = %name, vote = %reply.vote,
            "could not restore a lock that was missing on a node"
        );
    }
    if let Some(number) = attempt.number() {
        let _ = node.call(attempt.op(Action::Confirm { number })).await;
    }
    // The release may have overtaken the acquisition.
    if attempt.is_abandoned() {
        let release = NodeRelease::pending(node, node.call(attempt.release_op()));
        ballot.complete_release(attempt, ballot.clock.now().plus(expire), vec![release], |_| {});
    }
}

/// A release that some nodes have not confirmed.
struct Unconfirmed {
    attempt: Arc<Attempt>,
    has_ended: bool,
    _pending: PendingRelease,
}

impl Unconfirmed {
    /// Waits until every node has confirmed the release, or the lease has run out there. Returns the names of the nodes that
    /// did not hold the lock when the release arrived, as far as they are known.
    async fn finish(
        mut self,
        nodes: Vec<NodeRelease>,
        until: Moment,
        clock: Arc<dyn Clock>,
        log_limit: &LogLimit,
    ) -> Vec<Arc<str>> {
        let left = clock.now().time_until(until);
        let attempt = &self.attempt;
        let finish = async |node: NodeRelease| {
            let name = Arc::clone(node.node.name());
            node.finish(attempt, until, &*clock, log_limit).await.then_some(name)
        };
        let nodes = nodes.into_iter().map(finish);
        // A command that was sent by then takes effect even if the node receives it later.
        let found_gone = tokio::time::timeout(left, join_all(nodes)).await.unwrap_or_default();
        self.has_ended = true;
        found_gone.into_iter().flatten().collect()
    }
}

/// Logs that a release was abandoned.
impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if !self.has_ended {
            tracing::debug!(
                lock = %self.attempt.key(),
                "a release was abandoned before all nodes confirmed it; on the others, the lock may last until its lease ends"
            );
        }
    }
}

/// The release of one attempt on one node.
#[derive(Debug)]
pub(super) struct NodeRelease {
    node: Arc<dyn Node>,
    /// The acquisition that precedes the release, if it is still pending. It is polled first, so that it is sent first.
    acquiring: Option<ReplyFuture>,
    reply: ReplyFuture,
}

impl NodeRelease {
    /// Releases an attempt on a node, after its acquisition if that is still pending.
    pub(super) fn new(
        node: &Arc<dyn Node>,
        attempt: &Attempt,
        acquiring: Option<ReplyFuture>,
    ) -> Self {
        Self { node: Arc::clone(node), acquiring, reply: node.call(attempt.release_op()) }
    }

    /// Continues a release that is pending.
    pub(super) fn pending(node: &Arc<dyn Node>, reply: ReplyFuture) -> Self {
        Self { node: Arc::clone(node), acquiring: None, reply }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Vote> {
        if let Some(acquiring) = &mut self.acquiring
            && Pin::new(acquiring).poll(cx).is_ready()
        {
            self.acquiring = None;
        }
        let reply = std::task::ready!(Pin::new(&mut self.reply).poll(cx));
        // The reply may be polled again: when the release is sent, and by the task that waits for it.
        self.reply = ReplyFuture::ready(reply.clone());
        Poll::Ready(reply.vote)
    }

    /// Repeats the release until the node has confirmed that it does not hold the lock, or its lease has run
    /// out. Waits without a timeout for a node that does not reply: the caller limits the wait.
    ///
    /// Returns whether the node did not hold the lock when the release arrived. A release whose reply was lost may have
    /// removed the lock, so the reply to its repetition says nothing about that.
    async fn finish(
        mut self,
        attempt: &Attempt,
        until: Moment,
        clock: &dyn Clock,
        log_limit: &LogLimit,
    ) -> bool {
        let mut pause = FIRST_PAUSE;
        let (mut may_be_executed, mut was_refused) = (false, false);
        loop {
            let vote = std::future::poll_fn(|cx| self.poll(cx)).await;
            let Vote::Failed(error) = vote else {
                return vote == Vote::NotHeld && !may_be_executed;
            };
            let left = clock.now().time_until(until);
            if left.is_zero() {
                return false;
            }
            let (key, name) = (attempt.key(), self.node.name());
            // The log has a warning about a node that does not answer. Nothing else names a refusal.
            let is_refused = matches!(
                error,
                NodeError::NotPermitted(_) | NodeError::NotSetUp(_) | NodeError::Server(_)
            );
            if is_refused && !std::mem::replace(&mut was_refused, true) {
                log_limited!(
                    log_limit, "refused release", name, warn, lock = %key, node = %name, %error,
                    ends_in = ?left,
                    "a node has refused to release a lock, which may stay there until its lease ends; the release is repeated"
                );
            } else {
                tracing::debug!(lock = %key, node = %name, %error, "a release was not confirmed; retrying");
            }
            let (status, is_sent) =
                (self.node.status(), !matches!(error, NodeError::NotConnected(_)));
            may_be_executed |= is_sent;
            // A node may be down for other locks only.
            let is_up = async { timeout(LONGEST_PAUSE, status.wait_for(NodeStatus::is_up)).await };
            if is_sent || status.get().is_up() {
                // A node may be up for other locks only, and for a moment after its connection has broken.
                tokio::time::sleep(pause.min(left)).await;
                let longest = if is_sent { LONGEST_PAUSE } else { LONGEST_PAUSE_UNSENT };
                pause = (pause * 2).min(longest);
                let _ = is_up.await;
            } else {
                pause = FIRST_PAUSE;
                let _ = is_up.await;
                tokio::time::sleep(FIRST_PAUSE.min(left)).await;
            }
            self.reply = self.node.call(attempt.release_op());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::attempt::tests::attempt;
    use super::super::tests::Setup;
    use super::*;
    use crate::lease::tests::{SECOND, manager};
    use crate::node::fake::{FakeMode, Operation};

    const LEASE: Duration = Duration::from_secs(30);

    /// The third node has forgotten the lock, and replies to the extension after the release.
    #[tokio::test(start_paused = true)]
    async fn a_lock_that_was_released_meanwhile_is_not_restored() {
        let setup = Setup::new(3);
        let (attempt, third) = (attempt("a"), &setup.nodes[2]);
        setup.ballot.acquire(&attempt, LEASE).await.unwrap();
        let lease = *attempt.lease();
        third.forget();
        setup.set(&[FakeMode::Up(Duration::ZERO), FakeMode::Up(Duration::ZERO), FakeMode::Frozen]);
        setup.ballot.extend(&attempt, LEASE).await.unwrap();
        let now = setup.ballot.clock.now();
        setup.ballot.release(attempt, now, lease.latest_expiry).await.unwrap();
        setup.set(&[FakeMode::Up(Duration::ZERO); 3]);
        setup.ballot.home.finish_tasks(LEASE).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let is_acquisition = |operation: &Operation| matches!(operation, Operation::Acquire(..));
        assert_eq!(third.log().into_iter().filter(is_acquisition).count(), 1, "{:?}", third.log());
        assert!(!third.is_held());
    }

    /// The lease of a restored lock begins later than on the other nodes.
    #[tokio::test(start_paused = true)]
    async fn the_release_of_a_restored_lock_is_repeated_until_its_lease_is_over() {
        let (locks, nodes) = manager(3);
        let guard = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
        tokio::time::sleep(SECOND).await;
        nodes[2].forget();
        nodes[2].set(FakeMode::Up(6 * SECOND));
        guard.extend(30 * SECOND).await.unwrap();
        tokio::time::sleep(13 * SECOND).await;
        assert!(nodes[2].is_held(), "the lock is not restored");
        nodes[2].set(FakeMode::Down);
        drop(guard);
        tokio::time::sleep(19 * SECOND).await;
        assert!(nodes[2].is_held(), "the lease is over");
        nodes[2].set(FakeMode::Up(Duration::ZERO));
        tokio::time::sleep(SECOND).await;
        assert!(!nodes[2].is_held(), "the restored lock stays");
    }

    /// Another thread releases the lock between the look at the attempt and the acquisition.
    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_restored_after_its_release_is_released_again() {
        let (setup, attempt) = (Setup::new(1), attempt("a"));
        attempt.abandon();
        restore_on(&setup.ballot, &attempt, 0, LEASE).await;
        setup.ballot.home.finish_tasks(LEASE).await;
        assert_eq!(setup.nodes[0].releases(), 1);
        assert!(!setup.nodes[0].is_held());
    }

    /// The connection has just broken, and not every part of the node has noticed.
    #[tokio::test(start_paused = true)]
    async fn a_release_that_fails_at_its_first_poll_is_repeated() {
        let setup = Setup::new(1);
        let attempt = attempt("a");
        setup.ballot.acquire(&attempt, LEASE).await.unwrap();
        let failed = ReplyFuture::new(async {
            Vote::Failed(NodeError::ConnectionBroke("closed".into())).into()
        });
        let until = setup.ballot.clock.now().plus(LEASE);
        let nodes = vec![NodeRelease::pending(&setup.ballot.nodes[0], failed)];
        setup.ballot.complete_release(&attempt, until, nodes, |_| {});
        setup.ballot.home.finish_tasks(Duration::from_secs(5)).await;
        assert!(!setup.nodes[0].is_held());
    }

    /// The acquisition reached the node long after its caller had sent it, and the lease begins there.
    #[tokio::test(start_paused = true)]
    async fn an_abandoned_acquisition_is_released_until_its_lease_is_over_after_a_late_arrival() {
        const SECOND: Duration = Duration::from_secs(1);
        let setup = Setup::new(1);
        setup.nodes[0].set_reports_silence(false);
        setup.set(&[FakeMode::Frozen]);
        let attempt = attempt("a");
        {
            let mut acquire = Box::pin(setup.ballot.acquire(&attempt, 5 * SECOND));
            tokio::select! {
                result = &mut acquire => panic!("{result:?}"),
                () = tokio::time::sleep(4 * SECOND) => setup.set(&[FakeMode::Unreachable]),
            }
        }
        tokio::time::sleep(4 * SECOND).await;
        assert!(setup.nodes[0].is_held());
        setup.set(&[FakeMode::Up(Duration::ZERO)]);
        tokio::time::sleep(SECOND * 3 / 4).await;
        assert!(!setup.nodes[0].is_held());
    }

    /// A Redis Cluster is up while the master of the lock is down. A node may be down because of a connection that other locks
    /// use.
    #[tokio::test(start_paused = true)]
    async fn a_release_without_connection_is_repeated_whether_its_node_is_up_or_down() {
        for (mode, time, expected) in
            [(FakeMode::Unreachable, 5 * SECOND, 5..=40), (FakeMode::Down, 25 * SECOND, 4..=6)]
        {
            let setup = Setup::new(1);
            setup.set(&[mode]);
            let (attempt, fake) = (attempt("a"), &setup.nodes[0]);
            let until = setup.ballot.clock.now().plus(LEASE);
            let nodes = vec![NodeRelease::new(&setup.ballot.nodes[0], &attempt, None)];
            setup.ballot.complete_release(&attempt, until, nodes, |_| {});
            tokio::time::sleep(time).await;
            let calls = fake.unsent();
            assert!(expected.contains(&calls), "{mode:?}: {calls} calls");
            setup.set(&[FakeMode::Up(Duration::ZERO)]);
            setup.ballot.home.finish_tasks(SECOND).await;
            assert!(fake.releases() > 0, "{mode:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_release_is_logged() {
        const ABANDONED: &str = "a release was abandoned";
        let logs = redlock_logs::Logs::collect();
        for (mode, time_limit, expected) in
            [(FakeMode::Up(Duration::ZERO), LEASE, 0), (FakeMode::Frozen, LEASE / 2, 1)]
        {
            let setup = Setup::new(1);
            setup.set(&[mode]);
            let attempt = attempt("a");
            let until = setup.ballot.clock.now().plus(LEASE);
            let nodes = vec![NodeRelease::new(&setup.ballot.nodes[0], &attempt, None)];
            setup.ballot.complete_release(&attempt, until, nodes, |_| {});
            setup.ballot.home.finish_tasks(time_limit).await;
            // The runtime drops an abandoned task when it runs the next time.
            tokio::task::yield_now().await;
            assert_eq!(logs.count("DEBUG", ABANDONED), expected, "{mode:?}");
        }
    }

    /// Nobody waits for the release of a guard that was dropped. The line names the cause once, although the release is repeated.
    #[tokio::test(start_paused = true)]
    async fn a_refused_release_in_the_background_is_a_warning() {
        const REFUSED: &str = "a node has refused to release a lock";
        let logs = redlock_logs::Logs::collect();
        for (mode, expected) in
            [(FakeMode::Down, 0), (FakeMode::AnswerLost, 0), (FakeMode::Forbidden, 1)]
        {
            let (locks, nodes) = manager(1);
            let guard = locks.lock("a").expire(30 * SECOND).try_acquire().await.unwrap();
            nodes[0].set(mode);
            drop(guard);
            tokio::time::sleep(5 * SECOND).await;
            assert_eq!(logs.count("WARN", REFUSED), expected, "{mode:?}");
            nodes[0].set(FakeMode::Up(Duration::ZERO));
            tokio::time::sleep(10 * SECOND).await;
            assert!(!nodes[0].is_held(), "{mode:?}");
        }
        let lines = logs.lines();
        let line = lines.iter().find(|line| line.contains(REFUSED)).unwrap();
        for words in ["lock=a", "error=not permitted", "ends_in=30s"] {
            assert!(line.contains(words), "{words}: {line}");
        }
    }

    /// The log says that a lock is restored only if the node has set it.
    #[tokio::test(start_paused = true)]
    async fn a_failed_restore_is_not_logged_as_a_restore() {
        use crate::lease::tests::{SECOND, manager};

        let logs = redlock_logs::Logs::collect();
        let (restored, could_not) = ("restored a lock", "could not restore a lock");
        let (locks, nodes) = manager(3);
        let guard = locks.lock("a").expire(3 * SECOND).renew(true).try_acquire().await.unwrap();
        nodes[0].set(FakeMode::Quarantined);
        nodes[0].forget();
        tokio::time::sleep(SECOND * 3 / 2).await;
        assert_eq!((logs.count("DEBUG", restored), logs.count("DEBUG", could_not)), (0, 1));

        nodes[0].set(FakeMode::Up(Duration::ZERO));
        tokio::time::sleep(SECOND).await;
        assert_eq!((logs.count("DEBUG", restored), logs.count("DEBUG", could_not)), (1, 1));
        assert!(nodes[0].is_held());
        guard.release().await.unwrap();
    }
}
