//! The types that can be converted into a key.

use super::{KeyError, LockKey};

/// A lock key, or a text that [`LockKey::new`] converts into a key. The argument of
/// [`LockManager::lock`](crate::LockManager::lock).
///
/// A `Result<LockKey, KeyError>` is accepted too, so that `locks.lock(template.render(values))` needs no
/// `?`: the acquisition reports the error, as it does for an invalid text.
///
/// Implemented for `&str`, `String`, `&String`, [`LockKey`], `&LockKey` and `Result<LockKey, KeyError>`. This
/// trait is sealed.
pub trait IntoLockKey: Sealed {}

impl<T: Sealed> IntoLockKey for T {}

mod sealed {
    use super::{KeyError, LockKey};

    /// Converts the value into a key.
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
