//! The status of a lock: its holders on the nodes.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::{StatusError, ask_all, check_open, spec, unsupported};
use crate::context::Context;
use crate::error::{NodeError, Vote, Votes};
use crate::key::{KeyError, LockKey};
use crate::lock::{Dialect, HolderId, LockSpec, OwnerLabel};
use crate::manager::LockManager;
use crate::node::{Found, FoundHolder, FoundKind};
use crate::quorum::quorum;

/// The holders of a lock on the nodes of a manager, see [`LockManager::status`].
///
/// It is out of date when it arrives: a holder may release the lock, and another one may acquire it, at any time. Show it to
/// people, and decide nothing by it. To do work only if a lock is free, [acquire](crate::LockRequest::try_acquire) it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockStatus {
    key: LockKey,
    state: KeyState,
    holders: Vec<Holder>,
    nodes: Vec<NodeAnswer>,
    local_waiters: usize,
    longest_wait: Option<Duration>,
}

/// The state of a lock over all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// No node that has answered has a holder.
    Free,
    /// One holder has the lock on a quorum of nodes.
    Exclusive,
    /// At least one holder shares the lock on a quorum of nodes.
    Shared,
    /// Nodes have holders, and no holder is known to have a quorum: several callers ask at once, a holder is releasing the
    /// lock, or the other nodes of a holder have not answered.
    Split,
    /// So many nodes have a value that is no lock of the dialect that no caller can have a quorum.
    Foreign,
}

/// A holder in a [`LockStatus`]. [`LockManager::break_lock`] ends its lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Holder {
    pub(super) spec: LockSpec,
    found: FoundHolder,
    nodes: usize,
    local_guards: usize,
}

/// The answer of one node in a [`LockStatus`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeAnswer {
    name: Arc<str>,
    found: Option<Result<Found, NodeError>>,
    took: Option<Duration>,
    quarantine: Option<NodeError>,
}

/// A question about a lock, which is sent when it is awaited. Made by [`LockManager::status`].
#[must_use = "a question is sent when it is awaited"]
#[derive(Debug)]
pub struct StatusRequest<'a> {
    locks: &'a LockManager,
    key: Result<LockKey, KeyError>,
    dialect: Dialect,
}

impl LockManager {
    /// Asks all nodes at once what they have at the key of a lock, and waits for the answer of each, at most for the
    /// [`node_timeout`](crate::LockManagerBuilder::node_timeout).
    ///
    /// The answer is out of date when it arrives. Show it to people, and decide nothing by it. That is why there is no
    /// `is_free`.
    ///
    /// The lock is that of the manager's [dialect](crate::LockManagerBuilder::dialect), unless the request sets
    /// [another one](StatusRequest::dialect). The key gets the manager's [prefix](crate::LockManagerBuilder::prefix). A lock of
    /// several keys stands at each of them, with the same holder. Nothing lists all keys of a server: that would be slow, and
    /// show the keys of other programs.
    ///
    /// # Errors
    ///
    /// * [`StatusError::InvalidKey`] if the key is invalid.
    /// * [`StatusError::Unavailable`] if fewer nodes than a quorum answer.
    /// * [`StatusError::Unsupported`] if the nodes that offer an [inspection](crate::node::Inspection) are no quorum.
    /// * [`StatusError::ShutDown`] and [`StatusError::RuntimeEnded`] after the end of the manager.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{KeyState, LockManager};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// let status = locks.status("order:42").await?;
    /// assert_eq!(status.state(), KeyState::Exclusive);
    /// let [holder] = status.holders() else { panic!("{status:?}") };
    /// assert_eq!(holder.label(), locks.owner_label());
    /// assert!(holder.is_own());
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn status(&self, key: impl AsRef<str>) -> StatusRequest<'_> {
        let dialect = self.context().defaults.dialect;
        StatusRequest { locks: self, key: LockKey::new(key), dialect }
    }
}

impl StatusRequest<'_> {
    /// Asks for the lock in another dialect. Defaults to that of the manager.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    async fn ask(self) -> Result<LockStatus, StatusError> {
        let context = self.locks.context();
        let spec = spec(context, &self.key?, self.dialect);
        check_open::<StatusError>(context)?;
        if let Some(node) = unsupported(context) {
            return Err(StatusError::Unsupported { node });
        }
        let answers = ask_all(context, |node| {
            let look = node.look(&spec);
            async {
                let begun = Instant::now();
                Ok((look.await?, begun.elapsed()))
            }
        });
        let answers = answers.await;
        LockStatus::of(context, &spec, answers)
    }
}

impl<'a> IntoFuture for StatusRequest<'a> {
    type Output = Result<LockStatus, StatusError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

impl LockStatus {
    fn of(
        context: &Context,
        spec: &LockSpec,
        answers: Vec<Option<Result<(Found, Duration), NodeError>>>,
    ) -> Result<Self, StatusError> {
        let nodes = context.ballot.nodes.iter().zip(answers);
        let nodes = nodes.map(|(node, answer)| NodeAnswer {
            name: Arc::clone(node.name()),
            took: answer.as_ref().and_then(|answer| answer.as_ref().ok().map(|(_, took)| *took)),
            found: answer.map(|answer| answer.map(|(found, _)| found)),
            quarantine: node.report().quarantine,
        });
        let nodes: Vec<_> = nodes.collect();
        let key = spec.key().clone();
        if nodes.iter().filter_map(NodeAnswer::found).count() < quorum(nodes.len()) {
            let votes = nodes.iter().map(|node| {
                let vote = node.found.as_ref().map(|found| match found {
                    Ok(_) => Vote::Agreed,
                    Err(reason) => Vote::Failed(reason.clone()),
                });
                (Arc::clone(&node.name), vote)
            });
            return Err(StatusError::Unavailable { key, votes: votes.collect::<Votes>() });
        }
        let own = context.queues.guards(spec);
        let holders = holders(spec, &nodes, &own);
        let state = state(&nodes, &holders);
        let (local_waiters, longest_wait) = context.queues.waiters(spec);
        Ok(Self { key, state, holders, nodes, local_waiters, longest_wait })
    }

    /// Returns the key of the lock.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns the state over all nodes.
    pub fn state(&self) -> KeyState {
        self.state
    }

    /// Returns the holders on any node. They are sorted by the number of nodes that have them, and then by the ends
    /// of their leases: the greatest number and the latest end first. Empty for a [foreign](KeyState::Foreign) key.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Returns the answer of each node, in the order of the configuration.
    pub fn nodes(&self) -> &[NodeAnswer] {
        &self.nodes
    }

    /// Returns how many writers of all processes wait for a shared lock, as far as their marks show it: the greatest number of
    /// any node.
    pub fn waiting_writers(&self) -> usize {
        let writers = self.nodes.iter().filter_map(NodeAnswer::found);
        writers.map(|found| found.waiting_writers).max().unwrap_or_default()
    }

    /// Returns how many callers of this manager wait for the lock.
    pub fn local_waiters(&self) -> usize {
        self.local_waiters
    }

    /// Returns for how long the first caller of this manager has waited; `None` if none waits.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.longest_wait
    }
}

impl Holder {
    /// Returns the public id of the holder.
    pub fn id(&self) -> HolderId {
        self.found.id
    }

    /// Returns the key at which the holder stands.
    pub fn key(&self) -> &LockKey {
        self.spec.key()
    }

    /// Returns the label of the process that has the lock; `None` if it is `off` there, or if another library has the lock.
    pub fn label(&self) -> Option<&OwnerLabel> {
        self.found.label.as_ref()
    }

    /// Returns since when the holder has the lock, by the wall clock of its process, with an error of up to two seconds. A
    /// hand-over inside of the process keeps it. `None` without a label.
    pub fn since(&self) -> Option<SystemTime> {
        self.found.since
    }

    /// Returns the rest of the lease: the greatest on any node. `None` if no node knows it.
    pub fn remaining(&self) -> Option<Duration> {
        self.found.remaining
    }

    /// Returns the number of nodes that have the holder.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns whether this manager has the lock.
    pub fn is_own(&self) -> bool {
        self.local_guards > 0
    }

    /// Returns how many guards of this manager have the lock: more than one if [readers](crate::LockRequest::shared) or requests
    /// of one [scope](crate::scope()) have joined it. Zero for a holder of another process, whose guards are not known.
    pub fn local_guards(&self) -> usize {
        self.local_guards
    }
}

impl NodeAnswer {
    /// Returns the name of the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the node has at the key; `None` if it has not answered.
    pub fn found(&self) -> Option<&Found> {
        self.found.as_ref()?.as_ref().ok()
    }

    /// Returns the time from the question to the answer; `None` if the node has not answered.
    pub fn took(&self) -> Option<Duration> {
        self.took
    }

    /// Returns why the node has not answered; `None` if it has, or if it offers no inspection.
    pub fn error(&self) -> Option<&NodeError> {
        self.found.as_ref()?.as_ref().err()
    }

    /// Returns why the votes of the node on new locks do not count at present, although it answers. See
    /// [`NodeReport::quarantine`](crate::node::NodeReport::quarantine).
    pub fn quarantine(&self) -> Option<&NodeError> {
        self.quarantine.as_ref()
    }
}

/// Counts the holders over the nodes.
fn holders(spec: &LockSpec, nodes: &[NodeAnswer], own: &[(HolderId, usize)]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = Vec::new();
    for found in nodes.iter().filter_map(NodeAnswer::found).flat_map(|found| &found.holders) {
        match holders.iter_mut().find(|known| known.found.id == found.id) {
            Some(known) => {
                known.nodes += 1;
                known.found.remaining = known.found.remaining.max(found.remaining);
            }
            None => holders.push(Holder {
                spec: spec.clone(),
                found: found.clone(),
                nodes: 1,
                local_guards: own
                    .iter()
                    .filter(|(id, _)| *id == found.id)
                    .map(|(_, count)| count)
                    .sum(),
            }),
        }
    }
    holders.sort_by_key(|holder| std::cmp::Reverse((holder.nodes, holder.found.remaining)));
    holders
}

fn state(nodes: &[NodeAnswer], holders: &[Holder]) -> KeyState {
    let quorum = quorum(nodes.len());
    let count = |is: fn(FoundKind) -> bool| {
        let found = nodes.iter().filter_map(NodeAnswer::found);
        found.filter(|found| is(found.kind)).count()
    };
    let foreign = count(|kind| matches!(kind, FoundKind::Foreign(_)));
    match holders.first() {
        Some(holder) if holder.nodes >= quorum => {
            // A downgrade may not have reached all nodes.
            let exclusive = count(|kind| kind == FoundKind::Exclusive);
            if exclusive >= quorum { KeyState::Exclusive } else { KeyState::Shared }
        }
        _ if foreign > nodes.len() - quorum => KeyState::Foreign,
        Some(_) => KeyState::Split,
        None => KeyState::Free,
    }
}
