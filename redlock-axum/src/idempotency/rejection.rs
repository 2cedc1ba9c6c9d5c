//! The rejection of a request by its idempotency key.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use redlock_core::__private::LogLimit;
use redlock_core::log_limited;

use super::answers::AnswersError;
use super::rejection_kind::IdempotencyRejectionKind;
use crate::rejection::response::{problem, retry_after_header};
use crate::rejection::{LockRejection, RejectionKind};

/// The limit for events for which no manager is known.
static LOG_LIMIT: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);

/// Answers a request that an [`IdempotencyLayer`](crate::IdempotencyLayer) refuses. The handler has not begun.
///
/// | [`kind`](Self::kind) | [`code`](Self::code) | when | status | `Retry-After` |
/// |---|---|---|---|---|
/// | [`MissingKey`](IdempotencyRejectionKind::MissingKey) | `missing_key` | the request has no key | 400 | |
/// | [`InvalidKey`](IdempotencyRejectionKind::InvalidKey) | `invalid_key` | the header is empty, too long, there twice, or malformed | 400 | |
/// | [`InFlight`](IdempotencyRejectionKind::InFlight) | `in_flight` | the first request with this key is still being processed | 409 | the rest of its lease, at most 5 s |
/// | [`KeyReused`](IdempotencyRejectionKind::KeyReused) | `key_reused` | the key was used for another request | 422 | |
/// | [`OutcomeUnknown`](IdempotencyRejectionKind::OutcomeUnknown) | `outcome_unknown` | the first request has begun and stored no answer, and [`Unfinished::Refuse`](crate::Unfinished::Refuse) is set | 409 | |
/// | [`AnswerNotKept`](IdempotencyRejectionKind::AnswerNotKept) | `answer_not_kept` | the request was executed, and its answer was too long or had no end | 409 | |
/// | [`BodyTooLarge`](IdempotencyRejectionKind::BodyTooLarge) | `body_too_large` | the body is longer than the [`body_limit`](crate::IdempotencyLayer::body_limit) | 413 | |
/// | [`BodyUnreadable`](IdempotencyRejectionKind::BodyUnreadable) | `body_unreadable` | reading the body failed | 400 | |
/// | [`Unavailable`](IdempotencyRejectionKind::Unavailable) | `unavailable` | the store of answers or a quorum of nodes did not answer in time, too much waits already, or the service stops | 503 | 1 |
/// | [`Misconfigured`](IdempotencyRejectionKind::Misconfigured) | `misconfigured` | the scope function has returned no scope, a nested layer has the same key, or the lock is misconfigured | 500 | |
///
/// The response is an RFC 9457 `application/problem+json`, as that of a [`LockRejection`](crate::LockRejection), and contains
/// neither the key nor the scope. The rejection is also an extension of the response.
#[derive(Debug, Clone)]
pub struct IdempotencyRejection {
    cause: RefusalCause,
    route: Option<MatchedPath>,
    log_limit: Option<Arc<LogLimit>>,
    /// Whether the rejection needs no log line any more.
    logged: bool,
}

#[derive(Debug, Clone)]
enum RefusalCause {
    MissingKey,
    /// The text for the client.
    InvalidKey(&'static str),
    InFlight,
    KeyReused,
    OutcomeUnknown,
    AnswerNotKept,
    Answers(AnswersError),
    Lock(Box<LockRejection>),
    /// The text for the operator, with the remedy.
    Misconfigured(&'static str),
}

impl IdempotencyRejection {
    fn new(cause: RefusalCause) -> Self {
        Self { cause, route: None, log_limit: None, logged: false }
    }

    pub(super) fn missing_key() -> Self {
        Self::new(RefusalCause::MissingKey)
    }

    /// Creates the rejection of a malformed header. The text is for the client.
    pub(super) fn invalid_key(detail: &'static str) -> Self {
        Self::new(RefusalCause::InvalidKey(detail))
    }

    pub(super) fn in_flight() -> Self {
        Self::new(RefusalCause::InFlight)
    }

    pub(super) fn key_reused() -> Self {
        Self::new(RefusalCause::KeyReused)
    }

    pub(super) fn outcome_unknown() -> Self {
        Self::new(RefusalCause::OutcomeUnknown)
    }

    pub(super) fn answer_not_kept() -> Self {
        Self::new(RefusalCause::AnswerNotKept)
    }

    /// Creates the rejection for a mistake of the application. The text, for operators, says what to do.
    pub(super) fn misconfigured(diagnostics: &'static str) -> Self {
        Self::new(RefusalCause::Misconfigured(diagnostics))
    }

    /// Returns the kind of the cause.
    pub fn kind(&self) -> IdempotencyRejectionKind {
        use IdempotencyRejectionKind as Kind;
        match &self.cause {
            RefusalCause::MissingKey => Kind::MissingKey,
            RefusalCause::InvalidKey(_) => Kind::InvalidKey,
            RefusalCause::InFlight => Kind::InFlight,
            RefusalCause::KeyReused => Kind::KeyReused,
            RefusalCause::OutcomeUnknown => Kind::OutcomeUnknown,
            RefusalCause::AnswerNotKept => Kind::AnswerNotKept,
            RefusalCause::Answers(_) => Kind::Unavailable,
            RefusalCause::Misconfigured(_) => Kind::Misconfigured,
            RefusalCause::Lock(rejection) => match rejection.kind() {
                RejectionKind::Contended => Kind::InFlight,
                RejectionKind::Unavailable | RejectionKind::Lost => Kind::Unavailable,
                RejectionKind::BodyTooLarge => Kind::BodyTooLarge,
                RejectionKind::BodyTooSlow | RejectionKind::BodyUnreadable => Kind::BodyUnreadable,
                RejectionKind::InvalidKey
                | RejectionKind::AlreadyHeld
                | RejectionKind::Misconfigured => Kind::Misconfigured,
            },
        }
    }

    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        self.kind().status()
    }

    /// Returns the stable name of the [`kind`](Self::kind), for programs: the member `code` of the response.
    pub fn code(&self) -> &'static str {
        self.kind().code()
    }

    /// Returns the time after which the client may try again, in whole seconds. `None` if another try cannot succeed.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            RefusalCause::Lock(rejection) => rejection.retry_after(),
            RefusalCause::InFlight | RefusalCause::Answers(_) => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Returns the text for the client, which is also the message (`Display`). It contains neither key nor scope.
    pub fn detail(&self) -> String {
        let text = match self.cause {
            RefusalCause::InvalidKey(detail) => detail,
            _ => self.kind().detail(),
        };
        text.to_owned()
    }

    /// Returns the headers of the response: `Retry-After`, if there is a [`retry_after`](Self::retry_after).
    pub fn headers(&self) -> HeaderMap {
        retry_after_header(self.retry_after())
    }

    /// Returns the cause and its remedy for logs and operators. Not for clients: send [`detail`](Self::detail).
    pub fn diagnostics(&self) -> impl fmt::Display {
        match &self.cause {
            RefusalCause::Lock(rejection) => rejection.diagnostics().to_string(),
            RefusalCause::Answers(error) => format!("the store of answers failed: {error}"),
            RefusalCause::Misconfigured(text) => (*text).to_owned(),
            _ => self.detail(),
        }
    }

    pub(super) fn at_route_of(mut self, parts: &Parts) -> Self {
        self.route = parts.extensions.get().cloned();
        self
    }

    pub(super) fn at_route(mut self, route: Option<MatchedPath>) -> Self {
        self.route = route;
        self
    }

    pub(super) fn with_log_limit(mut self, limit: &Arc<LogLimit>) -> Self {
        self.log_limit = Some(Arc::clone(limit));
        self
    }

    /// Logs the rejection, unless it has been logged before.
    fn log(&mut self) {
        use IdempotencyRejectionKind as Kind;
        if std::mem::replace(&mut self.logged, true) {
            return;
        }
        let limit = self.log_limit.as_deref().unwrap_or(&LOG_LIMIT);
        let (route, diagnostics) =
            (self.route.as_ref().map(MatchedPath::as_str), self.diagnostics());
        match self.kind() {
            Kind::Misconfigured => {
                let subject = format!("{route:?}: {}", self.code());
                log_limited!(
                    limit,
                    "idempotency mistake",
                    &subject,
                    error,
                    route,
                    "a request with an idempotency key was refused: {diagnostics}"
                );
            }
            Kind::Unavailable => {
                log_limited!(
                    limit,
                    "idempotency unavailable",
                    "",
                    warn,
                    route,
                    "a request with an idempotency key was refused: {diagnostics}"
                );
            }
            _ => tracing::debug!(
                route,
                "a request with an idempotency key was refused: {diagnostics}"
            ),
        }
    }

    /// Logs the rejection, and returns the response that the application makes from it.
    pub(super) fn respond_by(mut self, respond: impl FnOnce(Self) -> Response) -> Response {
        self.log();
        let mut response = respond(self.clone());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<LockRejection> for IdempotencyRejection {
    fn from(rejection: LockRejection) -> Self {
        Self::new(RefusalCause::Lock(Box::new(rejection)))
    }
}

impl From<AnswersError> for IdempotencyRejection {
    fn from(error: AnswersError) -> Self {
        Self::new(RefusalCause::Answers(error))
    }
}

impl IntoResponse for IdempotencyRejection {
    fn into_response(self) -> Response {
        self.respond_by(|rejection| {
            problem(
                rejection.status(),
                rejection.code(),
                &rejection.detail(),
                rejection.retry_after(),
            )
        })
    }
}

impl fmt::Display for IdempotencyRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail())
    }
}

impl Error for IdempotencyRejection {}
