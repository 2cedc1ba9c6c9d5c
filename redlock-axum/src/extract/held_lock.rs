//! The extractor of the lock that a request holds.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use redlock_core::{ExtendError, LockHandle, LockKey, Lost, Votes};

use super::lock_slot::LockSlot;
use crate::rejection::misconfigured;

/// Extracts the lock that the request holds: under a lock layer, or as a parameter of a handler
/// with `#[redis_lock]`.
///
/// It is also the proof that a handler is locked: where nobody has taken a lock, the handler does
/// not run, the request gets [`NotLocked`]. An `Option<HeldLock>` is `None` then. Where a layer and
/// the attribute have both taken one, it is the attribute's.
///
/// With `manager = ..` the attribute hands over no lock, and refuses this parameter: what stood in it
/// would be a layer's lock, or nobody's. Such a function may borrow its caller's, as a `&HeldLock`.
///
/// Cloning is cheap. A clone may outlive the request; it says then that nothing is held.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_axum::{HeldLock, redis_lock};
/// # use axum::http::StatusCode;
/// # async fn next_page() -> bool { false }
///
/// #[redis_lock(key = "import", expire = 5)]
/// async fn import(lock: HeldLock) -> Result<(), StatusCode> {
///     while next_page().await {
///         // Five more seconds from here, or stop: somebody else may be at work.
///         lock.extend(Duration::from_secs(5)).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
///     }
///     Ok(())
/// }
/// ```
///
/// # Before the lock is taken
///
/// The attribute extracts first and locks second, so that an extractor of your own, or the
/// expression of a `key`, can get hold of a `HeldLock` whose lock is yet to be taken. It says that
/// nothing is held: [`is_valid`](Self::is_valid) is `false`, [`remaining`](Self::remaining) zero,
/// [`extend`](Self::extend) fails, [`lost`](Self::lost) is ready, and [`key`](Self::key) reads
/// `not-locked-yet`.
#[derive(Debug, Clone)]
pub struct HeldLock(LockSlot);

impl HeldLock {
    /// What is locked, without the manager's prefix.
    pub fn key(&self) -> &LockKey {
        self.0.handle().map_or(&NOT_LOCKED_YET, LockHandle::key)
    }

    /// How long the handler may still believe in the lock; zero once it may not.
    pub fn remaining(&self) -> Duration {
        self.0.handle().map_or(Duration::ZERO, LockHandle::remaining)
    }

    /// Whether the lock is still held, as far as can be known without asking the nodes.
    pub fn is_valid(&self) -> bool {
        self.0.handle().is_some_and(LockHandle::is_valid)
    }

    /// Makes the lease last at least `expire` from now. Never shortens it.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`] if the lock is lost: the handler must stop. [`ExtendError::Unavailable`]
    /// if no quorum of nodes confirmed it in time; the lock is then held for what
    /// [`remaining`](Self::remaining) says. [`ExtendError::InvalidOption`] for a lease out of range.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was for this handler; on the servers it may last
    /// longer.
    pub async fn extend(&self, expire: Duration) -> Result<(), ExtendError> {
        match self.0.handle() {
            Some(handle) => handle.extend(expire).await,
            None => Err(ExtendError::lost(self.key().clone(), Votes::default())),
        }
    }

    /// Resolves when the lock is lost: its lease ran out, or a quorum of nodes does not have it any
    /// more. Never resolves if the lock is released before.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn lost(&self) -> Lost {
        self.0.handle().map_or_else(Lost::ready, LockHandle::lost)
    }

    pub(crate) fn new(slot: LockSlot) -> Self {
        Self(slot)
    }

    fn of(parts: &Parts) -> Option<Self> {
        LockSlot::of(parts).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for HeldLock {
    type Rejection = NotLocked;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotLocked> {
        Self::of(parts).ok_or(NotLocked(()))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for HeldLock {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(parts))
    }
}

/// Answers a request whose handler asks for a [`HeldLock`] although nobody has taken a lock: 500,
/// and an error in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotLocked(());

impl std::fmt::Display for NotLocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a handler asks for a `HeldLock`, but no lock was taken for the request; add \
             `#[redis_lock(key = ..)]` to the handler, or a lock layer or policy to its route",
        )
    }
}

impl std::error::Error for NotLocked {}

impl IntoResponse for NotLocked {
    fn into_response(self) -> Response {
        misconfigured(&self)
    }
}

#[expect(clippy::expect_used, reason = "the key is a constant that a test checks")]
static NOT_LOCKED_YET: LazyLock<LockKey> =
    LazyLock::new(|| LockKey::new("not-locked-yet").expect("the key is well-formed"));

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use redlock_core::{LockGuard, LockManager};

    use super::*;
    use crate::extract::Locks;
    use crate::extract::lock_slot::Held;

    fn parts() -> Parts {
        Request::new(Body::empty()).into_parts().0
    }

    fn held(guard: &LockGuard) -> Held {
        Held { handle: guard.handle(), token: None }
    }

    async fn held_lock(parts: &mut Parts) -> Result<HeldLock, NotLocked> {
        <HeldLock as FromRequestParts<()>>::from_request_parts(parts, &()).await
    }

    #[tokio::test]
    async fn a_filled_slot_gives_access_to_its_lock() {
        let locks = LockManager::in_memory();
        let guard = locks.lock("a").expire(Duration::from_secs(5)).try_acquire().await.unwrap();
        let mut parts = parts();
        parts.extensions.insert(LockSlot::Filled(held(&guard)));

        let lock = held_lock(&mut parts).await.unwrap();
        assert_eq!(lock.key().as_str(), "a");
        assert!(lock.is_valid());
        assert!(lock.remaining() > Duration::from_secs(4));
        lock.extend(Duration::from_secs(50)).await.unwrap();
        assert!(guard.remaining() > Duration::from_secs(40));

        guard.release().await.unwrap();
        assert!(!lock.is_valid());
        assert_eq!(lock.remaining(), Duration::ZERO);
    }

    #[tokio::test]
    async fn an_empty_slot_is_not_held_until_it_is_filled() {
        let mut parts = parts();
        let slot = LockSlot::later(false);
        parts.extensions.insert(slot.clone());
        let lock = held_lock(&mut parts).await.unwrap();
        assert_eq!(lock.key().as_str(), "not-locked-yet");
        assert!(!lock.is_valid());
        assert_eq!(lock.remaining(), Duration::ZERO);
        let error = lock.extend(Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(error, ExtendError::Lost { .. }));
        lock.lost().await;

        let guard = LockManager::in_memory().lock("a").try_acquire().await.unwrap();
        slot.fill(held(&guard));
        assert_eq!(lock.key().as_str(), "a");
        assert!(lock.is_valid());
    }

    #[tokio::test]
    async fn without_a_slot_the_extractors_reject_the_request() {
        let mut parts = parts();
        assert_eq!(held_lock(&mut parts).await.unwrap_err(), NotLocked(()));
        let lock = <HeldLock as OptionalFromRequestParts<()>>::from_request_parts(&mut parts, &());
        assert!(lock.await.unwrap().is_none());
        let locks = <Locks as OptionalFromRequestParts<()>>::from_request_parts(&mut parts, &());
        assert!(locks.await.unwrap().is_none());
    }
}
