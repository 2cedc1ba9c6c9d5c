//! What a request gets when it does not get its lock.

mod log;
mod response;

pub(crate) use log::log_limited;
pub(crate) use response::misconfigured;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use redlock_core::__private::LogLimit;
use redlock_core::{KeyError, LockError, LostError, RunError};

use crate::error::SetupError;

/// Answers a request that did not get its lock. The handler has not run, but for the one case that
/// it was stopped because it [lost](RejectionKind::Lost) its lock.
///
/// | [`kind`](Self::kind) | when | status | `Retry-After` |
/// |---|---|---|---|
/// | [`Contended`](RejectionKind::Contended) | somebody else holds the lock, and waiting, if any, is over | 409, or [as chosen](Self::with_contended_status) | until the holder's lease runs out |
/// | [`Unavailable`](RejectionKind::Unavailable) | no quorum of nodes answered in time, too many requests wait for the lock already, or the manager was shut down | 503 | 1 |
/// | [`Lost`](RejectionKind::Lost) | the lock was lost while the handler ran, which was stopped ([`OnLost::Abort`](crate::OnLost::Abort)) | 503 | 1 |
/// | [`InvalidKey`](RejectionKind::InvalidKey) | a value that the key is built from is empty, of the wrong type, or not UTF-8 | 400 | |
/// | [`AlreadyHeld`](RejectionKind::AlreadyHeld) | the request holds this lock already, by a layer further out, and would wait for itself | 500 | |
/// | [`Misconfigured`](RejectionKind::Misconfigured) | no manager installed, a placeholder that the route lacks, an option out of range, a foreign key at the lock's name | 500 | |
///
/// The response is an [RFC 9457] `application/problem+json` with the members `type`, `title`,
/// `status`, `detail` and, beside a `Retry-After` header, `retry_after` in seconds. It tells neither
/// the key nor anything of the nodes. Those go to the log: a misconfiguration and a lock within itself at
/// error, missing nodes and a lost lock at warn, the rest at debug. Of like ones, those of the same kind
/// and the same node, one per second is logged at these levels, and the others at debug; the field
/// `suppressed` of the next line says how many they were.
///
/// The rejection also lies in the extensions of its response. A middleware around the whole router
/// can thus give all of them another form, wherever they come from:
///
/// ```
/// use axum::response::{IntoResponse, Response};
/// use redlock_axum::LockRejection;
///
/// async fn in_our_words(response: Response) -> Response {
///     match response.extensions().get::<LockRejection>() {
///         Some(rejection) => (rejection.status(), "please wait").into_response(),
///         None => response,
///     }
/// }
/// # let app: axum::Router = axum::Router::new();
/// let app = app.layer(axum::middleware::map_response(in_our_words));
/// # let _: axum::Router = app;
/// ```
///
/// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
#[derive(Debug, Clone)]
pub struct LockRejection {
    cause: Cause,
    contended_status: StatusCode,
    logged: bool,
    /// That of the manager, where it is known.
    log_limit: Option<Arc<LogLimit>>,
}

/// Sorts the causes of a [`LockRejection`] by who can do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// Somebody else holds the lock. The client may try again later.
    Contended,
    /// The lock could not be decided on: too few nodes answered in time, too many requests wait for
    /// it already, or the application is shutting down. The client may try again later.
    Unavailable,
    /// The handler was stopped because it had lost its lock, and may have done a part of its work.
    /// The client may try again if the work may be done again.
    Lost,
    /// The client sent a value that no key can be made of.
    InvalidKey,
    /// The request holds the lock already: two layers, or a layer and the attribute, have the same
    /// key. The inner one has to be [`reentrant`](crate::LockLayer::reentrant), or to have another
    /// key.
    AlreadyHeld,
    /// The application or its Redis is set up wrongly. The log says how.
    Misconfigured,
}

#[derive(Debug, Clone)]
enum Cause {
    Lock(LockError),
    Lost(LostError),
    NotUtf8(String),
    AmbiguousPlaceholder { name: String },
    MissingManager,
    Setup(SetupError),
    RouteNotSeen { policy: String },
}

impl LockRejection {
    /// Says that the application has installed no [`LockManager`](crate::LockManager).
    pub fn missing_manager() -> Self {
        Self::new(Cause::MissingManager)
    }

    pub(crate) fn not_utf8(error: &impl fmt::Display) -> Self {
        Self::new(Cause::NotUtf8(error.to_string()))
    }

    pub(crate) fn ambiguous_placeholder(name: impl Into<String>) -> Self {
        Self::new(Cause::AmbiguousPlaceholder { name: name.into() })
    }

    pub(crate) fn route_not_seen(policy: impl Into<String>) -> Self {
        Self::new(Cause::RouteNotSeen { policy: policy.into() })
    }

    fn new(cause: Cause) -> Self {
        Self { cause, contended_status: StatusCode::CONFLICT, logged: false, log_limit: None }
    }

    /// Answers contention with this status. Defaults to 409 Conflict.
    #[must_use]
    pub fn with_contended_status(mut self, status: StatusCode) -> Self {
        self.contended_status = status;
        self
    }

    /// Tells whose matter it is.
    pub fn kind(&self) -> RejectionKind {
        match &self.cause {
            Cause::Lock(error) => match error {
                LockError::Contended { .. } => RejectionKind::Contended,
                LockError::Unavailable { .. }
                | LockError::TimedOut { .. }
                | LockError::TooManyWaiters { .. }
                | LockError::ShutDown => RejectionKind::Unavailable,
                LockError::AlreadyHeld { .. } => RejectionKind::AlreadyHeld,
                LockError::InvalidKey(KeyError::UnknownPlaceholder { .. }) => {
                    RejectionKind::Misconfigured
                }
                LockError::InvalidKey(_) => RejectionKind::InvalidKey,
                // A foreign key, an option out of range, and what core may add later.
                _ => RejectionKind::Misconfigured,
            },
            Cause::Lost(_) => RejectionKind::Lost,
            Cause::NotUtf8(_) => RejectionKind::InvalidKey,
            Cause::AmbiguousPlaceholder { .. }
            | Cause::MissingManager
            | Cause::Setup(_)
            | Cause::RouteNotSeen { .. } => RejectionKind::Misconfigured,
        }
    }

    /// Tells the status of the response.
    pub fn status(&self) -> StatusCode {
        match self.kind() {
            RejectionKind::Contended => self.contended_status,
            RejectionKind::Unavailable | RejectionKind::Lost => StatusCode::SERVICE_UNAVAILABLE,
            RejectionKind::InvalidKey => StatusCode::BAD_REQUEST,
            RejectionKind::AlreadyHeld | RejectionKind::Misconfigured => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Tells after which time another try makes sense, in whole seconds, rounded up, at least one;
    /// `None` where none does.
    pub fn retry_after(&self) -> Option<Duration> {
        let remaining = match self.kind() {
            RejectionKind::Contended | RejectionKind::Unavailable | RejectionKind::Lost => {
                match &self.cause {
                    Cause::Lock(LockError::Contended { remaining, .. }) => *remaining,
                    _ => None,
                }
            }
            RejectionKind::InvalidKey
            | RejectionKind::AlreadyHeld
            | RejectionKind::Misconfigured => return None,
        };
        Some(whole_seconds(remaining.unwrap_or_default()))
    }

    /// Gives the error of the lock itself, with the key and each node's vote, where there is one.
    ///
    /// It is meant for the application. Do not send it to clients.
    pub fn lock_error(&self) -> Option<&LockError> {
        match &self.cause {
            Cause::Lock(error) => Some(error),
            _ => None,
        }
    }

    /// Limits how often like rejections are logged, unless they are limited already. Defaults to a
    /// limit of the whole process.
    pub(crate) fn limited_by(mut self, log_limit: &Arc<LogLimit>) -> Self {
        self.log_limit.get_or_insert_with(|| Arc::clone(log_limit));
        self
    }
}

/// Rounds up, because a client that comes back within the holder's last second is refused again.
fn whole_seconds(remaining: Duration) -> Duration {
    let up = u64::from(remaining.subsec_nanos() > 0);
    Duration::from_secs(remaining.as_secs().saturating_add(up).max(1))
}

impl From<LockError> for LockRejection {
    fn from(error: LockError) -> Self {
        Self::new(Cause::Lock(error))
    }
}

impl From<LostError> for LockRejection {
    fn from(error: LostError) -> Self {
        Self::new(Cause::Lost(error))
    }
}

impl From<RunError> for LockRejection {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Acquire(error) => error.into(),
            RunError::Lost(error) => error.into(),
        }
    }
}

impl From<KeyError> for LockRejection {
    fn from(error: KeyError) -> Self {
        LockError::from(error).into()
    }
}

impl From<SetupError> for LockRejection {
    fn from(error: SetupError) -> Self {
        Self::new(Cause::Setup(error))
    }
}

impl fmt::Display for LockRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Lock(error @ LockError::AlreadyHeld { .. }) => write!(
                f,
                "{error}, and must not wait for itself; share the lock with `reentrant` where it is \
                 asked for within the other (if that one is `fenced`, the other has to be, too), or \
                 lock by another key there"
            ),
            Cause::Lock(error) => fmt::Display::fmt(error, f),
            Cause::Lost(error) => fmt::Display::fmt(error, f),
            Cause::NotUtf8(error) => write!(f, "a path parameter cannot be used: {error}"),
            Cause::AmbiguousPlaceholder { name } => write!(
                f,
                "the placeholder {{{name}}} of the lock key could be one of several path parameters \
                 of this route; give them different names"
            ),
            Cause::MissingManager => f.write_str(
                "no LockManager is installed; add `.layer(axum::Extension(locks))`, with \
                 `locks: LockManager`, as the last call on the router",
            ),
            Cause::Setup(error) => fmt::Display::fmt(error, f),
            Cause::RouteNotSeen { policy } => write!(
                f,
                "the lock policy for {policy} fits the path of a request, but axum did not match \
                 that route; either the router has no such route, or the policies are not installed \
                 with `Router::layer` or `Router::route_layer` on the router that has it"
            ),
        }
    }
}

impl Error for LockRejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Lock(error) => Some(error),
            Cause::Lost(error) => Some(error),
            Cause::Setup(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tower_governor` rounds down to 0, so the client retries at once.
    #[test]
    fn retry_after_is_rounded_up_and_at_least_one_second() {
        for (remaining, expected) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (4999, 5)] {
            let rounded = whole_seconds(Duration::from_millis(remaining));
            assert_eq!(rounded, Duration::from_secs(expected), "{remaining} ms");
        }
        assert_eq!(whole_seconds(Duration::MAX), Duration::from_secs(u64::MAX));
    }

    #[test]
    fn a_rejection_is_logged_once() {
        let mut rejection = LockRejection::missing_manager();
        rejection.log();
        assert!(rejection.logged);
    }
}
