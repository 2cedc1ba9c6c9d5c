//! The URL `memory:`, for a service that runs without a server in development.

use std::sync::Arc;

use super::builder::LockManagerBuilder;
use crate::clock::Clock;
use crate::error::ConnectError;
use crate::node::Node;
use crate::node::memory::MemoryNode;

/// The URL of a node in the memory of this process.
pub(super) const MEMORY_URL: &str = "memory:";

/// With other nodes beside it, several of these URLs could be a quorum, which other processes do not see.
pub(super) const ONLY_ALONE: &str = "memory: is allowed only as the one and only node";

impl LockManagerBuilder {
    /// Returns the node of the URL `memory:`, or `None` for another URL. `position` is the position of the
    /// URL among the nodes, counted from 1.
    ///
    /// # Errors
    ///
    /// [`ConnectError::InvalidUrl`] if there are other nodes.
    pub(super) fn memory_url_node(
        &self,
        url: &str,
        position: usize,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Arc<dyn Node>>, ConnectError> {
        if url != MEMORY_URL {
            return Ok(None);
        }
        if self.nodes.len() > 1 {
            return Err(ConnectError::invalid_url(position, ONLY_ALONE));
        }
        tracing::warn!(
            "the locks are in the memory of this process: they exclude no other process"
        );
        Ok(Some(Arc::new(MemoryNode::with_clock(Arc::clone(clock)))))
    }
}
