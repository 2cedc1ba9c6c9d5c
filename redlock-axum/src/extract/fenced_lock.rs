//! The extractor for a lock with a fencing token.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use redlock_core::{FencingToken, HoldError, LockKey, Lost};

use super::held_lock::HeldLock;
use super::lock_slot::LockSlot;
#[cfg(feature = "test-util")]
use super::lock_slot::LockView;
use crate::rejection::LockRejection;

/// Extracts the lock that the request holds, with its [fencing token](Self::fencing_token).
///
/// Use it on routes whose layer or policy is `fenced`, and in handlers with `#[redis_lock(fenced)]`. Apart
/// from the token it is the same as a [`HeldLock`].
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
/// A [shared](crate::LockLayer::shared) lock has no fencing token, and neither has a permit.
///
/// # Errors
///
/// If the request holds no lock, or its innermost lock has no fencing token, it is answered with
/// [`NotFenced`]: status 500, and an error in the log. `Option<FencedLock>` extracts `None` instead.
#[derive(Debug, Clone)]
pub struct FencedLock {
    lock: HeldLock,
    slot: LockSlot,
}

impl FencedLock {
    /// Creates the extractor of a lock that a test has acquired, as [`HeldLock::from_guard`] does. Requires
    /// the feature `test-util`.
    ///
    /// # Panics
    ///
    /// If the request of the guard was not [fenced](redlock_core::LockRequest::fenced).
    #[cfg(feature = "test-util")]
    pub fn from_guard(guard: &redlock_core::LockGuard) -> Self {
        let token = guard.fencing_token();
        assert!(token.is_some(), "the lock has no fencing token");
        let slot = LockSlot::Filled(LockView { handle: guard.handle(), token });
        Self { lock: HeldLock::new(slot.clone()), slot }
    }

    /// Returns the fencing token of this holder.
    ///
    /// [Before the lock is taken](HeldLock#before-the-lock-is-taken) the token is zero, which is less than
    /// the token of any holder.
    pub fn fencing_token(&self) -> FencingToken {
        self.slot.token().unwrap_or(FencingToken::ZERO)
    }

    /// Returns the key of the lock, without the manager's prefix.
    pub fn key(&self) -> &LockKey {
        self.lock.key()
    }

    /// Returns the remaining validity: how long the handler may still rely on the lock. Zero if the lock
    /// is no longer valid.
    pub fn remaining(&self) -> Duration {
        self.lock.remaining()
    }

    /// Returns whether the lock is still valid, without asking the nodes.
    pub fn is_valid(&self) -> bool {
        self.lock.is_valid()
    }

    /// Extends the lease to at least `expire` from now, as [`HeldLock::extend`] does. The fencing token
    /// stays the same.
    ///
    /// # Errors
    ///
    /// See [`HeldLock::extend`].
    ///
    /// # Cancel safety
    ///
    /// See [`HeldLock::extend`].
    pub async fn extend(&self, expire: Duration) -> Result<(), HoldError> {
        self.lock.extend(expire).await
    }

    /// Resolves when the lock is lost, as [`HeldLock::lost`] does.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn lost(&self) -> Lost {
        self.lock.lost()
    }

    /// Returns a reference to the same lock without the fencing token, for functions that take a
    /// `&HeldLock`.
    pub fn as_held_lock(&self) -> &HeldLock {
        &self.lock
    }

    /// Returns the same lock without the fencing token.
    pub fn into_held_lock(self) -> HeldLock {
        self.lock
    }

    fn of(parts: &Parts) -> Option<Self> {
        let slot = LockSlot::of(parts).filter(LockSlot::is_fenced)?;
        Some(Self { lock: HeldLock::new(slot.clone()), slot })
    }
}

impl<S: Sync> FromRequestParts<S> for FencedLock {
    type Rejection = NotFenced;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotFenced> {
        Self::of(parts).ok_or(NotFenced(()))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for FencedLock {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(parts))
    }
}

/// Rejects a request whose handler has a [`FencedLock`] parameter although the request holds no lock, or
/// its innermost lock has no fencing token: status 500, and an error in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFenced(());

impl std::fmt::Display for NotFenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a handler takes a `FencedLock`, but the request holds no lock, or the innermost lock of the \
             request has no fencing token; add `fenced` to its `#[redis_lock(..)]`, or `.fenced(true)` to \
             its layer or policy (a reentrant lock inside a fenced one needs it, too)",
        )
    }
}

impl std::error::Error for NotFenced {}

impl From<NotFenced> for LockRejection {
    fn from(error: NotFenced) -> Self {
        Self::extractor(&error)
    }
}

impl IntoResponse for NotFenced {
    fn into_response(self) -> Response {
        LockRejection::from(self).into_response()
    }
}
