//! The log of what becomes of requests: at most one line per second for each kind of event and node.

use std::sync::LazyLock;

use redlock_core::__private::LogLimit;
use redlock_core::LockError;

use super::{Cause, LockRejection, RejectionKind};

/// For events that no manager is known for.
pub(crate) static LOG_LIMIT: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);

/// Logs an event at the given level if the limit allows it, with the number of like events that it did
/// not allow since the last one. Those are logged at debug.
macro_rules! log_limited {
    ($limit:expr, $kind:expr, $subject:expr, $level:ident, $($message:tt)+) => {
        if let Some(suppressed) = $limit.pass($kind, $subject) {
            tracing::$level!(suppressed, $($message)+);
        } else {
            tracing::debug!($($message)+);
        }
    };
}

pub(crate) use log_limited;

impl LockRejection {
    /// Logs the rejection, unless that was done before.
    pub(crate) fn log(&mut self) {
        if std::mem::replace(&mut self.logged, true) {
            return;
        }
        let limit = self.log_limit.as_deref().unwrap_or(&LOG_LIMIT);
        match self.kind() {
            RejectionKind::AlreadyHeld | RejectionKind::Misconfigured => {
                let (kind, subject) = self.mistake();
                log_limited!(
                    limit,
                    kind,
                    &subject,
                    error,
                    "a request was refused instead of being served unlocked: {self}"
                );
            }
            RejectionKind::Unavailable => {
                let (kind, node) = self.shortage();
                log_limited!(limit, kind, node, warn, "a request got no lock: {self}");
            }
            RejectionKind::Lost => {
                log_limited!(limit, "stopped", "", warn, "a request was stopped half-way: {self}");
            }
            RejectionKind::Contended | RejectionKind::InvalidKey => {
                tracing::debug!("a request got no lock: {self}");
            }
        }
    }

    /// The kind and subject of a mistake in the program. Messages that name the lock's key are no
    /// subjects: each request may have a key of its own.
    fn mistake(&self) -> (&'static str, String) {
        match &self.cause {
            Cause::Lock(LockError::AlreadyHeld { .. }) => ("already held", String::new()),
            Cause::Lock(LockError::ForeignKey { votes, .. }) => {
                ("foreign key", LogLimit::failed_node(votes).to_owned())
            }
            _ => ("mistake", self.to_string()),
        }
    }

    /// The kind of what there is too little of, and the node that it is missing on.
    fn shortage(&self) -> (&'static str, &str) {
        match &self.cause {
            Cause::Lock(LockError::Unavailable { votes, .. }) => {
                ("unavailable", LogLimit::failed_node(votes))
            }
            Cause::Lock(LockError::TimedOut { votes, .. }) => {
                ("timed out", LogLimit::failed_node(votes))
            }
            Cause::Lock(LockError::TooManyWaiters { .. }) => ("too many waiters", ""),
            _ => ("shut down", ""),
        }
    }
}
