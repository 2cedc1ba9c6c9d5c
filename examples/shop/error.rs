//! The error of the service, and the response to it.

use std::fmt;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use redlock_axum::{LockError, LockRejection, RejectionKind};
use serde::Serialize;

#[derive(Debug)]
pub(crate) enum ShopError {
    UnknownArticle,
    SoldOut,
    /// The lock was not acquired, or was lost.
    Lock(LockRejection),
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownArticle => f.write_str("there is no such article"),
            Self::SoldOut => f.write_str("this article is sold out"),
            // Contains neither the key nor a server.
            Self::Lock(rejection) => rejection.fmt(f),
        }
    }
}

/// The attribute and the policies refuse requests with a `LockRejection`.
impl From<LockRejection> for ShopError {
    fn from(rejection: LockRejection) -> Self {
        Self::Lock(rejection)
    }
}

/// Functions with `manager` fail with a `LockError`.
impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error.into())
    }
}

/// `{"error": {"code": "sold_out", "message": "this article is sold out"}}`
#[derive(Serialize)]
struct Body {
    error: Details,
}

#[derive(Serialize)]
struct Details {
    code: &'static str,
    message: String,
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let message = self.to_string();
        let (status, code, headers) = match self {
            Self::UnknownArticle => (StatusCode::NOT_FOUND, "unknown_article", HeaderMap::new()),
            Self::SoldOut => (StatusCode::CONFLICT, "sold_out", HeaderMap::new()),
            Self::Lock(rejection) => {
                let code = match rejection.kind() {
                    RejectionKind::Contended => "busy",
                    RejectionKind::Unavailable => "unavailable",
                    RejectionKind::Lost => "stopped",
                    RejectionKind::InvalidKey => "invalid",
                    _ => "internal",
                };
                // The headers contain `Retry-After`.
                (rejection.status(), code, rejection.headers())
            }
        };
        (status, headers, Json(Body { error: Details { code, message } })).into_response()
    }
}
