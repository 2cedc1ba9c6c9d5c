//! The release after work whose result stays valid.

use std::sync::Arc;

use super::lock_guard::LockGuard;
use crate::log_limit::LogLimit;

impl LockGuard {
    /// Releases the lock, and logs a failure within the manager's limit. No public API.
    ///
    /// A failed release is only logged, because the work is done and its result stays valid.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    #[doc(hidden)]
    pub async fn release_or_log(self) {
        const MESSAGE: &str = "the release of a lock failed after its work";
        let log_limit = Arc::clone(self.log_limit());
        let Err(error) = self.release().await else { return };
        let node = LogLimit::failed_node(error.votes());
        let error = error.diagnostics();
        if let Some(suppressed) = log_limit.admit("not released", node) {
            tracing::warn!(suppressed, "{MESSAGE}: {error}");
        } else {
            tracing::debug!("{MESSAGE}: {error}");
        }
    }
}
