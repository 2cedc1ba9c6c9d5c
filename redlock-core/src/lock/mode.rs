//! The kind of a lock: its mode, and its dialect.
//!
//! # Adding a mode
//!
//! It goes through this file, `waiting/mode_tests.rs`, `options/rules.rs`, `node/capabilities.rs` and `limits.rs`; the scripts,
//! `operation.rs` and `reply.rs` of Redis; `store/memory/locks.rs` and `tests/node/src/store.rs`; `wire.md`, and the rights in
//! `redlock-axum/docs/production.md`. Tests: model, simulation, storms, conformance, cancellation,
//! `tests/operations/least_privilege.rs`.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use rand::RngExt;

use crate::random::with_random;

/// The mode of a lock: how many holders it may have at the same time.
///
/// Locks of one key exclude each other whatever their modes are: while there is an exclusive holder, there is no
/// shared holder, and plain readers and holders of permits exclude each other too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// At most one holder at a time.
    #[default]
    Exclusive,
    /// Several holders at a time: the readers of a read-write lock, or the holders of permits.
    #[non_exhaustive]
    Shared {
        /// The highest number of holders. Each caller compares the number of living holders with its own
        /// `permits`. `None` for the readers of a read-write lock, of which there may be any number.
        permits: Option<NonZeroU32>,
    },
}

impl Mode {
    /// The mode of the readers of a read-write lock.
    pub const SHARED: Self = Self::Shared { permits: None };

    /// Returns whether a lock of this mode may have several holders at a time.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// Returns whether a lock of this mode may be held by the holders of this process together with one more lock,
    /// of the mode `other` and with equal keys, as far as their kinds decide it. The number of permits is not
    /// compared here.
    pub(crate) fn compatible(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) => false,
            (Self::Shared { permits: one }, Self::Shared { permits: another }) => {
                one.is_some() == another.is_some()
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared { permits: None } => f.write_str("shared"),
            Self::Shared { permits: Some(permits) } => write!(f, "shared by {permits}"),
        }
    }
}

/// The dialect of a lock: how it is written on the servers. Locks in the same dialect exclude each
/// other, also between this crate and libraries of other languages.
///
/// Set for a manager by [`LockManagerBuilder::dialect`](crate::LockManagerBuilder::dialect), and for one
/// request by [`LockRequest::dialect`](crate::LockRequest::dialect). Defaults to [`Plain`](Self::Plain).
/// All clients that lock a key must use the same dialect. A lock in another dialect is reported as
/// [`LockError::ForeignKey`](crate::LockError::ForeignKey), not waited for. While it is at the key, no
/// client of this crate gets the lock. Other libraries keep to their own rules: see
/// [`Redisson`](Self::Redisson).
///
/// | | plain | Redisson |
/// |---|---|---|
/// | also used by | Jedis, spring-data-redis, redis-py, redsync, node-redlock, RedLock.net and others | `RLock` of Redisson |
/// | value at the key | a string: the token | a hash: from the owner to its hold count, and the field `mode` |
/// | channel of releases | the name of the key | `redisson_lock__channel:{name}` |
/// | acquired by | `SET` | a script |
/// | [shared](crate::LockRequest::shared) locks and [permits](crate::LockRequest::permits) | a sorted set, and scripts | none |
/// | required rights, besides `evalsha`, `script\|load`, `pexpire`, `pttl`, `del`, `publish`, `subscribe`, `unsubscribe`, `info` | `set`, `get` | `exists`, `hexists`, `hset`, `hscan` |
/// | required rights for [fenced](crate::LockRequest::fenced) locks | `time` | `time`, `get`, `set` |
/// | required rights for shared locks and permits | `time`, `zadd`, `zrem`, `zscore`, `zrange`, `zremrangebyscore`, `pexpireat` | |
/// | required rights of exclusive callers that meet shared holders | `time`, `zrem`, `zscore`, `zrange`, `zremrangebyscore`, and to wait for them `zadd`, `pexpireat` | |
///
/// # Examples
///
/// A lock that a Java service acquires by `redisson.getLock("order:42")`:
///
/// ```
/// use redlock_core::{Dialect, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = LockManager::in_memory(); // or connected to the Redis that the Java service uses
/// let guard = locks.lock("order:42").dialect(Dialect::Redisson).try_acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `SET key token NX PX milliseconds`, as the Redis documentation describes it.
    #[default]
    Plain,
    /// The `RLock` of Redisson, for services in Rust and in Java that use the same lock: each is refused
    /// while the other holds the lock, and notified when the other releases it.
    ///
    /// Every acquisition is an owner of its own, so its hold count is always 1;
    /// [reentrant](crate::LockRequest::reentrant) guards have one owner. The other locks of Redisson
    /// (fair, read and write, multi, spin) are not supported, but on one server they and this lock refuse
    /// each other. With several nodes, `RedissonRedLock` is the counterpart. The
    /// [validity](crate::LockHandle::remaining) of this crate's guards does not extend to it.
    ///
    /// # Two kinds of lock at one name in Java
    ///
    /// A Java service must not use `getLock(name)` and `getReadWriteLock(name)` at one name: Redisson's
    /// read-write lock enters Redisson's own `RLock` and replaces its lease (measured with Redisson 3.50.0 and
    /// 4.7.0). This crate's lock is safe from it, by the field `mode` that the read-write lock looks at.
    Redisson,
}

/// A value for each dialect, at its [index](Dialect::index). Locks in two dialects have two queues, because their callers
/// do not wait for each other.
pub(crate) type ByDialect<T> = [T; 2];

impl Dialect {
    const ALL: ByDialect<Self> = [Self::Plain, Self::Redisson];
    const NAMES: ByDialect<&'static str> = ["plain", "redisson"];

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the dialect in a configuration.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// Returns the dialect with this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }
}

/// The mark of a caller that waits for an exclusive lock while others share it. While a living mark is at a lock,
/// its nodes refuse new shared holders, so that they do not starve the exclusive caller.
///
/// The mark is a random number, which gives no right to anything. Nodes forget it after [`LIFE_TIME`](Self::LIFE_TIME).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark(NonZeroU64);

impl Mark {
    /// How long a node keeps a mark: 1 s. A waiting caller renews its mark at least every 500 ms.
    pub const LIFE_TIME: std::time::Duration = std::time::Duration::from_secs(1);

    pub(crate) fn random() -> Self {
        Self(with_random(RngExt::random))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
