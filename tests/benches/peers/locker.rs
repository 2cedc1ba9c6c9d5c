//! What is compared: something that locks and unlocks a key.

/// One way to lock. Cloning is cheap, and the clones share their connections.
pub(crate) trait Locker: Clone + Send + Sync + 'static {
    /// What proves that the key is held.
    type Held: Send;

    /// Locks a key that nobody else wants.
    fn lock(&self, key: &str) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Locks a key that others want too, however long that takes.
    fn wait(&self, key: &str) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Unlocks it.
    fn unlock(
        &self,
        key: &str,
        held: Self::Held,
    ) -> impl Future<Output = Result<(), String>> + Send;
}
