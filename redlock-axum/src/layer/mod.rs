//! The tower layer that locks requests.

mod service;

use std::sync::Arc;

use axum::response::IntoResponse;
use http::Method;
use redlock_core::{KeyTemplate, LockManager};
use tower_layer::Layer;

pub use service::LockService;

use crate::config::LayerConfig;
use crate::config::Methods;
use crate::config::RouteLock;
use crate::error::SetupError;
use crate::options::route_option_setters;
use crate::rejection::LockRejection;

/// Locks each request with a key that is made from the request's path.
///
/// The key is a [`KeyTemplate`]. Its placeholders are path parameters of the matched route,
/// percent-decoded: `{id}` takes any text; `{id:u64}`, `{id:i64}`, `{id:uuid}` and `{code:lower}` take a
/// value of that type and write it in its canonical form. Prefer the typed placeholders: `42` and `042`
/// are one order and must not have two locks. The placeholder `{rest}` is the part of the path that a
/// wildcard `/{*rest}` matches.
///
/// A request whose lock is not acquired is answered with a [`LockRejection`], and the inner service
/// is not called. Handlers behind the layer can inspect their lock with the extractor
/// [`HeldLock`](crate::HeldLock).
///
/// # Where it goes
///
/// | place | locks |
/// |---|---|
/// | `post(pay).route_layer(layer)`, [`MethodRouter::route_layer`](axum::routing::MethodRouter::route_layer) | the methods of this route that were added before, but no handler of [`any`](axum::routing::any) |
/// | `any(pay).layer(layer)`, [`MethodRouter::layer`](axum::routing::MethodRouter::layer) | all methods of this route, including the handler of `any`, and its 405 answers |
/// | `post(pay.layer(layer))`, [`Handler::layer`](axum::handler::Handler::layer) | this handler; as a fallback, `Router::fallback(pay.layer(layer))`, only with [`lock_fallback`](Self::lock_fallback) |
/// | [`Router::route_layer`](axum::Router::route_layer) | all routes that were added before, and their 405 answers |
/// | [`Router::layer`](axum::Router::layer) | the same; requests that no route matched pass unlocked, see [`lock_fallback`](Self::lock_fallback) |
///
/// For [`any`](axum::routing::any) use `.layer`. axum treats the handler of `any` as a fallback, so
/// `any(pay).route_layer(layer)` panics when the router is built, and
/// `any(pay).get(show).route_layer(layer)` locks GET alone.
///
/// A request to a route that lacks a placeholder of the key is answered with 500, and an error is logged.
/// Outside and inside of `nest_service`, the layer cannot find out from axum whether the nested service has
/// a route for a request, so it locks all requests to that service.
///
/// # Mistakes
///
/// A literal template should not need an `unwrap`, and a layer must not panic. The builder therefore
/// accepts every value. A wrong template or option is logged at once, at error, and each request is refused
/// with 500, because serving it unlocked would be worse. Options that conflict, such as
/// [`max_hold`](Self::max_hold) without [`renew`](Self::renew), can only be detected when the
/// layer is complete, and are logged when requests arrive. Call [`checked`](Self::checked) if the
/// template comes from a configuration, or in a test, to get the mistake as an error.
///
/// # Cancel safety
///
/// If the request is dropped (the client disconnects, or a timeout around the layer fires), the
/// lock is released in the background.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use axum::{Router, routing::post};
/// use redlock_axum::{LockLayer, LockManager, LocksLayer};
///
/// let lock = LockLayer::new("coupon:{code:lower}")
///     .expire(Duration::from_secs(10))
///     .wait_time(Duration::from_millis(500));
///
/// let app: Router = Router::new()
///     .route("/coupons/{code}/claim", post(|| async { "yours" }).route_layer(lock))
///     .layer(LocksLayer::new(&LockManager::in_memory()));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct LockLayer {
    route_lock: Arc<RouteLock>,
    config: Arc<LayerConfig>,
    /// The mistake that was logged last.
    reported: Option<SetupError>,
}

impl LockLayer {
    /// Creates a layer that locks requests with the given key template.
    ///
    /// A wrong template does not fail here; see [mistakes](#mistakes).
    pub fn new(template: &str) -> Self {
        let route_lock = RouteLock::new(KeyTemplate::new(template).map_err(SetupError::from));
        Self { route_lock: Arc::new(route_lock), config: Arc::default(), reported: None }
            .report_mistake()
    }

    route_option_setters!(self => Arc::make_mut(&mut self.route_lock).options; self.report_mistake());

    /// Locks only requests with these methods; others pass unlocked. Defaults to all methods.
    ///
    /// GET includes HEAD, because axum answers HEAD with the handler for GET.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|route_lock| route_lock.methods = Methods::only(methods))
    }

    /// Also locks requests that no route of the router matches. By default they pass unlocked, so that
    /// a request for a path that does not exist takes no lock.
    ///
    /// Call it if the layer is around a fallback that does work, such as
    /// [`Router::fallback_service`](axum::Router::fallback_service). Without it, the first unlocked response
    /// of a fallback with another status than 404 or 405 is logged at warn.
    pub fn lock_fallback(self) -> Self {
        self.with(|route_lock| route_lock.lock_fallback = true)
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
    /// use redlock_axum::{LockLayer, LockRejection};
    /// use serde::Serialize;
    ///
    /// #[derive(Serialize)]
    /// struct ApiError {
    ///     message: String,
    /// }
    ///
    /// fn api_error(rejection: LockRejection) -> (axum::http::StatusCode, Json<ApiError>) {
    ///     (rejection.status(), Json(ApiError { message: rejection.detail() }))
    /// }
    ///
    /// let lock = LockLayer::new("order:{id:u64}").on_reject(api_error);
    /// ```
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

    /// Returns the layer, or the first mistake in its settings.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] for a template that cannot be parsed, a time out of range, options that
    /// conflict, a `contended_status` that is not an error status, or an empty list of methods.
    pub fn checked(self) -> Result<Self, SetupError> {
        self.route_lock.check()?;
        Ok(self)
    }

    fn with(mut self, change: impl FnOnce(&mut RouteLock)) -> Self {
        change(Arc::make_mut(&mut self.route_lock));
        self.report_mistake()
    }

    /// Logs, once, a mistake that setting more options cannot correct.
    fn report_mistake(mut self) -> Self {
        let mistake = self.route_lock.check_independent().err();
        if let Some(mistake) = &mistake
            && self.reported.as_ref() != Some(mistake)
        {
            tracing::error!("a lock layer is misconfigured and refuses all requests: {mistake}");
        }
        self.reported = mistake;
        self
    }
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    // Must be cheap: axum may call this for every connection, or even for every request.
    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, self.clone())
    }
}
