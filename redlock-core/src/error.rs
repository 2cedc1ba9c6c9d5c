//! Everything that can go wrong, on one page.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::{KeyError, LockKey};

/// Why a lock was not acquired, or was lost by work that could not go on without it. In every case
/// the caller does not hold it, and nothing of the attempt stays behind on the nodes beyond a
/// clean-up that is under way.
///
/// | variant | means | worth another try |
/// |---|---|---|
/// | [`Contended`](Self::Contended) | somebody else holds the lock | yes, later |
/// | [`Unavailable`](Self::Unavailable) | no quorum of nodes answered | when the nodes are back |
/// | [`TimedOut`](Self::TimedOut) | the lease was over before a quorum of nodes had granted it, because they, the network or this process were slow | with a longer lease |
/// | [`ForeignKey`](Self::ForeignKey) | something that is no lock of this dialect stands at the key | after somebody removed it |
/// | [`InvalidKey`](Self::InvalidKey) | the key cannot be used | no |
/// | [`InvalidOption`](Self::InvalidOption) | an option is out of its range | no |
/// | [`AlreadyHeld`](Self::AlreadyHeld) | the same request holds the lock already | no |
/// | [`TooManyWaiters`](Self::TooManyWaiters) | too many callers of this process wait for the lock | yes, later |
/// | [`Lost`](Self::Lost) | the lock was lost, and the work that it guarded was stopped half-way | only if the work may be done again |
/// | [`ShutDown`](Self::ShutDown) | the manager was shut down | no |
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds the lock, and the waiting time, if there was any, is over.
    #[error("the lock {key} is held by another{}; {votes}", for_another(*.remaining))]
    Contended {
        /// What was to be locked.
        key: LockKey,
        /// When the present holder's lease runs out, counted from the refusal, if it is neither
        /// released nor extended before. `None` where no holder has a quorum (several callers got
        /// some nodes each, and all of them give up theirs).
        remaining: Option<Duration>,
        /// What each node said; empty where this process holds the lock itself, so that no node
        /// was asked.
        votes: Votes,
    },
    /// No quorum of nodes answered in time. Says nothing of who holds the lock.
    #[error("no quorum of nodes answered for the lock {key}; {votes}")]
    Unavailable {
        /// What was to be locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// The votes took so long that nothing of the lease was left after deducting the clock drift: a
    /// quorum granted the lock too late, or had not answered yet. Grants were given back.
    #[error(
        "the votes for the lock {key} took {elapsed:?}, which leaves nothing of its lease of {expire:?}; {votes}"
    )]
    TimedOut {
        /// What was to be locked.
        key: LockKey,
        /// How long the votes took.
        elapsed: Duration,
        /// The lease that was asked for.
        expire: Duration,
        /// What each node said.
        votes: Votes,
    },
    /// A key that is no lock of this [`Dialect`](crate::Dialect) stands at this name on at least one
    /// node that the quorum depends on: it has no time to live, another type, or lives longer than
    /// any lease. It would look held for ever.
    #[error("a key that is no lock of this dialect stands at the name of the lock {key}; {votes}")]
    ForeignKey {
        /// What was to be locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// The key cannot be used.
    #[error("invalid lock key: {0}")]
    InvalidKey(#[from] KeyError),
    /// An option is out of its range. No node was asked.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
    /// The same [scope](crate::scope()), that is the same request, holds the lock already, and would
    /// wait for itself. Ask for a [reentrant](crate::LockRequest::reentrant) lock to share it. No
    /// node was asked.
    #[error("the lock {key} is held by the same request already")]
    AlreadyHeld {
        /// What was to be locked.
        key: LockKey,
    },
    /// So many callers of this process wait for the lock already that one more is refused. No node
    /// was asked. See [`max_waiters`](crate::LockManagerBuilder::max_waiters).
    #[error("{limit} callers wait for the lock {key} already")]
    TooManyWaiters {
        /// What was to be locked.
        key: LockKey,
        /// How many may wait.
        limit: usize,
    },
    /// The lock was acquired, and lost while the work that it guards was running; the work was
    /// stopped, and may have been done in part. No acquisition fails with this. It is for those who
    /// run work under a lock and report all that can go wrong with it as one error.
    #[error("the lock {key} was lost, and the work under it was stopped")]
    Lost {
        /// What was locked.
        key: LockKey,
    },
    /// [`LockManager::shutdown`](crate::LockManager::shutdown) was called. No node was asked.
    #[error("the lock manager was shut down")]
    ShutDown,
}

impl LockError {
    /// What each node said; `None` where none was asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Contended { votes, .. }
            | Self::Unavailable { votes, .. }
            | Self::TimedOut { votes, .. }
            | Self::ForeignKey { votes, .. } => Some(votes),
            Self::InvalidKey(_)
            | Self::InvalidOption(_)
            | Self::AlreadyHeld { .. }
            | Self::TooManyWaiters { .. }
            | Self::Lost { .. }
            | Self::ShutDown => None,
        }
    }

    /// Whether somebody else holds the lock, as against an error of the infrastructure or of the
    /// caller.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }
}

/// Why [`LockGuard::release`](crate::LockGuard::release) could not confirm that the lock was
/// released. In no case did it remove somebody else's lock.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was not held any more when the release arrived: its lease had run out, or a quorum
    /// of nodes had lost it. Somebody else may have held it since.
    #[error("the lock {key} had already expired when it was released; {votes}")]
    Expired {
        /// What was locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// No quorum of nodes confirmed the release in time. It goes on in the background; at the
    /// latest the lock frees itself when its lease runs out.
    #[error("no quorum of nodes confirmed the release of the lock {key} yet; {votes}")]
    Unavailable {
        /// What was locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
}

impl ReleaseError {
    /// What each node said.
    pub fn votes(&self) -> &Votes {
        match self {
            Self::Expired { votes, .. } | Self::Unavailable { votes, .. } => votes,
        }
    }
}

/// Why a lease was not extended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost: its lease has run out, or a quorum of nodes says that somebody else holds
    /// it or nobody does. The guarded work must stop.
    #[error("the lock {key} is lost; {votes}")]
    Lost {
        /// What was locked.
        key: LockKey,
        /// What each node said; empty where the lease had run out before any was asked.
        votes: Votes,
    },
    /// No quorum of nodes confirmed the extension. The lock is still held for what
    /// [`LockGuard::remaining`](crate::LockGuard::remaining) says; trying again makes sense.
    #[error("no quorum of nodes confirmed the extension of the lock {key}; {votes}")]
    Unavailable {
        /// What is locked.
        key: LockKey,
        /// What each node said.
        votes: Votes,
    },
    /// The new lease is out of range. No node was asked.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
}

/// Why a [`LockManager`](crate::LockManager) could not be made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No node was configured.
    #[error("no node is configured; give at least one URL, such as redis://127.0.0.1:6379")]
    NoNodes,
    /// A URL cannot be used. The message does not repeat the URL, because it may hold a password.
    #[error("the URL of node {position} cannot be used: {reason}")]
    InvalidUrl {
        /// Which one, counted from 1.
        position: usize,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// Two of the configured nodes are the same server, so that its vote would count twice.
    #[error("{first} and {second} are the same server; each node must be an independent Redis")]
    SameServer {
        /// The node that came first.
        first: Arc<str>,
        /// The node that came later.
        second: Arc<str>,
    },
    /// Fewer nodes than a quorum could be connected to.
    #[error("only {connected} of {} nodes could be connected to, {quorum} are needed; {votes}", .votes.len())]
    Unavailable {
        /// How many could be.
        connected: usize,
        /// How many are needed.
        quorum: usize,
        /// What went wrong, node by node; a connected node counts as granted.
        votes: Votes,
    },
    /// An option is out of its range.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
}

/// An option whose value is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option} is {value}, but must be {allowed}")]
pub struct InvalidOption {
    option: &'static str,
    value: String,
    allowed: String,
}

impl InvalidOption {
    pub(crate) fn new(
        option: &'static str,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self { option, value: value.into(), allowed: allowed.into() }
    }

    /// The option's name.
    pub fn option(&self) -> &str {
        self.option
    }
}

/// What one node said to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// Yes: the lock was set, extended, or released.
    Granted,
    /// No: another holds the lock on this node, for the given time unless it is released or
    /// extended before; no time where the node did not tell.
    Held {
        /// What is left of the other's lease on this node.
        remaining: Option<Duration>,
    },
    /// No: the lock is not there (any more), so that it can neither be extended nor released.
    Gone,
    /// No: what stands at the key is no lock of this dialect.
    Foreign {
        /// What was found.
        found: ForeignKind,
    },
    /// No vote: the node did not answer, or answered with an error.
    Failed(NodeError),
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

fn for_another(remaining: Option<Duration>) -> String {
    remaining.map_or_else(String::new, |remaining| format!(" for {remaining:?}"))
}
