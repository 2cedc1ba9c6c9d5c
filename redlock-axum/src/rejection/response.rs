//! The response of a rejection.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use redlock_core::{KeyError, LockError};
use serde_json::Value;

use super::{BodyFault, LockRejection, RejectionCause, RejectionKind};
use crate::value_source::ValueSource;

impl IntoResponse for LockRejection {
    fn into_response(mut self) -> Response {
        self.log();
        let mut response = problem(self.status(), self.code(), &self.detail(), self.retry_after());
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the response of a refused request: a body of RFC 9457, and `Retry-After`.
pub(crate) fn problem(
    status: StatusCode,
    code: &str,
    detail: &str,
    retry_after: Option<Duration>,
) -> Response {
    // `Value` escapes the texts. With `about:blank`, the title is the standard phrase of the status
    // (RFC 9457, 4.2.1).
    let title = Value::from(status.canonical_reason().unwrap_or("Error"));
    let detail = Value::from(detail);
    let mut body = format!(
        r#"{{"type":"about:blank","title":{title},"status":{},"code":"{code}","detail":{detail}"#,
        status.as_u16(),
    );
    if let Some(time) = retry_after {
        body.push_str(r#","retry_after":"#);
        body.push_str(&time.as_secs().to_string());
    }
    body.push('}');

    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = retry_after_header(retry_after);
    let content_type = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Returns the header `Retry-After`, if there is a time.
pub(crate) fn retry_after_header(time: Option<Duration>) -> HeaderMap {
    let seconds = time.map(|time| HeaderValue::from(time.as_secs()));
    seconds.map(|seconds| (header::RETRY_AFTER, seconds)).into_iter().collect()
}

impl LockRejection {
    /// Logs the rejection, and returns the response that the application makes from it. The rejection is an
    /// extension of the response.
    pub(crate) fn respond_by<R: IntoResponse>(
        mut self,
        respond: impl FnOnce(Self) -> R,
    ) -> Response {
        // A custom response must not keep a misconfiguration out of the log.
        self.log();
        let rejection = self.clone();
        let mut response = respond(self).into_response();
        response.extensions_mut().insert(rejection);
        response
    }
}

impl LockRejection {
    /// Returns the text for the client, which is also the member `detail` of the response, and the message
    /// (`Display`).
    ///
    /// It contains neither the key of the lock, nor the names of nodes, nor anything of the application's
    /// configuration. It may contain the name of a path parameter, a header or a query parameter, because the
    /// client can correct its value.
    pub fn detail(&self) -> String {
        match self.kind() {
            RejectionKind::Contended if self.lock_error().is_some_and(LockError::is_split) => {
                "several requests for this resource came at once; try again later".to_owned()
            }
            RejectionKind::Contended => {
                "another request is being processed for this resource; try again later".to_owned()
            }
            RejectionKind::Unavailable
                if matches!(self.lock_error(), Some(LockError::TooManyWaiters { .. })) =>
            {
                "too many requests for this resource are waiting; try again later".to_owned()
            }
            RejectionKind::Unavailable
                if matches!(self.cause, RejectionCause::Body(BodyFault::NoSpace { .. })) =>
            {
                "the server receives too many request bodies; try again later".to_owned()
            }
            RejectionKind::Unavailable => {
                "the lock for this resource is not available at the moment; try again later"
                    .to_owned()
            }
            RejectionKind::Lost => {
                "the request was stopped, because its lock for this resource was lost; a part of \
                 it may be done"
                    .to_owned()
            }
            RejectionKind::BodyTooLarge => "the request body is too long".to_owned(),
            RejectionKind::BodyTooSlow => "the request body did not arrive in time".to_owned(),
            RejectionKind::BodyUnreadable => "the request body could not be read".to_owned(),
            RejectionKind::AlreadyHeld | RejectionKind::Misconfigured => {
                "the server is not set up correctly".to_owned()
            }
            RejectionKind::InvalidKey => match &self.cause {
                RejectionCause::UnusableValue { detail, .. } => detail.clone(),
                RejectionCause::Lock(LockError::InvalidKey(error)) => key_detail(error),
                _ => "the resource cannot be identified".to_owned(),
            },
        }
    }
}

fn key_detail(error: &KeyError) -> String {
    match error.of_key() {
        KeyError::NoKeys => "the list of the resources is empty".to_owned(),
        KeyError::TooManyKeys => {
            "the list of the resources has more than 64 different entries".to_owned()
        }
        KeyError::EmptyPart { name: Some(name), .. } => {
            format!("{} is empty", ValueSource::of(name))
        }
        KeyError::EmptyPart { name: None, .. } | KeyError::Empty => {
            "a value that identifies the resource is empty".to_owned()
        }
        KeyError::WrongType { name, expected, .. } => {
            format!("{} is not {expected}", ValueSource::of(name))
        }
        KeyError::ReservedPart { name: Some(name), .. } => {
            format!("{} has a reserved value", ValueSource::of(name))
        }
        KeyError::ReservedPart { name: None, .. } => {
            "a value that identifies the resource is reserved".to_owned()
        }
        KeyError::ControlCharacter { .. } => {
            "a value that identifies the resource contains a control character".to_owned()
        }
        _ => "the resource cannot be identified".to_owned(),
    }
}
