//! The options of the response to a refused request, and of the end of the lock.

use std::time::Duration;

use http::StatusCode;
use redlock_core::InvalidOption;

/// The default of `contended_status`.
pub(crate) const DEFAULT_CONTENDED_STATUS: StatusCode = StatusCode::CONFLICT;

/// The default of `retry_after_max`.
pub(crate) const DEFAULT_RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// The least `retry_after_max`: the header is in whole seconds.
pub(crate) const MIN_RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

/// Selects how long the lock of a request is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Until the handler has returned its response. The response's body is sent without the lock. A layer around the lock
    /// that [commits a transaction](crate::guide::transactions) commits it without the lock, unless it is in
    /// [`CommitUnderLock`](crate::CommitUnderLock).
    #[default]
    Response,
    /// Until the response's body has been sent, has failed, or was dropped because the client
    /// disconnected. For handlers that work while they stream.
    ///
    /// The last byte is sent after the release.
    ///
    /// The client decides how long that takes: a client that reads slowly holds the lock, and a renewed lock has no other
    /// end. [`max_hold`](crate::LockPolicy::max_hold) bounds it, and [`OnLost::Abort`](crate::OnLost::Abort) also ends the
    /// body then.
    ///
    /// The lease must last that long: with `expire`, consider [`renew`](crate::LockPolicy::renew). Data after an upgrade,
    /// such as the messages of a WebSocket, is not part of the body. The body is sent outside of the
    /// request's [`scope`](crate::scope): a body that tries to acquire the request's own lock is treated as
    /// any other caller, not as its holder.
    EndOfBody,
}

/// Selects when a layer receives the body of a request. Defaults to [`Buffer`](Self::Buffer).
///
/// A request without a body is not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BodyMode {
    /// Before the lock is requested, as a whole, into memory. A slow client then holds no lock.
    ///
    /// [`body_limit`](crate::LockPolicy::body_limit) bounds a body (413 beyond it), and
    /// [`LockManagerBuilder::body_buffers`](crate::LockManagerBuilder::body_buffers) all bodies together (503). If this
    /// process holds the lock, and the request does not wait, it is refused before its body is read.
    #[default]
    Buffer,
    /// By the handler, while the lock is held. For uploads that do not fit into memory.
    ///
    /// The body has at most one lease to arrive, counted from the grant of the lock, also if the lock is renewed. After
    /// that, reading the body fails. When the handler or its extractor has ended, the request is answered with 408, and
    /// the response of the handler is dropped. If the lock is lost before the body has arrived, reading fails too, and
    /// the answer is 503. So a handler that extracts the whole body, such as by `Bytes`, never begins without its lock.
    /// A handler that reads the body itself gets an error from it, as if the client had disconnected. After the body has
    /// ended, or the lock is released, no limit remains.
    Stream,
}

/// How a layer receives the body of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BodyOptions {
    pub(crate) mode: BodyMode,
    /// `None` is axum's limit for the request.
    pub(crate) limit: Option<usize>,
}

impl BodyOptions {
    /// Returns the first option that is out of its range. `buffers` is the space for the bodies of all requests.
    pub(crate) fn check(&self, buffers: usize) -> Result<(), InvalidOption> {
        let Some(limit) = self.limit else { return Ok(()) };
        if self.mode == BodyMode::Stream {
            let allowed = "unset beside the body mode stream, which reads no body into memory";
            return Err(InvalidOption::new("body_limit", limit, allowed));
        }
        if !(1..=buffers).contains(&limit) {
            let allowed = format!("from 1 to {buffers} bytes, the body_buffers of the manager");
            return Err(InvalidOption::new("body_limit", limit, allowed));
        }
        Ok(())
    }
}

/// The options of the response to a refused request, and of the work under the lock. The compiler evaluates those of an
/// attribute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpOptions {
    /// The number of the status, because the constructor of `StatusCode` is no `const fn` in all versions of `http`.
    pub(crate) contended_status: u16,
    pub(crate) retry_after_max: Duration,
    pub(crate) hold_until: HoldUntil,
    /// Whether the handler goes on when its client leaves.
    pub(crate) detached: bool,
}

impl HttpOptions {
    /// Returns the defaults.
    pub(crate) const fn new() -> Self {
        Self {
            contended_status: DEFAULT_CONTENDED_STATUS.as_u16(),
            retry_after_max: DEFAULT_RETRY_AFTER_MAX,
            hold_until: HoldUntil::Response,
            detached: false,
        }
    }

    /// Returns the first option that is out of its range.
    pub(crate) fn check(&self) -> Result<(), InvalidOption> {
        let Self { contended_status: status, retry_after_max, .. } = *self;
        if !(400..600).contains(&status) {
            let allowed = "a client or server error, from 400 to 599, such as 409 or 423";
            return Err(InvalidOption::new("contended_status", status, allowed));
        }
        if retry_after_max < MIN_RETRY_AFTER_MAX {
            let value = format!("{retry_after_max:?}");
            return Err(InvalidOption::new("retry_after_max", value, "at least 1 s"));
        }
        Ok(())
    }
}

/// Panics if the status is no error, so that the mistake is a compile error.
#[track_caller]
pub(crate) const fn assert_contended_status(options: &HttpOptions) {
    assert!(
        400 <= options.contended_status && options.contended_status < 600,
        "contended_status must be a client or server error, from 400 to 599, such as 409 or 423"
    );
}

/// Panics if the time is too short, so that the mistake is a compile error.
#[track_caller]
pub(crate) const fn assert_retry_after_max(options: &HttpOptions) {
    assert!(
        options.retry_after_max.as_nanos() >= MIN_RETRY_AFTER_MAX.as_nanos(),
        "retry_after_max must be at least 1 s"
    );
}
