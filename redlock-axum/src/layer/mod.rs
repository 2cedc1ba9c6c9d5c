//! The tower layer that locks requests.

mod service;

use std::fmt::Display;
use std::sync::Arc;

use axum::response::IntoResponse;
use http::Method;
use http::request::Parts;
use redlock_core::{IntoLockKey, KeyTemplate, LockManager};
use tower_layer::Layer;

pub use service::LockService;

use crate::config::{KeySource, LayerConfig, Methods, RouteLock};
use crate::error::SetupError;
use crate::options::route_option_setters;
use crate::rejection::LockRejection;

/// Locks each request with a key that is made from the request: its path, its headers, its query and its
/// extensions.
///
/// A request whose lock is not acquired is answered with a [`LockRejection`], and the inner service
/// is not called. Handlers behind the layer can inspect their lock with the extractor
/// [`HeldLock`](crate::HeldLock).
///
/// # Keys
///
/// The key is a [`KeyTemplate`], or the result of a function, see [`from_fn`](Self::from_fn). A placeholder of
/// the template takes its value from one of four sources:
///
/// | placeholder | value | 400 | 500 |
/// |---|---|---|---|
/// | `{id}` | the path parameter of the matched route, percent-decoded. For a wildcard `/{*rest}`, `{rest}` is the rest of the path | not UTF-8 | the route lacks it |
/// | `{header(x-user)}` | the header's text without blanks around it. The case of the name does not matter | missing, repeated, or not UTF-8 | |
/// | `{query(tenant)}` | the query parameter, decoded as a form: `%20` and `+` are a blank | missing, repeated, or not UTF-8 | |
/// | `{ext(claims)}` | the result of the function that [`ext`](Self::ext) has registered, for an extension of the request | | no function is registered, or the request lacks the extension |
///
/// Each of them may have a type: `{id:u64}`, `{query(item):i64}`, `{header(x-request):uuid}` and
/// `{ext(code):lower}` take a value of that type and write it in its canonical form; another value is
/// answered with 400. Prefer the typed placeholders: `42` and `042` are one order and must not have two
/// locks. An empty value is answered with 400. All values are escaped, so no value can pretend to be another
/// key.
///
/// The layer does not see the body of a request. A handler whose keys are in the body, such as the articles of a
/// cart, has the attribute with [`keys`](crate::redis_lock#several-keys) instead.
///
/// A client can send any header and any query. Lock by a header only if a proxy or an authentication layer
/// sets or checks it: otherwise, a client with another value gets another lock for the same resource. Keys
/// are written to the servers and to the log, so do not make them from passwords and tokens.
///
/// ```
/// use redlock_axum::LockLayer;
///
/// #[derive(Clone)]
/// struct Claims {
///     tenant: String,
/// }
///
/// let lock = LockLayer::new("export:{ext(tenant)}:{query(month):u64}")
///     .ext("tenant", |claims: &Claims| claims.tenant.clone());
/// # assert!(lock.checked().is_ok());
/// ```
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
/// [`max_hold`](Self::max_hold) without [`renew`](Self::renew), and a placeholder `{ext(name)}` without
/// its function can only be detected when the layer is complete, and are logged when requests arrive. Call [`checked`](Self::checked) if the
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
        Self::with_route_lock(RouteLock::new(KeyTemplate::new(template).map_err(SetupError::from)))
    }

    /// Creates a layer that locks each request with the key that the function returns.
    ///
    /// For keys that no template describes. The function gets the request without its body. The layer passes
    /// the result on as it is: wrap each value that a client writes in a [`KeyPart`](crate::KeyPart), which
    /// escapes it. A result that is no key is a [`KeyError`](crate::KeyError) and refuses the request: an empty
    /// part with 400, a key that begins with `redlock:` with 500.
    ///
    /// The path parameters are not among the [`Parts`]; take them with a placeholder of a template.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::request::Parts;
    /// use redlock_axum::{KeyPart, LockLayer};
    ///
    /// /// Returns the key of a user. Without the header, the part is empty, which is answered with 400.
    /// fn user_key(parts: &Parts) -> String {
    ///     let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
    ///     format!("user:{}", KeyPart(user.unwrap_or_default()))
    /// }
    ///
    /// let lock = LockLayer::from_fn(user_key);
    /// let by_method = LockLayer::from_fn(|parts: &Parts| format!("import:{}", parts.method));
    /// ```
    pub fn from_fn<F, K>(key: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLockKey,
    {
        Self::with_route_lock(RouteLock::with_key(Ok(KeySource::from_fn(key))))
    }

    fn with_route_lock(route_lock: RouteLock) -> Self {
        Self { route_lock: Arc::new(route_lock), config: Arc::default(), reported: None }
            .report_mistake()
    }

    /// Registers the function that returns the value of the placeholder `{ext(name)}`.
    ///
    /// The type of the function's argument selects the extension of the request, such as the claims that an
    /// authentication layer has inserted. That layer must be outside of this one, so it is added to the
    /// router later; a request without the extension is answered with 500, and an error is logged. The result is
    /// escaped, and an empty one is answered with 400. A second function with the same name replaces the first.
    pub fn ext<T, V, F>(mut self, name: &str, value: F) -> Self
    where
        F: Fn(&T) -> V + Send + Sync + 'static,
        T: Send + Sync + 'static,
        V: Display,
    {
        Arc::make_mut(&mut self.config).extension_values.register(name, value);
        self
    }

    route_option_setters!(self => RouteLock::changed(&mut self.route_lock).options; self.report_mistake());

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
    /// fn api_error(rejection: LockRejection) -> impl axum::response::IntoResponse {
    ///     let body = Json(ApiError { message: rejection.detail() });
    ///     (rejection.status(), rejection.headers(), body) // the headers: Retry-After
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
    /// A [`SetupError`] for a template that cannot be parsed, a placeholder `{ext(name)}` without a function, a time
    /// out of range, options that conflict, a `contended_status` that is not an error status, or an empty list of
    /// methods.
    pub fn checked(self) -> Result<Self, SetupError> {
        let key = self.route_lock.check()?;
        self.config.extension_values.check(key)?;
        Ok(self)
    }

    fn with(mut self, change: impl FnOnce(&mut RouteLock)) -> Self {
        change(RouteLock::changed(&mut self.route_lock));
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
