//! A node that votes as the test says.

use std::sync::Arc;
use std::time::Duration;

use redlock_axum::node::{Capabilities, Node, Op, ReplyFuture};
use redlock_axum::{LockError, LockManager, Vote};

/// Answers every operation with the vote that a function returns.
#[derive(Debug)]
pub(crate) struct VotingNode {
    name: Arc<str>,
    vote: fn() -> Vote,
    capabilities: Capabilities,
}

impl VotingNode {
    pub(crate) fn new(vote: fn() -> Vote) -> Self {
        Self { name: "voting".into(), vote, capabilities: Capabilities::default() }
    }

    /// Sets the longest lease that the node grants.
    pub(crate) fn longest_lease(mut self, longest_lease: Duration) -> Self {
        self.capabilities.longest_lease = longest_lease;
        self
    }

    /// Returns the error of an acquisition whose only node this is.
    pub(crate) async fn refusal(self, expire: Duration) -> LockError {
        let locks = LockManager::builder().node(self).connect().await.unwrap();
        locks.lock("order:4711").expire(expire).try_acquire().await.unwrap_err()
    }
}

impl Node for VotingNode {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn call(&self, _: Op) -> ReplyFuture {
        ReplyFuture::ready((self.vote)())
    }
}
