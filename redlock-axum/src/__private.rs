//! What the code that `#[redis_lock]` generates calls. No public API: it changes with the macro.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use redlock_core::{KeyError, LockError, LockGuard, LockManager, LockRequest};

pub use axum::response::{IntoResponse, Response};
pub use redlock_core::{KeyPart, LockKey, scope};

use crate::locks::{HeldSlot, Locks};
use crate::rejection::LockRejection;

/// The hidden extractor of a handler: finds the manager, and puts an empty slot where the other
/// extractors can find it. Runs before them.
#[derive(Debug)]
pub struct HandlerLock {
    manager: LockManager,
    slot: HeldSlot,
}

impl<S: Sync> FromRequestParts<S> for HandlerLock {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, LockRejection> {
        let Locks(manager) =
            <Locks as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        let slot = HeldSlot::empty();
        parts.extensions.insert(slot.clone());
        Ok(Self { manager, slot })
    }
}

impl HandlerLock {
    /// Takes the handler's lock.
    pub async fn acquire(
        self,
        key: Result<LockKey, KeyError>,
        expire: Duration,
        wait_time: Option<Duration>,
    ) -> Result<LockGuard, LockRejection> {
        let guard = acquire(self.manager.lock_key(key), expire, wait_time).await?;
        self.slot.fill(guard.lease());
        Ok(guard)
    }
}

/// Makes a key of what the attribute's `key` gave.
pub fn key(key: impl AsRef<str>) -> Result<LockKey, KeyError> {
    LockKey::new(key)
}

/// Takes the lock of a function.
pub async fn acquire(
    request: LockRequest,
    expire: Duration,
    wait_time: Option<Duration>,
) -> Result<LockGuard, LockError> {
    let request = request.expire(expire);
    match wait_time {
        Some(wait_time) => request.wait_time(wait_time).acquire().await,
        None => request.try_acquire().await,
    }
}

/// Releases the lock before the result leaves, so that the caller's next call does not meet its own
/// lock. A failure is no reason to take a finished result back.
pub async fn release(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        tracing::warn!("a function ran under its lock, which was not released in order: {error}");
    }
}
