//! The ways to write a lock down on a server.

/// How a lock is written down on the servers: whose locks it excludes and is excluded by.
///
/// Set for a manager by [`LockManagerBuilder::dialect`](crate::LockManagerBuilder::dialect), for one
/// request by [`LockRequest::dialect`](crate::LockRequest::dialect). All who lock a key have to speak
/// one dialect: a lock of another stands at the key as something foreign, which is told by
/// [`LockError::ForeignKey`](crate::LockError::ForeignKey) instead of being waited for. Nobody gets
/// the lock as long as it is there, so that a mistake of this kind does not let two in.
///
/// | | plain | Redisson |
/// |---|---|---|
/// | shared with | Jedis, spring-data-redis, redis-py, redsync, node-redlock, RedLock.net and others | `RLock` of Redisson |
/// | key | a string, the token | a hash, from the owner to how often it holds |
/// | released on the channel | of the key's name | `redisson_lock__channel:{name}` |
/// | acquired by | `SET` | a script |
/// | commands to be permitted beside `evalsha`, `script\|load`, `pexpire`, `pttl`, `del`, `publish`, `subscribe`, `unsubscribe`, `info` | `set`, `get` | `exists`, `hexists`, `hset` |
/// | and for [fenced](crate::LockRequest::fenced) locks | `time` | `time`, `get`, `set` |
///
/// # Examples
///
/// A lock that a Java service takes by `redisson.getLock("order:42")`:
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
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Dialect {
    /// `SET key token NX PX milliseconds`, as the Redis documentation describes it.
    #[default]
    Plain,
    /// That of Redisson's `RLock`, for services in Rust and in Java that share a lock: each is
    /// refused, and woken up, by the other.
    ///
    /// Every acquisition is an owner of its own, so that nothing is counted twice;
    /// [reentrant](crate::LockRequest::reentrant) guards share theirs. Redisson's other locks (fair,
    /// read and write, multi, spin) are not spoken; on one server a fair or read-write lock that is
    /// held is respected. With several nodes, `RedissonRedLock` is the counterpart; it has no part
    /// in what the [validity](crate::LockGuard::remaining) of our guards promises.
    Redisson,
}
