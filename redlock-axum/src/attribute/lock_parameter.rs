//! The parameters of a handler that are its lock.

use std::fmt;
use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use redlock_core::LockHandle;

use crate::extract::lock_slot::LockSlot;
use crate::extract::{FencedLock, HeldLock};
use crate::rejection::LockRejection;

/// A parameter that gives a handler access to its lock.
#[diagnostic::on_unimplemented(
    message = "`#[redis_lock]` takes a parameter named `{Self}` for the lock of the handler",
    note = "`redlock_axum` has the extractors `HeldLock` and `FencedLock`; give an extractor of your own another name"
)]
pub trait LockParameter: Sized {
    /// Checks that a lock that is `fenced`, or is not, can be such a parameter.
    ///
    /// # Errors
    ///
    /// The rejection of a request whose lock has no fencing token, although the parameter needs one.
    fn check(fenced: bool) -> Result<(), LockRejection>;

    /// Returns the parameter for a lock that is held.
    fn of_held(handle: &LockHandle, fenced: bool) -> Option<Self>;
}

impl LockParameter for HeldLock {
    fn check(_: bool) -> Result<(), LockRejection> {
        Ok(())
    }

    fn of_held(handle: &LockHandle, _: bool) -> Option<Self> {
        Some(Self::new(handle.clone()))
    }
}

impl LockParameter for FencedLock {
    fn check(fenced: bool) -> Result<(), LockRejection> {
        if fenced { Ok(()) } else { Err(Self::missing()) }
    }

    fn of_held(handle: &LockHandle, fenced: bool) -> Option<Self> {
        if fenced { Self::new(handle) } else { None }
    }
}

impl<T: LockParameter> LockParameter for Option<T> {
    fn check(_: bool) -> Result<(), LockRejection> {
        Ok(())
    }

    fn of_held(handle: &LockHandle, fenced: bool) -> Option<Self> {
        Some(T::of_held(handle, fenced))
    }
}

/// The hidden extractor in place of a [`LockParameter`]. It runs before the lock is acquired, so it refers to the slot
/// that the lock fills.
pub struct LockLater<T> {
    slot: LockSlot,
    parameter: PhantomData<fn() -> T>,
}

impl<S: Sync, T: LockParameter> FromRequestParts<S> for LockLater<T> {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        let slot = LockSlot::of(parts).ok_or_else(HeldLock::missing)?.clone();
        T::check(slot.is_fenced())?;
        Ok(Self { slot, parameter: PhantomData })
    }
}

impl<T: LockParameter> LockLater<T> {
    /// Returns the parameter, or `None` if the lock is not held yet.
    pub fn take(self) -> Option<T> {
        T::of_held(self.slot.handle()?, self.slot.is_fenced())
    }
}

impl<T> fmt::Debug for LockLater<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockLater")
    }
}
