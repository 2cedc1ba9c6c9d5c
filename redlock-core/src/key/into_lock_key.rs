//! The types that a key can be given as.

use super::{KeyError, LockKey};

/// A lock key, or a value that a key is made from by [`LockKey::new`]: the argument of
/// [`LockManager::lock`](crate::LockManager::lock).
///
/// A `Result<LockKey, KeyError>` is accepted too, so that `locks.lock(template.render(values))` needs no `?`:
/// the acquisition reports the error, as it does for a text that is no key.
///
/// This trait is sealed.
pub trait IntoLockKey: Sealed {}

impl<T: Sealed> IntoLockKey for T {}

mod sealed {
    use super::{KeyError, LockKey};

    /// Makes the key.
    pub trait Sealed {
        fn into_lock_key(self) -> Result<LockKey, KeyError>;
    }
}

use sealed::Sealed;

impl Sealed for LockKey {
    fn into_lock_key(self) -> Result<LockKey, KeyError> {
        Ok(self)
    }
}

impl Sealed for &LockKey {
    fn into_lock_key(self) -> Result<LockKey, KeyError> {
        Ok(self.clone())
    }
}

impl Sealed for Result<LockKey, KeyError> {
    fn into_lock_key(self) -> Result<LockKey, KeyError> {
        self
    }
}

impl Sealed for &str {
    fn into_lock_key(self) -> Result<LockKey, KeyError> {
        LockKey::new(self)
    }
}

impl Sealed for String {
    fn into_lock_key(self) -> Result<LockKey, KeyError> {
        LockKey::new(self)
    }
}

impl Sealed for &String {
    fn into_lock_key(self) -> Result<LockKey, KeyError> {
        LockKey::new(self)
    }
}
