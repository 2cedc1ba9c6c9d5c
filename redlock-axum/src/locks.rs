//! Stand-in until the extractors are merged.

use std::sync::{Arc, OnceLock};

use redlock_core::Lease;

/// Carries the lease of the request's lock.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "the extractors are not there yet")]
pub(crate) struct HeldSlot(Arc<OnceLock<Lease>>);

impl HeldSlot {
    pub(crate) fn filled(lease: Lease) -> Self {
        Self(Arc::new(OnceLock::from(lease)))
    }
}
