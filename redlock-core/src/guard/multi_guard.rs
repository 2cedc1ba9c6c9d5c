//! The guard of a lock of several keys.

use std::fmt;
use std::ops::Deref;

use super::fenced::FencedGuard;
use super::lock_guard::LockGuard;
use crate::error::ReleaseError;
use crate::key::LockKey;

/// A held lock of several keys. Dropping the guard releases all of them. Returned by the requests of
/// [`LockManager::lock_all`](crate::LockManager::lock_all).
///
/// Dereferences to its guard `G`, which has the other methods: a [`LockGuard`], or, after
/// [`fenced`](crate::LockRequest::fenced), a [`FencedGuard`]. The keys have one lease and one validity: if one of
/// them is lost, the lock is lost.
///
/// # Examples
///
/// ```
/// use redlock_core::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = LockManager::in_memory();
/// let guard = locks.lock_all(["sku:7", "sku:3"]).fenced().try_acquire().await?;
/// assert_eq!(guard.keys().iter().map(|key| key.as_str()).collect::<Vec<_>>(), ["sku:3", "sku:7"]);
/// assert!(guard.is_valid());
/// let number = guard.fencing_token().number();
/// guard.release().await?;
/// # assert!(number > 0); Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped; bind it by `let guard = ..`, because `let _ = ..` drops it at once"]
pub struct MultiGuard<G = LockGuard> {
    guard: G,
}

impl<G> MultiGuard<G> {
    pub(crate) fn new(guard: G) -> Self {
        Self { guard }
    }

    /// Returns the guard without its list of keys, for functions that take a guard of any lock. Its
    /// [`key`](LockGuard::key) is the first of the keys.
    pub fn into_guard(self) -> G {
        self.guard
    }
}

/// Writes the methods that both kinds of guards have.
macro_rules! methods {
    ($($guard:ty, $guard_of:expr;)+) => {$(
        impl MultiGuard<$guard> {
            /// Returns the keys of the lock, without the manager's prefix: at least one, sorted and different.
            pub fn keys(&self) -> &[LockKey] {
                let guard_of: fn(&$guard) -> &LockGuard = $guard_of;
                guard_of(&self.guard).keys()
            }

            /// Ends the guard without releasing the lock, as [`LockGuard::keep_until_expiry`] does.
            pub fn keep_until_expiry(self) {
                self.guard.keep_until_expiry();
            }

            /// Releases all keys, as [`LockGuard::release`] does.
            ///
            /// # Errors
            ///
            /// As [`LockGuard::release`]. [`ReleaseError::Expired`] also if only some of the keys were lost.
            ///
            /// # Cancel safety
            ///
            /// As [`LockGuard::release`].
            pub async fn release(self) -> Result<(), ReleaseError> {
                self.guard.release().await
            }
        }
    )+};
}

methods! {
    LockGuard, |guard| guard;
    FencedGuard, FencedGuard::as_guard;
}

impl<G> Deref for MultiGuard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for MultiGuard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.guard).finish()
    }
}
