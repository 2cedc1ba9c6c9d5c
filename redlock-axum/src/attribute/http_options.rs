//! The HTTP options of a handler with the attribute.

use std::time::Duration;

use http::StatusCode;

use crate::options::{
    DEFAULT_CONTENDED_STATUS, DEFAULT_RETRY_AFTER_MAX, HoldUntil, MIN_RETRY_AFTER_MAX,
};
use crate::rejection::LockRejection;

/// The HTTP options of a handler. The compiler evaluates them when it compiles the attribute.
#[derive(Debug, Clone, Copy)]
pub struct HttpOptions {
    /// The number of the status, because the constructor of `StatusCode` is no `const fn` in all versions of `http`.
    contended_status: u16,
    retry_after_max: Duration,
    pub(super) hold_until: HoldUntil,
}

impl HttpOptions {
    /// Returns the defaults, which are those of `LockLayer`.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            contended_status: DEFAULT_CONTENDED_STATUS.as_u16(),
            retry_after_max: DEFAULT_RETRY_AFTER_MAX,
            hold_until: HoldUntil::Response,
        }
    }

    /// Sets the status of the response when another holder has the lock.
    #[must_use]
    pub const fn contended_status(self, contended_status: u16) -> Self {
        Self { contended_status, ..self }
    }

    /// Sets the longest time in the `Retry-After` header.
    #[must_use]
    pub const fn retry_after_max(self, retry_after_max: Duration) -> Self {
        Self { retry_after_max, ..self }
    }

    /// Sets when the lock is released.
    #[must_use]
    pub const fn hold_until(self, hold_until: HoldUntil) -> Self {
        Self { hold_until, ..self }
    }

    /// Returns the rejection with the options that concern its response.
    pub(super) fn apply(self, rejection: LockRejection) -> LockRejection {
        let status = StatusCode::from_u16(self.contended_status);
        rejection
            .with_contended_status(status.unwrap_or(DEFAULT_CONTENDED_STATUS))
            .with_retry_after_max(self.retry_after_max)
    }
}

/// Panics if the status is no error, so that the mistake is a compile error.
#[track_caller]
pub const fn assert_contended_status(options: &HttpOptions) {
    assert!(
        400 <= options.contended_status && options.contended_status < 600,
        "contended_status must be a client or server error, from 400 to 599, such as 409 or 423"
    );
}

/// Panics if the time is too short, so that the mistake is a compile error.
#[track_caller]
pub const fn assert_retry_after_max(options: &HttpOptions) {
    assert!(
        options.retry_after_max.as_nanos() >= MIN_RETRY_AFTER_MAX.as_nanos(),
        "retry_after_max must be at least 1 s"
    );
}
