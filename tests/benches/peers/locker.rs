//! The trait of the compared libraries.

/// A library that locks and unlocks keys. Clones are cheap and share their connections.
pub(crate) trait Locker: Clone + Send + Sync + 'static {
    /// The proof that the caller holds the key.
    type Held: Send;

    /// Locks a key that no other caller wants, in one attempt.
    fn lock(&self, key: &str) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Locks a key that other callers want too, and waits without a limit.
    fn wait(&self, key: &str) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Unlocks the key.
    fn unlock(
        &self,
        key: &str,
        held: Self::Held,
    ) -> impl Future<Output = Result<(), String>> + Send;
}
