use std::fmt::Display;
use std::sync::Arc;

use axum::response::IntoResponse;
use redlock_core::LockManager;

use super::LockPolicy;
use super::table::Table;
use crate::config::LayerConfig;
use crate::error::PolicyError;
use crate::rejection::LockRejection;

/// Locks many routes with one table, built in code or read from the application's configuration.
///
/// Each [`LockPolicy`] names a route and the key of its requests. The table is a
/// layer: add it to the router with [`Router::layer`](axum::Router::layer) or
/// [`Router::route_layer`](axum::Router::route_layer), inside of the
/// [`LocksLayer`](crate::LocksLayer) that installs the manager. The table finds the policy of a request by axum's
/// [`MatchedPath`](axum::extract::MatchedPath). Requests without a policy pass unlocked.
///
/// Cloning is cheap. Clones share the record of which policies have [matched](Self::unmatched).
///
/// # Routes that the table does not reach
///
/// As every layer of a router, the table reaches only the routes that were added before it. A route that is added after
/// `.layer(policies)` is served without its lock, and [`check_routes`](Self::check_routes) cannot notice that. Add the
/// table after the last route, and let a test send a request to each locked route and then check that
/// [`unmatched`](Self::unmatched) is empty. A handler with a [`HeldLock`](crate::HeldLock) parameter refuses every
/// request without a lock.
///
/// # A policy whose route does not exist
///
/// A policy whose route does not exist locks nothing, and a layer cannot ask axum for the list of routes.
/// Four checks find such a policy:
///
/// * [`check_routes`](Self::check_routes) compares the table with a list of the application's
///   routes, at start-up or in a test.
/// * [`unmatched`](Self::unmatched) returns the policies that no request has matched so far, for the
///   end of an integration test.
/// * A request is refused with 500, instead of being served unlocked, if its path fits a policy but axum
///   did not match the policy's route. The router has no such route, a wider route such as `/{*rest}`
///   took the request, or the layer is at a place without `MatchedPath`. A path that fits except for
///   doubled slashes is refused as well, unless the router's fallback serves the request.
/// * A request is served, and the first one is logged at error, if the matched route ends with the policy's
///   route. The policy probably lacks the prefix of a nested router.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::post};
/// use http::Method;
/// use redlock_axum::{LockManager, LockPolicies, LockPolicy, LocksLayer};
///
/// let policies = LockPolicies::new([
///     LockPolicy::new("/orders/{id}/pay", "order:{id:u64}").methods([Method::POST]),
///     LockPolicy::new("/stock/{sku}/reserve", "stock:{sku}").methods([Method::POST]),
/// ])?;
///
/// let app: Router = Router::new()
///     .route("/orders/{id}/pay", post(|| async { "paid" }))
///     .route("/stock/{sku}/reserve", post(|| async { "reserved" }))
///     .layer(policies)
///     .layer(LocksLayer::new(&LockManager::in_memory()));
/// # Ok::<(), redlock_axum::PolicyError>(())
/// ```
#[doc = include_str!("config.md")]
#[derive(Debug, Clone)]
#[must_use]
pub struct LockPolicies {
    pub(super) table: Arc<Table>,
    pub(super) config: Arc<LayerConfig>,
}

impl LockPolicies {
    /// Creates a table of policies.
    ///
    /// # Errors
    ///
    /// A [`PolicyError`] that names the policy, for a route or a key template that cannot be parsed,
    /// a path parameter that the route lacks, an option out of range, or two policies for the
    /// same method of the same route.
    pub fn new(policies: impl IntoIterator<Item = LockPolicy>) -> Result<Self, PolicyError> {
        let mut table = Table::default();
        for policy in policies {
            table.add(policy)?;
        }
        Ok(Self { table: Arc::new(table), config: Arc::default() })
    }

    /// Sets the function that makes the response to a refused request, as
    /// [`LockLayer::on_reject`](crate::LockLayer::on_reject) does.
    pub fn on_reject<F, R>(mut self, on_reject: F) -> Self
    where
        F: Fn(LockRejection) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        Arc::make_mut(&mut self.config).set_on_reject(on_reject);
        self
    }

    /// Sets the manager. Defaults to the manager that the application installed with
    /// `.layer(LocksLayer::new(&locks))`.
    pub fn manager(mut self, manager: LockManager) -> Self {
        Arc::make_mut(&mut self.config).set_manager(manager);
        self
    }

    /// Registers the function that returns the value of the placeholder `{ext(name)}` in the keys of all
    /// policies, as [`LockLayer::ext`](crate::LockLayer::ext) does. [`checked`](Self::checked) finds
    /// placeholders without a function.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_axum::{LockPolicies, LockPolicy};
    ///
    /// #[derive(Clone)]
    /// struct Claims {
    ///     tenant: u64,
    /// }
    ///
    /// // The policies may come from a configuration.
    /// let policies = LockPolicies::new([LockPolicy::new("/export", "export:{ext(tenant)}")])?
    ///     .ext("tenant", |claims: &Claims| claims.tenant)
    ///     .checked()?;
    /// # Ok::<(), redlock_axum::PolicyError>(())
    /// ```
    pub fn ext<T, V, F>(mut self, name: &str, value: F) -> Self
    where
        F: Fn(&T) -> V + Send + Sync + 'static,
        T: Send + Sync + 'static,
        V: Display,
    {
        Arc::make_mut(&mut self.config).extension_values.register(name, value);
        self
    }

    /// Returns the table, or the first policy whose key has a placeholder `{ext(name)}` without a function.
    ///
    /// Without this check, each request of such a policy is refused with 500, and an error is logged.
    ///
    /// # Errors
    ///
    /// A [`PolicyError`] with the reason
    /// [`SetupError::UnregisteredExtension`](crate::SetupError::UnregisteredExtension).
    pub fn checked(self) -> Result<Self, PolicyError> {
        self.table.check_extensions(&self.config.extension_values)?;
        Ok(self)
    }

    /// Checks that the application has the route of every policy. Write each route as in
    /// [`LockPolicy::new`].
    ///
    /// # Errors
    ///
    /// A [`PolicyError`] for the first policy whose route is not in the list, or whose key has a
    /// placeholder that the route in the list lacks.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_axum::{LockPolicies, LockPolicy};
    ///
    /// let policies = LockPolicies::new([LockPolicy::new("/orders/{id}/pay", "order:{id}")])?;
    /// assert!(policies.check_routes(["/health", "/orders/{id}/pay"]).is_ok());
    /// assert!(policies.check_routes(["/health", "/order/{id}/pay"]).is_err());
    /// # Ok::<(), redlock_axum::PolicyError>(())
    /// ```
    pub fn check_routes<I>(&self, routes: I) -> Result<(), PolicyError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.table.check_routes(routes)
    }

    /// Returns the policies that no request has matched since the table was created.
    pub fn unmatched(&self) -> impl Iterator<Item = &LockPolicy> {
        self.table.unmatched()
    }
}
