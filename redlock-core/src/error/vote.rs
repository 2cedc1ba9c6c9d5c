//! What the nodes answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What one node said to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// Yes: the lock was set, extended, or released.
    Granted,
    /// No: another holds the lock on this node, for the given time unless it is released or
    /// extended before; no time where the node did not tell.
    #[non_exhaustive]
    Held {
        /// What is left of the other's lease on this node.
        remaining: Option<Duration>,
    },
    /// No: the lock is not there (any more), so that it can neither be extended nor released.
    Gone,
    /// No: what stands at the key is no lock of this dialect.
    #[non_exhaustive]
    Foreign {
        /// What was found.
        found: ForeignKind,
    },
    /// No vote: the node did not answer, or answered with an error.
    Failed(NodeError),
}

impl Vote {
    /// Creates a [`Held`](Self::Held) vote. `remaining` is the rest of the holder's lease on this node, or
    /// `None` if the node does not know it.
    pub const fn held(remaining: Option<Duration>) -> Self {
        Self::Held { remaining }
    }

    /// Creates a [`Foreign`](Self::Foreign) vote, for a key that holds something else than a lock.
    pub const fn foreign(found: ForeignKind) -> Self {
        Self::Foreign { found }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Held { remaining: Some(remaining) } => {
                write!(f, "held by another for {remaining:?}")
            }
            Self::Held { remaining: None } => f.write_str("held by another"),
            Self::Gone => f.write_str("no longer held"),
            Self::Foreign { found } => write!(f, "no lock of this dialect: {found}"),
            Self::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

/// What stands at a lock's key without being a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignKind {
    /// A key without a time to live.
    NoTimeToLive,
    /// A key that lives longer than the longest lease.
    LivesTooLong,
    /// A key of another type than a lock has in the [`Dialect`](crate::Dialect) that was spoken.
    /// It may be a lock of another one.
    WrongType,
}

impl fmt::Display for ForeignKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTimeToLive => "a key without a time to live",
            Self::LivesTooLong => "a key that lives longer than any lease",
            Self::WrongType => "a key of another type, such as a lock of another dialect has",
        })
    }
}

/// Why a node gave no vote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// It did not answer in time.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// There is no connection to it; it is tried again in the background. It was not asked.
    #[error("not connected: {0}")]
    NotConnected(Arc<str>),
    /// The connection broke while the answer was awaited. Whether the node did what it was asked
    /// is unknown.
    #[error("the connection broke: {0}")]
    ConnectionBroke(Arc<str>),
    /// The server answered with an error, in its own words.
    #[error("{0}")]
    Server(Arc<str>),
    /// The server sent a reply that no server of this kind sends. Whether it did what it was asked is
    /// unknown.
    #[error("the server sent a reply that was not understood")]
    NotUnderstood,
    /// The server does not permit the user what the lock needs.
    #[error("not permitted: {0}")]
    NotPermitted(Arc<str>),
    /// The server was started so short a time ago that it may have forgotten locks which are still
    /// held. It was not asked. See
    /// [`restart_guard`](crate::LockManagerBuilder::restart_guard).
    #[error("{}, votes {}in {}", restarted(*.ago), if ago.is_some() { "again " } else { "" }, rough(*.votes_in))]
    #[non_exhaustive]
    Restarted {
        /// How long ago at least; `None` where the server does not tell (`INFO`).
        ago: Option<Duration>,
        /// When it votes, if it keeps running; where it does not tell its uptime, if the connection
        /// to it lasts too.
        votes_in: Duration,
    },
    /// Its wall clock, which it counts leases by, was stepped forward, so that it may have ended leases
    /// of locks which are still held. It was not asked, or it was found while it was being asked. See
    /// [`restart_guard`](crate::LockManagerBuilder::restart_guard).
    #[error("its wall clock was stepped forward by {}, votes again in {}", rough(*.by), rough(*.votes_in))]
    #[non_exhaustive]
    ClockStepped {
        /// By how much at least.
        by: Duration,
        /// When it votes again, if it is not stepped again.
        votes_in: Duration,
    },
    /// It is the same server as another configured node and therefore has no vote of its own.
    #[error("it is the same server as {0}")]
    SameServer(Arc<str>),
}

impl NodeError {
    /// Creates a [`Restarted`](Self::Restarted) error, for a node whose store was started `ago` (`None` if
    /// the store does not say when) and whose votes count again after `votes_in`.
    pub const fn restarted(ago: Option<Duration>, votes_in: Duration) -> Self {
        Self::Restarted { ago, votes_in }
    }

    /// Creates a [`ClockStepped`](Self::ClockStepped) error, for a node whose wall clock was stepped forward
    /// by at least `by` and whose votes count again after `votes_in`.
    pub const fn clock_stepped(by: Duration, votes_in: Duration) -> Self {
        Self::ClockStepped { by, votes_in }
    }
}

/// What each node said, in the order of the configuration.
///
/// Displayed as `10.0.0.1:6379 granted, 10.0.0.2:6379 held by another for 3s`.
#[derive(Debug, Clone, Default)]
pub struct Votes(Arc<[(Arc<str>, Option<Vote>)]>);

impl Votes {
    /// The nodes and their votes. A node that was still being asked when the others had decided
    /// has none.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&Vote>)> {
        self.0.iter().map(|(node, vote)| (&**node, vote.as_ref()))
    }

    /// Returns the vote of the node with this name, which is host and port for a Redis server.
    ///
    /// Returns `None` if there is no such node, and if the node was still being asked when the others had
    /// decided. If several nodes have this name, the first of them counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{LockError, Vote};
    ///
    /// fn is_granted_by(node: &str, error: &LockError) -> bool {
    ///     error.votes().and_then(|votes| votes.get(node)) == Some(&Vote::Granted)
    /// }
    /// ```
    pub fn get(&self, node: &str) -> Option<&Vote> {
        self.iter().find(|(name, _)| *name == node)?.1
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no node was asked.
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
                None => write!(f, "{comma}{node} not awaited")?,
            }
        }
        Ok(())
    }
}

fn restarted(ago: Option<Duration>) -> String {
    match ago {
        Some(ago) => format!("restarted {}s ago", ago.as_secs()),
        None => "it does not tell (INFO) when it was started".to_owned(),
    }
}

/// Whole seconds where there are some, rounded up.
fn rough(duration: Duration) -> String {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    if millis > 1000 { format!("{}s", millis.div_ceil(1000)) } else { format!("{millis}ms") }
}
