//! The kinds of rejections, with their statuses, codes and texts.

use http::StatusCode;

/// The kind of an [`IdempotencyRejection`](crate::IdempotencyRejection).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdempotencyRejectionKind {
    /// The request has no key.
    MissingKey,
    /// The header of the key is malformed.
    InvalidKey,
    /// The first request with this key is still being processed. The client may try again later.
    InFlight,
    /// The key was used for another request. The client has a mistake.
    KeyReused,
    /// The first request may have been executed.
    OutcomeUnknown,
    /// The request was executed, and its answer was not kept.
    AnswerNotKept,
    /// The body is too long.
    BodyTooLarge,
    /// Reading the body failed.
    BodyUnreadable,
    /// The store of answers or the lock is not available. The client may try again later.
    Unavailable,
    /// The application is configured wrongly. The log has the details.
    Misconfigured,
}

impl IdempotencyRejectionKind {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::MissingKey | Self::InvalidKey | Self::BodyUnreadable => StatusCode::BAD_REQUEST,
            Self::InFlight | Self::OutcomeUnknown | Self::AnswerNotKept => StatusCode::CONFLICT,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the stable name for programs.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::MissingKey => "missing_key",
            Self::InvalidKey => "invalid_key",
            Self::InFlight => "in_flight",
            Self::KeyReused => "key_reused",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::AnswerNotKept => "answer_not_kept",
            Self::BodyTooLarge => "body_too_large",
            Self::BodyUnreadable => "body_unreadable",
            Self::Unavailable => "unavailable",
            Self::Misconfigured => "misconfigured",
        }
    }

    /// Returns the text for the client.
    pub(super) fn detail(self) -> &'static str {
        match self {
            Self::MissingKey => "the header idempotency-key is missing",
            Self::InvalidKey => "the header idempotency-key cannot be used",
            Self::InFlight => {
                "the first request with this idempotency key is still being processed; try again later"
            }
            Self::KeyReused => "this idempotency key was used for another request",
            Self::OutcomeUnknown => {
                "a request with this idempotency key has begun, and its outcome is unknown"
            }
            Self::AnswerNotKept => {
                "the request with this idempotency key was executed, and its answer was not kept"
            }
            Self::BodyTooLarge => "the request body is too long",
            Self::BodyUnreadable => "the request body could not be read",
            Self::Unavailable => {
                "requests with an idempotency key cannot be processed at the moment; try again later"
            }
            Self::Misconfigured => "the server is not set up correctly",
        }
    }
}
