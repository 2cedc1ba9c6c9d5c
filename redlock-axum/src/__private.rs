//! What the code that `#[redis_lock]` generates calls. No public API: it changes with the macro.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use redlock_core::{KeyError, LockError, LockManager, LockRequest};

pub use axum::response::{IntoResponse, Response};
pub use redlock_core::__private::assert_valid;
pub use redlock_core::{Dialect, KeyPart, LockKey, LockOptions, RunError, scope};

use crate::extract::Locks;
use crate::extract::lock_slot::LockSlot;
use crate::options::with_default_expire;
use crate::rejection::LockRejection;
use crate::serve::hold::Hold;

/// The hidden extractor of a handler: finds the manager, and puts an empty slot where the other
/// extractors can find it. Runs before them.
#[derive(Debug)]
pub struct HandlerLock<const FENCED: bool> {
    manager: LockManager,
    slot: LockSlot,
}

impl<S: Sync, const FENCED: bool> FromRequestParts<S> for HandlerLock<FENCED> {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, LockRejection> {
        let Locks(manager) =
            <Locks as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        let slot = LockSlot::later(FENCED);
        parts.extensions.insert(slot.clone());
        Ok(Self { manager, slot })
    }
}

impl<const FENCED: bool> HandlerLock<FENCED> {
    /// Takes the handler's lock, numbered or not.
    pub async fn acquire(
        self,
        key: Result<LockKey, KeyError>,
        options: LockOptions,
    ) -> Result<Hold, LockRejection> {
        let request = self.manager.lock(key).options(options);
        let hold = Hold::acquire(request, FENCED)
            .await
            .map_err(|error| LockRejection::from(error).limited_by(self.manager.log_limit()))?;
        self.slot.fill(hold.held());
        Ok(hold)
    }
}

/// Makes a key of what the attribute's `key` gave.
pub fn key(key: impl AsRef<str>) -> Result<LockKey, KeyError> {
    LockKey::new(key)
}

/// Takes the lock of a function.
pub async fn acquire(request: LockRequest, options: LockOptions) -> Result<Hold, LockError> {
    Hold::acquire(request.options(options), false).await
}

/// The options of an attribute, with the default lease.
pub const fn attribute_options(options: LockOptions) -> LockOptions {
    with_default_expire(options)
}

/// A handler's answer without its lock.
pub fn refuse(error: impl Into<LockRejection>) -> Response {
    error.into().into_response()
}
