//! The extractor for the lock that a request holds.

use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use redlock_core::{FencingToken, HoldError, LockHandle, LockKey, Lost};

use super::lock_slot::LockSlot;
use crate::rejection::LockRejection;

/// Extracts the lock that the request holds, in a handler behind a lock layer or policy, or with
/// `#[redis_lock]`.
///
/// The extractor also proves that the handler is locked: without a lock the handler does not run, and the request is
/// answered with a [`LockRejection`]: status 500, and an error in the log. `Option<HeldLock>` extracts `None` instead. If
/// a layer and the attribute both hold a lock, the attribute's lock is extracted.
///
/// An attribute with `manager = ..` does not pass its lock to extractors. As a parameter of such a function, a `HeldLock`
/// is the lock of its caller, or of a layer.
///
/// Cloning is cheap. A clone may outlive the request; its lock is then no longer valid.
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
///         // Five more seconds from now. On failure stop: another holder may be working.
///         lock.extend(Duration::from_secs(5)).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
///     }
///     Ok(())
/// }
/// ```
///
/// # Only while the lock is held
///
/// A `HeldLock` exists only when its lock is acquired. A handler with the attribute is locked after its parameters are
/// extracted, so the attribute passes the lock to the parameter later: it finds parameters of the types `HeldLock`,
/// [`FencedLock`](crate::FencedLock) and `Option` of both by these names. The `key` cannot use such a parameter.
///
/// Where the lock of the attribute is not acquired yet, the extractor rejects the request: status 500, and the log names
/// the remedy. This concerns
///
/// * a custom extractor that extracts a `HeldLock` in it: as the parameter `UnderLock<Custom>` it runs under the lock, see
///   [`UnderLock`](crate::UnderLock);
/// * a parameter whose type has another name, such as a type alias.
#[derive(Debug, Clone)]
pub struct HeldLock(LockHandle);

impl HeldLock {
    /// Creates the extractor of a lock that a test has acquired, so that the test can call a handler as a
    /// function. Requires the feature `test-util`.
    ///
    /// The guard stays with the test: the lock is valid until the guard is dropped or the lock is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_axum::HeldLock;
    /// use redlock_axum::test_util::TestLocks;
    ///
    /// async fn import(lock: HeldLock) -> &'static str {
    ///     if lock.is_valid() { "imported" } else { "stopped" }
    /// }
    ///
    /// # /*
    /// #[tokio::test]
    /// # */
    /// # #[tokio::main(flavor = "current_thread")]
    /// async fn an_import_stops_when_its_lock_is_lost() {
    ///     let test = TestLocks::new(1);
    ///     let guard = test.manager().lock("import").acquire().await.unwrap();
    ///     let lock = HeldLock::from_guard(&guard);
    ///     assert_eq!(import(lock.clone()).await, "imported");
    ///
    ///     guard.release().await.unwrap();
    ///     assert_eq!(import(lock).await, "stopped");
    /// }
    /// # an_import_stops_when_its_lock_is_lost();
    /// ```
    #[cfg(feature = "test-util")]
    pub fn from_guard(guard: &redlock_core::LockGuard) -> Self {
        Self(guard.handle())
    }

    /// Returns the keys of the lock, without the manager's prefix, sorted. A lock has several keys if its attribute has
    /// [`keys`](crate::redis_lock#several-keys), otherwise one.
    pub fn keys(&self) -> &[LockKey] {
        self.0.keys()
    }

    /// Returns the name of the lock, for tables and metrics: its [`named`](crate::LockPolicy::named), or the template of its
    /// key.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the fencing token of this holder, if the lock is `fenced`. The extractor
    /// [`FencedLock`](crate::FencedLock) also refuses a request whose lock has none.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.0.fencing_token()
    }

    /// Returns whether others may hold the lock at the same time: whether it is a [shared](crate::LockPolicy::shared)
    /// lock, or has [permits](crate::LockPolicy::permits). A handler for several methods can distinguish its readers
    /// from its writers by it, see [`shared_on`](crate::LockPolicy::shared_on).
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// Returns the remaining validity: how long the handler may still rely on the lock. Zero if the lock
    /// is no longer valid.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns whether the lock is still valid, without asking the nodes.
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Extends the lease to at least `expire` from now. Never shortens it.
    ///
    /// # Errors
    ///
    /// [`HoldError::Lost`] if the lock is lost: the handler must stop. [`HoldError::Unavailable`]
    /// if no quorum of nodes confirmed the extension in time; the lock then stays valid for
    /// [`remaining`](Self::remaining). [`HoldError::InvalidOption`] for a lease out of range.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the validity of this lock does not change. On the servers the lease may
    /// already be extended.
    pub async fn extend(&self, expire: Duration) -> Result<(), HoldError> {
        self.0.extend(expire).await
    }

    /// Resolves when the lock is lost: its lease ran out, or a quorum of nodes no longer has it.
    /// Returns the cause. Never resolves if the lock is released first. The guide says [how soon](crate::guide::guarantees) it resolves.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn lost(&self) -> Lost {
        self.0.lost()
    }

    pub(crate) fn new(handle: LockHandle) -> Self {
        Self(handle)
    }

    /// Returns the rejection of a request that holds no lock.
    pub(crate) fn missing() -> LockRejection {
        LockRejection::misconfigured(
            "a handler asks for a `HeldLock`, but no lock was taken for the request; add \
             `#[redis_lock(key = ..)]` to the handler, or a lock layer or policy to its route",
        )
    }

    fn of(parts: &Parts) -> Result<Option<Self>, LockRejection> {
        LockSlot::of(parts).map(|slot| slot.acquired().cloned().map(Self)).transpose()
    }
}

impl<S: Sync> FromRequestParts<S> for HeldLock {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        Self::of(parts)?.ok_or_else(|| Self::missing().at_route_of(parts))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for HeldLock {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, LockRejection> {
        Self::of(parts)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use redlock_core::LockManager;

    use super::*;
    use crate::FencedLock;
    use crate::rejection::RejectionKind;

    fn parts() -> Parts {
        Request::new(Body::empty()).into_parts().0
    }

    async fn held_lock(parts: &mut Parts) -> Result<HeldLock, LockRejection> {
        <HeldLock as FromRequestParts<()>>::from_request_parts(parts, &()).await
    }

    #[tokio::test]
    async fn a_filled_slot_gives_access_to_its_lock() {
        let locks = LockManager::in_memory();
        let guard = locks.lock("a").expire(Duration::from_secs(5)).try_acquire().await.unwrap();
        let mut parts = parts();
        parts.extensions.insert(LockSlot::filled(guard.handle()));

        let lock = held_lock(&mut parts).await.unwrap();
        assert_eq!(lock.keys()[0].as_str(), "a");
        assert!(lock.is_valid());
        assert!(lock.remaining() > Duration::from_secs(4));
        lock.extend(Duration::from_secs(50)).await.unwrap();
        assert!(guard.remaining() > Duration::from_secs(40));

        guard.release().await.unwrap();
        assert!(!lock.is_valid());
        assert_eq!(lock.remaining(), Duration::ZERO);
    }

    #[tokio::test]
    async fn an_empty_slot_rejects_the_request_until_it_is_filled() {
        let mut parts = parts();
        let slot = LockSlot::pending(true);
        parts.extensions.insert(slot.clone());
        assert_eq!(held_lock(&mut parts).await.unwrap_err().kind(), RejectionKind::Misconfigured);
        let optional = |mut parts: Parts| async move {
            <HeldLock as OptionalFromRequestParts<()>>::from_request_parts(&mut parts, &()).await
        };
        let error = optional(parts.clone()).await.unwrap_err();
        assert!(error.diagnostics().to_string().contains("UnderLock<MyExtractor>"), "{error:?}");
        let fenced =
            <FencedLock as OptionalFromRequestParts<()>>::from_request_parts(&mut parts, &()).await;
        assert_eq!(fenced.unwrap_err().kind(), RejectionKind::Misconfigured);

        let guard = LockManager::in_memory().lock("a").try_acquire().await.unwrap();
        slot.fill(guard.handle());
        assert!(held_lock(&mut parts).await.unwrap().is_valid());
        assert_eq!(optional(parts).await.unwrap().unwrap().keys()[0].as_str(), "a");
    }

    #[tokio::test]
    async fn without_a_slot_the_extractors_reject_the_request() {
        let mut parts = parts();
        assert_eq!(held_lock(&mut parts).await.unwrap_err().kind(), RejectionKind::Misconfigured);
        let lock = <HeldLock as OptionalFromRequestParts<()>>::from_request_parts(&mut parts, &());
        assert!(lock.await.unwrap().is_none());
    }
}
