//! A lock manager for a test.

use std::sync::Arc;

use super::{TestClock, TestNode};
use crate::manager::MAX_NODES;
use crate::node::Node;
use crate::{LockManager, LockManagerBuilder};

/// A lock manager for a test, with its nodes and its clock.
///
/// See the [module](super) for examples.
#[derive(Debug)]
pub struct TestLocks {
    manager: LockManager,
    nodes: Vec<TestNode>,
    clock: TestClock,
}

impl TestLocks {
    /// Pauses the time of the current Tokio runtime, and creates a manager with this number of nodes.
    /// With one node, each failure of the node is an outage. With three nodes, one of them may fail.
    ///
    /// # Panics
    ///
    /// Panics like [`TestClock::new`]: outside of a Tokio runtime, and in a multi-threaded runtime.
    /// Panics unless `nodes` is from 1 to 63.
    #[track_caller]
    pub fn new(nodes: usize) -> Self {
        assert!((1..=MAX_NODES).contains(&nodes), "a manager has 1 to {MAX_NODES} nodes");
        let clock = TestClock::new();
        let nodes: Vec<_> = (0..nodes).map(|_| TestNode::new(&clock)).collect();
        let votes = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Node>).collect();
        let manager = LockManager::builder().build(votes, Arc::new(clock.clone()));
        Self { manager, nodes, clock }
    }

    /// Returns the manager, for the application under test.
    pub fn manager(&self) -> LockManager {
        self.manager.clone()
    }

    /// Returns a builder of another manager with the same nodes and clock: for an application that needs
    /// other options than the defaults, or for another copy of the service.
    pub fn builder(&self) -> LockManagerBuilder {
        let builder = LockManager::builder().test_clock(&self.clock);
        self.nodes.iter().fold(builder, |builder, node| builder.node(node.clone()))
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &[TestNode] {
        &self.nodes
    }

    /// Returns the clock.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }
}
