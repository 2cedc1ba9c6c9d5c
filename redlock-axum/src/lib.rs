//! Distributed locks for axum.

#[doc(hidden)]
pub mod __private;
mod locks;
mod rejection;

pub use locks::{HeldLock, Locks, NotLocked};
#[doc(inline)]
pub use redlock_core::*;
#[doc(inline)]
pub use redlock_macros::redis_lock;
pub use rejection::LockRejection;
