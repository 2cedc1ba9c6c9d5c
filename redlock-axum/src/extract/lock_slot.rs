//! Passes a request's lock from the layer or the attribute to the extractors.

use std::sync::{Arc, OnceLock};

use axum::http::request::Parts;
use redlock_core::{FencingToken, LockHandle};

/// The request's lock, stored in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) enum LockSlot {
    Filled(LockView),
    /// The attribute acquires the lock after the extractors have run, and then fills the slot.
    Pending {
        /// Whether the lock will have a fencing token.
        fenced: bool,
        held: Arc<OnceLock<LockView>>,
    },
}

/// The parts of a held lock that extractors use.
#[derive(Debug, Clone)]
pub(crate) struct LockView {
    pub(crate) handle: LockHandle,
    pub(crate) token: Option<FencingToken>,
}

impl LockSlot {
    /// Creates an empty slot for a lock that is acquired later.
    pub(crate) fn pending(fenced: bool) -> Self {
        Self::Pending { fenced, held: Arc::default() }
    }

    /// Fills an empty slot. A filled slot is not changed.
    pub(crate) fn fill(&self, view: LockView) {
        if let Self::Pending { held, .. } = self {
            let _ = held.set(view);
        }
    }

    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        parts.extensions.get::<Self>().cloned()
    }

    pub(crate) fn is_fenced(&self) -> bool {
        match self {
            Self::Filled(held) => held.token.is_some(),
            Self::Pending { fenced, .. } => *fenced,
        }
    }

    pub(crate) fn handle(&self) -> Option<&LockHandle> {
        self.view().map(|held| &held.handle)
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.view()?.token
    }

    fn view(&self) -> Option<&LockView> {
        match self {
            Self::Filled(held) => Some(held),
            Self::Pending { held, .. } => held.get(),
        }
    }
}
