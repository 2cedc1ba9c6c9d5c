//! Locks many routes with one table of policies.

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

/// Locks the requests of one route with a key: one entry of a [`LockPolicies`] table.
///
/// Mistakes in a policy are reported by [`LockPolicies::new`].
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
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(from = "de::PolicyFields"))]
#[must_use]
pub struct LockPolicy {
    route: String,
    key: String,
    methods: Methods,
    options: RouteOptions,
}

impl LockPolicy {
    /// Creates a policy that locks the route with the given [key template](crate::KeyTemplate).
    ///
    /// Write the route as for axum's [`Router::route`](axum::Router::route), including the prefixes of
    /// the routers in which it is nested: `/api/orders/{id}`. The table finds the route whatever the names of
    /// its parameters are, but the placeholders of the key for path parameters must be among these names. A key
    /// may also take values from headers, the query and extensions, as for
    /// [`LockLayer`](crate::LockLayer#keys).
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
    /// a separate policy for HEAD.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Methods::only(methods);
        self
    }

    route_option_setters!(self => self.options; self);

    /// Returns the pattern of the route, as it was given to [`new`](Self::new).
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Returns the key template, as it was given to [`new`](Self::new).
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
