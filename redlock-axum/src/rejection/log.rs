//! Logs rejected requests, at most one line per second for each kind of event and each node.

use std::sync::LazyLock;

use redlock_core::__private::LogLimit;
use redlock_core::{LockError, LockKey, log_limited};

use super::{LockRejection, RejectionCause, RejectionKind};

/// The limit for events for which no manager is known.
static LOG_LIMIT: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);

impl LockRejection {
    /// Logs the rejection, unless it has been logged before.
    pub(crate) fn log(&mut self) {
        if std::mem::replace(&mut self.logged, true) {
            return;
        }
        let limit = self.log_limit.as_deref().unwrap_or(&LOG_LIMIT);
        let diagnostics = self.diagnostics();
        let template = self.origin.as_ref().and_then(|origin| origin.lock.as_deref());
        let lock = template.or_else(|| self.key().map(LockKey::as_str));
        let route = self.origin.as_ref().and_then(|origin| Some(origin.route.as_ref()?.as_str()));
        match self.kind() {
            // A drain is no fault, so its refusals are no warnings.
            _ if matches!(self.cause, RejectionCause::Lock(LockError::Draining)) => {
                tracing::debug!(lock, route, "a request was rejected: {diagnostics}");
            }
            RejectionKind::AlreadyHeld | RejectionKind::Misconfigured => {
                let (kind, subject) = self.mistake_subject();
                log_limited!(
                    limit,
                    kind,
                    &subject,
                    error,
                    lock,
                    route,
                    "a request was refused instead of being served unlocked: {diagnostics}"
                );
            }
            RejectionKind::Unavailable => {
                let (kind, node) = self.unavailable_subject();
                log_limited!(
                    limit,
                    kind,
                    node,
                    warn,
                    lock,
                    route,
                    "a request was rejected: {diagnostics}"
                );
            }
            RejectionKind::Lost => {
                log_limited!(
                    limit,
                    "stopped",
                    "",
                    warn,
                    lock,
                    route,
                    "a request was stopped: {diagnostics}"
                );
            }
            RejectionKind::Contended
            | RejectionKind::BodyTooLarge
            | RejectionKind::BodyTooSlow
            | RejectionKind::BodyUnreadable
            | RejectionKind::InvalidKey => {
                tracing::debug!(lock, route, "a request was rejected: {diagnostics}");
            }
        }
    }

    /// Returns the kind and the subject of a mistake, by which its log lines are limited.
    ///
    /// A message that contains the lock's key is never a subject: each request may have another key, so
    /// the limit would have no effect.
    fn mistake_subject(&self) -> (&'static str, String) {
        match &self.cause {
            RejectionCause::Lock(LockError::AlreadyHeld { .. }) => ("already held", String::new()),
            RejectionCause::Lock(LockError::ForeignKey { votes, .. }) => {
                ("foreign key", LogLimit::failed_node(votes).to_owned())
            }
            // Several routes may have the same mistake.
            RejectionCause::Lock(error) => ("mistake", format!("{:?}: {error}", self.origin)),
            _ => ("mistake", format!("{:?}: {}", self.origin, self.diagnostics())),
        }
    }

    fn key(&self) -> Option<&LockKey> {
        match &self.cause {
            RejectionCause::Lock(error) => error.key(),
            RejectionCause::Lost(error) => Some(error.key()),
            RejectionCause::Body(_)
            | RejectionCause::UnusableValue { .. }
            | RejectionCause::Misconfigured(_) => None,
        }
    }

    /// Returns the kind of unavailability and the name of the failed node, by which log lines are limited.
    fn unavailable_subject(&self) -> (&'static str, &str) {
        match &self.cause {
            RejectionCause::Lock(LockError::Unavailable { votes, .. }) => {
                ("unavailable", LogLimit::failed_node(votes))
            }
            RejectionCause::Lock(LockError::TimedOut { votes, .. }) => {
                ("timed out", LogLimit::failed_node(votes))
            }
            RejectionCause::Lock(LockError::Lost(_)) => ("lost before work", ""),
            RejectionCause::Body(_) => ("body buffers", ""),
            RejectionCause::Lock(LockError::TooManyWaiters { .. }) => ("too many waiters", ""),
            _ => ("shut down", ""),
        }
    }
}
