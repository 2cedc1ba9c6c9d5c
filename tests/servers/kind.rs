//! The kinds of locks that differ in their commands.

use std::time::Duration;

use redlock_core::{Dialect, LockError, LockGuard, LockManager};

use super::LONG;

/// The key of a single lock, and the last key of a set.
pub(crate) const KEY: &str = "c";
pub(crate) const SET: [&str; 3] = ["a", "b", KEY];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Fenced,
    Redisson,
    RedissonFenced,
    Set,
    FencedSet,
}

pub(crate) const ALL: [Kind; 6] =
    [Kind::Plain, Kind::Fenced, Kind::Redisson, Kind::RedissonFenced, Kind::Set, Kind::FencedSet];

impl Kind {
    pub(crate) fn keys(self) -> &'static [&'static str] {
        if self.is_set() { &SET } else { &[KEY] }
    }

    /// Returns a key that is neither the first nor the last one of a set.
    pub(crate) fn middle_key(self) -> &'static str {
        self.keys()[self.keys().len() / 2]
    }

    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::Set | Self::FencedSet)
    }

    pub(crate) fn is_redisson(self) -> bool {
        matches!(self, Self::Redisson | Self::RedissonFenced)
    }

    /// Acquires a lock of this kind for a [`LONG`] lease.
    pub(crate) async fn acquire(self, locks: &LockManager) -> Result<LockGuard, LockError> {
        self.acquire_with(locks, Duration::ZERO, Duration::ZERO).await
    }

    pub(crate) async fn acquire_with(
        self,
        locks: &LockManager,
        wait_time: Duration,
        min_hold: Duration,
    ) -> Result<LockGuard, LockError> {
        let dialect = if self.is_redisson() { Dialect::Redisson } else { Dialect::Plain };
        let one = locks.lock(KEY).dialect(dialect).expire(LONG);
        let one = one.wait_time(wait_time).min_hold(min_hold);
        let set = locks.lock_all(SET).expire(LONG).wait_time(wait_time).min_hold(min_hold);
        match self {
            Self::Plain | Self::Redisson => one.acquire().await,
            Self::Fenced | Self::RedissonFenced => one.fenced(true).acquire().await,
            Self::Set => set.acquire().await,
            Self::FencedSet => set.fenced(true).acquire().await,
        }
    }
}
