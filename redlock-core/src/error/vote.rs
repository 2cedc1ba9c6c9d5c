//! The votes of the nodes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lock::{HolderId, OwnerLabel};
use crate::quorum::quorum;

/// The vote of one node on one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// Yes: the node has executed the operation. It has set, extended, downgraded or released the lock.
    Agreed,
    /// No: another holder has the lock on this node.
    #[non_exhaustive]
    Held {
        /// The holder. `None` if the node did not name one: several holders [share](crate::LockRequest::shared) the lock,
        /// or each of them has a part of its keys; a waiting writer keeps readers out; the lock was released after the
        /// refusal; or the node does not know the holder.
        holder: Option<HolderId>,
        /// The label of the holder. If several holders share the lock, it is the label of the holder whose lease ends last.
        /// `None` if the node did not report one: the holder has none, is a lock of another library, or was not looked up.
        label: Option<OwnerLabel>,
        /// The rest of the other holder's lease on this node, unless it releases or extends the lock
        /// before. It may be an upper bound. It is zero, and no holder is named, if the lock was released after the
        /// refusal. `None` if the node did not report it.
        remaining: Option<Duration>,
    },
    /// No: the lock is not, or no longer, on this node, and can neither be extended nor released.
    NotHeld,
    /// No: the value at the key is not a lock of this dialect, or the folder of the lock is not one of this recipe.
    #[non_exhaustive]
    Foreign {
        /// The kind of the value.
        found: ForeignKind,
    },
    /// No vote: the node did not reply, or replied with an error.
    Failed(NodeError),
}

impl Vote {
    /// Creates a [`Held`](Self::Held) vote that does not name the holder. `remaining` is the rest of the holder's lease on
    /// this node, or `None` if the node does not know it.
    pub const fn held(remaining: Option<Duration>) -> Self {
        Self::Held { holder: None, label: None, remaining }
    }

    /// Creates a [`Held`](Self::Held) vote that names the holder, which has the lock of all keys alone.
    pub const fn held_by(holder: HolderId, remaining: Option<Duration>) -> Self {
        Self::Held { holder: Some(holder), label: None, remaining }
    }

    /// Adds the label of the holder to a [`Held`](Self::Held) vote. Returns any other vote as it is.
    #[must_use]
    pub fn with_label(mut self, owner: Option<OwnerLabel>) -> Self {
        if let Self::Held { label, .. } = &mut self {
            *label = owner;
        }
        self
    }

    /// Returns the label of the holder that a [`Held`](Self::Held) vote reports.
    pub fn label(&self) -> Option<&OwnerLabel> {
        match self {
            Self::Held { label, .. } => label.as_ref(),
            _ => None,
        }
    }

    /// Returns the holder that a [`Held`](Self::Held) vote names.
    pub fn holder(&self) -> Option<HolderId> {
        match self {
            Self::Held { holder, .. } => *holder,
            _ => None,
        }
    }

    /// Creates a [`Foreign`](Self::Foreign) vote, for a key whose value is not a lock.
    pub const fn foreign(found: ForeignKind) -> Self {
        Self::Foreign { found }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agreed => f.write_str("agreed"),
            Self::Held { holder, label, remaining } => {
                match (label, holder) {
                    (Some(label), _) => write!(f, "held by {label}")?,
                    (None, Some(holder)) => write!(f, "held by {holder}")?,
                    (None, None) => f.write_str("held by another holder")?,
                }
                remaining.map_or(Ok(()), |remaining| write!(f, " for {remaining:?}"))
            }
            Self::NotHeld => f.write_str("not held"),
            Self::Foreign { found: found @ ForeignKind::OtherRecipe } => {
                write!(f, "not a lock of this recipe: {found}")
            }
            Self::Foreign { found } => write!(f, "not a lock of this dialect: {found}"),
            Self::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

/// The kind of a value at a lock's key that is not a lock of the requested dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignKind {
    /// The key has no time to live.
    NoTimeToLive,
    /// The key lives longer than the longest lease.
    TimeToLiveTooLong,
    /// The value has another type than a lock in the requested [`Dialect`](crate::Dialect). It may be a
    /// lock in another dialect.
    WrongType,
    /// More holders share the lock than a [look](crate::node::Inspection::look) reads.
    TooManyHolders,
    /// In ZooKeeper, the folder of the lock has a child that the recipe of Curator's `InterProcessMutex` has not made, or it
    /// cannot have children.
    OtherRecipe,
}

impl fmt::Display for ForeignKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTimeToLive => "a key without a time to live",
            Self::TimeToLiveTooLong => "a key that lives longer than any lease",
            Self::WrongType => "a value of another type, perhaps a lock in another dialect",
            Self::TooManyHolders => "more holders than a status reads",
            Self::OtherRecipe => {
                "a znode of another recipe, such as the Lock of kazoo or a read-write lock of Curator"
            }
        })
    }
}

/// The reason why a node has no vote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The node did not reply in time.
    #[error("no reply within {0:?}")]
    NoReply(Duration),
    /// The node did not reply, because no thread drives the [runtime](crate::LockManager#runtime) that runs the
    /// connections of the manager: a `current_thread` runtime outside of `block_on`, or a runtime that a task blocks.
    #[error("no reply, because the Tokio runtime of the lock manager is not driven")]
    RuntimeIdle,
    /// There is no connection to the node, and nothing was sent to it. The manager reconnects in the
    /// background.
    #[error("not connected: {0}")]
    NotConnected(Arc<str>),
    /// The connection broke before the reply arrived. It is unknown whether the node executed the
    /// operation.
    #[error("the connection broke: {0}")]
    ConnectionBroke(Arc<str>),
    /// The server replied with this error message.
    #[error("{0}")]
    Server(Arc<str>),
    /// The server sent an unexpected reply. It is unknown whether the server executed the operation.
    #[error("unexpected reply from the server")]
    UnexpectedReply,
    /// The server user lacks a right that the lock needs.
    #[error("not permitted: {0}")]
    NotPermitted(Arc<str>),
    /// The store is not set up as the locks need it: the table of a PostgreSQL server is missing or has other columns, for
    /// instance. No operation was sent to the server. The text has the statement that repairs it.
    #[error("not set up: {0}")]
    NotSetUp(Arc<str>),
    /// The server was started so recently that it may have forgotten locks that are still held. Nothing
    /// was sent to it. See [`restart_guard`](crate::LockManagerBuilder::restart_guard).
    #[error("{} in {}", restarted_and_votes(*.ago), rounded_up(*.votes_in))]
    #[non_exhaustive]
    Restarted {
        /// The least time since the start; `None` if the user has no right to ask for it (`INFO`).
        ago: Option<Duration>,
        /// The time until the server votes, if it keeps running. If its uptime is unknown, the
        /// connection to it has to last for this time too.
        votes_in: Duration,
    },
    /// The wall clock of the server, by which it measures leases, was stepped forward, so that the
    /// server may have ended leases of locks that are still held. Nothing was sent to it, or the step
    /// was noticed before its reply arrived. See
    /// [`restart_guard`](crate::LockManagerBuilder::restart_guard).
    #[error("wall clock stepped forward by {}, votes again in {}", rounded_up(*.by), rounded_up(*.votes_in))]
    #[non_exhaustive]
    ClockStepped {
        /// The least size of the step.
        by: Duration,
        /// The time until the server votes again, if its clock is not stepped again.
        votes_in: Duration,
    },
    /// The server was promoted from replica to master so recently that it may not know locks that are
    /// still held, or that another server may still grant them. Nothing was sent to it, or the vote does not
    /// count. A master of a Redis Cluster that gets the slots of such a server, or of a server without connection, counts
    /// as promoted too. See [`restart_guard`](crate::LockManagerBuilder::restart_guard).
    #[error("promoted {}s ago, votes in {}", ago.as_secs(), rounded_up(*.votes_in))]
    #[non_exhaustive]
    Promoted {
        /// The least time since the promotion.
        ago: Duration,
        /// The time until the server votes on such an operation. It votes on extensions earlier than on new
        /// locks.
        votes_in: Duration,
    },
    /// One sentinel of a group names another master than the others, by a later failover, and no majority has decided
    /// yet. The other master may not know a lock that this server grants, so that its grants do not count. Nothing was
    /// sent to it, or the vote does not count. Only with a [`restart_guard`](crate::LockManagerBuilder::restart_guard).
    #[error("the sentinels disagree about the master: {0}")]
    Disputed(Arc<str>),
    /// The node has set or extended the lock, and cannot vouch for its lease: the session of the lock may end before. The
    /// vote does not count.
    #[error("cannot vouch for the lease: {0}")]
    Unproven(Arc<str>),
    /// TLS failed, and no operation was sent to the server. The text has the words of rustls, such as `invalid peer
    /// certificate: UnknownIssuer`, or names the file that cannot be used.
    #[error("TLS: {0}")]
    Tls(Arc<str>),
    /// There are no valid credentials for a new connection: the function or the file that has them has failed, or the
    /// server refuses them, such as a wrong password. No operation was sent to the server.
    #[error("no credentials: {0}")]
    Credentials(Arc<str>),
    /// The node is the same server as another configured node, so it has no vote of its own.
    #[error("same server as {0}")]
    SameServer(Arc<str>),
}

impl NodeError {
    /// Creates a [`Restarted`](Self::Restarted) error, for a node whose store was started `ago` (`None`
    /// if this is unknown) and which votes after `votes_in`.
    pub const fn restarted(ago: Option<Duration>, votes_in: Duration) -> Self {
        Self::Restarted { ago, votes_in }
    }

    /// Creates a [`ClockStepped`](Self::ClockStepped) error, for a node whose wall clock was stepped
    /// forward by at least `by` and which votes again after `votes_in`.
    pub const fn clock_stepped(by: Duration, votes_in: Duration) -> Self {
        Self::ClockStepped { by, votes_in }
    }

    /// Creates a [`Promoted`](Self::Promoted) error, for a node whose store was promoted at least `ago`
    /// before and which votes after `votes_in`.
    pub const fn promoted(ago: Duration, votes_in: Duration) -> Self {
        Self::Promoted { ago, votes_in }
    }

    /// Returns the time until the votes of the node count again, for the errors that know it: [`Restarted`](Self::Restarted),
    /// [`ClockStepped`](Self::ClockStepped) and [`Promoted`](Self::Promoted).
    pub fn votes_in(&self) -> Option<Duration> {
        match self {
            Self::Restarted { votes_in, .. }
            | Self::ClockStepped { votes_in, .. }
            | Self::Promoted { votes_in, .. } => Some(*votes_in),
            _ => None,
        }
    }

    /// Returns whether the node answers only after somebody has changed the node or its settings: a user, a password, a
    /// certificate, a right, a table, or a URL. A caller that asks again without such a change gets the same error.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::NodeError;
    ///
    /// assert!(NodeError::NotPermitted("NOPERM".into()).needs_an_operator());
    /// assert!(!NodeError::NotConnected("connection refused".into()).needs_an_operator());
    /// ```
    pub fn needs_an_operator(&self) -> bool {
        use NodeError::{Credentials, NotPermitted, NotSetUp, SameServer, Tls};
        matches!(self, Credentials(_) | NotPermitted(_) | NotSetUp(_) | SameServer(_) | Tls(_))
    }

    /// Adds the address of one of several hosts of a node.
    #[cfg(any(feature = "postgres", feature = "zookeeper"))]
    pub(crate) fn at(mut self, address: &str) -> Self {
        use NodeError::{Credentials, NotConnected, NotPermitted, NotSetUp, Server, Tls};
        if let Credentials(reason) | NotConnected(reason) | NotPermitted(reason)
        | NotSetUp(reason) | Server(reason) | Tls(reason) = &mut self
        {
            *reason = format!("{address}: {reason}").into();
        }
        self
    }
}

/// The votes of all nodes, in the order of the configuration.
///
/// Displayed as `10.0.0.1:6379 agreed, 10.0.0.2:6379 held by another holder for 3s`.
#[derive(Debug, Clone, Default)]
pub struct Votes(Arc<[(Arc<str>, Option<Vote>)]>);

impl Votes {
    /// Returns the names of the nodes and their votes. A node whose reply was still pending when the
    /// other nodes had decided has no vote.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&Vote>)> {
        self.0.iter().map(|(node, vote)| (&**node, vote.as_ref()))
    }

    /// Returns whether the nodes whose failures [need an operator](NodeError::needs_an_operator) leave no quorum to the others.
    pub fn need_an_operator(&self) -> bool {
        let needy = self.iter().filter(
            |(_, vote)| matches!(vote, Some(Vote::Failed(error)) if error.needs_an_operator()),
        );
        !self.is_empty() && needy.count() + quorum(self.len()) > self.len()
    }

    /// Returns the vote of the node with this name, which is host and port for a Redis server.
    ///
    /// Returns `None` if there is no such node, or if its reply was still pending when the other nodes
    /// had decided. If several nodes have this name, returns the vote of the first.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{LockError, Vote};
    ///
    /// fn is_granted_by(node: &str, error: &LockError) -> bool {
    ///     error.votes().and_then(|votes| votes.get(node)) == Some(&Vote::Agreed)
    /// }
    /// ```
    pub fn get(&self, node: &str) -> Option<&Vote> {
        self.iter().find(|(name, _)| *name == node)?.1
    }

    /// Returns the number of nodes; zero if no node was asked.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no node was asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Arc<str>, Option<Vote>)> for Votes {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Option<Vote>)>>(votes: I) -> Self {
        Self(votes.into_iter().collect())
    }
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no node was asked");
        }
        for (index, (node, vote)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match vote {
                Some(vote) => write!(f, "{comma}{node} {vote}")?,
                None => write!(f, "{comma}{node} no vote yet")?,
            }
        }
        Ok(())
    }
}

fn restarted_and_votes(ago: Option<Duration>) -> String {
    match ago {
        Some(ago) => format!("restarted {}s ago, votes again", ago.as_secs()),
        None => "uptime unknown (INFO denied), votes".to_owned(),
    }
}

/// Formats a duration, rounded up, in whole seconds if it is longer than a second, otherwise in
/// milliseconds.
fn rounded_up(duration: Duration) -> String {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    if millis > 1000 { format!("{}s", millis.div_ceil(1000)) } else { format!("{millis}ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_need_an_operator_if_the_other_nodes_are_no_quorum() {
        let refused = || Vote::Failed(NodeError::NotPermitted("NOPERM".into()));
        let down = || Vote::Failed(NodeError::NotConnected("refused".into()));
        for (votes, needs) in [
            (vec![], false),
            (vec![refused()], true),
            (vec![down()], false),
            (vec![refused(), Vote::Agreed, down()], false),
            (vec![refused(), refused(), down()], true),
            (vec![refused(), Vote::Agreed], true),
        ] {
            let named = votes.iter().map(|vote| ("node".into(), Some(vote.clone())));
            assert_eq!(named.collect::<Votes>().need_an_operator(), needs, "{votes:?}");
        }
    }
}
