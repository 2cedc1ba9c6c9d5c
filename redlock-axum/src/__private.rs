//! What the code that `#[redis_lock]` generates calls. No public API: it changes with the macro.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use redlock_core::{KeyError, LockError, LockManager, LockRequest};

pub use axum::response::{IntoResponse, Response};
pub use redlock_core::{KeyPart, LockKey, scope};

use crate::hold::Hold;
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
        options: impl FnOnce(LockRequest) -> LockRequest,
    ) -> Result<Hold, LockError> {
        let hold = acquire(options(self.manager.lock_key(key))).await?;
        self.slot.fill(hold.lease().clone());
        Ok(hold)
    }
}

/// Makes a key of what the attribute's `key` gave.
pub fn key(key: impl AsRef<str>) -> Result<LockKey, KeyError> {
    LockKey::new(key)
}

/// Takes the lock of a function.
pub async fn acquire(request: LockRequest) -> Result<Hold, LockError> {
    request.acquire().await.map(Hold::new)
}

/// A handler's answer without its lock.
pub fn refuse(error: LockError) -> Response {
    LockRejection::from(error).into_response()
}
