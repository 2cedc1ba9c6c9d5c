//! A look at the locks of a store, for operators, and the removal of a holder.

use std::pin::Pin;
use std::time::{Duration, SystemTime};

use crate::error::{ForeignKind, NodeError};
use crate::lock::{HolderId, LockSpec, OwnerLabel};

/// A look at the locks of a store, for operators. A node offers it by [`Node::inspection`](super::Node::inspection).
///
/// [`LockManager::status`](crate::LockManager::status) and [`LockManager::break_lock`](crate::LockManager::break_lock) need it
/// from a quorum of nodes. A node answers also while its votes do not count, because of a
/// [`restart_guard`](crate::LockManagerBuilder::restart_guard) for instance.
///
/// Both operations concern one key: the spec has one, and its mode says nothing. An answer never contains a part of a token, nor
/// of a text that another library has stored.
pub trait Inspection: Send + Sync {
    /// Returns the value that the store has at the key of a lock. Changes no lock; a store may remove entries that have ended.
    /// The operations of the manager on the same key may overtake it.
    ///
    /// If more than [`MOST_HOLDERS`] holders share the lock, the node reads none of them, and returns
    /// [`ForeignKind::TooManyHolders`].
    fn look(&self, spec: &LockSpec) -> LookFuture;

    /// Removes this holder from the key, and no other: in one step, the store compares `holder` with the [`HolderId`] of each
    /// holder, and removes the holder that has it. Notifies the [subscribers](super::Node::subscribe) as a release does. The fencing counter
    /// stays, so that the next holder has a greater number. The other holders of a shared lock stay, too.
    fn remove(&self, spec: &LockSpec, holder: HolderId) -> RemovalFuture;
}

/// The future of a [look](Inspection::look) at a key.
pub type LookFuture = Pin<Box<dyn Future<Output = Result<Found, NodeError>> + Send>>;

/// The future of the [removal](Inspection::remove) of a holder.
pub type RemovalFuture = Pin<Box<dyn Future<Output = Result<Removal, NodeError>> + Send>>;

/// How many holders of one lock a [look](Inspection::look) reads at most: 1000.
pub const MOST_HOLDERS: usize = 1000;

/// The value that a store has at the key of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The kind of the value.
    pub kind: FoundKind,
    /// The holders: one of an exclusive lock, at least one of a shared lock, and otherwise none.
    pub holders: Vec<FoundHolder>,
    /// How many writers wait for a shared lock, of all processes, as far as their marks show it.
    pub waiting_writers: usize,
}

/// The kind of the value at the key of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundKind {
    /// No holder has the lock.
    Free,
    /// One holder has the lock alone.
    Exclusive,
    /// Readers, or holders of permits, share the lock.
    Shared,
    /// The value is no lock of the dialect. Its holders are not known.
    Foreign(ForeignKind),
}

/// A holder of a lock, as a store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundHolder {
    /// The public id of the holder.
    pub id: HolderId,
    /// The label of the holder; `None` if it has none, or if another library has stored it.
    pub label: Option<OwnerLabel>,
    /// Since when the holder has the lock, by the wall clock of its process, with an error of up to two seconds; `None` without a label. A
    /// hand-over inside of the process keeps it.
    pub since: Option<SystemTime>,
    /// The rest of the lease on this node; `None` if the store does not know it.
    pub remaining: Option<Duration>,
}

/// The result of the [removal](Inspection::remove) of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// The store had the holder, and has removed it.
    #[non_exhaustive]
    Removed {
        /// The rest of the holder's lease at its removal; `None` if the store did not know it.
        remaining: Option<Duration>,
    },
    /// The store does not have the holder. Nothing was changed.
    NotHeld,
    /// The value is no lock of the dialect. Nothing was changed.
    Foreign(ForeignKind),
}

impl Found {
    /// Creates the answer for a key without a holder.
    pub const fn free() -> Self {
        Self { kind: FoundKind::Free, holders: Vec::new(), waiting_writers: 0 }
    }

    /// Creates the answer for a key that one holder has alone.
    pub fn exclusive(holder: FoundHolder) -> Self {
        Self { kind: FoundKind::Exclusive, holders: vec![holder], waiting_writers: 0 }
    }

    /// Creates the answer for a key that holders share. Without holders, the key is free.
    pub fn shared(holders: Vec<FoundHolder>) -> Self {
        let kind = if holders.is_empty() { FoundKind::Free } else { FoundKind::Shared };
        Self { kind, holders, waiting_writers: 0 }
    }

    /// Creates the answer for a key whose value is no lock.
    pub const fn foreign(kind: ForeignKind) -> Self {
        Self { kind: FoundKind::Foreign(kind), holders: Vec::new(), waiting_writers: 0 }
    }

    /// Adds the number of waiting writers.
    #[must_use]
    pub fn with_waiting_writers(self, waiting_writers: usize) -> Self {
        Self { waiting_writers, ..self }
    }
}

impl FoundHolder {
    /// Creates a holder without a label.
    pub const fn new(id: HolderId, remaining: Option<Duration>) -> Self {
        Self { id, label: None, since: None, remaining }
    }

    /// Adds the label of the owner, and since when it has the lock.
    #[must_use]
    pub fn of_owner(self, label: Option<OwnerLabel>, since: Option<SystemTime>) -> Self {
        Self { label, since, ..self }
    }
}

impl Removal {
    /// Creates the answer of a store that has removed the holder.
    pub const fn removed(remaining: Option<Duration>) -> Self {
        Self::Removed { remaining }
    }
}
