//! The types that can be converted into a key.

use std::borrow::Cow;
use std::sync::Arc;

use super::{KeyError, LockKey};

/// A lock key, or a text that [`LockKey::new`] converts into a key. The argument of
/// [`LockManager::lock`](crate::LockManager::lock).
///
/// A `Result<LockKey, KeyError>` is accepted too, so that `locks.lock(template.render(values))` needs no
/// `?`: the acquisition reports the error, as it does for an invalid text.
///
/// Implemented for `&str`, `String`, `Cow<str>`, `Box<str>`, `Arc<str>` and [`LockKey`], for references to these
/// types, and for `Result<LockKey, KeyError>`. This trait is sealed.
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

/// Implements the conversion of texts.
macro_rules! texts {
    ($($text:ty),*) => {
        $(impl Sealed for $text {
            fn into_lock_key(self) -> Result<LockKey, KeyError> {
                LockKey::new(self)
            }
        })*
    };
}

texts!(&str, &&str, String, &String, Cow<'_, str>, &Cow<'_, str>);
texts!(Box<str>, &Box<str>, Arc<str>, &Arc<str>);
