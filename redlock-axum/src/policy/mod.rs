//! Locking many routes by one table.

mod pattern;
mod policies;
mod service;
mod table;

#[cfg(feature = "serde")]
mod de;

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};

pub use policies::LockPolicies;
pub use service::PolicyService;

use crate::methods::Methods;
use crate::options::{HoldUntil, LockOptions, OnLost, Wait};

/// Says by which key the requests of one route are locked: one line of a [`LockPolicies`] table.
///
/// Mistakes are found when the table is made.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use http::Method;
/// use redlock_axum::LockPolicy;
///
/// let policy = LockPolicy::new("/orders/{id}/pay", "order:{id:u64}")
///     .methods([Method::POST])
///     .expire(Duration::from_secs(10));
/// assert_eq!(policy.to_string(), "POST /orders/{id}/pay");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct LockPolicy {
    route: String,
    key: String,
    methods: Methods,
    options: LockOptions,
}

impl LockPolicy {
    /// Locks the route by the key template, see [`KeyTemplate`](crate::KeyTemplate).
    ///
    /// The route is written as axum's [`Router::route`](axum::Router::route) takes it, with the
    /// prefixes of the routers that it is nested in: `/api/orders/{id}`. The names of its
    /// parameters do not matter for finding it, but the key's placeholders must be among them.
    pub fn new(route: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            route: route.into(),
            key: key.into(),
            methods: Methods::default(),
            options: LockOptions::default(),
        }
    }

    /// Locks only requests with these methods. Defaults to all methods.
    ///
    /// GET includes HEAD, because axum answers HEAD with the handler for GET, unless the table has
    /// a policy of its own for HEAD.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Methods::only(methods);
        self
    }

    /// Sets the lease, see [`LockLayer::expire`](crate::LockLayer::expire). Defaults to 5 s.
    pub fn expire(mut self, expire: Duration) -> Self {
        self.options.expire = expire;
        self
    }

    /// Extends the lease for as long as the lock is held. Defaults to not doing so.
    pub fn renew(mut self) -> Self {
        self.options.renew = true;
        self
    }

    /// Ends the renewal after this time, see [`LockLayer::max_hold`](crate::LockLayer::max_hold).
    /// Defaults to no bound.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// Keeps the key locked for at least this time, see
    /// [`LockLayer::min_hold`](crate::LockLayer::min_hold). Defaults to none.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.options.min_hold = Some(min_hold).filter(|time| !time.is_zero());
        self
    }

    /// Leaves the lock to run out, see [`LockLayer::keep`](crate::LockLayer::keep). Defaults to
    /// releasing it.
    pub fn keep(mut self) -> Self {
        self.options.keep = true;
        self
    }

    /// Shares a lock that the request holds already, see
    /// [`LockLayer::reentrant`](crate::LockLayer::reentrant). Defaults to refusing the request.
    pub fn reentrant(mut self) -> Self {
        self.options.reentrant = true;
        self
    }

    /// Numbers the holders of the lock, see [`LockLayer::fenced`](crate::LockLayer::fenced). Defaults to
    /// no numbers.
    pub fn fenced(mut self) -> Self {
        self.options.fenced = true;
        self
    }

    /// Sets what becomes of a handler whose lock is lost. Defaults to [`OnLost::KeepGoing`].
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.options.on_lost = on_lost;
        self
    }

    /// Sets how long a request waits for a lock that somebody else holds. Defaults to not waiting:
    /// one attempt.
    pub fn wait_time(mut self, wait_time: Duration) -> Self {
        self.options.wait = Wait::For(wait_time);
        self
    }

    /// Lets a request wait for as long as it takes, see
    /// [`LockLayer::wait_forever`](crate::LockLayer::wait_forever).
    pub fn wait_forever(mut self) -> Self {
        self.options.wait = Wait::Forever;
        self
    }

    /// Sets the status for a lock that somebody else holds. Defaults to 409 Conflict.
    pub fn contended_status(mut self, status: StatusCode) -> Self {
        self.options.contended_status = status;
        self
    }

    /// Sets how long the lock is held. Defaults to [`HoldUntil::Response`].
    pub fn hold_until(mut self, hold_until: HoldUntil) -> Self {
        self.options.hold_until = hold_until;
        self
    }

    /// Gives the route's pattern as it was written.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Gives the key template as it was written.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Writes the methods and the route: `POST /orders/{id}/pay`.
impl fmt::Display for LockPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, method) in self.methods.named().unwrap_or_default().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{method}")?;
        }
        let space = if self.methods.named().is_some() { " " } else { "" };
        write!(f, "{space}{}", self.route)
    }
}
