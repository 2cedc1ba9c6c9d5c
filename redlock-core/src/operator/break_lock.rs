//! The end of a lock that an operator breaks.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{BreakError, Holder, ask_all, check_open, spec, unsupported};
use crate::context::Context;
use crate::error::{InvalidOption, NodeError, Vote, Votes, legible};
use crate::key::{KeyError, LockKey};
use crate::lock::{HolderId, LockName, LockSpec};
use crate::manager::LockManager;
use crate::node::Removal;
use crate::quorum::quorum;
use crate::validity;

/// How often a break removes the holder at most. A holder that renews may set its lock on a node again, once between two of its
/// renewals.
const ROUNDS: usize = 5;
/// The longest reason, in bytes.
const LONGEST_REASON: usize = 200;

/// A request to break a lock, which is sent when it is awaited. Made by [`LockManager::break_lock`].
#[must_use = "a break is sent when it is awaited"]
#[derive(Debug)]
pub struct BreakRequest<'a> {
    locks: &'a LockManager,
    key: Result<LockKey, KeyError>,
    holder: &'a Holder,
    reason: Option<Cow<'a, str>>,
}

/// The result of [`LockManager::break_lock`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Broken {
    votes: Votes,
    may_be_valid_for: Option<Duration>,
}

impl Broken {
    /// Returns the vote of each node: [`Agreed`](Vote::Agreed) if it has removed the holder, and [`NotHeld`](Vote::NotHeld) if it
    /// did not have it.
    pub fn votes(&self) -> &Votes {
        &self.votes
    }

    /// Returns for how long the guard of the former holder may still be valid, counted from the answer: the greatest rest of its
    /// lease on any node, plus the margin for the drift of clocks. `None` if no node knows the rest.
    ///
    /// **The work may last longer.** By default, a handler works to its end, also after it has learned of the loss. The next
    /// holder may begin before that: a [fencing token](crate::FencingToken) keeps the work of the former one out.
    ///
    /// The other keys of a lock of several keys stay on the nodes for that time at most.
    pub fn may_be_valid_for(&self) -> Option<Duration> {
        self.may_be_valid_for
    }
}

impl LockManager {
    /// Removes a holder that a [status](Self::status) has shown, and no other, from all nodes. For operators: a process that has
    /// crashed, or that hangs, has a lock that others need before its lease ends.
    ///
    /// **Two processes may work at the same time afterwards.** No message can stop the former holder. It learns of the loss
    /// at once if it [waits for it](crate::LockHandle::lost), and otherwise at its next renewal, within a third of its lease, or
    /// without renewal when [`Broken::may_be_valid_for`] is over. Only work that [stops at a loss](crate::OnLost::Abort) ends then.
    /// Only a resource that compares [fencing tokens](crate::LockRequest::fenced) is safe: the next holder's number is greater.
    ///
    /// * A holder of this manager is lost at once, and its lock is never handed over.
    /// * The holder of a shared lock is removed alone; the other holders stay.
    /// * A lock of several keys is broken by any of its keys. If its holder lives, it notices the loss, and releases the other
    ///   keys. Otherwise they stay for [`Broken::may_be_valid_for`], or until each of them is broken.
    /// * Waiters are notified, as after a release.
    ///
    /// If nodes do not answer, the break waits for twice the
    /// [`node_timeout`](crate::LockManagerBuilder::node_timeout) and asks again, because a renewal that they have confirmed may
    /// restore the lock on the others.
    ///
    /// Each call is logged as a warning, with the key, the label, the votes and the [reason](BreakRequest::reason).
    ///
    /// # Errors
    ///
    /// * [`BreakError::NotHeld`] if the holder is that of another key, or no node has it any more.
    /// * [`BreakError::Unavailable`] if so few nodes answer that the holder may still have a quorum.
    /// * [`BreakError::InvalidKey`] if the key is invalid.
    /// * [`BreakError::InvalidOption`] if the [reason](BreakRequest::reason) is too long, or has a control character.
    /// * [`BreakError::Unsupported`] if the nodes that offer an [inspection](crate::node::Inspection) are no quorum.
    /// * [`BreakError::ShutDown`] and [`BreakError::RuntimeEnded`] after the end of the manager.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some nodes may have removed the holder, and others not. Call the method again.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// let status = locks.status("order:42").await?;
    /// for holder in status.holders() {
    ///     locks.break_lock("order:42", holder).reason("the pod is lost").await?;
    /// }
    /// assert!(!guard.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn break_lock<'a>(&'a self, key: impl AsRef<str>, holder: &'a Holder) -> BreakRequest<'a> {
        BreakRequest { locks: self, key: LockKey::new(key), holder, reason: None }
    }
}

impl<'a> BreakRequest<'a> {
    /// Sets the reason, for the log line of this process. The nodes and the process of the holder do not get it. From 1 to
    /// 200 bytes without control characters. Defaults to none.
    pub fn reason(mut self, reason: impl Into<Cow<'a, str>>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    async fn send(self) -> Result<Broken, BreakError> {
        let Self { locks, key, holder, reason } = self;
        let context = locks.context();
        let spec = spec(context, &key?, holder.spec.dialect());
        let reason = reason.as_deref();
        reason.map_or(Ok(()), check_reason)?;
        check_open::<BreakError>(context)?;
        if spec.name() != holder.spec.name() {
            return Err(BreakError::NotHeld { key: spec.key().clone() });
        }
        if let Some(node) = unsupported(context) {
            return Err(BreakError::Unsupported { node });
        }
        let mut breaking = Breaking::new(context, &spec, holder.id());
        let result = loop {
            let removals = ask_all(context, |node| node.remove(&spec, holder.id())).await;
            if let Some(result) = breaking.record(removals) {
                break result;
            }
            if breaking.may_be_restored() {
                sleep(context.ballot.node_timeout * 2).await;
            }
        };
        if result.is_ok() {
            context.home.counters.broken.increment();
            for hints in context.ballot.nodes.iter().filter_map(|node| node.loss_hints()) {
                hints.announce_removal(&spec, holder.id());
            }
            context.telemetry.named(breaking.name.clone()).metrics.broken();
        }
        let votes = breaking.votes();
        let label = holder.label().map(tracing::field::display);
        tracing::warn!(
            lock = %spec.key(), holder = %holder.id(), label, reason, %votes,
            result = if result.is_ok() { "broken" } else { "not broken" },
            "an operator breaks a lock"
        );
        result
    }
}

impl<'a> IntoFuture for BreakRequest<'a> {
    type Output = Result<Broken, BreakError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// Checks the reason of a break before anything is asked: for the command. No public API.
///
/// # Errors
///
/// [`InvalidOption`] if the reason is empty, has more than 200 bytes, or has a control character.
pub fn check_reason(reason: &str) -> Result<(), InvalidOption> {
    let is_valid =
        (1..=LONGEST_REASON).contains(&reason.len()) && !reason.contains(char::is_control);
    let allowed = "from 1 to 200 bytes without control characters";
    let value = || format!("\"{}\"", legible(reason));
    if is_valid { Ok(()) } else { Err(InvalidOption::new("reason", value(), allowed)) }
}

/// The removals of one break so far.
struct Breaking<'a> {
    context: &'a Context,
    spec: &'a LockSpec,
    holder: HolderId,
    rounds: usize,
    has_removed: bool,
    may_be_valid_for: Option<Duration>,
    votes: Vec<Option<Vote>>,
    /// The name of the lock, if the holder is one of this manager.
    name: LockName,
}

impl<'a> Breaking<'a> {
    fn new(context: &'a Context, spec: &'a LockSpec, holder: HolderId) -> Self {
        let votes = vec![None; context.ballot.nodes.len()];
        Self {
            context,
            spec,
            holder,
            rounds: 0,
            has_removed: false,
            may_be_valid_for: None,
            votes,
            name: LockName::OTHER,
        }
    }

    /// Records a round. Returns the result once it is known: the holder stood on fewer nodes than a quorum needs, where nodes
    /// without an answer count as its nodes.
    fn record(
        &mut self,
        removals: Vec<Option<Result<Removal, NodeError>>>,
    ) -> Option<Result<Broken, BreakError>> {
        let mut held = 0;
        for (vote, removal) in self.votes.iter_mut().zip(removals) {
            let new = match removal {
                Some(Ok(Removal::Removed { remaining })) => {
                    held += 1;
                    self.has_removed = true;
                    let rest = remaining.map(|rest| rest + validity::max_drift(rest));
                    self.may_be_valid_for = self.may_be_valid_for.max(rest);
                    Some(Vote::Agreed)
                }
                Some(Ok(Removal::NotHeld)) => Some(Vote::NotHeld),
                Some(Ok(Removal::Foreign(found))) => Some(Vote::Foreign { found }),
                Some(Err(reason)) => {
                    held += 1;
                    Some(Vote::Failed(reason))
                }
                None => {
                    held += 1;
                    None
                }
            };
            // A node that has removed the holder keeps this vote, unless it has failed since then.
            if !(matches!(vote, Some(Vote::Agreed)) && matches!(new, Some(Vote::NotHeld))) {
                *vote = new;
            }
        }
        self.rounds += 1;
        let is_over = held < quorum(self.votes.len());
        if self.has_removed || is_over {
            self.lose_own();
        }
        let key = self.spec.key().clone();
        if is_over {
            let (votes, may_be_valid_for) = (self.votes(), self.may_be_valid_for);
            let broken = Broken { votes, may_be_valid_for };
            return Some(self.has_removed.then_some(broken).ok_or(BreakError::NotHeld { key }));
        }
        let votes = || self.votes();
        (self.rounds == ROUNDS).then(|| Err(BreakError::Unavailable { key, votes: votes() }))
    }

    /// Returns whether a renewal may give the holder a quorum again. Nodes that have not answered may have confirmed it, and it
    /// restores the lock on other nodes once all nodes have replied to it. If all nodes have answered, the break has removed the
    /// holder from each node that confirmed a renewal.
    fn may_be_restored(&self) -> bool {
        let has_failed = |vote: &&Option<Vote>| matches!(vote, Some(Vote::Failed(_)) | None);
        let failed = self.votes.iter().filter(has_failed).count();
        failed > 0 && failed < quorum(self.votes.len())
    }

    /// Ends the holder at once if it is one of this manager, also if another operator was faster. Its other keys, and the nodes
    /// that have not answered, are released.
    fn lose_own(&mut self) {
        let Context { queues, keeper, ballot, .. } = self.context;
        let mut released = None;
        for held in queues.holders_with_id(self.spec, self.holder) {
            self.name = held.lock_name().clone();
            keeper.lose_broken(&held, &self.votes());
            // Readers that have joined the lock are other holders of the same attempt.
            if released.replace(Arc::as_ptr(held.attempt())) != Some(Arc::as_ptr(held.attempt())) {
                ballot.release_in_background(held.attempt(), held.latest_expiry(), |_| {});
            }
        }
    }

    fn votes(&self) -> Votes {
        let names = self.context.ballot.nodes.iter().map(|node| Arc::clone(node.name()));
        names.zip(self.votes.iter().cloned()).collect()
    }
}
