//! Stand-in until the rejections are merged.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use redlock_core::LockError;

/// Answers a request that did not get its lock.
#[derive(Debug, Clone)]
pub struct LockRejection(Option<LockError>);

impl LockRejection {
    /// Says that the application has installed no `LockManager`.
    pub fn missing_manager() -> Self {
        Self(None)
    }
}

impl From<LockError> for LockRejection {
    fn from(error: LockError) -> Self {
        Self(Some(error))
    }
}

impl IntoResponse for LockRejection {
    fn into_response(self) -> Response {
        let status = match self.0 {
            Some(LockError::Contended { .. }) => StatusCode::CONFLICT,
            Some(LockError::InvalidKey(_)) => StatusCode::BAD_REQUEST,
            Some(
                LockError::Unavailable { .. } | LockError::TimedOut { .. } | LockError::ShutDown,
            ) => StatusCode::SERVICE_UNAVAILABLE,
            _ => {
                tracing::error!("add `.layer(axum::Extension(locks))`");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, content_type, [(header::RETRY_AFTER, "1")], "{}").into_response()
    }
}
