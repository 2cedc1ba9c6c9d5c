//! The compared libraries.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{LockGuard, LockManager, LockRequest};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::settings::LEASE;

/// A library that locks and unlocks keys. Clones are cheap and share their connections.
pub(crate) trait Locker: Clone + Send + Sync + 'static {
    /// The proof that the caller holds the key.
    type Held: Send;

    /// Locks a key: in one attempt, or as a caller that `waits` without a limit.
    fn lock(
        &self,
        key: &str,
        waits: bool,
    ) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Unlocks the key.
    fn unlock(
        &self,
        key: &str,
        held: Self::Held,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// A function that changes the options of a request.
pub(crate) type Change = fn(LockRequest) -> LockRequest;

/// This library with its default options, except for those that a function changes.
#[derive(Clone)]
pub(crate) struct Ours(pub(crate) LockManager, Change);

impl Ours {
    pub(crate) async fn connect(urls: &[String]) -> Self {
        Self(LockManager::connect(urls).await.expect("a manager"), |request| request)
    }

    /// Returns this library with other options.
    pub(crate) fn with(&self, change: Change) -> Self {
        Self(self.0.clone(), change)
    }
}

impl Locker for Ours {
    type Held = LockGuard;

    async fn lock(&self, key: &str, waits: bool) -> Result<LockGuard, String> {
        let request = (self.1)(self.0.lock(key).expire(LEASE));
        let request =
            if waits { request.wait_forever() } else { request.wait_time(Duration::ZERO) };
        request.acquire().await.map_err(|error| error.diagnostics().to_string())
    }

    async fn unlock(&self, _: &str, guard: LockGuard) -> Result<(), String> {
        guard.release().await.map_err(|error| error.diagnostics().to_string())
    }
}

/// The number of keys of a set.
const KEYS: usize = 10;

fn names(key: &str) -> [String; KEYS] {
    std::array::from_fn(|number| format!("{key}:{number}"))
}

/// Ten keys that this library locks at once.
#[derive(Clone)]
pub(crate) struct AtOnce(pub(crate) Ours);

impl Locker for AtOnce {
    type Held = LockGuard;

    async fn lock(&self, key: &str, _: bool) -> Result<LockGuard, String> {
        let request = self.0.0.lock_all(names(key)).expire(LEASE);
        request.try_acquire().await.map_err(|error| error.diagnostics().to_string())
    }

    async fn unlock(&self, _: &str, guard: LockGuard) -> Result<(), String> {
        guard.release().await.map_err(|error| error.diagnostics().to_string())
    }
}

/// Ten keys that this library locks one after another.
#[derive(Clone)]
pub(crate) struct OneByOne(pub(crate) Ours);

impl Locker for OneByOne {
    type Held = Vec<LockGuard>;

    async fn lock(&self, key: &str, waits: bool) -> Result<Vec<LockGuard>, String> {
        let mut guards = Vec::with_capacity(KEYS);
        for name in names(key) {
            guards.push(self.0.lock(&name, waits).await?);
        }
        Ok(guards)
    }

    async fn unlock(&self, key: &str, guards: Vec<LockGuard>) -> Result<(), String> {
        for guard in guards {
            self.0.unlock(key, guard).await?;
        }
        Ok(())
    }
}

/// rslock with its default options. It connects at its first command.
#[derive(Clone)]
pub(crate) struct Theirs(rslock::LockManager);

impl Theirs {
    pub(crate) fn new(urls: &[String]) -> Self {
        Self(rslock::LockManager::new(urls.iter().map(String::as_str).collect()))
    }
}

impl Locker for Theirs {
    type Held = rslock::Lock;

    async fn lock(&self, key: &str, waits: bool) -> Result<rslock::Lock, String> {
        let lock = if waits {
            self.0.acquire_no_guard(key.as_bytes(), LEASE).await
        } else {
            self.0.lock(key.as_bytes(), LEASE).await
        };
        lock.map_err(|error| error.to_string())
    }

    /// Always succeeds, because rslock does not report a failed unlock.
    async fn unlock(&self, _: &str, lock: rslock::Lock) -> Result<(), String> {
        self.0.unlock(&lock).await;
        Ok(())
    }
}

/// A mutex of this process, to compare the queue with.
#[derive(Clone, Default)]
pub(crate) struct Local(pub(crate) Arc<Mutex<()>>);

impl Locker for Local {
    type Held = OwnedMutexGuard<()>;

    async fn lock(&self, _: &str, _: bool) -> Result<Self::Held, String> {
        Ok(Arc::clone(&self.0).lock_owned().await)
    }

    async fn unlock(&self, _: &str, _: Self::Held) -> Result<(), String> {
        Ok(())
    }
}
