//! Passes a request's lock from the layer or the attribute to the extractors.

use std::sync::{Arc, OnceLock};

use axum::http::request::Parts;
use redlock_core::LockHandle;

use crate::rejection::LockRejection;

/// The request's lock, stored in the request's extensions. The attribute acquires its lock after the extractors have
/// run, and then fills the slot.
#[derive(Debug, Clone)]
pub(crate) struct LockSlot {
    /// Whether the lock has, or will have, a fencing token.
    fenced: bool,
    handle: Arc<OnceLock<LockHandle>>,
}

impl LockSlot {
    /// Creates an empty slot for a lock that is acquired later.
    pub(crate) fn pending(fenced: bool) -> Self {
        Self { fenced, handle: Arc::default() }
    }

    /// Creates the slot of a lock that is held.
    #[cfg(test)]
    pub(crate) fn filled(handle: LockHandle) -> Self {
        let fenced = handle.fencing_token().is_some();
        Self { fenced, handle: Arc::new(handle.into()) }
    }

    /// Fills an empty slot. A filled slot is not changed.
    pub(crate) fn fill(&self, handle: LockHandle) {
        let _ = self.handle.set(handle);
    }

    pub(crate) fn of(parts: &Parts) -> Option<&Self> {
        parts.extensions.get()
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Returns the lock. Fails if it is not acquired yet: then no value of it may reach the application.
    pub(crate) fn acquired(&self) -> Result<&LockHandle, LockRejection> {
        self.handle().ok_or_else(|| {
            LockRejection::misconfigured(
                "a `HeldLock` or `FencedLock` is extracted before the lock is acquired; in a custom extractor, write \
                 the parameter as `UnderLock<MyExtractor>`, which is extracted under the lock; as a parameter, write the \
                 type by the name `HeldLock` or `FencedLock`, because `#[redis_lock]` finds it by this name",
            )
        })
    }

    /// Returns the lock, if it is acquired.
    pub(crate) fn handle(&self) -> Option<&LockHandle> {
        self.handle.get()
    }
}
