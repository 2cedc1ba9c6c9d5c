//! The text of a rejection for the operator.

use std::fmt;

use redlock_core::LockError;

use super::{LockRejection, RejectionCause};
use crate::value_source::ValueSource;

impl LockRejection {
    /// Returns the cause and its remedy for logs and operators, with the key of the lock and the vote of each
    /// node. Not for clients: send [`detail`](Self::detail).
    pub fn diagnostics(&self) -> impl fmt::Display {
        Diagnostics(&self.cause)
    }
}

struct Diagnostics<'a>(&'a RejectionCause);

impl fmt::Display for Diagnostics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RejectionCause::Lock(error @ LockError::AlreadyHeld { .. }) => write!(
                f,
                "{}; set `reentrant` on the inner lock (and `fenced`, if the outer lock is fenced), \
                 or give it another key; if one of them is shared or has permits, make both shared or both \
                 exclusive, because a holder that shares a lock would wait for itself",
                error.diagnostics()
            ),
            RejectionCause::Lock(error) => error.diagnostics().fmt(f),
            RejectionCause::Lost(error) => error.diagnostics().fmt(f),
            RejectionCause::NotUtf8(error) => write!(f, "a path parameter cannot be used: {error}"),
            RejectionCause::UnusableValue { placeholder, fault } => write!(
                f,
                "the placeholder {{{placeholder}}} of the lock key has no value: {} {fault}",
                ValueSource::of(placeholder)
            ),
            RejectionCause::MissingExtension { placeholder, type_name } => write!(
                f,
                "the placeholder {{{placeholder}}} of the lock key needs the extension {type_name}, which \
                 the request lacks; the layer that inserts it must be outside of the lock: add it to the \
                 router after the lock layer or the lock policies"
            ),
            RejectionCause::AmbiguousPlaceholder { name } => write!(
                f,
                "the placeholder {{{name}}} of the lock key could be one of several path parameters \
                 of this route; give them different names"
            ),
            RejectionCause::MissingManager => f.write_str(
                "no LockManager is installed; add `.layer(LocksLayer::new(&locks))`, with \
                 `locks: LockManager`, as the last layer of the router",
            ),
            RejectionCause::Extractor { mistake } => f.write_str(mistake),
            RejectionCause::Setup(error) => error.fmt(f),
            RejectionCause::RouteNotMatched { policy } => write!(
                f,
                "the lock policy for {policy} fits the path of a request, but axum did not match \
                 that route; either the router has no such route, or the policies are not installed \
                 with `Router::layer` or `Router::route_layer` on the router that has it"
            ),
        }
    }
}
