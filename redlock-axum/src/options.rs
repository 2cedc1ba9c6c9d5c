//! The options that layers and policies share.

use std::time::Duration;

use http::{Method, StatusCode};
use redlock_core::{Dialect, InvalidOption, LockOptions};

use crate::config::Methods;
use crate::error::SetupError;

/// The default of `contended_status`.
pub(crate) const DEFAULT_CONTENDED_STATUS: StatusCode = StatusCode::CONFLICT;

/// The default of `retry_after_max`.
pub(crate) const DEFAULT_RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// The least `retry_after_max`: the header is in whole seconds.
pub(crate) const MIN_RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

/// Selects how long a layer or a policy holds its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Until the handler has returned its response. The response's body is sent without the lock.
    #[default]
    Response,
    /// Until the response's body has been sent, has failed, or was dropped because the client
    /// disconnected. For handlers that work while they stream.
    ///
    /// The lease must last that long: with `expire`, consider [`renew`](crate::LockLayer::renew). Data after an upgrade,
    /// such as the messages of a WebSocket, is not part of the body. The body is sent outside of the
    /// request's [`scope`](crate::scope): a body that tries to acquire the request's own lock is treated as
    /// any other caller, not as its holder.
    EndOfBody,
}

/// The options of the response to a refused request, and of the end of the lock. The compiler evaluates those of an
/// attribute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpOptions {
    /// The number of the status, because the constructor of `StatusCode` is no `const fn` in all versions of `http`.
    pub(crate) contended_status: u16,
    pub(crate) retry_after_max: Duration,
    pub(crate) hold_until: HoldUntil,
    pub(crate) detached: bool,
}

impl HttpOptions {
    /// Returns the defaults.
    #[allow(clippy::new_without_default)]
    pub(crate) const fn new() -> Self {
        Self {
            contended_status: DEFAULT_CONTENDED_STATUS.as_u16(),
            retry_after_max: DEFAULT_RETRY_AFTER_MAX,
            hold_until: HoldUntil::Response,
            detached: false,
        }
    }

    /// Sets the status of the response when another holder has the lock.
    #[must_use]
    pub(crate) const fn contended_status(self, contended_status: u16) -> Self {
        Self { contended_status, ..self }
    }

    /// Sets the longest time in the `Retry-After` header.
    #[must_use]
    pub(crate) const fn retry_after_max(self, retry_after_max: Duration) -> Self {
        Self { retry_after_max, ..self }
    }

    /// Sets when the lock is released.
    #[must_use]
    pub(crate) const fn hold_until(self, hold_until: HoldUntil) -> Self {
        Self { hold_until, ..self }
    }

    /// Sets whether the handler goes on when its client leaves.
    #[must_use]
    pub(crate) const fn detached(self, detached: bool) -> Self {
        Self { detached, ..self }
    }
}

/// The options of a layer or a policy: the options of the lock and the HTTP options.
#[derive(Debug, Clone)]
pub(crate) struct RouteOptions {
    pub(crate) lock: LockOptions,
    /// The methods whose requests share the lock, while all others lock it exclusively.
    pub(crate) shared_on: Option<Methods>,
    pub(crate) http: HttpOptions,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self { lock: LockOptions::new(), shared_on: None, http: HttpOptions::new() }
    }
}

impl RouteOptions {
    /// Returns the options of the lock of a request with this method.
    pub(crate) fn options_for(&self, method: &Method) -> LockOptions {
        let options = self.lock.clone();
        match &self.shared_on {
            Some(shared_on) if shared_on.matches(method) => options.shared(true),
            _ => options,
        }
    }

    /// Returns the first mistake as an error.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.check_independent()?;
        self.lock.check()?;
        Ok(self.check_shared_on()?)
    }

    /// Returns the first option that does not go together with `shared_on`.
    fn check_shared_on(&self) -> Result<(), InvalidOption> {
        let Some(methods) = &self.shared_on else { return Ok(()) };
        let LockOptions { shared, permits, fenced, dialect, .. } = self.lock;
        let conflicts = [
            (shared == Some(true), "shared, which shares the lock on every method"),
            (permits.is_some(), "permits, which every method needs"),
            (fenced == Some(true), "fenced: only exclusive holders have numbers"),
            (dialect == Some(Dialect::Redisson), "the dialect redisson, which has no shared locks"),
        ];
        let conflict = conflicts.into_iter().find(|(is_set, _)| *is_set);
        conflict.map_or(Ok(()), |(_, other)| {
            Err(InvalidOption::new("shared_on", methods, format!("unset beside {other}")))
        })
    }

    /// Returns the first option that is wrong by itself, independent of the other options.
    pub(crate) fn check_independent(&self) -> Result<(), SetupError> {
        self.lock.check_ranges()?;
        if let Some(methods) = &self.shared_on {
            check_list(methods)?;
        }
        let HttpOptions { contended_status: status, retry_after_max, .. } = self.http;
        if !(400..600).contains(&status) {
            return Err(SetupError::ContendedStatus(status));
        }
        if retry_after_max < MIN_RETRY_AFTER_MAX {
            let value = format!("{retry_after_max:?}");
            return Err(InvalidOption::new("retry_after_max", value, "at least 1 s").into());
        }
        Ok(())
    }
}

/// Checks the list of methods of `shared_on`.
fn check_list(methods: &Methods) -> Result<(), InvalidOption> {
    let named = methods.named().unwrap_or_default();
    if named.is_empty() {
        let allowed = "at least one method; leave it out to lock every method exclusively";
        return Err(InvalidOption::new("shared_on", "an empty list", allowed));
    }
    let repeated =
        named.iter().enumerate().find(|(index, method)| named[..*index].contains(method));
    match repeated {
        Some((_, method)) => {
            let allowed = format!("a list that has {method} once");
            Err(InvalidOption::new("shared_on", methods, allowed))
        }
        None => Ok(()),
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

/// Writes the setters of the [`RouteOptions`]. `redlock_core::lock_option_setters` writes the setters of
/// the lock's own options.
macro_rules! route_option_setters {
    ($self:ident => $options:expr; $end:expr) => {
        /// Sets all options of the lock at once. This replaces all options of the lock that were set before.
        pub fn options(mut $self, options: $crate::LockOptions) -> Self {
            $options.lock = options;
            $end
        }

        redlock_core::lock_option_setters!($self => $options.lock; $end);

        /// Shares the lock among the requests with these methods. Requests with other methods lock it exclusively. So
        /// requests that read a resource run at the same time, and a request that writes to it runs alone. Defaults to
        /// an exclusive lock for every method.
        ///
        /// GET includes HEAD, because axum answers HEAD with the handler for GET. Cannot be combined with
        /// [`shared`](Self::shared), [`permits`](Self::permits) or [`fenced`](Self::fenced). The page
        /// [`shared`](crate::guide::shared) of the guide has the rules of shared locks.
        pub fn shared_on(
            mut $self,
            methods: impl IntoIterator<Item = http::Method>,
        ) -> Self {
            $options.shared_on = Some($crate::config::Methods::only(methods));
            $end
        }

        /// Sets the status of the response when another holder has the lock. Must be a client or server
        /// error. Defaults to 409 Conflict; the usual alternative is 423 Locked.
        pub fn contended_status(mut $self, status: http::StatusCode) -> Self {
            $options.http = $options.http.contended_status(status.as_u16());
            $end
        }

        /// Sets the longest time in the `Retry-After` header of the response when another holder has the lock.
        ///
        /// The header is the rest of the holder's lease, but at most this time, because most holders release
        /// their lock long before its lease ends. At least 1 s. Defaults to 5 s.
        pub fn retry_after_max(mut $self, retry_after_max: std::time::Duration) -> Self {
            $options.http = $options.http.retry_after_max(retry_after_max);
            $end
        }

        /// Sets when the lock is released. Defaults to [`HoldUntil::Response`](crate::HoldUntil::Response).
        pub fn hold_until(mut $self, hold_until: $crate::HoldUntil) -> Self {
            $options.http = $options.http.hold_until(hold_until);
            $end
        }

        /// Sets whether the handler goes on when its client leaves. Defaults to false: axum then drops the handler at
        /// its current `await`. For work that must not be cut, such as a payment.
        ///
        /// From the acquired lock to its release, the handler runs in a task of its own. When the client leaves, the
        /// handler goes on, the lock is released at its end, and the response is dropped. A client that leaves before
        /// the lock is acquired leaves nothing behind. A layer or a handler around the lock, and a lock that it holds,
        /// ends with the client. [`LockManager::shutdown`](crate::LockManager::shutdown) waits for the handler.
        pub fn detached(mut $self, detached: bool) -> Self {
            $options.http = $options.http.detached(detached);
            $end
        }
    };
}
pub(crate) use route_option_setters;
