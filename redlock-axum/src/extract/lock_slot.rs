//! What a request holds, on its way from whoever takes the lock to the extractors.

use std::sync::{Arc, OnceLock};

use axum::http::request::Parts;
use redlock_core::{FencingToken, LockHandle};

/// A place in the request's extensions for the lock that it holds.
#[derive(Debug, Clone)]
pub(crate) enum LockSlot {
    Filled(Held),
    /// The attribute extracts first and locks second.
    Later {
        /// Whether the lock is going to be numbered.
        fenced: bool,
        held: Arc<OnceLock<Held>>,
    },
}

/// What extractors see of a lock.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) handle: LockHandle,
    pub(crate) token: Option<FencingToken>,
}

impl LockSlot {
    /// For a lock that is yet to be taken.
    pub(crate) fn later(fenced: bool) -> Self {
        Self::Later { fenced, held: Arc::default() }
    }

    /// Fills the slot of a lock that was yet to be taken. A filled one stays as it is.
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
