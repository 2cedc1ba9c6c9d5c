//! One vote: what a node is asked, and the nodes there are.

mod claim;
mod dialect;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod memory;
mod name;
pub(crate) mod redis;
mod token;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::Vote;

pub(crate) use claim::{Claim, MinHold};
pub use dialect::Dialect;
pub(crate) use name::LockName;

/// One independent store of locks.
///
/// A node executes what it is asked in the order in which the answers were first polled, so that a
/// release never overtakes the acquisition that it cleans up after (invariant 6).
pub(crate) trait Node: fmt::Debug + Send + Sync + 'static {
    /// Its name in votes and logs: host and port, never a password.
    fn name(&self) -> &Arc<str>;

    /// Sets the lock, if it is free, with a time to live of `expire`. If the claim has a
    /// [counter](Claim::counter), that goes up too, and gives the claim its number.
    fn acquire(&self, claim: &Arc<Claim>, expire: Duration) -> Answer;

    /// Makes the lock live at least `expire` from now, if it is still the claim's. Never shortens.
    fn extend(&self, claim: &Arc<Claim>, expire: Duration) -> Answer;

    /// Raises the claim's counter to `number` at least, if the lock is still the claim's.
    fn confirm(&self, claim: &Arc<Claim>, number: i64) -> Answer;

    /// Removes the lock, if it is still the claim's; shortens its time to live instead where the
    /// claim [has to stay](Claim::stays_for).
    fn release(&self, claim: &Arc<Claim>) -> Answer;

    /// Calls `ring` whenever a lock of this name is released here, until the result is dropped.
    /// Announcements may get lost; they never hold anything up.
    fn listen(&self, name: &LockName, ring: Ring) -> (Listening, Ready);

    /// Whether the node is silent, although it owes an answer: for `limit` at least. The caller has waited
    /// for the answer for the time `waited`.
    ///
    /// Only the node can tell a silent store from a process that is late in sending commands or in
    /// reading replies. A node that cannot tell counts as silent once a caller has waited for `limit`.
    /// A caller looks for the first time before that, so that a node which does not know whether it
    /// owes an answer has the time to find out.
    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        if waited >= limit { Silence::Lasts(waited) } else { Silence::Unknown(limit - waited) }
    }

    /// Whether it is a server in cluster mode, as far as is known. The keys of one question must then
    /// lie in one slot.
    fn is_cluster(&self) -> bool;

    /// Whether it can be asked now, as far as is known.
    fn is_up(&self) -> bool;

    /// Resolves when the node can be asked (again).
    fn recovered(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Whether a node that owes an answer is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The node has been silent for this time. This process would have read an answer.
    Lasts(Duration),
    /// The node is not known to be silent: it has not been asked for long enough, or this process is
    /// late. It is worth looking again after this time.
    Unknown(Duration),
}

impl Silence {
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::Lasts(_))
    }
}

/// What is called when a lock is released. Must return at once.
pub(crate) type Ring = Arc<dyn Fn() + Send + Sync>;

/// Resolves when no later release is missed, or when none will ever be heard of.
pub(crate) type Ready = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Listens for the releases of one lock on one node until it is dropped.
pub(crate) struct Listening {
    stop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Listening {
    pub(crate) fn new(stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { stop: Some(Box::new(stop)) }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listening")
    }
}

/// A vote that is on its way. Nothing is sent before the first poll. Dropping it does not take the
/// question back: whoever drops the answer to an acquisition has to release.
///
/// Over a connection that was given up it fails at the next poll, but wakes nobody: to tell each
/// question would cost every lock more than to look again costs those that wait for long. Whoever has
/// no deadline waits by [`patiently`].
pub(crate) enum Answer {
    /// The vote is there.
    Ready(Vote),
    /// The node was or will be asked.
    Pending(Pin<Box<dyn Future<Output = Vote> + Send>>),
}

impl Answer {
    pub(crate) fn pending(future: impl Future<Output = Vote> + Send + 'static) -> Self {
        Self::Pending(Box::pin(future))
    }
}

/// Waits for answers that may take for ever, and polls them now and then.
pub(crate) async fn patiently<F: Future>(answers: F) -> F::Output {
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    let mut answers = pin!(answers);
    loop {
        if let Ok(votes) = tokio::time::timeout(LOOK_AGAIN, answers.as_mut()).await {
            return votes;
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(vote) => f.debug_tuple("Ready").field(vote).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

impl Future for Answer {
    type Output = Vote;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vote> {
        match &mut *self {
            Self::Ready(vote) => Poll::Ready(vote.clone()),
            Self::Pending(future) => future.as_mut().poll(cx),
        }
    }
}
