//! The attribute [`#[redis_lock]`](macro@redis_lock), which `redlock-axum` re-exports.
//!
//! Depend on `redlock-axum`, not on this crate: the generated code calls functions of `redlock-axum`. The
//! attribute is documented there and [here](macro@redis_lock).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod arguments;
mod bindings;
mod body;
mod count;
mod duration;
mod evaluated;
mod expand;
mod forwarding;
mod function;
mod http;
mod hygiene;
mod in_place;
mod key;
mod key_code;
mod options;
mod returned_future;
mod rules;
mod spring;
mod value;

use expand::Position;
use proc_macro::TokenStream;

/// Runs an async function under a lock: at any time at most one call with the same key runs, across all
/// copies of the service.
///
/// ```
/// use axum::extract::Path;
/// use axum::routing::{get, post};
/// use axum::Router;
/// use redlock_axum::{LockManager, redis_lock};
///
/// #[redis_lock(key = "redis_lock")]
/// async fn index() -> &'static str {
///     "index"
/// }
///
/// #[redis_lock(key = "order:{id}", expire = 10, wait_time = 2)]
/// async fn pay(Path(id): Path<u64>) -> String {
///     format!("order {id} is paid")
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let locks = LockManager::in_memory(); // or LockManager::connect(["redis://.."]).await?
/// let app: Router = Router::new()
///     .route("/index", get(index))
///     .route("/orders/{id}/pay", post(pay))
///     .with_state(locks);
/// # let _ = app; }
/// ```
///
/// If another holder has the lock, the request is answered with 409 and `Retry-After`, and the function
/// does not run. It never runs without the lock.
///
/// # The manager
///
/// A handler takes the [`LockManager`] from the router's state, by `LockManager: FromRef<State>`. The state is the
/// manager itself, as above, or a struct that contains it:
///
/// ```
/// use axum::extract::FromRef;
/// use redlock_axum::LockManager;
///
/// #[derive(Clone)] // with axum's feature `macros`, derive `FromRef` too
/// struct App {
///     locks: LockManager,
/// }
///
/// impl FromRef<App> for LockManager {
///     fn from_ref(app: &App) -> Self {
///         app.locks.clone()
///     }
/// }
/// ```
///
/// A router whose state has no manager does not compile: the compiler reports that the handler does not
/// implement `Handler`, or that two types of routers do not match.
///
/// Rust does not allow `impl FromRef<Arc<App>> for LockManager` (E0117), because an `Arc` is a type of another crate.
/// An application whose state is an `Arc` puts the `Arc` into the struct, beside the manager, or uses `installed`:
///
/// ```
/// # use axum::extract::{FromRef, Path, State};
/// # use axum::{Router, routing::post};
/// # use redlock_axum::{LockManager, redis_lock};
/// # use std::sync::Arc;
/// # struct Shop;
/// #[derive(Clone, FromRef)] // axum's feature `macros`
/// struct App {
///     locks: LockManager,
///     shop: Arc<Shop>,
/// }
///
/// #[redis_lock(key = "order:{id}")]
/// async fn pay(State(shop): State<Arc<Shop>>, Path(id): Path<u64>) -> String {
/// #   let _ = shop;
///     format!("order {id} is paid")
/// }
///
/// let app = App { locks: LockManager::in_memory(), shop: Arc::new(Shop) };
/// let router: Router = Router::new().route("/orders/{id}/pay", post(pay)).with_state(app);
/// ```
///
/// With the argument `installed`, the handler takes the manager that a [`LocksLayer`] has installed: for an
/// application without a state, and for handlers whose state is another type. There, a missing layer is answered
/// with 500, and the log contains the line to add.
///
/// ```
/// use axum::{Router, routing::get};
/// use redlock_axum::{LockManager, LocksLayer, redis_lock};
///
/// #[redis_lock(key = "redis_lock", installed)]
/// async fn index() -> &'static str {
///     "index"
/// }
///
/// let locks = LockManager::in_memory();
/// let app: Router = Router::new()
///     .route("/index", get(index))
///     .layer(LocksLayer::new(&locks)); // the last layer, so that it reaches the routes above
/// ```
///
/// # Arguments
///
/// The page [Options] lists every argument with its meaning, its range and its default. Only `key` or
/// `keys` is required. `key`, `expire`, `wait_time` and `time_unit` are the `key`, `expire`, `waitTime` and `timeUnit` of
/// Spring's `@RedisLock`. This page has sections about [`key`](#the-key), [`keep`](#release-and-cancellation),
/// [`shared` and `permits`](#several-holders), [`fair`](#waiting-in-order), [`hold_until`](#streams),
/// [`fenced`](#the-lock-in-the-function), [`on_lost`](#when-the-lock-is-lost),
/// [`reentrant`](#acquiring-a-lock-that-the-request-already-holds), [`keys`](#several-keys),
/// [`error` and `on_reject`](#your-own-response), and [`manager`](#functions-and-methods).
///
/// Times (`expire`, `wait_time`, `max_hold`, `min_hold`, `retry_after_max`) are whole numbers, strings with a
/// unit (`"500ms"`, `"2s"`, `"1m 30s"`, `"1h"`, `"1d"`), or constants: a `Duration`, or a whole number in
/// `time_unit`, such as `expire = LEASE` or `expire = Self::LEASE`. `permits` is a whole number or a constant. `renew`,
/// `keep`, `reentrant`, `fair`, `shared` and `fenced` are written alone, which means `true`, or with `= true` or
/// `= false`. All of these values are constants: a wrong value does not compile.
///
/// Choose `expire` longer than the function takes, enable `renew`, or
/// [check the lock](#the-lock-in-the-function) while the function runs.
///
/// ```
/// # use axum::extract::Path;
/// # use redlock_axum::redis_lock;
/// // A report takes minutes. If it hangs, its lock runs out after half an hour. If the lock is lost,
/// // the function is stopped, because another copy may be working.
/// #[redis_lock(key = "report:{id}", expire = 30, renew, max_hold = "30m", on_lost = abort)]
/// async fn report(Path(id): Path<u64>) {}
///
/// // One message per minute and customer, across all copies.
/// #[redis_lock(key = "remind:{customer}", expire = "1m", keep)]
/// async fn remind(Path(customer): Path<u64>) {}
/// ```
///
/// # The key
///
/// The key is made of the parameters' values after extraction, so it is made of typed values:
/// `/orders/42` and `/orders/042` are the same `Path<u64>` and have the same key.
///
/// **A template**, `key = "order:{id}"`. A placeholder is a name that the parameters bind, destructured
/// or not. Each value is percent-encoded, so that no value can reach beyond its place in the key. An empty
/// value is refused (400 in a handler). A name in capitals that no parameter binds is a constant,
/// whose value is inserted unchanged. Any other name is a compile error that lists the known names.
///
/// ```
/// # use axum::{Json, extract::Path};
/// # use redlock_axum::redis_lock;
/// # #[derive(serde::Deserialize)] struct Transfer { from: u64, amount: u32 }
/// # const TENANT: &str = "north";
/// #[redis_lock(key = "{TENANT}:{bank}:account:{from}")]
/// async fn transfer(Path(bank): Path<String>, Json(Transfer { from, amount }): Json<Transfer>) {
///     // bank `a:b`, account 7: the key is `north:a%3Ab:account:7`
/// # let _ = amount;
/// }
/// ```
///
/// A placeholder may have a type, as in the templates of layers and policies: `{id:u64}`, `{id:i64}`, `{id:uuid}` and
/// `{code:lower}` take a value of that type in its canonical form. The text of the value is its `Display`. The type
/// concerns the key alone: the function gets the value as it was sent. A value that does not fit is refused, with 400
/// in a handler and `LockError::InvalidKey` elsewhere. The same template makes the same key in the attribute, a layer
/// and a policy.
///
/// ```
/// # use axum::extract::Path;
/// # use redlock_axum::redis_lock;
/// #[redis_lock(key = "coupon:{code:lower}")] // `SUMMER` and `summer` are one coupon
/// async fn redeem(Path(code): Path<String>) {}
/// ```
///
/// **A template with values**, `key("stock:{}", order.sku)`. The values are given as in `format!`: by
/// position, by name or captured. Each value is percent-encoded and must not be empty.
///
/// ```
/// # use axum::Json;
/// # use redlock_axum::redis_lock;
/// # #[derive(serde::Deserialize)] struct Order { sku: String, shop: u32 }
/// #[redis_lock(key("stock:{shop}:{}", order.sku, shop = order.shop))]
/// async fn reserve(Json(order): Json<Order>) {}
/// ```
///
/// **An expression**, `key = <expression>`, of any type that is `AsRef<str>`. For keys that a template
/// cannot express, such as a format specification. Nothing is encoded: wrap values from outside in
/// [`KeyPart`]. Control characters and the empty key are still refused.
///
/// ```
/// # use axum::extract::Path;
/// # use redlock_axum::{KeyPart, redis_lock};
/// #[redis_lock(key = format!("coupon:{}", KeyPart(&code.to_uppercase())))]
/// async fn claim(Path(code): Path<String>) {}
/// ```
///
/// In all forms a name is a reference: `order` is an `&Order`, whether the parameter is an
/// `Order` or is destructured from a `Json`.
///
/// # Several keys
///
/// `keys` instead of `key` locks several resources at once: all of them or none. The guide page [Several keys] has the
/// rules, and says how such calls wait.
///
/// **A template with an iterator**, `keys("sku:{}", cart.skus())`. Each item of the iterator is a value for `{}`, and makes
/// one key. The text may have other placeholders, as in `key`: `keys("{shop}:{:lower}", cart.skus(), shop = cart.shop)`. A
/// parameter that is a list may stand in place of the iterator (`keys("sku:{}", skus)`), and a slice as `skus.iter()`.
///
/// **An expression**, `keys = <expression>`: an iterator or a list of texts or of `LockKey`s, whose values are not
/// escaped.
///
/// ```
/// # use axum::Json;
/// # use redlock_axum::{HeldLock, redis_lock};
/// #[derive(serde::Deserialize)]
/// struct Cart {
///     skus: Vec<String>,
/// }
///
/// #[redis_lock(keys("sku:{}", &cart.skus))]
/// async fn order(lock: HeldLock, Json(cart): Json<Cart>) {
///     // `shoe`, `hat`, `shoe`: the keys are `sku:hat` and `sku:shoe`
/// # let _ = cart;
///     assert!(lock.keys().iter().all(|key| key.as_str().starts_with("sku:")));
/// }
/// ```
///
/// In a handler an empty list, a list of more than 64 different keys, and an empty value are answered with 400.
///
/// # Handlers
///
/// Without `manager` the function is an axum handler. It may have any extractors, and any return type
/// that is `IntoResponse`. The lock is acquired after extraction, so a request that an
/// extractor refuses takes no lock. If the lock is not acquired, the response is a [`LockRejection`]:
///
/// | case | status | |
/// |---|---|---|
/// | another holder has the lock, and `wait_time`, if any, is over | 409 | `Retry-After` |
/// | no quorum of nodes answered in time, too many requests wait already, or the manager was shut down | 503 | `Retry-After` |
/// | the lock was lost while the function ran, with `on_lost = abort` | 503 | `Retry-After`; the function was stopped |
/// | a value in the key is empty | 400 | |
/// | the request holds this lock already, and the attribute is not `reentrant` | 500 | an error in the log with the remedy |
/// | the handler has `installed` and the router has no `.layer(LocksLayer::new(&locks))`, or the key exists on the nodes but is not a lock | 500 | an error in the log with the remedy |
///
/// `contended_status` sets another status than 409, and `retry_after_max` bounds `Retry-After`, which is 5 seconds
/// at most without it.
///
/// # Your own response
///
/// The first of these that exists makes the response to a request whose lock was refused or lost:
///
/// 1. `error = <path>`: a function from [`LockError`] (with `on_lost = abort`, from [`RunError`]) to any
///    `IntoResponse`;
/// 2. `on_reject = <path or closure>`: a function from [`LockRejection`] to any `IntoResponse`;
/// 3. the error `E` of the handler's `Result`, if `E: From<LockRejection>`;
/// 4. the same with `E: From<LockError>` (with `on_lost = abort`, `E: From<RunError>`);
/// 5. the [`LockRejection`].
///
/// So a service with an error type of its own writes one conversion:
///
/// ```
/// use axum::extract::Path;
/// use axum::http::StatusCode;
/// use axum::response::{IntoResponse, Response};
/// use redlock_axum::{LockRejection, redis_lock};
///
/// enum ShopError {
///     SoldOut,
///     Locked(LockRejection),
/// }
///
/// impl From<LockRejection> for ShopError {
///     fn from(rejection: LockRejection) -> Self {
///         Self::Locked(rejection)
///     }
/// }
///
/// impl IntoResponse for ShopError {
///     fn into_response(self) -> Response {
///         match self {
///             Self::SoldOut => (StatusCode::GONE, "sold out").into_response(),
///             Self::Locked(rejection) => {
///                 // The headers contain `Retry-After`.
///                 (rejection.status(), rejection.headers(), rejection.detail()).into_response()
///             }
///         }
///     }
/// }
///
/// #[redis_lock(key = "stock:{sku}")]
/// async fn reserve(Path(sku): Path<String>) -> Result<String, ShopError> {
///     if sku == "shoe" { Ok("reserved".to_owned()) } else { Err(ShopError::SoldOut) }
/// }
/// # let _: axum::Router<redlock_axum::LockManager> =
/// #     axum::Router::new().route("/{sku}", axum::routing::post(reserve));
/// ```
///
/// The compiler looks at the type that the handler returns. It sees through an alias of `Result`, but not through
/// `impl IntoResponse`: name the `Result`. `error` and `on_reject` pin the choice: `error = ShopError::from` takes the
/// conversion from `LockError`, and `on_reject = LockRejection::from` responds with the [`LockRejection`] although `E` has a conversion.
/// `contended_status` and `retry_after_max` are a part of the [`LockRejection`], so a [`LockError`] lacks them. A custom
/// response does not keep the refusal out of the log. A manager that is not installed is always answered with 500,
/// because the extractor fails before the handler's types are known.
///
/// Write `From<LockRejection>`: it covers a refused and a lost lock, layers and policies. Functions with `manager`, and
/// locks by hand, fail with a `LockError`, and `run` with a `RunError`. A rejection is made from both, so their
/// conversions are one line: `Self::Locked(error.into())`.
///
/// An error type that takes every error, such as the wrapper of `anyhow::Error` with
/// `impl<E: Into<anyhow::Error>> From<E>`, takes the rejection too: a refused request is answered as any other
/// error of the handler, often with 500 and without `Retry-After`. Let its `IntoResponse` look for the rejection
/// (`error.downcast::<LockRejection>()`), or write `on_reject = LockRejection::from`.
///
/// # Functions and methods
///
/// With `manager = <expression>` the function may be any async function or method that returns
/// a `Result`. The expression is a `LockManager`, or a reference or smart pointer to one, and may use
/// `self` and the parameters. The error type must implement `From<LockError>`, or `error` must name a
/// function that converts the error. With `on_lost = abort` it is converted from a `RunError`.
///
/// ```
/// # use redlock_axum::{LockError, LockManager, redis_lock};
/// struct Shop {
///     locks: LockManager,
/// }
///
/// #[derive(Debug, thiserror::Error)]
/// enum ShopError {
///     #[error("somebody else is at it")]
///     Busy(#[from] LockError),
/// }
///
/// impl Shop {
///     #[redis_lock(key("stock:{sku}"), manager = self.locks)]
///     async fn reserve(&self, sku: &str) -> Result<u32, ShopError> {
/// #       let _ = sku;
///         Ok(1)
///     }
///
///     #[redis_lock(key = "stock", manager = self.locks, error = describe)]
///     async fn count(&self) -> Result<u32, String> {
///         Ok(1)
///     }
/// }
///
/// fn describe(error: LockError) -> String {
///     format!("not counted: {error}")
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let shop = Shop { locks: LockManager::in_memory() };
/// # shop.reserve("a").await.unwrap(); shop.count().await.unwrap(); }
/// ```
///
/// A method of an `impl Trait for ..` is locked in the same way, also under `#[async_trait]`. Instead of being `async`,
/// a function or method with `manager` may return an `impl Future<Output = Result<..>>`, a
/// `Pin<Box<dyn Future<Output = Result<..>>>>` or a `BoxFuture`. Its whole code then runs when the future is awaited,
/// under the lock, also the code before the future:
///
/// ```
/// # use redlock_axum::{LockError, LockManager, redis_lock};
/// # struct Shop { locks: LockManager }
/// trait Stock {
///     async fn reserve(&self, sku: &str) -> Result<u32, LockError>;
///     fn refill(&self, sku: String) -> impl Future<Output = Result<u32, LockError>> + Send;
/// }
///
/// impl Stock for Shop {
///     #[redis_lock(key = "stock:{sku}", manager = self.locks)]
///     async fn reserve(&self, sku: &str) -> Result<u32, LockError> {
///         Ok(1)
///     }
///
///     #[redis_lock(key = "stock:{sku}", manager = self.locks)]
///     fn refill(&self, sku: String) -> impl Future<Output = Result<u32, LockError>> + Send {
///         let length = sku.len(); // under the lock, too
///         async move { Ok(u32::try_from(length).unwrap_or(u32::MAX)) }
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let shop = Shop { locks: LockManager::in_memory() };
/// # assert_eq!((shop.reserve("a").await?, shop.refill("a".to_owned()).await?), (1, 1));
/// # Ok(()) }
/// ```
///
/// With `skip`, the function returns `Ok(None)` while another holder has the lock, and with `skip = value` it
/// returns `Ok(value)`. The value may use the parameters, which are references: `skip = *count`. This is for jobs
/// that every copy of the service starts at the same time, but only one copy runs. Any other failure, such as an
/// unavailable Redis, stays an error. With `keep` the lock stays after a failed run too, so the next try is that of the
/// next period.
///
/// ```
/// # use redlock_axum::{LockError, LockManager, redis_lock};
/// /// Sends the reports once a night, and returns their number; `None` if another copy sends them.
/// #[redis_lock(key = "nightly", expire = "10m", keep, manager = locks, skip)]
/// async fn nightly(locks: &LockManager) -> Result<Option<u32>, LockError> {
///     Ok(Some(3))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// assert_eq!(nightly(&locks).await?, Some(3));
/// assert_eq!(nightly(&locks).await?, None);
/// # Ok(()) }
/// ```
///
/// A handler can have a `manager` too, and then returns its error as any other function.
///
/// # Testing
///
/// A function with `manager` keeps its signature. A test can call it without a router, also if it is a handler, and
/// with a manager on a node in memory:
///
/// ```
/// # use axum::extract::{Path, State};
/// # use axum::http::StatusCode;
/// # use redlock_axum::{LockError, LockManager, redis_lock};
/// # #[derive(Clone)] struct App { locks: LockManager }
/// # fn busy(_: LockError) -> StatusCode { StatusCode::LOCKED }
/// #[redis_lock(key = "order:{id}", manager = app.locks, error = busy)]
/// async fn pay(State(app): State<App>, Path(id): Path<u64>) -> Result<String, StatusCode> {
/// #   let _ = app;
///     Ok(format!("order {id} is paid"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let app = App { locks: LockManager::in_memory() };
/// assert_eq!(pay(State(app.clone()), Path(7)).await.as_deref(), Ok("order 7 is paid"));
///
/// let other = app.locks.lock("order:7").try_acquire().await?;
/// assert_eq!(pay(State(app), Path(7)).await, Err(StatusCode::LOCKED));
/// # other.release().await.ok();
/// # Ok(()) }
/// ```
///
/// With `manager = locks`, the parameter `locks: Locks` works in the same way; a test passes `Locks(manager)`. A handler
/// without `manager` has a hidden extractor, so a test sends its requests to a router.
///
/// # Release and cancellation
///
/// The lock is released when the function returns a value or an error, or panics. After a value or an error
/// the release is awaited, for at most the manager's `node_timeout`, before the result is returned,
/// so that the caller's next call does not meet its own lock. A failed release is logged as a
/// warning and does not change the result. One cause is a lease that ran out while the function was
/// running: then another call may have run at the same time.
///
/// With `keep` the lock is not released, however the function ends: with a value, an error, a panic, or
/// a disconnected client. It is held until its lease runs out, `expire` after the acquisition (with
/// `renew`: after the last extension). Until then every other caller is refused. Use `keep` for work that
/// must run once per period, and `min_hold` if the period is shorter than the lease.
///
/// Dropping the future is safe at any point, also while it waits for the lock. axum drops it
/// when the client disconnects, and a timeout layer when the timeout fires. The lock is then released in the
/// background. Tasks that the function has spawned continue without the lock.
///
/// # Streams
///
/// The lock of a handler ends when the handler returns its response. A body that is produced later, such as a stream,
/// is sent without the lock. With `hold_until = end_of_body` the lock is held until the body has been sent, has
/// failed, or was dropped because the client disconnected. The lease must last that long, so consider `renew`. A client
/// that reads slowly, or not at all, keeps the lock as long: bound it by `max_hold` with `on_lost = abort`, which ends
/// the body with an error when the lock is lost. Data after an upgrade, such as the messages of a
/// WebSocket, is not part of the body.
///
/// ```
/// # use axum::body::Body;
/// # use redlock_axum::redis_lock;
/// # fn rows() -> Body { Body::empty() }
/// #[redis_lock(key = "export", renew, max_hold = "10m", on_lost = abort, hold_until = end_of_body)]
/// async fn export() -> Body {
///     rows()
/// }
/// ```
///
/// # The lock in the function
///
/// A handler gets access to its lock through the extractor [`HeldLock`]:
///
/// ```
/// # use std::time::Duration;
/// # use axum::http::StatusCode;
/// # use redlock_axum::{HeldLock, redis_lock};
/// # async fn next_page() -> bool { false }
/// #[redis_lock(key = "import", expire = 5)]
/// async fn import(lock: HeldLock) -> Result<(), StatusCode> {
///     while next_page().await {
///         lock.extend(Duration::from_secs(5)).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
///     }
///     Ok(())
/// }
/// ```
///
/// With `manager`, a parameter of type `HeldLock` or `FencedLock` does not compile, because it
/// would not be the attribute's lock. If the function needs its lock, leave out `manager`,
/// or acquire the lock in the body, where the guard has the same methods.
///
/// With `fenced` each holder gets a fencing token, which the extractor [`FencedLock`] returns. Send the token
/// to the database with each write. The database can then refuse a holder that paused past its lease:
///
/// ```
/// # use axum::extract::Path;
/// # use redlock_axum::{FencedLock, FencingToken, redis_lock};
/// # async fn write(_: u64, _: FencingToken) {}
/// #[redis_lock(key = "account:{id}", expire = 5, fenced)]
/// async fn settle(Path(id): Path<u64>, lock: FencedLock) {
///     write(id, lock.fencing_token()).await;
/// }
/// ```
///
/// [`FencingToken`] documents the guarantees of the token, and has the statement for PostgreSQL.
///
/// # Several holders
///
/// With `shared`, any number of calls hold the lock at the same time: the readers. A call without it is a writer, which
/// has the lock alone. A writer waits for the readers that are inside, and keeps out later ones. With `permits`, at most
/// this number of calls hold the lock at the same time; the manager must have a single node.
///
/// ```
/// # use axum::extract::Path;
/// # use redlock_axum::redis_lock;
/// #[redis_lock(key = "catalogue", shared)]
/// async fn list() {}
///
/// #[redis_lock(key = "catalogue", wait_time = 5)]
/// async fn rebuild() {}
///
/// #[redis_lock(key = "export:{tenant}", permits = 3)]
/// async fn export(Path(tenant): Path<u64>) {}
/// ```
///
/// The pages [Shared locks] and [Permits] of the guide have the rules. `shared` and `permits` cannot be combined with
/// each other, with `fenced` and with `dialect = redisson`.
///
/// # When the lock is lost
///
/// A lock is lost when its lease runs out or could not be renewed, or when a quorum of nodes no longer
/// has it. Another call may then run. In each case a warning is logged.
///
/// With `on_lost = keep_going`, the default, the function continues, and can detect the loss with
/// [`HeldLock`]. With `on_lost = abort` the function is dropped at its current `.await`. A handler then
/// responds with 503, and a function with `manager` returns an error. The error type of such a function, or
/// the function that `error` names, must be convertible from [`RunError`] instead of [`LockError`], because
/// there are two causes: the lock was not acquired, or it was lost.
///
/// The loss is noticed at a renewal. Without `renew`, it is noticed when the lease ends or at the release, so a lock that
/// a server has forgotten in between stops nothing.
///
/// The work done so far is not undone: the caller must expect partial effects. Tasks that the function has
/// spawned continue, and a function that does not await is not stopped.
///
/// # Acquiring a lock that the request already holds
///
/// A call that acquires a lock which its own request holds already would wait for itself. Examples are
/// a handler with the attribute behind a layer with the same key, and a service's method with the attribute
/// that the handler calls. Each call of a function with the attribute is therefore one holder, in a [`scope`]:
/// the inner call is refused at once, whatever its `wait_time` is, with [`LockError::AlreadyHeld`]. With `reentrant` the
/// inner call joins the lock, and the last holder to end releases it. A `fenced` call joins only a lock that is `fenced`
/// too, because a lock cannot get a fencing token later. A `shared` call also joins the shared lock of its request, with
/// or without `reentrant`. A call that needs the exclusive lock never joins a shared one.
///
/// ```
/// # use redlock_axum::{LockError, LockManager, LockRejection, Locks, redis_lock};
/// #[redis_lock(key = "stock", reentrant, manager = locks)]
/// async fn count(locks: &LockManager) -> Result<u32, LockError> {
///     Ok(1)
/// }
///
/// #[redis_lock(key = "stock")]
/// async fn recount(locks: Locks) -> Result<String, LockRejection> {
///     let count = count(&locks).await?; // under the handler's lock
///     Ok(count.to_string())
/// }
/// # let _: axum::Router<redlock_axum::LockManager> =
/// #     axum::Router::new().route("/", axum::routing::post(recount));
/// ```
///
/// An inner call that joins the lock sends nothing to the nodes, and its `expire`, `renew` and `max_hold`
/// have no effect, because the lease belongs to the outer call. Its `min_hold` and `keep` apply to the
/// joined lock: if less than `min_hold` (with `keep`: less than `expire`) is left of the lease, the inner
/// call extends the lease to its own `expire`.
///
/// A task that is spawned with `tokio::spawn` is outside of the scope: it waits for the lock as any other
/// caller does, `reentrant` or not. Futures that are joined in one task are one holder: if two of them lock
/// the same key, the second is refused or joins the lock. Two calls outside of any scope are two holders, also if
/// they are joined.
///
/// # Waiting in order
///
/// Calls of one process get a lock in order of arrival. With `fair`, calls of all processes do that are `fair` too, for
/// two more commands for each call. It needs a `wait_time`: without one, a `fair` call is refused while another `fair`
/// call waits. The page [Fair locks] describes the order and its limits.
///
/// [Fair locks]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/fair/index.html
///
/// # The generated code
///
/// The function keeps its name, its documentation and the types of its parameters. In a handler, the first
/// parameter's type becomes a pair with a hidden extractor in front (a handler without parameters gets the extractor
/// alone), and the return type becomes `Response`.
///
/// The code of a function without `self` moves unchanged into an inner function, `__redis_lock_<name>`, so that the
/// compiler's messages about it stay the same. The code of a method, or of a function that names `Self` or returns a
/// future, stays in the function, in an `async` block.
///
/// Every attribute below `#[redis_lock]` that changes the code is inside of the lock: `#[instrument]` opens its span when
/// the lock is held, with the function's own name. `#[debug_handler]` may be above or below `#[redis_lock]`; if the
/// handler has no parameters, only below. An attribute that adds items beside the function, as `#[utoipa::path]` does,
/// stands above: below, its items would be inside of the function. A second `#[redis_lock]` below acquires a second lock after the first
/// one, and needs `manager`.
///
/// A recursive call of the function acquires the lock like any other call: with the same key it is
/// refused, or [joins the lock](#acquiring-a-lock-that-the-request-already-holds).
///
/// # Pitfalls
///
/// * `.layer(LocksLayer::new(&locks))` reaches only the routes that were added before it. Make it the last layer.
/// * Under `#[async_trait]`, the compiler warns about a parameter that only the key uses, and a pattern such as
///   `Path(id)` binds no names for the key. Write the parameter as a plain name, and begin it with an underscore
///   if only the key uses it: `key = "order:{_id}"`.
/// * An associated function without `self` that uses the type parameters of its `impl` must name
///   `Self` somewhere, so that its code stays in the `impl`.
/// * The lock protects this function and all other code that locks the same key. Two functions
///   that change the same data need the same key.
/// * No lock with a lease can stop a holder that pauses for longer than the lease and then
///   continues. The documentation of `redlock-core` describes what such a lock guarantees.
///
/// [Several keys]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/several_keys/index.html
/// [Options]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/options/index.html
/// [Permits]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/permits/index.html
/// [Shared locks]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/shared/index.html
/// [`HeldLock`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.HeldLock.html
/// [`FencedLock`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.FencedLock.html
/// [`FencingToken`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.FencingToken.html
/// [`LockManager`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.LockManager.html
/// [`LocksLayer`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.LocksLayer.html
/// [`LockError`]: https://docs.rs/redlock-axum/latest/redlock_axum/enum.LockError.html
/// [`LockError::AlreadyHeld`]: https://docs.rs/redlock-axum/latest/redlock_axum/enum.LockError.html#variant.AlreadyHeld
/// [`LockError::InvalidKey`]: https://docs.rs/redlock-axum/latest/redlock_axum/enum.LockError.html#variant.InvalidKey
/// [`RunError`]: https://docs.rs/redlock-axum/latest/redlock_axum/enum.RunError.html
/// [`scope`]: https://docs.rs/redlock-axum/latest/redlock_axum/fn.scope.html
/// [`KeyPart`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.KeyPart.html
/// [`LockRejection`]: https://docs.rs/redlock-axum/latest/redlock_axum/struct.LockRejection.html
#[proc_macro_attribute]
pub fn redis_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(&arguments.into(), &item.into(), Position::Written).into()
}

/// [`redis_lock`](macro@redis_lock), which has moved itself below the other attributes of its function. Not a
/// public API.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn redis_lock_last(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(&arguments.into(), &item.into(), Position::Last).into()
}

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
