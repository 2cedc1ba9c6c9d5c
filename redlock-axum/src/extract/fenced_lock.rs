//! The extractor of a lock that is numbered.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use redlock_core::{ExtendError, FencingToken, LockKey, Lost};

use super::held_lock::HeldLock;
use super::lock_slot::LockSlot;
use crate::rejection::misconfigured;

/// Extracts the lock that the request holds, with the number of its holder. It does what a [`HeldLock`] does,
/// and has a [`fencing_token`](Self::fencing_token). For routes whose layer or policy is `fenced`, and
/// handlers with `#[redis_lock(fenced)]`.
///
/// Give the [token](Self::fencing_token) to the database with each write, and let it refuse what is
/// less than the greatest that it has seen: see [`FencingToken`] for what it promises, and for the
/// statement that does so in PostgreSQL.
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
/// Where a layer and the attribute, or several layers, have each taken a lock, it is the innermost
/// one, as for [`HeldLock`]; the number of another is not taken for it. That goes for a lock that is
/// shared, too: within a layer that is `fenced`, one that is `reentrant` has to be `fenced` itself, and
/// then both have the same number.
///
/// # Errors
///
/// Where the request holds no lock, or the innermost has no number, it gets [`NotFenced`]: 500, and an
/// error in the log. An `Option<FencedLock>` is `None` then.
#[derive(Debug, Clone)]
pub struct FencedLock {
    lock: HeldLock,
    slot: LockSlot,
}

impl FencedLock {
    /// The number of this holder.
    ///
    /// [Before the lock is taken](HeldLock#before-the-lock-is-taken) it is zero, which is less than
    /// that of any holder.
    pub fn fencing_token(&self) -> FencingToken {
        self.slot.token().unwrap_or(FencingToken::ZERO)
    }

    /// What is locked, without the manager's prefix.
    pub fn key(&self) -> &LockKey {
        self.lock.key()
    }

    /// How long the handler may still believe in the lock; zero once it may not.
    pub fn remaining(&self) -> Duration {
        self.lock.remaining()
    }

    /// Whether the lock is still held, as far as can be known without asking the nodes.
    pub fn is_valid(&self) -> bool {
        self.lock.is_valid()
    }

    /// Makes the lease last at least `expire` from now, as [`HeldLock::extend`] does. The number stays.
    ///
    /// # Errors
    ///
    /// As [`HeldLock::extend`].
    ///
    /// # Cancel safety
    ///
    /// As [`HeldLock::extend`].
    pub async fn extend(&self, expire: Duration) -> Result<(), ExtendError> {
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

    /// The same lock without the number.
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

/// Answers a request whose handler asks for a [`FencedLock`] although its innermost lock has no number:
/// 500, and an error in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFenced(());

impl std::fmt::Display for NotFenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a handler asks for a `FencedLock`, but the request holds no lock, or its innermost one has \
             no number; add `fenced` to the handler's `#[redis_lock(..)]`, even if it shares a numbered lock by \
             `reentrant`, or `.fenced(true)` to the innermost lock layer or policy",
        )
    }
}

impl std::error::Error for NotFenced {}

impl IntoResponse for NotFenced {
    fn into_response(self) -> Response {
        misconfigured(&self)
    }
}
