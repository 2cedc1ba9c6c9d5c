//! How many nodes must agree.

/// The majority of `nodes` nodes.
pub(crate) fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}
