//! Locking by a tower layer.

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

/// Locks each request by a key that is made from its path.
///
/// The key is a [`KeyTemplate`]. Its placeholders are path parameters of the matched route,
/// percent-decoded: `{id}` takes any text, `{id:u64}`, `{id:i64}`, `{id:uuid}` and `{code:lower}` a
/// value of that type in its one canonical form. Prefer the typed ones: `42` and `042` are one
/// order, and must not have two locks. The part of the path that a wildcard `/{*rest}` stands for
/// is `{rest}`.
///
/// A request that does not get its lock is answered with a [`LockRejection`], and the inner service
/// is not called. Handlers behind the layer can look at their lock with
/// [`HeldLock`](crate::HeldLock).
///
/// # Where it goes
///
/// | place | locks |
/// |---|---|
/// | `post(pay).route_layer(layer)`, [`MethodRouter::route_layer`](axum::routing::MethodRouter::route_layer) | the methods of this route that were added before, but no handler of [`any`](axum::routing::any) |
/// | `any(pay).layer(layer)`, [`MethodRouter::layer`](axum::routing::MethodRouter::layer) | all methods of this route, those of `any` among them, and its 405 answers |
/// | `post(pay.layer(layer))`, [`Handler::layer`](axum::handler::Handler::layer) | this handler; as a fallback, `Router::fallback(pay.layer(layer))`, only with [`lock_fallback`](Self::lock_fallback) |
/// | [`Router::route_layer`](axum::Router::route_layer) | all routes that were added before, and their 405 answers |
/// | [`Router::layer`](axum::Router::layer) | the same; requests that no route matched pass unlocked, see [`lock_fallback`](Self::lock_fallback) |
///
/// For [`any`](axum::routing::any) write `.layer`: `any(pay).route_layer(layer)` panics when the router is
/// built, because axum takes the handler of `any` for a fallback, and `any(pay).get(show).route_layer(layer)`
/// locks GET alone.
///
/// A route that lacks a placeholder of the key is answered with 500 and an error in the log.
/// Around and inside of `nest_service` axum does not tell whether the service has a route for the
/// request, so all of its requests are locked.
///
/// # Mistakes
///
/// A literal template should not need an `unwrap`, and a layer must not panic. So the builder takes
/// everything; a wrong template or option is logged at error at once, and each request is refused
/// with 500, because serving it unlocked would be worse. (Options that do not go together, such as
/// [`max_hold`](Self::max_hold) without [`renew`](Self::renew), are only known to be wrong when the
/// layer is complete, and are logged at each request.) Call [`checked`](Self::checked) where the
/// template comes from a configuration, or in a test, to have the mistake as an error.
///
/// # Cancel safety
///
/// If the request is dropped (the client has gone away, a timeout around the layer has run out), the
/// lock is released in the background.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use axum::{Extension, Router, routing::post};
/// use redlock_axum::{LockLayer, LockManager};
///
/// let lock = LockLayer::new("coupon:{code:lower}")
///     .expire(Duration::from_secs(10))
///     .wait_time(Duration::from_millis(500));
///
/// let app: Router = Router::new()
///     .route("/coupons/{code}/claim", post(|| async { "yours" }).route_layer(lock))
///     .layer(Extension(LockManager::in_memory()));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct LockLayer {
    route_lock: Arc<RouteLock>,
    config: Arc<LayerConfig>,
    /// The mistake that the log knows of.
    reported: Option<SetupError>,
}

impl LockLayer {
    /// Locks by the given key template.
    ///
    /// See [mistakes](#mistakes) for what a wrong template does.
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

    /// Locks requests that no route of the router matched, too. Defaults to letting them pass
    /// unlocked, so that a request for a path that does not exist takes no lock.
    ///
    /// Needed where the layer stands around a fallback that does work, such as
    /// [`Router::fallback_service`](axum::Router::fallback_service). Without it, the first answer of
    /// a fallback that is neither 404 nor 405 is logged at warn.
    pub fn lock_fallback(self) -> Self {
        self.with(|route_lock| route_lock.lock_fallback = true)
    }

    /// Answers refused requests in the application's own words.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_axum::{LockLayer, LockRejection};
    ///
    /// let lock = LockLayer::new("order:{id:u64}")
    ///     .on_reject(|rejection: LockRejection| (rejection.status(), "please wait"));
    /// ```
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

    /// Gives back the layer if nothing is wrong with it.
    ///
    /// # Errors
    ///
    /// A [`SetupError`] for a template that cannot be read, a time out of its range,
    /// options that do not go together, a `contended_status` that is no error, an empty list of
    /// methods.
    pub fn checked(self) -> Result<Self, SetupError> {
        self.route_lock.check()?;
        Ok(self)
    }

    fn with(mut self, change: impl FnOnce(&mut RouteLock)) -> Self {
        change(Arc::make_mut(&mut self.route_lock));
        self.report_mistake()
    }

    /// Logs a mistake that no further option can mend, once.
    fn report_mistake(mut self) -> Self {
        let mistake = self.route_lock.check_each().err();
        if let Some(mistake) = &mistake
            && self.reported.as_ref() != Some(mistake)
        {
            tracing::error!(
                "a lock layer is set up wrongly and will refuse all requests: {mistake}"
            );
        }
        self.reported = mistake;
        self
    }
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    // axum may call this for every connection, or even every request.
    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, self.clone())
    }
}
