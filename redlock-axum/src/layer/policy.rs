//! One entry of a layer: the key of requests, their route and methods, and the options of their lock.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::sync::Arc;

use http::request::Parts;
use http::{Method, StatusCode};
use redlock_core::__private::LockName;
use redlock_core::{Dialect, InvalidOption, KeyError, LockKey, LockManager, LockOptions};

use super::key::{ExtensionFunction, ExtensionFunctions, KeySource, PolicyKey};
use super::methods::Methods;
use crate::error::PolicyMistake;
use crate::options::{BodyMode, BodyOptions, HoldUntil, HttpOptions};

/// Locks the requests of one route, or each request, with a key: an entry of a [`LockLayer`](crate::LockLayer).
///
/// The layer checks its policies, and its constructor returns their mistakes.
///
/// # Keys
///
/// The key is a [`KeyTemplate`](crate::KeyTemplate), or the result of a function, see [`from_fn`](Self::from_fn). A
/// placeholder of the template takes its value from one of four sources:
///
/// | placeholder | value | 400 | 500 |
/// |---|---|---|---|
/// | `{id}` | the path parameter of the matched route, percent-decoded. For a wildcard `/{*rest}`, `{rest}` is the rest of the path | not UTF-8 | the route lacks it |
/// | `{header(x-user)}` | the header's text without blanks around it. The case of the name does not matter | missing, repeated, or not UTF-8 | |
/// | `{query(tenant)}` | the query parameter, decoded as a form: `%20` and `+` are a blank | missing, repeated, or not UTF-8 | |
/// | `{ext(claims)}` | the result of the function that [`ext`](Self::ext) has registered, for an extension of the request | | the request lacks the extension |
///
/// Each of them may have a type: `{id:u64}`, `{query(item):i64}`, `{header(x-request):uuid}` and
/// `{ext(code):lower}` take a value of that type and write it in its canonical form; another value is
/// answered with 400. Prefer the typed placeholders: `42` and `042` are one order and must not have two
/// locks. An empty value is answered with 400. All values are escaped, so no value can pretend to be another
/// key.
///
/// A policy does not see the body of a request. A handler whose keys are in the body, such as the articles of a
/// cart, has the attribute with [`keys`](crate::redis_lock#several-keys) instead.
///
/// A client can send any header and any query. Lock by a header only if a proxy or an authentication layer
/// sets or checks it: otherwise, a client with another value gets another lock for the same resource. Keys
/// are written to the servers and to the log, so do not make them from passwords and tokens.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use axum::http::Method;
/// use redlock_axum::LockPolicy;
///
/// let policy = LockPolicy::new("order:{id:u64}")
///     .route("/orders/{id}/pay")
///     .methods([Method::POST])
///     .wait_time(Duration::from_secs(1));
/// assert_eq!(policy.to_string(), "POST /orders/{id}/pay");
/// ```
#[doc = include_str!("config.md")]
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(from = "super::de::PolicyFields"))]
#[must_use = "a policy does nothing until it is passed to a `LockLayer`"]
pub struct LockPolicy {
    key: KeySource,
    /// Instead of the default.
    name: Option<LockName>,
    pub(super) route: Option<String>,
    /// `None` is each method.
    pub(super) methods: Option<Methods>,
    pub(super) shared_on: Option<Methods>,
    pub(super) lock: LockOptions,
    pub(super) http: HttpOptions,
    pub(super) body: BodyOptions,
    functions: ExtensionFunctions,
}

impl LockPolicy {
    /// Creates a policy with the given [key template](#keys).
    pub fn new(key: impl Into<String>) -> Self {
        Self::with_key(KeySource::template(key.into()))
    }

    /// Creates a policy whose key is the result of a function.
    ///
    /// For keys that no template describes. The function gets the request without its body. Wrap each value that a
    /// client writes in a [`KeyPart`](crate::KeyPart), which escapes it. An error refuses the request: an empty part with
    /// 400, a key that begins with `redlock:` with 500.
    ///
    /// The path parameters are not among the [`Parts`]; take them with a placeholder of a template.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::http::request::Parts;
    /// use redlock_axum::{KeyError, KeyPart, LockKey, LockPolicy};
    ///
    /// /// Returns the key of a user. Without the header, the part is empty, which is answered with 400.
    /// fn user_key(parts: &Parts) -> Result<LockKey, KeyError> {
    ///     let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
    ///     LockKey::new(format!("user:{}", KeyPart(user.unwrap_or_default())))
    /// }
    ///
    /// let policy = LockPolicy::from_fn(user_key);
    /// let by_method = LockPolicy::from_fn(|parts| LockKey::new(format!("import:{}", parts.method)));
    /// ```
    pub fn from_fn(
        key: impl Fn(&Parts) -> Result<LockKey, KeyError> + Send + Sync + 'static,
    ) -> Self {
        Self::with_key(KeySource::from_fn(key))
    }

    fn with_key(key: KeySource) -> Self {
        Self {
            key,
            name: None,
            route: None,
            methods: None,
            shared_on: None,
            lock: LockOptions::new(),
            http: HttpOptions::new(),
            body: BodyOptions::default(),
            functions: ExtensionFunctions::new(),
        }
    }

    /// Locks only the requests that axum has matched with this route. Defaults to each request that reaches the layer. A
    /// policy of a [table](crate::LockLayer::table) needs a route.
    ///
    /// Write the route as for axum's [`Router::route`](axum::Router::route), including the prefixes of
    /// the routers in which it is nested: `/api/orders/{id}`. The names of its parameters may differ from those in the
    /// router, unless the key uses them.
    pub fn route(mut self, route: impl Into<String>) -> Self {
        self.route = Some(route.into());
        self
    }

    /// Locks only requests with these methods; others pass unlocked. Defaults to all methods.
    ///
    /// GET includes HEAD, because axum answers HEAD with the handler for GET, unless the table has
    /// a separate policy for HEAD.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(Methods::new(methods));
        self
    }

    /// Registers the function that returns the value of the placeholder `{ext(name)}`.
    ///
    /// The type of the function's argument selects the extension of the request, such as the claims that an
    /// authentication layer has inserted. That layer must be outside of the lock layer, so it is added to the
    /// router later; a request without the extension is answered with 500, and an error is logged. The result is
    /// escaped, and an empty one is answered with 400. A second function with the same name replaces the first.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_axum::LockPolicy;
    ///
    /// #[derive(Clone)]
    /// struct Claims {
    ///     tenant: String,
    /// }
    ///
    /// let policy = LockPolicy::new("export:{ext(tenant)}:{query(month):u64}")
    ///     .ext("tenant", |claims: &Claims| claims.tenant.clone());
    /// ```
    pub fn ext<T, V, F>(mut self, name: impl Into<String>, value: F) -> Self
    where
        F: Fn(&T) -> V + Send + Sync + 'static,
        T: Send + Sync + 'static,
        V: Display,
    {
        self.functions.insert(name.into(), ExtensionFunction::new(value));
        self
    }

    /// Sets all options of the lock at once. This replaces all options of the lock that were set before.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.lock = options;
        self
    }

    redlock_core::lock_option_setters!(self => self.lock; self);

    /// Sets the name of the lock for tables and metrics, see [`LockRequest::named`](crate::LockRequest::named).
    ///
    /// From 1 to 100 bytes without control characters. Defaults to the name of the
    /// [layer](crate::LockLayer::named). Without that, to the template of the key, up to its first 100 bytes; with
    /// [`from_fn`](Self::from_fn), to the name of the function, or `other` for a closure.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(LockName::new(name));
        self
    }

    /// Shares the lock among the requests with these methods. Requests with other methods lock it exclusively. So
    /// requests that read a resource run at the same time, and a request that writes to it runs alone. Defaults to
    /// an exclusive lock for every method.
    ///
    /// GET includes HEAD, because axum answers HEAD with the handler for GET. Cannot be combined with
    /// [`shared`](Self::shared), [`permits`](Self::permits) or [`fenced`](Self::fenced). The guide has the
    /// [rules of shared locks](crate::guide::modes#readers-and-writers).
    pub fn shared_on(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.shared_on = Some(Methods::new(methods));
        self
    }

    /// Sets the status of the response when another holder has the lock, or several requests asked at once and none of
    /// them got it. Must be a client or server error. Defaults to 409 Conflict; the usual alternative is 423 Locked.
    pub fn contended_status(mut self, status: StatusCode) -> Self {
        self.http.contended_status = status.as_u16();
        self
    }

    /// Sets the longest time in the `Retry-After` header of the response when another holder has the lock.
    ///
    /// The header is the rest of the holder's lease, but at most this time, because most holders release
    /// their lock long before its lease ends. At least 1 s. Defaults to 5 s.
    pub fn retry_after_max(mut self, retry_after_max: std::time::Duration) -> Self {
        self.http.retry_after_max = retry_after_max;
        self
    }

    /// Sets when the lock is released. Defaults to [`HoldUntil::Response`]: before a layer around this one
    /// [commits](crate::guide::transactions).
    pub fn hold_until(mut self, hold_until: HoldUntil) -> Self {
        self.http.hold_until = hold_until;
        self
    }

    /// Sets the greatest length of a request's body, in bytes. A longer body is answered with 413, before it is read if the
    /// client announces its length.
    ///
    /// The layer reads the body before it requests the lock, see [`BodyMode::Buffer`]. From 1 byte to the
    /// [`body_buffers`](crate::LockManagerBuilder::body_buffers) of the manager, 64 MiB. Cannot be combined with
    /// [`BodyMode::Stream`]. Defaults to axum's limit for the request: 2 MiB, or the
    /// [`DefaultBodyLimit`](axum::extract::DefaultBodyLimit) of a layer outside of the lock. If that is disabled, only
    /// `body_buffers` limits the body.
    ///
    /// An extractor such as `Bytes` or `Json` still has axum's limit: for a greater body, set both.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body.limit = Some(bytes);
        self
    }

    /// Sets when the layer receives the body of a request: before it requests the lock, or while the handler runs.
    /// Defaults to [`BodyMode::Buffer`].
    pub fn body(mut self, mode: BodyMode) -> Self {
        self.body.mode = mode;
        self
    }

    /// Sets whether the handler goes on when its client leaves. Defaults to false: axum then drops the handler at
    /// its current `await`. For work that must not be cut, such as a payment.
    ///
    /// From the acquired lock to its release, the handler runs in a task of its own. When the client leaves, the
    /// handler goes on, the lock is released at its end, and the response is dropped. A client that leaves before
    /// the lock is acquired leaves nothing behind. [`LockManager::shutdown`] waits for the handler.
    ///
    /// A layer or a handler around the lock, and a lock that it holds, ends with the client. If it is the layer of a
    /// transaction, **the writes of the handler vanish**: commit in the handler, or see
    /// [Locks and transactions](crate::guide::transactions#the-end).
    pub fn detached(mut self, detached: bool) -> Self {
        self.http.detached = detached;
        self
    }

    /// Returns the route, or the key if there is no route.
    pub(super) fn route_or_key(&self) -> &str {
        self.route.as_deref().unwrap_or(&self.key.text)
    }

    /// Returns the name of the lock, of which the layer may set another default.
    pub(super) fn lock_name(&self, of_layer: Option<&LockName>) -> LockName {
        self.name.as_ref().or(of_layer).unwrap_or(&self.key.name).clone()
    }

    pub(super) fn key_text(&self) -> &Arc<str> {
        &self.key.text
    }

    /// Checks the policy by itself and with the manager, and parses its key.
    pub(super) fn check(&self, locks: &LockManager) -> Result<PolicyKey, PolicyMistake> {
        let key = PolicyKey::new(&self.key, &self.functions)?;
        if let Some(methods) = &self.methods {
            methods.check("methods")?;
        }
        self.check_shared_on()?;
        self.http.check()?;
        self.body.check(locks.body_buffers().limit())?;
        // The rules for a lock of one key do not depend on the key.
        let request = locks.lock("key").with_name(self.lock_name(None));
        let check = |options: &LockOptions| request.clone().options(options.clone()).check();
        check(&self.lock)?;
        if let Some(shared_on) = &self.shared_on {
            check(&self.lock.clone().shared(true)).map_err(|error| {
                format!("shared_on is {shared_on}, which shares the lock: {error}")
            })?;
        }
        Ok(key)
    }

    /// Checks that `shared_on` fits the other options, and that its methods are locked: their requests would otherwise run
    /// without a lock.
    fn check_shared_on(&self) -> Result<(), InvalidOption> {
        let Some(shared_on) = &self.shared_on else { return Ok(()) };
        shared_on.check("shared_on")?;
        let LockOptions { shared, permits, fenced, dialect, .. } = self.lock;
        let conflicts = [
            (shared == Some(true), "shared, which shares the lock on every method"),
            (permits.is_some(), "permits, which every method needs"),
            (fenced == Some(true), "fenced: only exclusive holders have numbers"),
            (dialect == Some(Dialect::Redisson), "the dialect redisson, which has no shared locks"),
        ];
        if let Some((_, other)) = conflicts.into_iter().find(|(is_set, _)| *is_set) {
            let allowed = format!("unset beside {other}");
            return Err(InvalidOption::new("shared_on", shared_on, allowed));
        }
        let Some(methods) = &self.methods else { return Ok(()) };
        let unlocked = shared_on.named().iter().find(|method| !methods.cover(method));
        unlocked.map_or(Ok(()), |method| {
            let allowed = format!("among the methods that are locked: {methods}");
            Err(InvalidOption::new("shared_on", method, allowed))
        })
    }

    /// Returns whether requests with this method are locked.
    pub(super) fn covers(&self, method: &Method) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.cover(method))
    }

    /// Returns whether the list of methods names exactly this method, or there is no list.
    pub(super) fn names_exactly(&self, method: &Method) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.named().contains(method))
    }

    /// Returns the options of the lock of a request with this method.
    pub(super) fn options_for(&self, method: &Method) -> LockOptions {
        let options = self.lock.clone();
        match &self.shared_on {
            Some(shared_on) if shared_on.cover(method) => options.shared(true),
            _ => options,
        }
    }
}

impl From<&str> for LockPolicy {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

impl From<String> for LockPolicy {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

/// Writes the methods and the route, or the key if there is no route: `POST /orders/{id}/pay`.
impl fmt::Display for LockPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(methods) = &self.methods {
            write!(f, "{methods} ")?;
        }
        f.write_str(self.route_or_key())
    }
}
