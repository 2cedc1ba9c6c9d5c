use std::sync::Arc;

use axum::response::IntoResponse;
use redlock_core::LockManager;

use super::LockPolicy;
use super::table::Table;
use crate::config::LayerConfig;
use crate::error::PolicyError;
use crate::rejection::LockRejection;

/// Locks many routes by one table, built in code or read from the application's configuration.
///
/// Each [`LockPolicy`] names a route and the key that its requests are locked by. The table is a
/// layer: put it on the router with [`Router::layer`](axum::Router::layer) or
/// [`Router::route_layer`](axum::Router::route_layer), inside of the
/// `Extension` that brings the manager. It finds the policy by axum's
/// [`MatchedPath`](axum::extract::MatchedPath), and lets requests pass that no policy is for.
///
/// Cloning is cheap, and clones know the same of which policies [matched](Self::unmatched).
///
/// # A policy whose route does not exist
///
/// is one that locks nothing, and axum does not tell a layer which routes there are. So:
///
/// * [`check_routes`](Self::check_routes) compares the table with a list of the application's
///   routes, at start-up or in a test;
/// * [`unmatched`](Self::unmatched) gives the policies that no request has matched so far, for the
///   end of an integration test;
/// * a request whose path fits a policy, but that axum did not match with the policy's route (there
///   is no such route, or a wider one such as `/{*rest}` took the request, or the layer stands
///   where `MatchedPath` is not known) is refused with 500, instead of being served unlocked. So is
///   one whose path fits but for doubled slashes, unless it is left to the router's fallback;
/// * a request that matched a route which ends as the policy's does (the prefix of a nested router
///   was forgotten) is served, and the first one is logged at error.
///
/// # Examples
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// use http::Method;
/// use redlock_axum::{LockManager, LockPolicies, LockPolicy};
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
///     .layer(Extension(LockManager::in_memory()));
/// # Ok::<(), redlock_axum::PolicyError>(())
/// ```
#[cfg_attr(feature = "serde", doc = include_str!("config.md"))]
#[derive(Debug, Clone)]
#[must_use]
pub struct LockPolicies {
    pub(super) table: Arc<Table>,
    pub(super) config: Arc<LayerConfig>,
}

impl LockPolicies {
    /// Makes a table.
    ///
    /// # Errors
    ///
    /// A [`PolicyError`] that names the policy: for a route or a key template that cannot be read,
    /// a placeholder that the route lacks, an option out of its range, and two policies for the
    /// same method of the same route.
    pub fn new(policies: impl IntoIterator<Item = LockPolicy>) -> Result<Self, PolicyError> {
        let mut table = Table::default();
        for policy in policies {
            table.add(policy)?;
        }
        Ok(Self { table: Arc::new(table), config: Arc::default() })
    }

    /// Answers refused requests in the application's own words, see
    /// [`LockLayer::on_reject`](crate::LockLayer::on_reject).
    pub fn on_reject<F, R>(mut self, on_reject: F) -> Self
    where
        F: Fn(LockRejection) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        Arc::make_mut(&mut self.config).set_on_reject(on_reject);
        self
    }

    /// Sets the manager. Defaults to the one that the application installed with
    /// `.layer(axum::Extension(locks))`.
    pub fn manager(mut self, manager: LockManager) -> Self {
        Arc::make_mut(&mut self.config).set_manager(manager);
        self
    }

    /// Compares the table with the application's routes, each written as in
    /// [`LockPolicy::new`].
    ///
    /// # Errors
    ///
    /// A [`PolicyError`] for the first policy whose route is not in the list, or is there without a
    /// parameter that the policy's key needs.
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

    /// Gives the policies that no request has matched since the table was made.
    pub fn unmatched(&self) -> impl Iterator<Item = &LockPolicy> {
        self.table.unmatched()
    }
}
