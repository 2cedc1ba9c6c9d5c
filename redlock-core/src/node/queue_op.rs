//! The operations on fair queues, and the replies of the node.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use crate::error::NodeError;
use crate::lock::LockSpec;
use crate::random::with_random;

/// The future of a node's reply to a [`QueueOp`]. The node sends nothing before the first poll.
pub type QueueFuture = Pin<Box<dyn Future<Output = Result<QueueReply, NodeError>> + Send>>;

/// One operation on the fair queue of a lock.
///
/// The queue contains tickets in the order of their arrival, and the presence of each process that has tickets. The
/// store measures both with its own clock. A process whose presence has ended loses all of its tickets. The queue of a
/// lock ends with its last ticket.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueueOp {
    /// The lock. Its queue depends on its name and its dialect, and not on its mode.
    pub spec: LockSpec,
    /// The process of the caller.
    pub process: ProcessId,
    /// How long the process is present after an `Enter` or a `Refresh`: at most 10 s.
    pub presence: Duration,
    /// The action on the queue.
    pub action: QueueAction,
}

impl QueueOp {
    pub(crate) fn new(spec: &LockSpec, process: ProcessId, action: QueueAction) -> Self {
        Self { spec: spec.clone(), process, presence: PRESENCE, action }
    }
}

/// How long a process keeps its places after its last sign of life.
const PRESENCE: Duration = Duration::from_secs(3);

/// An action on the fair queue of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueAction {
    /// Adds tickets of this process, and makes it present. A ticket that is in the queue already keeps its place.
    #[non_exhaustive]
    Enter {
        /// The tickets.
        tickets: Arc<[Ticket]>,
    },
    /// Prolongs the presence of this process, unless it has ended.
    Refresh,
    /// Removes tickets of this process. Tickets that are not in the queue are ignored.
    #[non_exhaustive]
    Leave {
        /// The numbers of the tickets.
        numbers: Arc<[u64]>,
    },
    /// Changes nothing.
    Inspect,
}

/// A place in a fair queue. Of two tickets of one process that arrived at the same time, the ticket with the lower
/// number is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ticket {
    /// The number, which distinguishes the tickets of a process.
    pub number: u64,
    /// How long the caller has waited already. The ticket arrived this long before the operation.
    pub waited: Duration,
}

impl Ticket {
    pub(crate) fn new(number: u64, waited: Duration) -> Self {
        Self { number, waited }
    }
}

/// The reply of a node to a [`QueueOp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReply {
    /// The time of the operation on the clock of the store, from any starting point.
    pub time: Duration,
    /// Whether the process was present before the operation.
    pub was_present: bool,
    /// The first ticket after the operation; `None` if the queue is empty.
    pub first: Option<FirstTicket>,
}

impl QueueReply {
    /// Creates the reply to an operation on a queue that is empty afterwards.
    pub fn new(time: Duration, was_present: bool) -> Self {
        Self { time, was_present, first: None }
    }

    /// Adds the first ticket.
    #[must_use]
    pub fn with_first(self, first: FirstTicket) -> Self {
        Self { first: Some(first), ..self }
    }
}

/// The first ticket of a fair queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirstTicket {
    /// The process that has the ticket.
    pub process: ProcessId,
    /// The number of the ticket.
    pub number: u64,
    /// How long the process is still present.
    pub present_for: Duration,
}

impl FirstTicket {
    /// Describes the first ticket: its process, its number, and how long the process is still present.
    pub fn new(process: ProcessId, number: u64, present_for: Duration) -> Self {
        Self { process, number, present_for }
    }
}

/// Identifies a lock manager in fair queues. It is not a secret.
///
/// Its text has 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(u64);

impl ProcessId {
    pub(crate) fn random() -> Self {
        Self(with_random(RngExt::random))
    }

    /// Parses the text of an ID.
    pub fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
