//! The layer, and how it is made.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use http::request::Parts;
use http::{HeaderName, Method};
use redlock_core::__private::LockName;
use redlock_core::{InvalidOption, LockManager};

use super::answers::Answers;
use super::rejection::IdempotencyRejection;
use super::settings::{OnRefusal, Settings, Unfinished};
use crate::layer::methods::Methods;

/// The function that returns the scope of a request.
type ScopeFn = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// The state of an [`IdempotencyLayer`] that does not know yet whose keys its clients send. It is no layer yet:
/// [`scope`](IdempotencyLayer::scope) or [`shared_scope`](IdempotencyLayer::shared_scope) completes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnscopedKeys;

/// The state of an [`IdempotencyLayer`] that is complete.
#[derive(Clone)]
pub struct ScopedKeys(Option<ScopeFn>);

impl fmt::Debug for ScopedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScopedKeys").field(&self.0.is_some()).finish()
    }
}

/// Executes each request with an `Idempotency-Key` once, and answers its repetitions with the stored answer.
///
/// The first request runs under a renewed lock `idempotency:{scope}:{key}`, in a task of its own that goes on when the client
/// leaves. Requests with the same key are refused meanwhile, or wait. The page
/// [`guide::idempotency`](crate::guide::idempotency) has the answer to each request, and the effect of a crash.
///
/// # Examples
///
/// ```
/// use axum::http::request::Parts;
/// use axum::{Router, routing::post};
/// use redlock_axum::{IdempotencyLayer, LockManager, MemoryAnswers};
///
/// /// Who has sent a request. A layer outside has verified the login, and has added this extension.
/// #[derive(Clone)]
/// struct Customer(u64);
///
/// fn customer(parts: &Parts) -> Option<String> {
///     parts.extensions.get().map(|Customer(id)| id.to_string())
/// }
///
/// let locks = LockManager::in_memory();
/// // For one process. `RedisAnswers` and `PostgresAnswers` are for several.
/// let once = IdempotencyLayer::new(&locks, MemoryAnswers::new()).scope(customer)?;
/// let app: Router = Router::new().route("/payments", post(|| async { "paid" })).route_layer(once);
/// # Ok::<(), redlock_axum::InvalidOption>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct IdempotencyLayer<S = ScopedKeys> {
    pub(super) settings: Arc<Settings>,
    scope: S,
}

impl IdempotencyLayer<UnscopedKeys> {
    /// Begins a layer. [`scope`](Self::scope) or [`shared_scope`](Self::shared_scope) completes it, after the other options.
    ///
    /// All copies of a service need locks and answers on the same servers. `locks` and `answers` may be on different ones.
    pub fn new(locks: &LockManager, answers: impl Answers) -> Self {
        let settings = Settings::new(locks, Arc::new(answers));
        Self { settings: Arc::new(settings), scope: UnscopedKeys }
    }

    fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets the name of the layer's locks and replays for tables and metrics, as [`named`](crate::LockRequest::named) of a request.
    /// Defaults to `idempotency`.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with(|settings| settings.name = LockName::new(name))
    }

    /// Runs the handler of a request without a key, as without the layer. By default such a request is refused with 400.
    pub fn optional(self) -> Self {
        self.with(|settings| settings.is_optional = true)
    }

    /// Sets the longest time for which a repetition waits for the first request, and then gets its answer. By default it is
    /// refused at once with 409.
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|settings| settings.wait = Some(wait))
    }

    /// Sets the time for which an answer is kept: from 1 s to 366 days. Defaults to 24 h.
    ///
    /// A claim is kept for the same time, so the work of a request must be shorter.
    pub fn keep(self, keep: Duration) -> Self {
        self.with(|settings| settings.keep = keep)
    }

    /// Sets what happens after a request that has begun and stored no answer. Defaults to [`Unfinished::RunAgain`].
    pub fn unfinished(self, unfinished: Unfinished) -> Self {
        self.with(|settings| settings.unfinished = unfinished)
    }

    /// Sets the longest body of a request in bytes. A longer one is refused with 413. Defaults to 1 MiB.
    ///
    /// From 1 to the [`body_buffers`](crate::LockManagerBuilder::body_buffers) of the manager, which bound all bodies together.
    pub fn body_limit(self, bytes: usize) -> Self {
        self.with(|settings| settings.body_limit = Some(bytes))
    }

    /// Sets the longest body of an answer that is kept, in bytes, from 0 to 64 MiB. Defaults to 1 MiB.
    ///
    /// A longer answer goes out to its client, with an error in the log, and later requests with its key are refused: 409 with
    /// the code `answer_not_kept`.
    pub fn answer_limit(self, bytes: usize) -> Self {
        self.with(|settings| settings.answer_limit = bytes)
    }

    /// Adds a header of answers that is stored, beside `content-type`, `content-encoding`, `location` and `etag`.
    ///
    /// `set-cookie`, `date`, `content-length` and the headers of a connection cannot be stored.
    pub fn store_header(self, name: HeaderName) -> Self {
        self.with(|settings| settings.stored_headers.push(name))
    }

    /// Decides which answers are stored. The function gets the head of a response, and whether the layer would store it. Without
    /// a stored answer, the next request with the key runs the handler.
    ///
    /// By default every answer is stored, except those with the status 401, 403, 408, 409, 425, 429 or 5xx, with a `Retry-After`,
    /// or by a refused lock. A handler that panics has no answer.
    pub fn store_if(
        self,
        store_if: impl Fn(&http::response::Parts, bool) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.store_if = Some(Arc::new(store_if)))
    }

    /// Sets the methods whose requests have keys. The requests of other methods pass by. Defaults to all methods except GET, HEAD
    /// and OPTIONS.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = Methods::new(methods);
        self.with(|settings| settings.methods = Some(methods))
    }

    /// Lets the handler store its answer in its own transaction: see [`Idempotency`](crate::Idempotency). The layer sends
    /// what the handler has stored. If the handler has stored nothing, the layer stores the answer as usual.
    ///
    /// Only a store whose records are in the database of the handler fits, such as `PostgresAnswers`.
    pub fn stored_by_handler(self) -> Self {
        self.with(|settings| settings.stored_by_handler = true)
    }

    /// Stops the handler when its client leaves. By default it goes on: a client that gives up too early, and asks again, would
    /// otherwise find work that is half done.
    pub fn with_client(self) -> Self {
        self.with(|settings| settings.is_detached = false)
    }

    /// Sets the function that makes the response to a refused request. Defaults to the response of [`IdempotencyRejection`].
    pub fn on_reject<F, R>(self, on_reject: F) -> Self
    where
        F: Fn(IdempotencyRejection) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        let on_reject: OnRefusal = Arc::new(move |rejection| on_reject(rejection).into_response());
        self.with(|settings| settings.on_reject = Some(on_reject))
    }

    /// Completes the layer: the keys of a client are its own. The function returns the client of a request, such as the number of
    /// a customer.
    ///
    /// The function must return what a layer outside has verified, as in [the example](Self#examples), and never a header that
    /// the client writes: with the scope of another client, a stranger reads the answers of that client. A request without
    /// a scope, or with an empty one, is refused with 500, and the log says so.
    ///
    /// # Errors
    ///
    /// An [`InvalidOption`] for an option out of its range, for a header that cannot be stored, and for locks without a number that
    /// grows ([`fenced`](crate::LockRequest::fenced)).
    pub fn scope<F>(self, scope: F) -> Result<IdempotencyLayer, InvalidOption>
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.complete(ScopedKeys(Some(Arc::new(scope))))
    }

    /// Completes the layer: all clients are one. Each client that knows or guesses a key reads its answer. For services behind
    /// another service, which is their only client.
    ///
    /// # Errors
    ///
    /// As [`scope`](Self::scope).
    pub fn shared_scope(self) -> Result<IdempotencyLayer, InvalidOption> {
        self.complete(ScopedKeys(None))
    }

    fn complete(self, scope: ScopedKeys) -> Result<IdempotencyLayer, InvalidOption> {
        self.settings.check()?;
        // The first replay is an increase.
        self.settings.count_replays(0);
        Ok(IdempotencyLayer { settings: self.settings, scope })
    }
}

impl IdempotencyLayer {
    /// Returns the scope of a request.
    pub(super) fn scope_of(&self, parts: &Parts) -> Result<String, IdempotencyRejection> {
        let Some(scope) = &self.scope.0 else { return Ok(String::new()) };
        scope(parts).filter(|scope| !scope.is_empty()).ok_or_else(|| {
            IdempotencyRejection::misconfigured(
                "the scope function of an `IdempotencyLayer` has returned no scope; add the layer that verifies the client \
                 outside of the `IdempotencyLayer` (after it), and let it refuse strangers",
            )
        })
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("locks", &self.settings.locks)
            .field("answers", &self.settings.answers)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
