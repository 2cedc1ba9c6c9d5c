//! Which lock is meant.

use super::{Dialect, LockName, Mode};

/// Which lock is meant: the keys that it occupies on the nodes, who may hold it at the same time, and how
/// it is written down there.
///
/// Two specs with equal keys conflict, whatever their modes are. Locks of two dialects with equal keys
/// cannot be held at once either, but each is foreign to the other: neither waits for the other, and
/// their releases are published on different channels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockSpec {
    /// Inline, so that a request that is refused in this process allocates nothing.
    keys: [LockName; 1],
    mode: Mode,
    dialect: Dialect,
}

impl LockSpec {
    pub(crate) fn new(name: LockName, mode: Mode, dialect: Dialect) -> Self {
        Self { keys: [name], mode, dialect }
    }

    /// The names of the lock on the nodes; at least one.
    pub fn keys(&self) -> &[LockName] {
        &self.keys
    }

    /// The first of the names.
    pub fn name(&self) -> &LockName {
        &self.keys[0]
    }

    /// Who may hold the lock at the same time.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How the lock is written down on servers.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
}
