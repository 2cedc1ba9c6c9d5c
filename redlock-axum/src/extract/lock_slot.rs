//! Passes a request's lock from the layer or the attribute to the extractors.

use std::sync::{Arc, OnceLock};

use axum::http::request::Parts;
use redlock_core::{FencingToken, LockHandle};

/// The request's lock, stored in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) enum LockSlot {
    Filled(Held),
    /// The attribute acquires the lock after the extractors have run, and then fills the slot.
    Later {
        /// Whether the lock will have a fencing token.
        fenced: bool,
        held: Arc<OnceLock<Held>>,
    },
}

/// The parts of a held lock that extractors use.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) handle: LockHandle,
    pub(crate) token: Option<FencingToken>,
}

impl LockSlot {
    /// Creates an empty slot for a lock that is acquired later.
    pub(crate) fn later(fenced: bool) -> Self {
        Self::Later { fenced, held: Arc::default() }
    }

    /// Fills an empty slot. A filled slot is not changed.
    pub(crate) fn fill(&self, taken: Held) {
        if let Self::Later { held, .. } = self {
            let _ = held.set(taken);
        }
    }

    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        parts.extensions.get::<Self>().cloned()
    }

    pub(crate) fn is_fenced(&self) -> bool {
        match self {
            Self::Filled(held) => held.token.is_some(),
            Self::Later { fenced, .. } => *fenced,
        }
    }

    pub(crate) fn handle(&self) -> Option<&LockHandle> {
        self.held().map(|held| &held.handle)
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.held()?.token
    }

    fn held(&self) -> Option<&Held> {
        match self {
            Self::Filled(held) => Some(held),
            Self::Later { held, .. } => held.get(),
        }
    }
}
