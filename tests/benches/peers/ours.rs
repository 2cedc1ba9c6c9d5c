//! This library with its default options.

use redlock_core::{LockGuard, LockManager, LockRequest};

use crate::locker::Locker;
use crate::settings::LEASE;

#[derive(Clone)]
pub(crate) struct Ours(pub(crate) LockManager);

impl Ours {
    pub(crate) async fn connect(urls: &[String]) -> Self {
        Self(LockManager::connect(urls).await.expect("a manager"))
    }
}

/// This library with requests that a function changes.
#[derive(Clone)]
pub(crate) struct With(pub(crate) LockManager, pub(crate) fn(LockRequest) -> LockRequest);

impl Locker for With {
    type Held = LockGuard;

    async fn lock(&self, key: &str) -> Result<LockGuard, String> {
        let request = (self.1)(self.0.lock(key).expire(LEASE));
        request.acquire().await.map_err(|error| error.diagnostics().to_string())
    }

    async fn wait(&self, key: &str) -> Result<LockGuard, String> {
        let request = (self.1)(self.0.lock(key).expire(LEASE).wait_forever());
        request.acquire().await.map_err(|error| error.diagnostics().to_string())
    }

    async fn unlock(&self, _: &str, guard: LockGuard) -> Result<(), String> {
        guard.release().await.map_err(|error| error.diagnostics().to_string())
    }
}

impl Locker for Ours {
    type Held = LockGuard;

    async fn lock(&self, key: &str) -> Result<LockGuard, String> {
        let request = self.0.lock(key).expire(LEASE);
        request.acquire().await.map_err(|error| error.diagnostics().to_string())
    }

    async fn wait(&self, key: &str) -> Result<LockGuard, String> {
        let request = self.0.lock(key).expire(LEASE).wait_forever();
        request.acquire().await.map_err(|error| error.diagnostics().to_string())
    }

    async fn unlock(&self, _: &str, guard: LockGuard) -> Result<(), String> {
        guard.release().await.map_err(|error| error.diagnostics().to_string())
    }
}
