//! The extractor for a lock with a fencing token.

use std::convert::Infallible;
use std::ops::Deref;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use redlock_core::FencingToken;

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
pub struct FencedLock(HeldLock);

impl FencedLock {
    /// Creates the extractor of a lock that a test has acquired, as [`HeldLock::from_guard`] does. Requires
    /// the feature `test-util`.
    ///
    /// # Panics
    ///
    /// If the request of the guard was not [fenced](redlock_core::LockRequest::fenced).
    #[cfg(feature = "test-util")]
    pub fn from_guard(guard: &redlock_core::LockGuard) -> Self {
        assert!(guard.fencing_token().is_some(), "the lock has no fencing token");
        Self(HeldLock::from_guard(guard))
    }

    /// Returns the fencing token of this holder.
    ///
    /// [Before the lock is taken](HeldLock#before-the-lock-is-taken) the token is zero, which is less than
    /// the token of any holder.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token().unwrap_or(FencingToken::ZERO)
    }

    fn of(parts: &Parts) -> Option<Self> {
        LockSlot::of(parts).filter(LockSlot::is_fenced).map(HeldLock::new).map(Self)
    }
}

impl Deref for FencedLock {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for FencedLock {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        Self::of(parts).ok_or_else(|| {
            LockRejection::misconfigured(
                "a handler takes a `FencedLock`, but the request holds no lock, or the innermost lock of the \
                 request has no fencing token; add `fenced` to its `#[redis_lock(..)]`, or `.fenced(true)` to \
                 its layer or policy (a reentrant lock inside a fenced one needs it, too)",
            )
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for FencedLock {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(parts))
    }
}
