//! The extractors, and the slot in the request's extensions from which they read the lock.

mod fenced_lock;
mod held_lock;
pub(crate) mod lock_slot;
mod under_lock;

pub use fenced_lock::FencedLock;
pub use held_lock::HeldLock;
pub use under_lock::UnderLock;
