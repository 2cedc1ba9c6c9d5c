//! Completes releases and awaits replies that no caller waits for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::ballot::{Attempt, BackgroundRelease, Cleanup, FanOut, InFlight, RestoreRequest};
use crate::clock::{Clock, Moment};
use crate::error::{NodeError, Vote};
use crate::home::Home;
use crate::node::{Node, NodeStatus, Reply, ReplyFuture, poll_periodically};

/// The pause before a release that failed on a node is repeated. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause while a node that is up has no connection for the lock. The attempts cost little.
const LONGEST_PAUSE_UNSENT: Duration = Duration::from_millis(500);

/// Completes the releases of abandoned locks, in the background.
///
/// Commands are sent at once, in the caller's thread, even in a `Drop` outside of a runtime; a task only waits for the
/// replies. A command whose reply future is dropped may not be sent.
#[derive(Debug)]
pub(crate) struct CleanupTasks {
    clock: Arc<dyn Clock>,
    home: Arc<Home>,
    tasks: TaskTracker,
    /// Ends the remaining tasks when `shutdown` has waited long enough.
    abandon_all: CancellationToken,
}

/// An attempt that is being released on the nodes that may hold the lock.
struct PendingRelease {
    attempt: Arc<Attempt>,
    until: Moment,
    nodes: Vec<NodeRelease>,
}

impl CleanupTasks {
    pub(crate) fn new(clock: Arc<dyn Clock>, home: &Arc<Home>) -> Arc<Self> {
        let (tasks, abandon_all) = (TaskTracker::new(), CancellationToken::new());
        Arc::new(Self { clock, home: Arc::clone(home), tasks, abandon_all })
    }

    /// Waits up to `time_limit` for the pending releases and tasks, then abandons them. The locks of abandoned
    /// releases run out on the servers.
    pub(crate) async fn finish(&self, time_limit: Duration) {
        self.tasks.close();
        if tokio::time::timeout(time_limit, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                tasks = self.tasks.len(),
                "abandoned releases that nodes did not confirm; those locks expire with their leases"
            );
            self.abandon_all.cancel();
        }
    }

    /// Returns a token that makes a shutdown wait until the token is dropped.
    pub(crate) fn delay_shutdown(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Runs a task that a shutdown waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(runtime) = self.home.runtime() else { return };
        let task = self.abandon_all.clone().run_until_cancelled_owned(task).map(drop);
        self.tasks.spawn_on(task, &runtime);
    }
}

impl Cleanup for CleanupTasks {
    fn await_replies(&self, replies: FanOut) {
        // A shutdown does not wait for these replies: nothing is lost without them.
        if let Some(runtime) = self.home.runtime() {
            runtime.spawn(replies.await_all(|_, _| {}));
        }
    }

    fn restore(&self, request: RestoreRequest) {
        let Some(runtime) = self.home.runtime() else { return };
        let RestoreRequest { attempt, expire, nodes, mut nodes_without_lock, replies } = request;
        runtime.spawn(async move {
            let forgot = |index, reply: Reply| {
                if reply.vote == Vote::NotHeld {
                    nodes_without_lock.push(index);
                }
            };
            let begun = Instant::now();
            replies.await_all(forgot).await;
            for index in nodes_without_lock {
                // Skipped if the lease is over soon, or the holder has released the lock.
                if attempt.is_abandoned() || begun.elapsed() > expire / 3 {
                    return;
                }
                attempt.record_asked(index);
                let reply = poll_periodically(nodes[index].call(attempt.restore_op(expire))).await;
                let (key, node) = (attempt.key(), nodes[index].name());
                if reply.vote == Vote::Granted {
                    tracing::debug!(%key, %node, "restored a lock that was missing on a node");
                } else {
                    tracing::debug!(
                        %key, %node, vote = %reply.vote,
                        "could not restore a lock that was missing on a node"
                    );
                }
                if let Some(number) = attempt.number() {
                    let _ = poll_periodically(nodes[index].call(attempt.confirm_op(number))).await;
                }
                // The release may have overtaken the acquisition.
                if attempt.is_abandoned() {
                    let _ = poll_periodically(nodes[index].call(attempt.release_op())).await;
                }
            }
        });
    }

    fn release(&self, release: BackgroundRelease) {
        let BackgroundRelease { attempt, until, nodes } = release;
        let mut nodes: Vec<NodeRelease> = nodes
            .into_iter()
            .map(|(node, in_flight)| {
                let (acquiring, reply) = match in_flight {
                    InFlight::None => (None, node.call(attempt.release_op())),
                    InFlight::Acquiring(acquiring) => {
                        (Some(acquiring), node.call(attempt.release_op()))
                    }
                    InFlight::Releasing(reply) => (None, reply),
                };
                NodeRelease { node, replies: Mutex::new(Replies { acquiring, reply }) }
            })
            .collect();

        // The first poll sends the commands, whatever happens to the runtime.
        let mut cx = Context::from_waker(Waker::noop());
        nodes.retain(|node| {
            matches!(node.poll(&mut cx), Poll::Pending | Poll::Ready(Vote::Failed(_)))
        });
        if nodes.is_empty() {
            return;
        }
        if self.home.has_ended() {
            tracing::warn!(
                key = %attempt.key(),
                "the Tokio runtime of a manager has ended, so a lock is not released; it ends with its lease"
            );
            return;
        }
        let (release, clock) = (PendingRelease { attempt, until, nodes }, Arc::clone(&self.clock));
        self.spawn(async move { release.finish(&*clock).await });
    }
}

impl PendingRelease {
    /// Waits until every node has confirmed the release, or the lease has run out there.
    async fn finish(&self, clock: &dyn Clock) {
        let left = clock.now().time_until(self.until);
        let nodes = self.nodes.iter().map(|node| node.finish(&self.attempt, self.until, clock));
        // A command that was sent by then takes effect even if the node receives it later.
        let _ = tokio::time::timeout(left, futures_util::future::join_all(nodes)).await;
    }
}

/// The release of one attempt on one node.
struct NodeRelease {
    node: Arc<dyn Node>,
    replies: Mutex<Replies>,
}

struct Replies {
    /// The acquisition that precedes the release, if it is still pending. It is polled first, so that it is
    /// sent first.
    acquiring: Option<ReplyFuture>,
    reply: ReplyFuture,
}

impl NodeRelease {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Vote> {
        let mut replies = self.replies.lock();
        if let Some(acquiring) = &mut replies.acquiring
            && Pin::new(acquiring).poll(cx).is_ready()
        {
            replies.acquiring = None;
        }
        let reply = std::task::ready!(Pin::new(&mut replies.reply).poll(cx));
        // The reply may be polled again: when the release is sent, and by the task that waits for it.
        replies.reply = ReplyFuture::ready(reply.clone());
        Poll::Ready(reply.vote)
    }

    /// Repeats the release until the node has confirmed that it does not hold the lock, or its lease has run
    /// out. Waits without a timeout for a node that does not reply: the caller limits the wait.
    async fn finish(&self, attempt: &Arc<Attempt>, until: Moment, clock: &dyn Clock) {
        let mut pause = FIRST_PAUSE;
        loop {
            let vote = poll_periodically(std::future::poll_fn(|cx| self.poll(cx))).await;
            let Vote::Failed(error) = vote else { return };
            let left = clock.now().time_until(until);
            if left.is_zero() {
                return;
            }
            tracing::debug!(
                key = %attempt.key(), node = %self.node.name(), %error,
                "a release was not confirmed; retrying"
            );
            let (status, is_sent) =
                (self.node.status(), !matches!(error, NodeError::NotConnected(_)));
            if is_sent || status.get().is_up() {
                // A node may be up for other locks only, and for a moment after its connection has broken.
                tokio::time::sleep(pause.min(left)).await;
                let longest = if is_sent { LONGEST_PAUSE } else { LONGEST_PAUSE_UNSENT };
                pause = (pause * 2).min(longest);
                status.wait_for(NodeStatus::is_up).await;
            } else {
                pause = FIRST_PAUSE;
                status.wait_for(NodeStatus::is_up).await;
                tokio::time::sleep(FIRST_PAUSE.min(left)).await;
            }
            self.replies.lock().reply = self.node.call(attempt.release_op());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ballot::attempt::tests::attempt;
    use crate::clock::SystemClock;
    use crate::node::fake::{FakeMode, FakeNode};

    /// The connection has just broken, and not every part of the node has noticed.
    #[tokio::test(start_paused = true)]
    async fn a_release_that_fails_at_its_first_poll_is_repeated() {
        let cleanup_tasks = CleanupTasks::new(Arc::new(SystemClock), &Home::new());
        let attempt = attempt("a");
        let fake = FakeNode::start("node");
        assert_eq!(
            fake.call(attempt.acquire_op(Duration::from_secs(30))).await.vote,
            Vote::Granted
        );
        let node = Arc::clone(&fake) as Arc<dyn Node>;
        let failed = ReplyFuture::new(async {
            Vote::Failed(NodeError::ConnectionBroke("closed".into())).into()
        });
        let until = cleanup_tasks.clock.now().plus(Duration::from_secs(30));
        let nodes = vec![(node, InFlight::Releasing(failed))];
        cleanup_tasks.release(BackgroundRelease { attempt, until, nodes });
        cleanup_tasks.finish(Duration::from_secs(5)).await;
        assert!(!fake.is_held());
    }

    /// A Redis Cluster is up while the master of the lock is down.
    #[tokio::test(start_paused = true)]
    async fn a_release_without_connection_is_repeated_after_growing_pauses_while_its_node_is_up() {
        let cleanup_tasks = CleanupTasks::new(Arc::new(SystemClock), &Home::new());
        let attempt = attempt("a");
        let fake = FakeNode::start("node");
        fake.set(FakeMode::Unreachable);
        let node = Arc::clone(&fake) as Arc<dyn Node>;
        let until = cleanup_tasks.clock.now().plus(Duration::from_secs(30));
        let nodes = vec![(node, InFlight::None)];
        cleanup_tasks.release(BackgroundRelease { attempt, until, nodes });
        tokio::time::sleep(Duration::from_secs(5)).await;
        let calls = fake.unsent();
        assert!((5..=40).contains(&calls), "{calls} calls");
        fake.set(FakeMode::Up(Duration::ZERO));
        cleanup_tasks.finish(Duration::from_secs(1)).await;
        assert!(fake.releases() > 0);
    }

    /// The log says that a lock is restored only if the node has set it.
    #[tokio::test(start_paused = true)]
    async fn a_failed_restore_is_not_logged_as_a_restore() {
        use super::super::tests::{SECOND, manager};

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
