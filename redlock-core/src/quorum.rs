//! The number of nodes that must agree.

/// Returns the majority of `nodes` nodes.
pub(crate) fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}
