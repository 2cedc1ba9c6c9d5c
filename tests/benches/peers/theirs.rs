//! rslock with its default options.

use rslock::{Lock, LockManager};

use crate::locker::Locker;
use crate::settings::LEASE;

#[derive(Clone)]
pub(crate) struct Theirs(LockManager);

impl Theirs {
    /// Does not connect yet: rslock connects at its first command.
    pub(crate) fn new(urls: &[String]) -> Self {
        Self(LockManager::new(urls.iter().map(String::as_str).collect()))
    }
}

impl Locker for Theirs {
    type Held = Lock;

    async fn lock(&self, key: &str) -> Result<Lock, String> {
        self.0.lock(key.as_bytes(), LEASE).await.map_err(|error| error.to_string())
    }

    async fn wait(&self, key: &str) -> Result<Lock, String> {
        let lock = self.0.acquire_no_guard(key.as_bytes(), LEASE).await;
        lock.map_err(|error| error.to_string())
    }

    /// Always succeeds, because rslock does not report a failed unlock.
    async fn unlock(&self, _: &str, lock: Lock) -> Result<(), String> {
        self.0.unlock(&lock).await;
        Ok(())
    }
}
