//! The attribute [`#[redis_lock]`](macro@redis_lock), which `redlock-axum` re-exports.
//!
//! Depend on `redlock-axum`, and read about the attribute there or [here](macro@redis_lock): the
//! code that it generates calls into that crate.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod attr;
mod attributes;
mod bindings;
mod body;
mod duration;
mod expand;
mod function;
mod hygiene;
mod key;
mod options;
mod value;

use proc_macro::TokenStream;

/// Runs an async function under a lock: at any time at most one call with the same key runs, in all
/// copies of the service together.
///
/// ```
/// use axum::extract::Path;
/// use axum::routing::{get, post};
/// use axum::{Extension, Router};
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
///     .layer(Extension(locks)); // the last call: the routes above are under it
/// # let _ = app; }
/// ```
///
/// A request whose lock somebody else holds is answered with 409 and `Retry-After`; the function
/// does not run. It never runs without the lock.
///
/// # Arguments
///
/// | argument | Spring's `@RedisLock` | takes | default |
/// |---|---|---|---|
/// | `key` | `key` (an expression) | what is locked, [in one of three forms](#the-key) | required |
/// | `expire` | `expire = 5` | the lease: how long the lock is held at most, from 10 ms to 7 days | 5 seconds |
/// | `wait_time` | `waitTime` | how long to wait while another holds the lock, at most 7 days; `"forever"` for as long as it takes | none: one attempt |
/// | `time_unit` | `timeUnit = SECONDS` | the unit of whole numbers in times: `"milliseconds"`, `"seconds"`, `"minutes"`, `"hours"` or `"days"`, in any case | `"seconds"` |
/// | `renew` | | extends the lease while the function runs, every third of it | not renewed |
/// | `max_hold` | | with `renew`: after this time the lease is not extended any more, and runs out | no bound |
/// | `min_hold` | | the key stays locked for this time from the acquisition on, even if the function ends before; at most `expire` | released at the end |
/// | `keep` | | the lock is not released at all, but [left to run out](#release-and-cancellation) | released at the end |
/// | `reentrant` | | [shares the lock](#a-lock-within-itself) if the same request holds it already | refused |
/// | `dialect` | | how the lock is written on the nodes: `plain`, or `redisson`, to share it with Redisson's `RLock` | the manager's |
/// | `fenced` | | numbers the holders, so that a database can refuse [one that comes late](#the-lock-in-the-function); for handlers | no numbers |
/// | `on_lost` | | when the lock is lost while the function runs: `keep_going`, or [`abort`](#when-the-lock-is-lost) | `keep_going` |
/// | `manager` | a bean | the `LockManager` to use, [for any function or method](#functions-and-methods) | the one that the router hands over |
/// | `error` | | with `manager`: a function from `LockError` (with `on_lost = abort`, from [`RunError`](#when-the-lock-is-lost)) to the function's own error, by its path | `From::from` |
/// | `crate` | | where to find `redlock_axum`, if it is re-exported | `::redlock_axum` |
///
/// Times (`expire`, `wait_time`, `max_hold`, `min_hold`) are whole numbers, or texts that bring
/// their unit along: `"500ms"`, `"2s"`, `"1m"`, `"1h"`, `"1d"`. `renew`, `keep`, `reentrant` and
/// `fenced` stand alone, or are `= true` or `= false`. All of them are read when the program is compiled; a wrong
/// one does not compile.
///
/// Choose `expire` longer than the function takes, let it be renewed, or
/// [look at the lock](#the-lock-in-the-function) on the way.
///
/// ```
/// # use axum::extract::Path;
/// # use redlock_axum::redis_lock;
/// // A report takes minutes, and one that hangs gives up its lock after half an hour. If the lock is
/// // lost before, stop: another copy may be at work.
/// #[redis_lock(key = "report:{id}", expire = 30, renew, max_hold = "30m", on_lost = abort)]
/// async fn report(Path(id): Path<u64>) {}
///
/// // One message per minute and customer, whichever copy is asked.
/// #[redis_lock(key = "remind:{customer}", expire = "1m", keep)]
/// async fn remind(Path(customer): Path<u64>) {}
/// ```
///
/// # The key
///
/// The key is made of the parameters' values, after they were extracted, and so of typed values:
/// `/orders/42` and `/orders/042` are one `Path<u64>` and have one key.
///
/// **A template**, `key = "order:{id}"`. The names are those that the parameters bind, destructured
/// or not. Each value is percent-encoded, so that no value can leave its place in the key; an empty
/// one is refused (400 in a handler). A name in capitals that no parameter binds is a constant's,
/// which is put in as it is. Any other name does not compile, and the message lists those that do.
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
/// **A template with values**, `key("stock:{}", order.sku)`: as in `format!`, by place, by name or
/// captured, and each of them percent-encoded and not empty.
///
/// ```
/// # use axum::Json;
/// # use redlock_axum::redis_lock;
/// # #[derive(serde::Deserialize)] struct Order { sku: String, shop: u32 }
/// #[redis_lock(key("stock:{shop}:{}", order.sku, shop = order.shop))]
/// async fn reserve(Json(order): Json<Order>) {}
/// ```
///
/// **An expression**, `key = <anything that is AsRef<str>>`, for what the templates cannot say, a
/// format specification among it. Nothing is encoded: wrap what comes from outside in
/// [`KeyPart`]. Control characters and the empty key are refused all the same.
///
/// ```
/// # use axum::extract::Path;
/// # use redlock_axum::{KeyPart, redis_lock};
/// #[redis_lock(key = format!("coupon:{}", KeyPart(&code.to_uppercase())))]
/// async fn claim(Path(code): Path<String>) {}
/// ```
///
/// In all forms the names stand for references: `order` is an `&Order`, whether the parameter is an
/// `Order` or is taken out of a `Json`.
///
/// # Handlers
///
/// Without `manager` the function is an axum handler. It may have any extractors, and return
/// whatever is `IntoResponse`. The order is: extract, then lock, then run. A request that an
/// extractor refuses takes no lock. Without the lock, the answer is a [`LockRejection`]:
///
/// | case | status | |
/// |---|---|---|
/// | another holds the lock, and `wait_time`, if any, is over | 409 | `Retry-After` |
/// | no quorum of nodes answered in time; the manager is shut down | 503 | `Retry-After` |
/// | the lock was lost while the function ran, with `on_lost = abort` | 503 | `Retry-After`; the function was stopped half-way |
/// | a value in the key is empty | 400 | |
/// | the request holds this lock already, and the attribute is not `reentrant` | 500 | an error in the log, which says what to do |
/// | the router has no `.layer(Extension(locks))`; what stands at the key is no lock | 500 | an error in the log, which says what to do |
///
/// To answer in another way, give the `manager` and an error type of your own, see the next section.
///
/// # Functions and methods
///
/// With `manager = <expression>` it may be any async function or method that returns a `Result`. The
/// expression gives a `LockManager`, or a reference or smart pointer to one, and may use `self` and
/// the parameters. The error type needs `From<LockError>`, or `error` names a function that makes it.
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
/// A handler can have it too, and then answers a refusal with its own error:
///
/// ```
/// # use axum::extract::{Path, State};
/// # use axum::http::StatusCode;
/// # use redlock_axum::{LockError, LockManager, redis_lock};
/// # #[derive(Clone)] struct App { locks: LockManager }
/// fn busy(_: LockError) -> StatusCode {
///     StatusCode::LOCKED
/// }
///
/// #[redis_lock(key = "order:{id}", manager = app.locks, error = busy)]
/// async fn pay(State(app): State<App>, Path(id): Path<u64>) -> Result<String, StatusCode> {
/// #   let _ = app;
///     Ok(format!("order {id} is paid"))
/// }
/// # let _: axum::Router<App> = axum::Router::new().route("/{id}", axum::routing::post(pay));
/// ```
///
/// # Release and cancellation
///
/// The lock is released when the function has ended, by a value, an error, or a panic. In the first
/// two cases that is waited for, at most for the manager's `node_timeout`, before the result leaves,
/// so that the caller's next call does not meet its own lock. A release that fails is logged as a
/// warning, and does not change the result: a lease that has run out by then is one reason, and
/// means that another call may have run at the same time.
///
/// With `keep` the lock is not released, however the function ends: by a value, an error, a panic, or
/// a client that goes away. It runs out when its lease is over, `expire` after it was taken (with
/// `renew`: after it was last extended). Who asks for it before is refused. Choose it for work that is
/// to be done once per period, and `min_hold` where the period is shorter than the lease.
///
/// Dropping the future is safe at any point, waiting for the lock included; this is what axum does
/// when the client goes away, and what a timeout layer does. The lock goes with it, released in the
/// background. Whatever the function has spawned goes on without the lock.
///
/// # The lock in the function
///
/// A handler sees its lock through the extractor [`HeldLock`]:
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
/// With `manager` there is no such parameter, and `HeldLock` or `FencedLock` does not compile: it
/// would not be the lock that the attribute takes. Where the function needs it, leave out `manager`,
/// or acquire the lock in the body: the guard knows as much.
///
/// With `fenced` the holders are numbered, and the extractor [`FencedLock`] has the number. Give it to
/// the database with each write, which then can refuse a holder that slept past its lease:
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
/// [`FencingToken`] says what the number promises, and has the statement for PostgreSQL.
///
/// # When the lock is lost
///
/// A lock is lost when its lease runs out or could not be renewed, or when a quorum of nodes does not
/// have it any more. Another call may then run. With `on_lost = keep_going`, the default, the function
/// runs on, and may find out by [`HeldLock`]. With `on_lost = abort` it is dropped at the `.await`
/// where it stands. A handler then answers with 503; a function with `manager` returns an
/// error. Its error type, or the function that `error` names, then takes a [`RunError`] instead of a
/// [`LockError`], because the function has two ends: the lock was not acquired, or it was lost. Either way a
/// warning is logged.
///
/// What was done by then is done: the caller must expect half of it. What the function has spawned
/// goes on, and a function that does not await is not stopped.
///
/// # A lock within itself
///
/// A handler is a [`scope`]: whatever asks for a lock that the request holds already (the attribute on
/// a service's method, inside of the handler; the attribute on a handler, inside of a layer) would
/// wait for itself. It is refused at once, whatever its `wait_time`, with [`LockError::AlreadyHeld`].
/// With `reentrant` it shares the lock: nothing is sent, the lease stays what it was, and the last of
/// the holders releases. A `fenced` one shares only a lock that is fenced too: a number cannot be made up.
///
/// ```
/// # use redlock_axum::{LockError, LockManager, Locks, LockRejection, redis_lock};
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
/// # let _: axum::Router = axum::Router::new().route("/", axum::routing::post(recount));
/// ```
///
/// Of the options of the inner one, those that make a lease (`expire`, `renew`, `max_hold`) have no
/// effect then, and `min_hold` and `keep` count for the shared lock. What is spawned with `tokio::spawn` is outside of the scope:
/// it waits as a stranger does, `reentrant` or not. Futures that are joined in one task are one
/// holder: of two that lock the same key, the second is refused, or shares. A function with `manager`
/// opens no scope of its own; outside of a request, wrap the outermost call in [`scope`].
///
/// # What becomes of the function
///
/// Two functions: the outer one has the name, the documentation and the parameters' types, and takes
/// the lock; the inner one, `__redis_lock_<name>`, has the code as it was written, so that the
/// compiler's messages about it stay the same. It stands inside the outer function, or, for a
/// method, as a hidden method beside it. In a handler the first parameter's type becomes a pair with
/// a hidden extractor in front (a handler without parameters gets one), and the return type becomes
/// `Response`.
///
/// Documentation, `#[deprecated]`, `#[must_use]` and lints go to the outer function. Every other
/// attribute below `#[redis_lock]` stays with the code: `#[instrument]` opens its span when the lock
/// is held, under the function's own name. `#[debug_handler]` may stand above or below; only below
/// if the handler has no parameters. A second `#[redis_lock]` below takes a second lock, and needs
/// `manager`.
///
/// A call of the function by itself takes the lock like any other call: with the same key it is
/// refused, or [shares the lock](#a-lock-within-itself).
///
/// # Pitfalls
///
/// * `.layer(Extension(locks))` reaches the routes that were added before it. Write it last.
/// * In an `impl Trait for ..` the attribute does not compile (``method `__redis_lock_..` is not a
///   member of trait``), because a trait's implementation can have no hidden method; under
///   `#[async_trait]` there is no `async fn` left to lock. Lock a function or an inherent method,
///   and call it from the trait's.
/// * An associated function without `self` that uses the type parameters of its `impl` must name
///   `Self` somewhere, so that its code stays in the `impl`.
/// * The lock guards calls of this function, and whoever else asks for the same key. Two functions
///   that change the same thing need the same key.
/// * No lock with a lease keeps out a holder that is stopped for longer than the lease and then
///   goes on. See the documentation of `redlock-axum` for what is promised.
///
/// [`HeldLock`]: ../redlock_axum/struct.HeldLock.html
/// [`FencedLock`]: ../redlock_axum/struct.FencedLock.html
/// [`FencingToken`]: ../redlock_axum/struct.FencingToken.html
/// [`LockError`]: ../redlock_axum/enum.LockError.html
/// [`LockError::AlreadyHeld`]: ../redlock_axum/enum.LockError.html#variant.AlreadyHeld
/// [`LockError`]: ../redlock_axum/enum.LockError.html
/// [`RunError`]: ../redlock_axum/enum.RunError.html
/// [`scope`]: ../redlock_axum/fn.scope.html
/// [`KeyPart`]: ../redlock_axum/struct.KeyPart.html
/// [`LockRejection`]: ../redlock_axum/struct.LockRejection.html
#[proc_macro_attribute]
pub fn redis_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), &item.into()).into()
}

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
