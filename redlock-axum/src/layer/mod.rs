//! Locking by a tower layer.

mod service;

use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use http::{Method, StatusCode};
use redlock_core::{KeyTemplate, LockManager};
use tower_layer::Layer;

pub use service::LockService;

use crate::error::SetupError;
use crate::methods::Methods;
use crate::options::{HoldUntil, OnLost, Wait};
use crate::rejection::LockRejection;
use crate::setup::Setup;
use crate::terms::Terms;

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
    terms: Arc<Terms>,
    setup: Arc<Setup>,
    /// The mistake that the log knows of.
    reported: Option<SetupError>,
}

impl LockLayer {
    /// Locks by the given key template.
    ///
    /// See [mistakes](#mistakes) for what a wrong template does.
    pub fn new(template: &str) -> Self {
        let terms = Terms::new(KeyTemplate::new(template).map_err(SetupError::from));
        Self { terms: Arc::new(terms), setup: Arc::default(), reported: None }.with(|_| ())
    }

    /// Sets the lease: the lock frees itself after this time, even if this process dies. From 10 ms
    /// to 7 days. Defaults to 5 s.
    ///
    /// Choose it longer than the handler takes, or add [`renew`](Self::renew): the handler is not
    /// stopped when the lease runs out, unless [`on_lost`](Self::on_lost) says so.
    pub fn expire(self, expire: Duration) -> Self {
        self.with(|terms| terms.options.expire = expire)
    }

    /// Extends the lease for as long as the lock is held, every third of it. Defaults to not doing so.
    pub fn renew(self) -> Self {
        self.with(|terms| terms.options.renew = true)
    }

    /// Ends the renewal after this time, so that a handler that hangs does not hold its lock for
    /// ever: the lease then runs out. Needs [`renew`](Self::renew). Defaults to no bound.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with(|terms| terms.options.max_hold = Some(max_hold))
    }

    /// Keeps the key locked for at least this time from the acquisition on, even if the handler ends
    /// before: for work that must not be repeated sooner. Not longer than the lease. Defaults to
    /// none, as does zero.
    pub fn min_hold(self, min_hold: Duration) -> Self {
        let min_hold = Some(min_hold).filter(|time| !time.is_zero());
        self.with(|terms| terms.options.min_hold = min_hold)
    }

    /// Leaves the lock to run out instead of releasing it, however the handler ends: one request per
    /// key and lease. Defaults to releasing it.
    pub fn keep(self) -> Self {
        self.with(|terms| terms.options.keep = true)
    }

    /// Shares a lock of the same key that the request holds already, by a layer further out, instead
    /// of refusing the request with [`RejectionKind::AlreadyHeld`](crate::RejectionKind::AlreadyHeld).
    /// It is released with the last of its holders, and keeps the lease of the first. A
    /// [fenced](Self::fenced) layer shares only a lock that is fenced too. Defaults to not sharing.
    pub fn reentrant(self) -> Self {
        self.with(|terms| terms.options.reentrant = true)
    }

    /// Numbers the holders of the lock, so that a database can refuse one that comes late: the handler
    /// gets its number from the extractor [`FencedLock`](crate::FencedLock), unless it stands behind
    /// [another lock](crate::FencedLock#several-locks). On several nodes it costs one more round trip.
    /// Defaults to no numbers.
    pub fn fenced(self) -> Self {
        self.with(|terms| terms.options.fenced = true)
    }

    /// Sets what becomes of a handler whose lock is lost. Defaults to [`OnLost::KeepGoing`].
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|terms| terms.options.on_lost = on_lost)
    }

    /// Sets how long a request waits for a lock that somebody else holds, at most 7 days. Defaults
    /// to not waiting: one attempt.
    pub fn wait_time(self, wait_time: Duration) -> Self {
        self.with(|terms| terms.options.wait = Wait::For(wait_time))
    }

    /// Lets a request wait for as long as it takes. Mind that its client, or a timeout, may lose
    /// patience long before: then the request is dropped, and leaves the line.
    pub fn wait_forever(self) -> Self {
        self.with(|terms| terms.options.wait = Wait::Forever)
    }

    /// Locks only requests with these methods; others pass unlocked. Defaults to all methods.
    ///
    /// GET includes HEAD, because axum answers HEAD with the handler for GET.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|terms| terms.methods = Methods::only(methods))
    }

    /// Sets the status for a lock that somebody else holds. Defaults to 409 Conflict; 423 Locked is
    /// the usual other choice.
    pub fn contended_status(self, status: StatusCode) -> Self {
        self.with(|terms| terms.options.contended_status = status)
    }

    /// Sets how long the lock is held. Defaults to [`HoldUntil::Response`].
    pub fn hold_until(self, hold_until: HoldUntil) -> Self {
        self.with(|terms| terms.options.hold_until = hold_until)
    }

    /// Locks requests that no route of the router matched, too. Defaults to letting them pass
    /// unlocked, so that a request for a path that does not exist takes no lock.
    ///
    /// Needed where the layer stands around a fallback that does work, such as
    /// [`Router::fallback_service`](axum::Router::fallback_service). Without it, the first answer of
    /// a fallback that is neither 404 nor 405 is logged at warn.
    pub fn lock_fallback(self) -> Self {
        self.with(|terms| terms.lock_fallback = true)
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
        Arc::make_mut(&mut self.setup).set_on_reject(on_reject);
        self
    }

    /// Sets the manager. Defaults to the one that the application installed with
    /// `.layer(axum::Extension(locks))`.
    pub fn manager(mut self, manager: LockManager) -> Self {
        Arc::make_mut(&mut self.setup).set_manager(manager);
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
        self.terms.check()?;
        Ok(self)
    }

    fn with(mut self, change: impl FnOnce(&mut Terms)) -> Self {
        change(Arc::make_mut(&mut self.terms));
        let mistake = self.terms.check_each().err();
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
        LockService::new(inner, Arc::clone(&self.terms), Arc::clone(&self.setup))
    }
}
