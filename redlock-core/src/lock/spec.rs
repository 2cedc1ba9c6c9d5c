//! The specification of a lock.

use super::{Dialect, LockName, Mode};

/// The specification of a lock: its keys on the nodes, its mode, and its dialect.
///
/// Two specs with equal keys conflict, whatever their modes are. Locks in two dialects with equal keys
/// cannot be held at the same time either, but each is foreign to the other: neither waits for the
/// other, and their releases are published on different channels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockSpec {
    /// An array and not a `Vec`, so that a request that this process refuses allocates nothing.
    keys: [LockName; 1],
    mode: Mode,
    dialect: Dialect,
}

impl LockSpec {
    pub(crate) fn new(name: LockName, mode: Mode, dialect: Dialect) -> Self {
        Self { keys: [name], mode, dialect }
    }

    /// Returns the names of the lock on the nodes: at least one.
    pub fn keys(&self) -> &[LockName] {
        &self.keys
    }

    /// Returns the first name of the lock.
    pub fn name(&self) -> &LockName {
        &self.keys[0]
    }

    /// Returns the mode of the lock.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the dialect of the lock.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
}
