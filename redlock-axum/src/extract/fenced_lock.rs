//! The extractor for a lock with a fencing token.

use std::ops::Deref;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use redlock_core::{FencingToken, LockHandle};

use super::held_lock::HeldLock;
use super::lock_slot::LockSlot;
use crate::rejection::LockRejection;

/// Extracts the lock that the request holds, with its [fencing token](Self::fencing_token).
///
/// Use it on routes whose layer or policy is `fenced`, and in handlers with `#[redis_lock(fenced)]`. It dereferences to
/// the [`HeldLock`].
///
/// Send the token to the database with each write, and let the database refuse every token that is less
/// than the greatest one it has seen. [`FencingToken`] documents the guarantees of the token, and has the
/// statement for PostgreSQL.
///
/// # Examples
///
/// ```
/// use axum::extract::Path;
/// use redlock_axum::{FencedLock, redis_lock};
///
/// #[redis_lock(key = "account:{id}", expire = 5, fenced)]
/// async fn transfer(Path(id): Path<u64>, lock: FencedLock) -> String {
///     let token = lock.fencing_token();
///     // insert into fence .. values (id, token.number(), token.holder()), and then the work
///     format!("{id}: {}", token.number())
/// }
/// ```
///
/// # Several locks
///
/// If a layer and the attribute, or several layers, each hold a lock, the innermost lock is extracted, as
/// for [`HeldLock`]. It never gets the fencing token of an outer lock. This also applies to a lock that is joined:
/// inside a `fenced` layer, a `reentrant` layer or attribute must be `fenced` as well, and both then have
/// the same token.
///
/// A [shared](crate::LockPolicy::shared) lock has no fencing token, and neither has a permit.
///
/// # Errors
///
/// If the request holds no lock, or its innermost lock has no fencing token, it is answered with a [`LockRejection`]:
/// status 500, and an error in the log. `Option<FencedLock>` extracts `None` instead.
#[derive(Debug, Clone)]
pub struct FencedLock {
    lock: HeldLock,
    token: FencingToken,
}

impl FencedLock {
    /// Creates the extractor of a lock that a test has acquired, as [`HeldLock::from_guard`] does. Requires
    /// the feature `test-util`.
    ///
    /// # Panics
    ///
    /// If the request of the guard was not [fenced](redlock_core::LockRequest::fenced).
    #[cfg(feature = "test-util")]
    #[expect(clippy::expect_used, reason = "documented as a panic, for tests")]
    pub fn from_guard(guard: &redlock_core::LockGuard) -> Self {
        Self::new(&guard.handle()).expect("the lock has no fencing token")
    }

    /// Returns the fencing token of this holder. Every token of a holder is greater than zero.
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Returns the extractor of a held lock, if the lock has a fencing token.
    pub(crate) fn new(handle: &LockHandle) -> Option<Self> {
        let token = handle.fencing_token()?;
        Some(Self { lock: HeldLock::new(handle.clone()), token })
    }

    /// Returns the rejection of a request whose lock has no fencing token.
    pub(crate) fn missing() -> LockRejection {
        LockRejection::misconfigured(
            "a handler takes a `FencedLock`, but the request holds no lock, or the innermost lock of the \
             request has no fencing token; add `fenced` to its `#[redis_lock(..)]`, or `.fenced(true)` to \
             its layer or policy (a reentrant lock inside a fenced one needs it, too)",
        )
    }

    fn of(parts: &Parts) -> Result<Option<Self>, LockRejection> {
        match LockSlot::of(parts) {
            Some(slot) if slot.is_fenced() => Ok(Self::new(slot.acquired()?)),
            _ => Ok(None),
        }
    }
}

impl Deref for FencedLock {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        &self.lock
    }
}

impl<S: Sync> FromRequestParts<S> for FencedLock {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        Self::of(parts)?.ok_or_else(|| Self::missing().at_route_of(parts))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for FencedLock {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, LockRejection> {
        Self::of(parts)
    }
}
