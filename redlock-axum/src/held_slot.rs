//! What a request holds, on its way from whoever takes the lock to the extractors.

use std::sync::{Arc, OnceLock};

use axum::http::request::Parts;
use redlock_core::{FencingToken, Lease};

/// A place in the request's extensions for the lock that it holds, or is going to hold: the attribute
/// extracts first and locks second.
#[derive(Debug, Clone)]
pub(crate) struct HeldSlot {
    /// Whether the lock is numbered.
    fenced: bool,
    held: Arc<OnceLock<Held>>,
}

/// What extractors see of a lock.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    pub(crate) token: Option<FencingToken>,
}

impl HeldSlot {
    /// For a lock that is held.
    pub(crate) fn filled(held: Held) -> Self {
        Self { fenced: held.token.is_some(), held: Arc::new(OnceLock::from(held)) }
    }

    /// For a lock that is yet to be taken.
    pub(crate) fn empty(fenced: bool) -> Self {
        Self { fenced, held: Arc::default() }
    }

    /// Fills an empty slot. A filled one stays as it is.
    pub(crate) fn fill(&self, held: Held) {
        let _ = self.held.set(held);
    }

    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        parts.extensions.get::<Self>().cloned()
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.held.get().map(|held| &held.lease)
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.held.get()?.token
    }
}
