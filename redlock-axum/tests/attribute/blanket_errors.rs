//! Handlers whose error type has a conversion from every error, as the usual wrapper of `anyhow::Error`.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::get as on_get;
use redlock_axum::{LockRejection, redis_lock};

use crate::support::{app, get, hold, memory};

struct AppError(Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for AppError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        match self.0.downcast::<LockRejection>() {
            Ok(rejection) => rejection.into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// The same without the case for rejections.
struct PlainError(String);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for PlainError {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}

impl IntoResponse for PlainError {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0).into_response()
    }
}

#[redis_lock(key = "held")]
async fn downcast() -> Result<(), AppError> {
    Ok(())
}

#[redis_lock(key = "held")]
async fn plain() -> Result<(), PlainError> {
    Ok(())
}

#[redis_lock(key = "held", contended_status = 423, on_reject = LockRejection::from)]
async fn pinned() -> Result<(), PlainError> {
    Ok(())
}

/// To the compiler, a conversion that takes every error is also a conversion from `LockRejection`.
#[tokio::test]
async fn an_error_that_takes_every_error_takes_the_rejection_too() {
    let (locks, _) = memory().await;
    let routes = Router::new()
        .route("/downcast", on_get(downcast))
        .route("/plain", on_get(plain))
        .route("/pinned", on_get(pinned));
    let app = app(routes, &locks);
    let _guard = hold(&locks, "held").await;

    let answer = get(&app, "/plain").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!answer.body.contains("held"), "{}", answer.body);
    for (path, status) in [("/downcast", StatusCode::CONFLICT), ("/pinned", StatusCode::LOCKED)] {
        let answer = get(&app, path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.headers.contains_key(RETRY_AFTER), "{path}");
    }
}
