//! Releases and answers that nobody waits for.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::ballot::{Aftercare, FanOut, Forgotten, Leftover, UnderWay};
use crate::clock::{Clock, Moment};
use crate::error::{NodeError, Vote};
use crate::node::{Answer, Claim, Node, patiently};

/// The pause before a node that failed to release is asked again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs what is left to do for locks that nobody holds any more.
///
/// What can be sent is sent at once, in the caller's thread, even where that is a `Drop` outside of
/// a runtime; only the waiting is left to a task.
#[derive(Debug)]
pub(crate) struct Background {
    clock: Arc<dyn Clock>,
    runtime: OnceLock<Handle>,
    tasks: TaskTracker,
    /// Ends the tasks that `shutdown` has waited long enough for.
    give_up: CancellationToken,
}

impl Background {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let background = Self {
            clock,
            runtime: OnceLock::new(),
            tasks: TaskTracker::new(),
            give_up: CancellationToken::new(),
        };
        background.remember_runtime();
        background
    }

    /// Keeps the runtime that this is called in, for those who drop a guard outside of one.
    pub(crate) fn remember_runtime(&self) {
        if self.runtime.get().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            // If another caller was first, its runtime is as good.
            let _ = self.runtime.set(runtime);
        }
    }

    /// Waits for what is under way, at most for `patience`; what is not done by then is given up
    /// and left to run out on the servers.
    pub(crate) async fn finish(&self, patience: Duration) {
        self.tasks.close();
        if tokio::time::timeout(patience, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                tasks = self.tasks.len(),
                "gave up releases that nodes did not confirm; those locks run out by themselves"
            );
            self.give_up.cancel();
        }
    }

    /// A shutdown waits until the result is dropped.
    pub(crate) fn under_way(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Runs a task that a shutdown waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(runtime) = self.runtime() else { return };
        let give_up = self.give_up.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = task => {}
                () = give_up.cancelled() => {}
            }
        };
        self.tasks.spawn_on(task, &runtime);
    }

    /// The runtime to wait in. `None` where there never was one: then there are only nodes in
    /// memory, which answer at once.
    fn runtime(&self) -> Option<Handle> {
        // That of this thread first: the remembered one may be gone.
        Handle::try_current().ok().or_else(|| self.runtime.get().cloned())
    }
}

impl Aftercare for Background {
    fn await_answers(&self, answers: FanOut) {
        // Not tracked: nothing is lost if they never come.
        if let Some(runtime) = self.runtime() {
            runtime.spawn(answers.finish(|_, _| {}));
        }
    }

    fn restore(&self, forgotten: Forgotten) {
        let Some(runtime) = self.runtime() else { return };
        let Forgotten { claim, expire, nodes, mut gone, answers } = forgotten;
        runtime.spawn(async move {
            let forgot = |index, vote| {
                if vote == Vote::Gone {
                    gone.push(index);
                }
            };
            let begun = Instant::now();
            answers.finish(forgot).await;
            for index in gone {
                // Not for a lease that is over soon, or a holder that has gone.
                if claim.is_given_up() || begun.elapsed() > expire / 3 {
                    return;
                }
                claim.note_asked(index);
                let vote = patiently(nodes[index].acquire(&claim, expire)).await;
                tracing::debug!(
                    key = %claim.key(), node = %nodes[index].name(), %vote,
                    "set a lock again that the node had forgotten"
                );
                if let Some(token) = claim.first_token() {
                    let _ = patiently(nodes[index].confirm(&claim, token.number())).await;
                }
                // The release may have overtaken it.
                if claim.is_given_up() {
                    let _ = patiently(nodes[index].release(&claim)).await;
                }
            }
        });
    }

    fn release(&self, leftover: Leftover) {
        let Leftover { claim, until, nodes } = leftover;
        let mut releases: Vec<Releasing> = nodes
            .into_iter()
            .map(|(node, under_way)| {
                let (acquiring, answer) = match under_way {
                    UnderWay::Nothing => (None, node.release(&claim)),
                    UnderWay::Acquiring(acquiring) => (Some(acquiring), node.release(&claim)),
                    UnderWay::Releasing(answer) => (None, answer),
                };
                Releasing { node, acquiring, answer }
            })
            .collect();

        // Polled once, the questions are on their way, whatever becomes of the runtime.
        let mut cx = Context::from_waker(Waker::noop());
        releases.retain_mut(|release| {
            matches!(release.poll(&mut cx), Poll::Pending | Poll::Ready(Vote::Failed(_)))
        });
        if releases.is_empty() {
            return;
        }
        let clock = Arc::clone(&self.clock);
        self.spawn(async move {
            let left = clock.now().until(until);
            let releases =
                releases.into_iter().map(|release| release.finish(&claim, until, &*clock));
            // What is sent by then takes effect whenever the node wakes up.
            let _ = tokio::time::timeout(left, futures_util::future::join_all(releases)).await;
        });
    }
}

/// The release of one claim on one node.
struct Releasing {
    node: Arc<dyn Node>,
    /// The acquisition that comes before, if it is still under way: it is awaited, so that the node
    /// is not taken for unresponsive, and polled first, so that it is sent first.
    acquiring: Option<Answer>,
    answer: Answer,
}

impl Releasing {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Vote> {
        if let Some(acquiring) = &mut self.acquiring
            && Pin::new(acquiring).poll(cx).is_ready()
        {
            self.acquiring = None;
        }
        let vote = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        // It may be polled again: once when it is sent, once by the task.
        self.answer = Answer::Ready(vote.clone());
        Poll::Ready(vote)
    }

    /// Asks again until the node has confirmed that it does not hold the claim, or cannot hold it
    /// any more because its lease has run out. A node that does not answer is waited for.
    async fn finish(mut self, claim: &Arc<Claim>, until: Moment, clock: &dyn Clock) {
        let mut pause = FIRST_PAUSE;
        loop {
            let vote = patiently(std::future::poll_fn(|cx| self.poll(cx))).await;
            let Vote::Failed(error) = vote else { return };
            let left = clock.now().until(until);
            if left.is_zero() {
                return;
            }
            tracing::debug!(
                key = %claim.key(), node = %self.node.name(), %error,
                "a release was not confirmed; it is repeated"
            );
            if matches!(error, NodeError::NotConnected(_)) {
                pause = FIRST_PAUSE;
            } else {
                tokio::time::sleep(pause.min(left)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            self.node.recovered().await;
            if matches!(error, NodeError::NotConnected(_)) {
                // Known to be up a moment before it is told apart from broken.
                tokio::time::sleep(FIRST_PAUSE.min(left)).await;
            }
            self.answer = self.node.release(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::key::LockKey;
    use crate::node::fake::FakeNode;
    use crate::node::{Dialect, LockName};

    /// The connection has broken in the moment before, and not every part knows.
    #[tokio::test]
    async fn a_release_that_fails_at_its_first_poll_is_repeated() {
        let background = Background::new(Arc::new(SystemClock));
        let key = LockKey::new("a").unwrap();
        let claim = Arc::new(Claim::new(LockName::new("", &key, Dialect::Plain), key));
        let fake = FakeNode::start("node");
        assert_eq!(fake.acquire(&claim, Duration::from_secs(30)).await, Vote::Granted);
        let node = Arc::clone(&fake) as Arc<dyn Node>;
        let failed =
            Answer::pending(async { Vote::Failed(NodeError::ConnectionBroke("closed".into())) });
        let until = background.clock.now().after(Duration::from_secs(30));
        let nodes = vec![(node, UnderWay::Releasing(failed))];
        background.release(Leftover { claim, until, nodes });
        background.finish(Duration::from_secs(5)).await;
        assert!(!fake.is_held());
    }
}
