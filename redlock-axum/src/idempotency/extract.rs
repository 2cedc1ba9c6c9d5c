//! The extractor for the idempotency key of a request.

use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::request::Parts;

use super::answers::AnswerId;
use super::fingerprint::Fingerprint;
use super::rejection::IdempotencyRejection;

/// Extracts the idempotency key of a request whose handler runs, behind an [`IdempotencyLayer`](crate::IdempotencyLayer).
///
/// A request without a key, behind a layer that is [`optional`](crate::IdempotencyLayer::optional) or whose
/// [methods](crate::IdempotencyLayer::methods) do not include the request's, is rejected: status 500, and an error in the log.
/// `Option<Idempotency>` extracts `None` instead.
///
/// The page [`guide::idempotency`](crate::guide::idempotency) shows a handler that stores its answer in its own transaction,
/// by [`row`](Self::row).
#[derive(Clone)]
pub struct Idempotency {
    id: AnswerId,
    fingerprint: Fingerprint,
    number: i64,
}

impl Idempotency {
    pub(super) fn new(id: AnswerId, fingerprint: Fingerprint, number: i64) -> Self {
        Self { id, fingerprint, number }
    }

    /// Returns the text of the header, without its quotes.
    pub fn key(&self) -> &str {
        self.id.key()
    }

    /// Returns the digest of the request.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the row of the claim in the store, for a handler that
    /// [stores its answer itself](crate::IdempotencyLayer::stored_by_handler).
    pub fn row(&self) -> AnswerRow<'_> {
        AnswerRow { scope: self.id.scope(), key: self.id.key(), number: self.number }
    }

    fn of(parts: &Parts) -> Option<Self> {
        parts.extensions.get().cloned()
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The row of a claim in the table `redlock_answer`. Returned by [`Idempotency::row`].
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct AnswerRow<'a> {
    /// The scope; empty if all clients are one.
    pub scope: &'a str,
    /// The text of the header, without its quotes.
    pub key: &'a str,
    /// The number of this holder. A later holder replaces it.
    pub number: i64,
}

impl fmt::Debug for AnswerRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerRow").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<S: Sync> FromRequestParts<S> for Idempotency {
    type Rejection = IdempotencyRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, IdempotencyRejection> {
        Self::of(parts).ok_or_else(|| {
            let text = "a handler asks for an `Idempotency`, but no `IdempotencyLayer` has claimed a key for the request; \
                        add the layer to the route, or extract an `Option<Idempotency>`";
            IdempotencyRejection::misconfigured(text).at_route_of(parts)
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Idempotency {
    type Rejection = IdempotencyRejection;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Option<Self>, IdempotencyRejection> {
        Ok(Self::of(parts))
    }
}
