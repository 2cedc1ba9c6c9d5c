//! The tower layer that locks requests by its policies.

#[cfg(feature = "serde")]
mod de;
mod key;
pub(crate) mod methods;
mod policy;
mod service;
mod table;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::Method;
use http::request::Parts;
use redlock_core::__private::{Acquisition, LockName, RequestPlace, check_name, has_lock};
use redlock_core::{InvalidOption, LockManager};
use tower_layer::Layer;

pub use policy::LockPolicy;
pub use service::LockService;

use crate::error::SetupError;
#[cfg(doc)]
use crate::options::BodyMode;
use crate::options::BodyOptions;
use crate::rejection::{LockOrigin, LockRejection};
use crate::serve::locked::RequestLock;
use table::Table;

type OnReject = Arc<dyn Fn(LockRejection) -> Response + Send + Sync>;

/// Locks requests by a checked list of [policies](LockPolicy).
///
/// A request whose lock is not acquired is answered with a [`LockRejection`], and the inner service
/// is not called. Handlers behind the layer can inspect their lock with the extractor
/// [`HeldLock`](crate::HeldLock).
///
/// [`new`](Self::new) makes a layer with one policy, and [`table`](Self::table) a layer with a policy for each of many
/// routes. Both check the policies, also with the manager, so that a mistake is found when the service starts.
///
/// # Values older than the lock
///
/// A layer and the attribute [`redis_lock`](crate::redis_lock) have opposite orders. A layer acquires the lock, then the
/// parameters of the handler are extracted. The attribute extracts them first, so **a value that an extractor has read may
/// be out of date when the handler begins**: another request may have changed it while this one waited. Behind a layer,
/// an extractor that loads an order loads it under the lock. With the attribute, read it again in the body, or extract it
/// by [`UnderLock`](crate::UnderLock).
///
/// A middleware outside of the layer runs before the lock is acquired. So the `Extension` of an outer auth layer, and the
/// snapshot of a transaction that an outer middleware has begun, may be out of date, too. A middleware that commits after
/// the handler must be inside of the lock: `.layer(transaction).layer(lock)`, see
/// [Locks and transactions](crate::guide::transactions).
///
/// # Where it goes
///
/// | place | locks |
/// |---|---|
/// | `post(pay).route_layer(layer)`, [`MethodRouter::route_layer`](axum::routing::MethodRouter::route_layer) | the methods of this route that were added before, but no handler of [`any`](axum::routing::any) |
/// | `any(pay).layer(layer)`, [`MethodRouter::layer`](axum::routing::MethodRouter::layer) | all methods of this route, including the handler of `any`, and its 405 answers |
/// | `post(pay.layer(layer))`, [`Handler::layer`](axum::handler::Handler::layer) | this handler, also as a fallback: `Router::fallback(pay.layer(layer))` |
/// | [`Router::route_layer`](axum::Router::route_layer) | all routes that were added before, and their 405 answers |
/// | [`Router::layer`](axum::Router::layer) | the same, and the requests that no route matched |
///
/// Use `route_layer`, as axum recommends for layers that may refuse a request: with `layer`, a request for a path that
/// does not exist takes a lock too, and is refused with 500 if the key has a path parameter. For
/// [`any`](axum::routing::any) use `.layer`: axum treats the handler of `any` as a fallback, so
/// `any(pay).route_layer(layer)` panics when the router is built, and
/// `any(pay).get(show).route_layer(layer)` locks GET alone.
///
/// As every layer, it reaches only the routes that were added before it. A route that is added later is served without
/// its lock. A handler with a [`HeldLock`](crate::HeldLock) parameter refuses every request without a lock.
///
/// # Routes
///
/// A policy with a [route](LockPolicy::route) locks the requests that axum has matched with it
/// ([`MatchedPath`](axum::extract::MatchedPath)). Requests without a policy pass unlocked. A layer cannot ask axum for
/// the list of routes, so a policy whose route does not exist locks nothing. Three checks find such a policy:
///
/// * [`check_routes`](Self::check_routes) compares the policies with a list of the application's
///   routes, at start-up or in a test.
/// * [`unmatched`](Self::unmatched) returns the policies that no request has matched so far, for the
///   end of an integration test that sends a request to each locked route.
/// * A request is refused with 500, instead of being served unlocked, if its path fits a policy but axum
///   did not match the policy's route. The router has no such route, a wider route such as `/{*rest}`
///   took the request, or the layer is at a place without `MatchedPath`: around a router, or around a `nest_service`.
///
/// # The body of a request
///
/// The layer reads the body of a request before it requests the lock, so that a slow client holds no lock, and the handler
/// has the whole body when it begins. [`BodyMode`] has the rules, and the other mode for handlers that stream.
///
/// | answered | with |
/// |---|---|
/// | before the body is read | 400 for the key, 500 for a mistake, 413 for an announced length above the [`body_limit`](LockPolicy::body_limit), 503 after a [drain](crate::LockManager::drain) or a shutdown, and, if the request does not wait, 409 while this process holds the lock |
/// | while the body is read | 413, 400 if the body breaks off, 503 if the [`body_buffers`](crate::LockManagerBuilder::body_buffers) of the manager are full, or a drain begins |
/// | afterwards | everything else |
///
/// Over HTTP/1.1, the rest of a refused upload is read after the answer, for up to 30 s, so that its client gets the answer: see
/// [refused uploads](crate::guide::production#slow-clients). The client of a request with `Expect: 100-continue` sends its body only if the request was not answered before. Trailers
/// are kept.
///
/// # Services behind the layer
///
/// The layer asks a service behind it whether it is ready after the lock is acquired. So requests that wait for their locks
/// take no places of a `ConcurrencyLimit` or a `Buffer` behind the layer, and do not count as its load. A `LoadShed` must
/// be on the same side of the lock as its limit: outside of the lock, it does not see the limits behind the lock, because
/// the layer itself is always ready. A service that is not ready before the lock is lost is not called, and the request is
/// answered with 503.
///
/// # Cancel safety
///
/// If the request is dropped (the client disconnects, or a timeout around the layer fires), the
/// lock is released in the background.
///
/// # Examples
///
/// The login is outside of the locks, because it is added after them. A stranger then gets no lock, and keeps nobody out.
/// A login that is an extractor of the handler would run under the lock.
///
/// ```
/// use std::time::Duration;
///
/// use axum::extract::Request;
/// use axum::http::{StatusCode, header};
/// use axum::middleware::{self, Next};
/// use axum::response::{IntoResponse, Response};
/// use axum::{Router, routing::post};
/// use redlock_axum::{LockLayer, LockManager, LockPolicy};
///
/// async fn login(request: Request, next: Next) -> Response {
///     match request.headers().get(header::AUTHORIZATION) {
///         Some(_token) => next.run(request).await, // after a check of the token
///         None => StatusCode::UNAUTHORIZED.into_response(),
///     }
/// }
///
/// let locks = LockManager::in_memory();
/// let coupon = LockPolicy::new("coupon:{code:lower}").wait_time(Duration::from_millis(500));
///
/// let app: Router = Router::new()
///     .route("/orders/{id}/pay", post(|| async { "paid" }))
///     .route_layer(LockLayer::new(&locks, "order:{id:u64}")?)
///     .route(
///         "/coupons/{code}/claim",
///         post(|| async { "yours" }).route_layer(LockLayer::new(&locks, coupon)?),
///     )
///     .layer(middleware::from_fn(login));
/// # Ok::<(), redlock_axum::SetupError>(())
/// ```
#[derive(Clone)]
#[must_use = "a layer locks nothing until it is added to a router or a service"]
pub struct LockLayer {
    locks: LockManager,
    table: Arc<Table>,
    on_reject: Option<OnReject>,
    /// Of the locks whose policies have no name.
    name: Option<LockName>,
}

/// The lock of a request that has a policy.
struct Matched {
    acquisition: Acquisition,
    lock: RequestLock,
    origin: LockOrigin,
    body: BodyOptions,
}

impl LockLayer {
    /// Creates a layer with one policy, which may be the text of a [key template](LockPolicy#keys).
    ///
    /// A policy without a [route](LockPolicy::route) locks each request that reaches the layer.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] for a key template or a route that cannot be parsed, a placeholder without a value, an option out
    /// of its range, options that conflict, and an option that the manager or its nodes do not support.
    pub fn new(locks: &LockManager, policy: impl Into<LockPolicy>) -> Result<Self, SetupError> {
        let policy = policy.into();
        let has_route = policy.route.is_some();
        Self::with(locks, Table::new(locks, [policy], has_route))
    }

    /// Creates a layer with a policy for each of several routes. The policies may come from the application's
    /// [configuration](LockPolicy#from-a-configuration-file).
    ///
    /// Logs a warning if the keys of two policies differ only in the types of their placeholders: one resource may then
    /// have two locks.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] as of [`new`](Self::new), for a policy without a [route](LockPolicy::route), and for two policies
    /// that have the same route and a common method.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::http::Method;
    /// use axum::{Router, routing::post};
    /// use redlock_axum::{LockLayer, LockManager, LockPolicy};
    ///
    /// let locks = LockManager::in_memory();
    /// let table = LockLayer::table(&locks, [
    ///     LockPolicy::new("order:{id:u64}").route("/orders/{id}/pay").methods([Method::POST]),
    ///     LockPolicy::new("stock:{sku}").route("/stock/{sku}/reserve").methods([Method::POST]),
    /// ])?;
    ///
    /// let app: Router = Router::new()
    ///     .route("/orders/{id}/pay", post(|| async { "paid" }))
    ///     .route("/stock/{sku}/reserve", post(|| async { "reserved" }))
    ///     .route_layer(table);
    /// # Ok::<(), redlock_axum::SetupError>(())
    /// ```
    pub fn table(
        locks: &LockManager,
        policies: impl IntoIterator<Item = LockPolicy>,
    ) -> Result<Self, SetupError> {
        Self::with(locks, Table::new(locks, policies, true))
    }

    fn with(locks: &LockManager, table: Result<Table, SetupError>) -> Result<Self, SetupError> {
        Ok(Self { locks: locks.clone(), table: Arc::new(table?), on_reject: None, name: None })
    }

    /// Sets the function that makes the response to a refused request. Defaults to the response of
    /// [`LockRejection`].
    ///
    /// # Examples
    ///
    /// A body in the form of the application's other errors. [`detail`](LockRejection::detail) contains neither
    /// the key nor the nodes, so it may be sent to clients.
    ///
    /// ```
    /// use axum::Json;
    /// use redlock_axum::{LockLayer, LockManager, LockRejection};
    /// use serde::Serialize;
    ///
    /// #[derive(Serialize)]
    /// struct ApiError {
    ///     message: String,
    /// }
    ///
    /// fn api_error(rejection: LockRejection) -> impl axum::response::IntoResponse {
    ///     let body = Json(ApiError { message: rejection.detail() });
    ///     (rejection.status(), rejection.headers(), body) // the headers: Retry-After
    /// }
    ///
    /// let locks = LockManager::in_memory();
    /// let layer = LockLayer::new(&locks, "order:{id:u64}")?.on_reject(api_error);
    /// # Ok::<(), redlock_axum::SetupError>(())
    /// ```
    pub fn on_reject<F, R>(mut self, on_reject: F) -> Self
    where
        F: Fn(LockRejection) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.on_reject = Some(Arc::new(move |rejection| on_reject(rejection).into_response()));
        self
    }

    /// Sets the name of the layer's locks for tables and metrics, see [`LockRequest::named`](crate::LockRequest::named). A policy
    /// that is [named](LockPolicy::named) keeps its own name. Defaults to the template of each policy's key.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidOption`] for a name that has not from 1 to 100 bytes, or has a control character.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_axum::{LockLayer, LockManager};
    ///
    /// let locks = LockManager::in_memory();
    /// let layer = LockLayer::new(&locks, "order:{id:u64}")?.named("orders")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Result<Self, InvalidOption> {
        let name = LockName::new(name);
        check_name(&name)?;
        self.name = Some(name);
        Ok(self)
    }

    /// Checks that the application has the route of every policy. Write each route as in
    /// [`LockPolicy::route`].
    ///
    /// # Errors
    ///
    /// A [`SetupError`] for the first policy whose route is not in the list, or whose key has a
    /// placeholder that the route in the list lacks.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_axum::{LockLayer, LockManager, LockPolicy};
    ///
    /// let locks = LockManager::in_memory();
    /// let table = LockLayer::table(&locks, [LockPolicy::new("order:{id}").route("/orders/{id}")])?;
    /// assert!(table.check_routes(["/health", "/orders/{id}"]).is_ok());
    /// assert!(table.check_routes(["/health", "/order/{id}"]).is_err());
    /// # Ok::<(), redlock_axum::SetupError>(())
    /// ```
    pub fn check_routes<I>(&self, routes: I) -> Result<(), SetupError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.table.check_routes(routes)
    }

    /// Returns the policies that no request has matched since the layer was created. Clones of the layer share this record.
    pub fn unmatched(&self) -> impl Iterator<Item = &LockPolicy> {
        self.table.unmatched()
    }

    /// Returns the lock of a request, or `None` if the request has no policy.
    fn lock(&self, parts: &mut Parts) -> Result<Option<Matched>, LockRejection> {
        let Some(checked) = self.table.select(parts)? else { return Ok(None) };
        let (origin, body) = (checked.origin(parts), checked.policy.body);
        match checked.request(&self.locks, self.name.as_ref(), parts) {
            Ok((mut acquisition, lock)) => {
                // Only the order of two locks needs the place of the second one.
                if has_lock() {
                    acquisition = acquisition.with_place(place(&origin, &parts.method));
                }
                Ok(Some(Matched { acquisition, lock, origin, body }))
            }
            Err(refusal) => Err(refusal.at(origin)),
        }
    }

    fn reject(&self, rejection: LockRejection) -> Response {
        let rejection = rejection.with_log_limit(self.locks.log_limit());
        match &self.on_reject {
            None => rejection.into_response(),
            Some(on_reject) => rejection.respond_by(|rejection| on_reject(rejection)),
        }
    }
}

/// Returns where a layer requests a lock, for warnings.
fn place(origin: &LockOrigin, method: &Method) -> RequestPlace {
    let text = match (&origin.route, &origin.lock) {
        (Some(route), _) => format!("the route {method} {}", route.as_str()),
        (None, key) => format!("the layer of {}", key.as_deref().unwrap_or_default()),
    };
    RequestPlace::Layer(text.into())
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    // Must be cheap: axum may call this for every connection, or even for every request.
    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, self.clone())
    }
}

impl fmt::Debug for LockLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("locks", &self.locks)
            .field("policies", &self.table.policies().collect::<Vec<_>>())
            .field("on_reject", &self.on_reject.is_some())
            .field("name", &self.name)
            .finish()
    }
}
