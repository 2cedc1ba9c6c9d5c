//! Locking many routes by one table.

mod pattern;
mod policies;
mod service;
mod table;

#[cfg(feature = "serde")]
mod de;

use std::fmt;

use http::Method;

pub use policies::LockPolicies;
pub use service::PolicyService;

use crate::config::Methods;
use crate::options::{RouteOptions, route_option_setters};

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
    options: RouteOptions,
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
            options: RouteOptions::default(),
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

    route_option_setters!(self => self.options; self);

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
