//! What a node can do.

use std::time::Duration;

use crate::validity;

/// What a node can do. A request that needs more is refused before any node is asked.
///
/// Every node can hold [exclusive](crate::node::Mode::Exclusive) locks of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The shortest lease. Defaults to 10 ms, which is also the shortest lease of a request.
    pub shortest_lease: Duration,
    /// The longest lease. Defaults to 7 days, which is also the longest lease of a request.
    pub longest_lease: Duration,
    /// Whether the node can number holders, see [`Reply::number`](super::Reply::number). Defaults to
    /// `true`.
    pub fencing: bool,
    /// Whether the node executes operations in the order in which their futures were first polled.
    /// Defaults to `true`. Where it is `false`,
    /// [`LockManagerBuilder::node`](crate::LockManagerBuilder::node) wraps the node by
    /// [`Ordered`](super::Ordered).
    pub ordered: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            shortest_lease: validity::MIN_EXPIRE,
            longest_lease: validity::MAX_EXPIRE,
            fencing: true,
            ordered: true,
        }
    }
}
