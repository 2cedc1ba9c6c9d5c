//! The stores of the nodes, for the tests of the contract of a node.

use std::time::Duration;

use redlock_core::LockManagerBuilder;
use redlock_core::test_util::node_tests::{StoreFuture, TestStore};

use crate::{ActorNode, UnorderedNode};

impl TestStore for ActorNode {
    fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.node(self.clone())
    }

    fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
        Box::pin(self.time_to_live(name))
    }

    fn locks(&self) -> StoreFuture<'_, usize> {
        Box::pin(self.len())
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(self.remove(name))
    }

    fn subscribers<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<usize>> {
        Box::pin(async { Some(self.subscribers_of(name).await) })
    }
}

impl TestStore for UnorderedNode {
    fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.node(self.clone())
    }

    fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
        self.store().remaining(name)
    }

    fn locks(&self) -> StoreFuture<'_, usize> {
        self.store().locks()
    }
}
