//! The capabilities of a node.

use std::time::Duration;

use crate::validity;

/// The capabilities of a node. The manager refuses a request that needs more before it asks any node.
///
/// Every node can hold [exclusive](crate::node::Mode::Exclusive) locks of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each capability is independent of the others")]
pub struct Capabilities {
    /// The shortest lease that the node grants. Defaults to 10 ms, which is also the shortest lease of a
    /// request.
    pub shortest_lease: Duration,
    /// The longest lease that the node grants. Defaults to 7 days, which is also the longest lease of a
    /// request.
    pub longest_lease: Duration,
    /// Whether the node gives holders fencing numbers, see [`Reply::number`](super::Reply::number). Defaults to
    /// [`Fencing::None`].
    pub fencing: Fencing,
    /// Whether the node can hold [shared](crate::node::Mode::Shared) locks. Defaults to `false`.
    pub shared: bool,
    /// Whether the node can hold a lock of several [keys](super::LockSpec::keys): all of them or none.
    /// Defaults to `false`, because a node that reads only the first key would break such locks.
    pub several_keys: bool,
    /// Whether the node has locks in the dialect [`Redisson`](crate::Dialect::Redisson). Without it, the node gets only
    /// [plain](crate::Dialect::Plain) locks, and does not have to read [`LockSpec::dialect`](super::LockSpec::dialect).
    /// Defaults to `false`.
    pub redisson: bool,
    /// Whether a lock can stay after its holder has released it, as [`min_hold`](crate::LockRequest::min_hold) and
    /// [`keep`](crate::LockRequest::keep) need. A store that ends the locks of a process together with the process has no
    /// such locks. Defaults to `true`.
    pub min_hold: bool,
    /// Whether the node must be the only node of its manager, because its store is a quorum of servers by itself. Defaults to
    /// `false`.
    pub only_node: bool,
    /// Whether the store keeps its locks until their leases end, also when it is restarted, when its clock is stepped,
    /// and when a replica takes its place. Such a node needs no
    /// [`restart_guard`](crate::LockManagerBuilder::restart_guard). Defaults to `false`.
    pub durable: bool,
    /// Whether the node supports the [`restart_guard`](crate::LockManagerBuilder::restart_guard): a node whose store may
    /// have forgotten locks votes [`Vote::Failed`](crate::Vote::Failed) for the longest lease, and only then grants
    /// locks again. If a node neither supports it nor [keeps](Self::durable) its locks, a manager with a `restart_guard`
    /// does not connect. A manager with a [`failover_margin`](crate::LockManagerBuilder::failover_margin) does not
    /// connect either if no node supports the guard. Defaults to `false`.
    pub restart_guard: bool,
    /// Whether the node executes operations in the order in which their futures were first polled.
    /// Defaults to `true`. If it is `false`,
    /// [`LockManagerBuilder::node`](crate::LockManagerBuilder::node) wraps the node in
    /// [`Ordered`](super::Ordered).
    pub ordered: bool,
}

impl Capabilities {
    /// Returns the capabilities that the nodes of this library have in common.
    pub(crate) fn of_library() -> Self {
        Self {
            fencing: Fencing::Quorum,
            shared: true,
            several_keys: true,
            redisson: true,
            ..Self::default()
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            shortest_lease: validity::MIN_EXPIRE,
            longest_lease: validity::MAX_EXPIRE,
            fencing: Fencing::None,
            shared: false,
            several_keys: false,
            redisson: false,
            min_hold: true,
            only_node: false,
            durable: false,
            restart_guard: false,
            ordered: true,
        }
    }
}

/// Whether a node gives holders fencing numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fencing {
    /// The node gives no numbers. Requests with [`fenced`](crate::LockRequest::fenced) are refused.
    None,
    /// The numbers of the node grow by themselves, such as the IDs of transactions, and the node cannot raise them to the
    /// number of another node. Requests with `fenced` are refused if the manager has other nodes. The waiters of one process
    /// do not hand a fenced lock over to each other, because the new holder would have a number that the node does not know.
    Alone,
    /// The node gives numbers, and raises its counter to the number of another node, see
    /// [`Confirm`](super::Action::Confirm).
    Quorum,
}
