//! The state of a connection, which its driver changes and its callers read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::nanos;
use crate::node::Silence;

/// The state of a connection.
#[derive(Default)]
pub(crate) struct LinkState {
    /// The reason of the end.
    ended: OnceLock<Arc<str>>,
    /// For how long the server has owed a reply, in nanoseconds. The driver measures it after it has read everything that has
    /// arrived: a late process does not count as a silent server.
    silent: AtomicU64,
}

impl LinkState {
    /// Ends the connection, and returns the reason.
    pub(crate) fn end(&self, reason: String) -> Arc<str> {
        Arc::clone(self.ended.get_or_init(|| reason.into()))
    }

    /// Returns the reason of the end, if the connection has ended.
    pub(crate) fn ended(&self) -> Option<Arc<str>> {
        self.ended.get().cloned()
    }

    /// Returns the reason why a request has no reply.
    pub(crate) fn reason(&self) -> Arc<str> {
        self.ended().unwrap_or_else(|| "the connection was closed".into())
    }

    /// Sets for how long the server has owed a reply.
    pub(crate) fn set_silent(&self, silent: Duration) {
        self.silent.store(nanos(silent), Ordering::Release);
    }

    /// Returns whether the server owes a reply, and for how long.
    pub(crate) fn silence(&self, limit: Duration) -> Silence {
        let silent = Duration::from_nanos(self.silent.load(Ordering::Acquire));
        match limit.checked_sub(silent) {
            None | Some(Duration::ZERO) => Silence::Silent(silent),
            Some(rest) => Silence::CheckAgainAfter(rest.max(limit / 8)),
        }
    }
}
