//! The stores that a test of a node runs over.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;

use super::{PATIENCE, eventually};
use crate::{LockManager, LockManagerBuilder, MemoryNode};

/// The future of a [`TestStore`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A fault of a store, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFault {
    /// The store no longer replies, as a process after SIGSTOP.
    Freeze,
    /// The store continues after [`Freeze`](Self::Freeze).
    Thaw,
    /// The store ends at once, as a process after SIGKILL.
    Kill,
    /// The store starts again after [`Kill`](Self::Kill), at the same address and with the data that it has kept.
    Restart,
}

/// An independent store, as the tests of its nodes see it. Each test starts a store of its own.
///
/// The methods that read the store use a connection of their own. The `name` of a lock is its full name, with the
/// prefix of its manager.
pub trait TestStore: Any + fmt::Debug + Send + Sync {
    /// Adds one node over this store to a manager. Each call adds a node with connections of its own.
    fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder;

    /// Returns the remaining lease of a lock, or `None` if the lock is free.
    fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>>;

    /// Returns the number of held locks; 0 while the store does not run.
    fn locks(&self) -> StoreFuture<'_, usize>;

    /// Deletes a lock, as an operator does. Returns `false` if the store cannot, and tests that need it pass. The provided
    /// method returns `false`.
    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        let _ = name;
        ready(false)
    }

    /// Makes a fault, and returns when the store is in its new state. Returns `false` if the store cannot, and tests that
    /// need it pass. The provided method returns `false`.
    fn fault(&mut self, fault: StoreFault) -> StoreFuture<'_, bool> {
        let _ = fault;
        ready(false)
    }

    /// Returns whether nodes [notify](crate::node::Node::subscribe) their subscribers. The provided method returns `true`. A
    /// node without a `subscribe` of its own needs `false`.
    fn notifies(&self) -> bool {
        true
    }

    /// Returns the number of subscriptions to the releases of a lock; `None` if the store does not show them. The provided
    /// method returns `None`.
    fn subscribers<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<usize>> {
        let _ = name;
        ready(None)
    }

    /// Returns what is left on the store apart from held locks and fencing counters, such as subscriptions, for the tests
    /// that search for leaks. The provided method returns nothing.
    fn leftovers(&self) -> StoreFuture<'_, Vec<String>> {
        ready(Vec::new())
    }

    /// Returns the number of connections to the store, including the connection that counts them; 0 if the store does not
    /// show them. The provided method returns 0.
    fn connections(&self) -> StoreFuture<'_, usize> {
        ready(0)
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl TestStore for MemoryNode {
    fn add_to(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.memory_node(self)
    }

    fn remaining<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<Duration>> {
        ready(self.time_to_live(name))
    }

    fn locks(&self) -> StoreFuture<'_, usize> {
        ready(self.len())
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        self.remove(name);
        ready(true)
    }
}

/// The stores of the nodes of a manager: one, or several of any kind.
#[derive(Debug)]
pub struct TestStores {
    stores: Vec<Box<dyn TestStore>>,
    configure: fn(LockManagerBuilder) -> LockManagerBuilder,
}

impl TestStores {
    /// Collects stores, which may be of different kinds.
    pub fn new(stores: Vec<Box<dyn TestStore>>) -> Self {
        Self { stores, configure: |builder| builder }
    }

    /// Sets options of every manager over these stores, such as its dialect.
    #[must_use]
    pub fn configure(self, configure: fn(LockManagerBuilder) -> LockManagerBuilder) -> Self {
        Self { configure, ..self }
    }

    /// Returns the stores.
    pub fn into_stores(self) -> Vec<Box<dyn TestStore>> {
        self.stores
    }

    /// Returns a builder of a manager with a node over each store. Its timeouts are longer than the defaults, for a busy
    /// machine.
    pub fn builder(&self) -> LockManagerBuilder {
        self.stores.iter().fold(self.plain_builder(), |builder, store| store.add_to(builder))
    }

    /// Returns a builder of a manager with one node, over the store with this index.
    ///
    /// # Panics
    ///
    /// If there is no such store.
    pub fn builder_of(&self, index: usize) -> LockManagerBuilder {
        self.stores[index].add_to(self.plain_builder())
    }

    fn plain_builder(&self) -> LockManagerBuilder {
        let builder = LockManager::builder()
            .node_timeout(Duration::from_secs(2))
            .connect_timeout(Duration::from_secs(10));
        (self.configure)(builder)
    }

    /// Returns a manager with a node over each store.
    ///
    /// # Panics
    ///
    /// If the manager cannot connect.
    pub async fn manager(&self) -> LockManager {
        self.builder().connect().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the remaining lease of a lock on each store, or `None` where it is free.
    pub async fn remaining(&self, name: &str) -> Vec<Option<Duration>> {
        join_all(self.stores.iter().map(|store| store.remaining(name))).await
    }

    /// Returns the number of held locks of all stores together.
    pub async fn locks(&self) -> usize {
        join_all(self.stores.iter().map(|store| store.locks())).await.iter().sum()
    }

    /// Returns what is left on all stores apart from held locks and fencing counters.
    pub async fn leftovers(&self) -> Vec<String> {
        join_all(self.stores.iter().map(|store| store.leftovers())).await.concat()
    }

    /// Deletes a lock on each store. Returns whether all stores can.
    pub async fn delete(&self, name: &str) -> bool {
        let deleted = join_all(self.stores.iter().map(|store| store.delete(name))).await;
        deleted.iter().all(|deleted| *deleted)
    }

    /// Makes a fault of each store, one after another. Returns whether all stores can.
    pub async fn fault(&mut self, fault: StoreFault) -> bool {
        let mut all = true;
        for store in &mut self.stores {
            all &= store.fault(fault).await;
        }
        all
    }

    /// Waits until no lock is left on any store.
    ///
    /// # Panics
    ///
    /// If a lock is left after ten seconds.
    pub async fn become_empty(&self) {
        eventually("no lock is left on any store", async || self.locks().await == 0).await;
    }

    /// Waits until each store has the lock. An acquisition returns at quorum, when some stores may not have it yet.
    ///
    /// # Panics
    ///
    /// If a store does not have the lock after ten seconds.
    pub async fn all_hold(&self, name: &str) {
        let hold = async || self.remaining(name).await.iter().all(Option::is_some);
        eventually(&format!("each store has the lock {name:?}"), hold).await;
    }

    /// Waits until so many managers have subscribed to the releases of a lock. On a store that does not show its
    /// subscribers it waits for 20 ms: the other tasks run meanwhile.
    ///
    /// # Panics
    ///
    /// If a store has fewer subscribers after ten seconds.
    pub async fn are_waited_for(&self, name: &str, managers: usize) {
        for store in &self.stores {
            if store.subscribers(name).await.is_none() {
                tokio::time::sleep(PATIENCE / 500).await;
            }
            let wait = async || store.subscribers(name).await.is_none_or(|count| count >= managers);
            eventually("callers wait for the lock", wait).await;
        }
    }
}

impl<S: TestStore> From<S> for TestStores {
    fn from(store: S) -> Self {
        Self::new(vec![Box::new(store)])
    }
}

impl<S: TestStore> From<Vec<S>> for TestStores {
    fn from(stores: Vec<S>) -> Self {
        Self::new(stores.into_iter().map(|store| Box::new(store) as _).collect())
    }
}

impl Deref for TestStores {
    type Target = [Box<dyn TestStore>];

    fn deref(&self) -> &Self::Target {
        &self.stores
    }
}

impl DerefMut for TestStores {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.stores
    }
}
