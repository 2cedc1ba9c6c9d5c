//! The rejection of a request whose lock was not acquired, or was lost.
//!
//! A new status goes through this file, `response.rs` (text), `log.rs` (level), the page of [`LockRejection`], both `lib.rs`,
//! README.md, `redlock-axum/docs/guarantees.md`, and `redlock-axum/tests/rejection.rs`.

mod log;
pub(crate) mod response;

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::MatchedPath;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use redlock_core::__private::LogLimit;
use redlock_core::{KeyError, LockError, LostError, RunError, TemplateError};

use crate::options::{DEFAULT_CONTENDED_STATUS, DEFAULT_RETRY_AFTER_MAX, HttpOptions};

/// Answers a request whose lock was not acquired.
///
/// In most cases the handler has not begun. It has begun in two cases: the handler was stopped because its lock was
/// [lost](RejectionKind::Lost), or the handler reads a [streamed](crate::BodyMode::Stream) body, which did not arrive before
/// the lock was lost or the lease was over.
///
/// | [`kind`](Self::kind) | [`code`](Self::code) | when | status | `Retry-After` |
/// |---|---|---|---|---|
/// | [`Contended`](RejectionKind::Contended) | `contended` | another holder has the lock, and `wait_time`, if any, is over | 409, or [another status](Self::with_contended_status) | the rest of the holder's lease, at most 5 s or [another maximum](Self::with_retry_after_max) |
/// | [`Contended`](RejectionKind::Contended) | `contended` | several requests asked at once, and none of them got the lock, also not after repetitions ([`LockError::Split`]) | the same | 1 |
/// | [`Unavailable`](RejectionKind::Unavailable) | `unavailable` | no quorum of nodes answered in time, the lock was lost before the handler began, too many requests wait for the lock already, the [`body_buffers`](crate::LockManagerBuilder::body_buffers) are full, or the manager was [drained](crate::LockManager::drain) or shut down, or its Tokio runtime has ended | 503 | 1 |
/// | [`Lost`](RejectionKind::Lost) | `lost` | the lock was lost while the handler ran, and the handler was stopped ([`OnLost::Abort`](crate::OnLost::Abort)), or while an [`UnderLock`](crate::UnderLock) was extracted | 503 | 1 |
/// | [`BodyTooLarge`](RejectionKind::BodyTooLarge) | `body_too_large` | the request's body is longer than its [`body_limit`](crate::LockPolicy::body_limit), or a limit outside of the lock | 413 | |
/// | [`BodyTooSlow`](RejectionKind::BodyTooSlow) | `body_too_slow` | with [`BodyMode::Stream`](crate::BodyMode::Stream), the body did not arrive within one lease | 408 | |
/// | [`BodyUnreadable`](RejectionKind::BodyUnreadable) | `body_unreadable` | reading the request's body failed | 400 | |
/// | [`InvalidKey`](RejectionKind::InvalidKey) | `invalid_key` | a value in the key is missing, repeated, empty, of the wrong type, not UTF-8, or makes the key begin with `redlock:` | 400 | |
/// | [`AlreadyHeld`](RejectionKind::AlreadyHeld) | `already_held` | the request holds this lock already, from an outer layer, and would wait for itself | 500 | |
/// | [`Misconfigured`](RejectionKind::Misconfigured) | `misconfigured` | no manager installed, a placeholder that the route lacks, an extension that the request lacks, a key that begins with `redlock:`, an option out of range, a foreign key (not a lock) under the lock's name | 500 | |
///
/// The response is an [RFC 9457] `application/problem+json` with the members `type`, `title`,
/// `status`, `code`, `detail` and, if it has a `Retry-After` header, `retry_after` in seconds. Clients tell rejections apart
/// by `code`, which is stable, and not by `detail`, whose text may change. The response contains neither
/// the key nor the nodes, and neither do `Display` and every [`source`](Error::source). Both are in
/// [`diagnostics`](Self::diagnostics) and in the log: `Misconfigured` and `AlreadyHeld` are logged at
/// error, `Unavailable` and `Lost` at warn, the others at debug, and
/// so are the refusals of a drain. Of rejections of the same kind and with
/// the same node, one per second is logged at this level and the others at debug; the field `suppressed` of
/// the next line has their number.
///
/// The library also logs a rejection before the application's `on_reject`, or the error type of a handler with the
/// attribute, makes a response of its own from it. A rejection that a handler makes from an error by hand is logged
/// when it is turned into a response.
///
/// The rejection is also an extension of the response, whichever function has made it. A middleware around the
/// whole router can use it to count refused requests, or to replace the responses of all layers, policies and
/// attributes:
///
/// ```
/// use axum::response::{IntoResponse, Response};
/// use redlock_axum::LockRejection;
///
/// async fn in_our_words(response: Response) -> Response {
///     match response.extensions().get::<LockRejection>() {
///         Some(refused) => (refused.status(), refused.headers(), "please wait").into_response(),
///         None => response,
///     }
/// }
/// # let app: axum::Router = axum::Router::new();
/// let app = app.layer(axum::middleware::map_response(in_our_words));
/// # let _: axum::Router = app;
/// ```
///
/// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
#[derive(Debug)]
pub struct LockRejection {
    cause: RejectionCause,
    contended_status: StatusCode,
    retry_after_max: Duration,
    /// Whether the rejection needs no log line any more: it was logged, or it is a copy.
    logged: bool,
    /// The limit of the manager, if the manager is known.
    log_limit: Option<Arc<LogLimit>>,
    /// Where the lock comes from, if it is known.
    origin: Option<Box<LockOrigin>>,
}

/// Where a lock comes from in the application, for the log.
#[derive(Debug, Clone)]
pub(crate) struct LockOrigin {
    /// The text of the key: a template. `None` if the request has no lock.
    pub(crate) lock: Option<Arc<str>>,
    /// The route that axum has matched.
    pub(crate) route: Option<MatchedPath>,
}

/// The kind of a [`LockRejection`]: its causes, grouped by the party that can act on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// Another holder has the lock, or several requests asked at once and none of them got it. The client may try again later.
    Contended,
    /// No lock could be acquired, or it was lost before the handler began: too few nodes answered in time, too many requests
    /// or bodies wait already, or the application is shutting down. The client may try again later.
    Unavailable,
    /// The handler, or the extraction of an [`UnderLock`](crate::UnderLock), was stopped because the lock was lost. A part of
    /// the work may have been done. The client may try again if the work may be repeated.
    Lost,
    /// The client sent a body that is too long. It must not try again with the same body.
    BodyTooLarge,
    /// The client did not send its body in time.
    BodyTooSlow,
    /// The body of the request broke off, or is malformed.
    BodyUnreadable,
    /// The client sent a value that cannot be a part of a key.
    InvalidKey,
    /// The request holds the lock already: two layers, or a layer and the attribute, have the same
    /// key. Make the inner one [`reentrant`](crate::LockPolicy::reentrant), or give it another
    /// key.
    AlreadyHeld,
    /// The application or its Redis is configured wrongly. The log has the details.
    Misconfigured,
}

#[derive(Debug, Clone)]
enum RejectionCause {
    Lock(LockError),
    Lost(LostError),
    Body(BodyFault),
    /// A value of the request cannot be a part of a key.
    UnusableValue {
        /// The text for the client.
        detail: String,
        diagnostics: String,
    },
    /// The text for the operator, with the remedy.
    Misconfigured(String),
}

/// The reason why the body of a request was not received.
#[derive(Debug, Clone)]
pub(crate) enum BodyFault {
    TooLarge {
        /// The limit of the layer. A limit outside of the lock may be smaller.
        limit: usize,
    },
    /// The text for the operator.
    Unreadable(String),
    NoSpace {
        /// The `body_buffers` of the manager.
        limit: usize,
    },
    TooSlow,
}

impl LockRejection {
    /// Creates the rejection for an application that has not installed a [`LockManager`](crate::LockManager).
    pub fn missing_manager() -> Self {
        Self::misconfigured(
            "no LockManager is installed; add `.layer(ScopeLayer::new(&locks))`, with \
             `locks: LockManager`, as the last layer of the router",
        )
    }

    /// Creates the rejection for a mistake of the application. The text, for operators, says what to do.
    pub(crate) fn misconfigured(diagnostics: impl Into<String>) -> Self {
        Self::new(RejectionCause::Misconfigured(diagnostics.into()))
    }

    /// Creates the rejection for a value of the request that cannot be a part of a key.
    pub(crate) fn unusable_value(
        detail: impl Into<String>,
        diagnostics: impl Into<String>,
    ) -> Self {
        let (detail, diagnostics) = (detail.into(), diagnostics.into());
        Self::new(RejectionCause::UnusableValue { detail, diagnostics })
    }

    fn new(cause: RejectionCause) -> Self {
        Self {
            cause,
            contended_status: DEFAULT_CONTENDED_STATUS,
            retry_after_max: DEFAULT_RETRY_AFTER_MAX,
            logged: false,
            log_limit: None,
            origin: None,
        }
    }

    /// Sets the status for [`RejectionKind::Contended`]. Defaults to 409 Conflict.
    #[must_use]
    pub fn with_contended_status(mut self, status: StatusCode) -> Self {
        self.contended_status = status;
        self
    }

    /// Sets the longest time that [`retry_after`](Self::retry_after) returns. Defaults to 5 s.
    ///
    /// A lease is longer than the work under it, and a renewed one is much longer, so the rest of the lease
    /// says when the lock is free at the latest. Most holders release it long before.
    #[must_use]
    pub fn with_retry_after_max(mut self, max: Duration) -> Self {
        self.retry_after_max = max;
        self
    }

    /// Sets the options that concern the response.
    pub(crate) fn with_http_options(mut self, http: HttpOptions) -> Self {
        self.contended_status =
            StatusCode::from_u16(http.contended_status).unwrap_or(DEFAULT_CONTENDED_STATUS);
        self.retry_after_max = http.retry_after_max;
        self
    }

    /// Returns the kind of the rejection.
    pub fn kind(&self) -> RejectionKind {
        match &self.cause {
            RejectionCause::Lock(error) => match error {
                LockError::Contended { .. } | LockError::Split { .. } => RejectionKind::Contended,
                LockError::Unavailable { .. }
                | LockError::TimedOut { .. }
                | LockError::Lost(_)
                | LockError::TooManyWaiters { .. }
                | LockError::Draining
                | LockError::ShutDown
                | LockError::RuntimeEnded => RejectionKind::Unavailable,
                LockError::AlreadyHeld { .. } => RejectionKind::AlreadyHeld,
                LockError::InvalidKey(error) => match error.of_key() {
                    KeyError::UnknownPlaceholder { .. } | KeyError::Reserved => {
                        RejectionKind::Misconfigured
                    }
                    _ => RejectionKind::InvalidKey,
                },
                // A foreign key, an option out of range, and errors that core may add later.
                _ => RejectionKind::Misconfigured,
            },
            RejectionCause::Lost(_) => RejectionKind::Lost,
            RejectionCause::Body(fault) => match fault {
                BodyFault::TooLarge { .. } => RejectionKind::BodyTooLarge,
                BodyFault::Unreadable(_) => RejectionKind::BodyUnreadable,
                BodyFault::NoSpace { .. } => RejectionKind::Unavailable,
                BodyFault::TooSlow => RejectionKind::BodyTooSlow,
            },
            RejectionCause::UnusableValue { .. } => RejectionKind::InvalidKey,
            RejectionCause::Misconfigured(_) => RejectionKind::Misconfigured,
        }
    }

    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        match self.kind() {
            RejectionKind::Contended => self.contended_status,
            RejectionKind::Unavailable | RejectionKind::Lost => StatusCode::SERVICE_UNAVAILABLE,
            RejectionKind::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            RejectionKind::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            RejectionKind::InvalidKey | RejectionKind::BodyUnreadable => StatusCode::BAD_REQUEST,
            RejectionKind::AlreadyHeld | RejectionKind::Misconfigured => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Returns the stable name of the [`kind`](Self::kind), for programs: the member `code` of the response. It is one of
    ///
    /// `contended`, `unavailable`, `lost`, `body_too_large`, `body_too_slow`, `body_unreadable`, `invalid_key`, `already_held`,
    /// `misconfigured`.
    ///
    /// Clients must not parse the [`detail`](Self::detail), whose text may change (RFC 9457, section 3.1.4).
    pub fn code(&self) -> &'static str {
        match self.kind() {
            RejectionKind::Contended => "contended",
            RejectionKind::Unavailable => "unavailable",
            RejectionKind::Lost => "lost",
            RejectionKind::BodyTooLarge => "body_too_large",
            RejectionKind::BodyTooSlow => "body_too_slow",
            RejectionKind::BodyUnreadable => "body_unreadable",
            RejectionKind::InvalidKey => "invalid_key",
            RejectionKind::AlreadyHeld => "already_held",
            RejectionKind::Misconfigured => "misconfigured",
        }
    }

    /// Returns the time after which the client may try again: the rest of the holder's lease, but at most
    /// [`retry_after_max`](Self::with_retry_after_max). In whole seconds, rounded up, at least one.
    /// `None` if another try cannot succeed.
    pub fn retry_after(&self) -> Option<Duration> {
        let remaining = match self.kind() {
            RejectionKind::Contended | RejectionKind::Unavailable | RejectionKind::Lost => {
                match &self.cause {
                    RejectionCause::Lock(LockError::Contended { remaining, .. }) => *remaining,
                    _ => None,
                }
            }
            RejectionKind::BodyTooLarge
            | RejectionKind::BodyTooSlow
            | RejectionKind::BodyUnreadable
            | RejectionKind::InvalidKey
            | RejectionKind::AlreadyHeld
            | RejectionKind::Misconfigured => return None,
        };
        Some(whole_seconds(remaining.unwrap_or_default().min(self.retry_after_max)))
    }

    /// Returns the error of the lock, with the key and each node's vote. `None` if the lock was lost, or if
    /// the rejection has another cause than the lock.
    ///
    /// The message of the error contains neither the key nor a node, and may be sent to a client. Its fields
    /// and its [`diagnostics`](LockError::diagnostics) are for the application.
    pub fn lock_error(&self) -> Option<&LockError> {
        match &self.cause {
            RejectionCause::Lock(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the cause and its remedy for logs and operators, with the key of the lock and the vote of each
    /// node. Not for clients: send [`detail`](Self::detail).
    pub fn diagnostics(&self) -> impl fmt::Display {
        Diagnostics(&self.cause)
    }

    /// Returns the headers of the response: `Retry-After`, if there is a [`retry_after`](Self::retry_after). For a
    /// response of the application: `(rejection.status(), rejection.headers(), body)`.
    pub fn headers(&self) -> HeaderMap {
        response::retry_after_header(self.retry_after())
    }

    /// Sets the limit for logging similar rejections, unless one is set already. Defaults to a limit
    /// for the whole process.
    pub(crate) fn with_log_limit(mut self, log_limit: &Arc<LogLimit>) -> Self {
        self.log_limit.get_or_insert_with(|| Arc::clone(log_limit));
        self
    }

    /// Sets where the lock comes from.
    pub(crate) fn at(mut self, origin: LockOrigin) -> Self {
        self.origin = Some(Box::new(origin));
        self
    }

    /// Sets the route of a request that has no lock.
    pub(crate) fn at_route_of(self, parts: &Parts) -> Self {
        self.at(LockOrigin { lock: None, route: parts.extensions.get().cloned() })
    }
}

impl Clone for LockRejection {
    fn clone(&self) -> Self {
        Self {
            cause: self.cause.clone(),
            contended_status: self.contended_status,
            retry_after_max: self.retry_after_max,
            logged: true,
            log_limit: self.log_limit.clone(),
            origin: self.origin.clone(),
        }
    }
}

/// Rounds up to whole seconds, because a client that returns in the holder's last second is refused again.
fn whole_seconds(remaining: Duration) -> Duration {
    let up = u64::from(remaining.subsec_nanos() > 0);
    Duration::from_secs(remaining.as_secs().saturating_add(up).max(1))
}

impl From<LockError> for LockRejection {
    fn from(error: LockError) -> Self {
        Self::new(RejectionCause::Lock(error))
    }
}

impl From<Infallible> for LockRejection {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<LostError> for LockRejection {
    fn from(error: LostError) -> Self {
        Self::new(RejectionCause::Lost(error))
    }
}

impl From<BodyFault> for LockRejection {
    fn from(fault: BodyFault) -> Self {
        Self::new(RejectionCause::Body(fault))
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

impl From<TemplateError> for LockRejection {
    fn from(error: TemplateError) -> Self {
        Self::misconfigured(error.to_string())
    }
}

struct Diagnostics<'a>(&'a RejectionCause);

impl fmt::Display for Diagnostics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RejectionCause::Lock(error @ LockError::AlreadyHeld { .. }) => write!(
                f,
                "{}; set `reentrant` on the inner lock (and `fenced`, if the outer lock is fenced), or give it another \
                 key; if one of them is shared or has permits, make both shared or both exclusive, because a holder \
                 that shares a lock would wait for itself",
                error.diagnostics()
            ),
            RejectionCause::Lock(error) => error.diagnostics().fmt(f),
            RejectionCause::Lost(error) => error.diagnostics().fmt(f),
            RejectionCause::Body(fault) => fault.fmt(f),
            RejectionCause::UnusableValue { diagnostics, .. }
            | RejectionCause::Misconfigured(diagnostics) => f.write_str(diagnostics),
        }
    }
}

/// Writes the text for the operator.
impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(
                f,
                "the request body is longer than the `body_limit` of the lock policy, {limit} bytes, or than a limit \
                 outside of the lock; raise the limit, or set `body` to `stream` if the handler streams the body"
            ),
            Self::Unreadable(error) => write!(f, "the request body cannot be read: {error}"),
            Self::NoSpace { limit } => write!(
                f,
                "the bodies of waiting requests fill the `body_buffers` of the lock manager, {limit} bytes; raise \
                 `body_buffers`, lower the `body_limit` of the policies, or bound the time of an upload by a layer \
                 outside of the lock"
            ),
            Self::TooSlow => {
                f.write_str("the request body did not arrive within one lease of its lock")
            }
        }
    }
}

impl fmt::Display for LockRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail())
    }
}

impl Error for LockRejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            RejectionCause::Lock(error) => Some(error),
            RejectionCause::Lost(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::{InvalidOption, KeyTemplate, LockKey, LossCause, Vote, Votes};

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
    fn retry_after_is_at_most_its_maximum() {
        let key = LockKey::new("order:4711").unwrap();
        let remaining = Some(Duration::from_millis(29_500));
        let error = LockError::contended(key, remaining, Votes::default());
        let rejection = LockRejection::from(error);
        let seconds = |rejection: LockRejection| rejection.retry_after().map(|time| time.as_secs());
        assert_eq!(seconds(rejection.clone()), Some(5));
        let max = |millis| Duration::from_millis(millis);
        for (maximum, expected) in [(60_000, 30), (29_500, 30), (29_000, 29), (1500, 2), (0, 1)] {
            let rejection = rejection.clone().with_retry_after_max(max(maximum));
            assert_eq!(seconds(rejection), Some(expected), "{maximum} ms");
        }
    }

    /// Returns a rejection for each cause and each error of a lock. Each contains a secret, if it can.
    fn rejections() -> Vec<LockRejection> {
        let key = LockKey::new("order:4711").unwrap();
        let votes: Votes = [("10.0.0.1:6379".into(), Some(Vote::Agreed))].into_iter().collect();
        let second = Duration::from_secs(1);
        let unknown = KeyTemplate::new("order:4711:{id}").unwrap().render([]);
        let mut causes: Vec<_> = [
            LockError::contended(key.clone(), Some(second), votes.clone()),
            LockError::unavailable(key.clone(), votes.clone()),
            LockError::timed_out(key.clone(), second, second, votes.clone()),
            LockError::Lost(LostError::new(key.clone(), LossCause::LeaseEnded, votes.clone())),
            LockError::foreign_key(key.clone(), votes.clone()),
            LockError::already_held(key.clone()),
            LockError::too_many_waiters(key.clone(), 9),
            LockError::Draining,
            LockError::ShutDown,
            LockError::RuntimeEnded,
            unknown.unwrap_err().into(),
            KeyError::Empty.into(),
            KeyError::Reserved.into(),
            LockKey::new("order:4711\n").unwrap_err().into(),
            InvalidOption::new("expire", "1ms", "longer").into(),
        ]
        .map(RejectionCause::Lock)
        .into();
        causes.extend([
            RejectionCause::Lost(LostError::new(key, LossCause::NotOnNodes, votes)),
            RejectionCause::Body(BodyFault::TooLarge { limit: 4711 }),
            RejectionCause::Body(BodyFault::Unreadable("order:4711".to_owned())),
            RejectionCause::Body(BodyFault::NoSpace { limit: 4711 }),
            RejectionCause::Body(BodyFault::TooSlow),
            RejectionCause::UnusableValue {
                detail: "the header x-user is missing".to_owned(),
                diagnostics: "order:4711".to_owned(),
            },
            RejectionCause::Misconfigured("order:4711".to_owned()),
        ]);
        causes.into_iter().map(LockRejection::new).collect()
    }

    /// A handler of `on_reject` may send `Display`, and an application that wraps errors sends the chain.
    #[test]
    fn the_messages_of_a_rejection_and_of_its_sources_name_no_key_and_no_node() {
        for rejection in rejections() {
            assert_eq!(rejection.to_string(), rejection.detail());
            let mut chain: Option<&dyn Error> = Some(&rejection);
            while let Some(error) = chain {
                let text = error.to_string();
                for secret in ["order", "4711", "10.0.0", "6379", "ScopeLayer"] {
                    assert!(!text.contains(secret), "{text:?} contains {secret}");
                }
                chain = error.source();
            }
        }
    }

    #[test]
    fn the_diagnostics_of_a_rejection_say_more_than_its_message() {
        for rejection in rejections() {
            let (detail, diagnostics) = (rejection.detail(), rejection.diagnostics().to_string());
            assert_ne!(detail, diagnostics);
            let names_the_key = rejection.lock_error().is_some_and(|error| error.key().is_some());
            assert!(!names_the_key || diagnostics.contains("lock order:4711"), "{diagnostics}");
        }
    }

    #[test]
    fn a_rejection_is_logged_once() {
        let mut rejection = LockRejection::missing_manager();
        rejection.log();
        assert!(rejection.logged);
    }
}
