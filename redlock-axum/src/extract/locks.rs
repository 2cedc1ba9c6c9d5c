//! The hidden extractors for the [`LockManager`] of a handler with the attribute.

use std::convert::Infallible;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use redlock_core::LockManager;

use crate::locks_layer::Installed;
use crate::rejection::LockRejection;

/// Extracts the manager from the router's state.
#[derive(Debug)]
pub struct Locks(LockManager);

impl<S> FromRequestParts<S> for Locks
where
    S: Sync,
    LockManager: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Infallible> {
        Ok(Self(LockManager::from_ref(state)))
    }
}

/// Extracts the manager that a [`LocksLayer`](crate::LocksLayer) has installed.
#[derive(Debug)]
pub struct InstalledLocks(LockManager);

impl<S: Sync> FromRequestParts<S> for InstalledLocks {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        let manager = Installed::manager(&parts.extensions).cloned();
        manager.map(Self).ok_or_else(LockRejection::missing_manager)
    }
}

impl From<Locks> for LockManager {
    fn from(Locks(manager): Locks) -> Self {
        manager
    }
}

impl From<InstalledLocks> for LockManager {
    fn from(InstalledLocks(manager): InstalledLocks) -> Self {
        manager
    }
}
