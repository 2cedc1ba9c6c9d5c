//! Distributed locks for axum handlers and tower services on Redis, PostgreSQL or ZooKeeper: on one server or, with the
//! Redlock algorithm, on a majority of several.
//!
//! A service that runs as several copies must not process the same order, coupon or stock item
//! twice at the same time. This crate acquires a lock before a handler runs and releases it when the
//! handler ends, even if the handler panics or is cancelled. If the lock cannot be acquired, this
//! crate answers the request itself: a handler never begins without its lock.
//!
//! An application needs only this crate: the locks are implemented in [`redlock_core`], and the types
//! that an application uses are re-exported here.
//!
//! # Quick start
//!
//! ```
//! use axum::extract::Path;
//! use axum::routing::post;
//! use axum::Router;
//! use redlock_axum::{LockLayer, LockManager};
//!
//! async fn pay(Path(id): Path<u64>) -> String {
//!     format!("order {id} is paid")
//! }
//!
//! # #[cfg(feature = "redis")]
//! # async fn connect() -> Result<LockManager, Box<dyn std::error::Error>> {
//! // One URL: locks on one server. Several URLs: a Redlock on their majority.
//! let locks = LockManager::connect(["redis://10.0.0.1"]).await?;
//! # Ok(locks) }
//! // Without a server, for tests and for services that run as a single copy:
//! let locks = LockManager::in_memory();
//!
//! let app: Router = Router::new()
//!     .route("/orders/{id}/pay", post(pay))
//!     .route_layer(LockLayer::new(&locks, "order:{id:u64}")?);
//! # Ok::<(), redlock_axum::SetupError>(())
//! ```
//!
//! While any copy of the service processes a request for `/orders/42/pay`, a second request for order
//! 42 is answered with 409 Conflict. A request for order 43 is served.
//!
//! # Three ways to lock, and one by hand
//!
//! | | use it for | the key is made from |
//! |---|---|---|
//! | [`redis_lock`], an attribute | a handler or any other async function; the lock is declared beside the code | the function's arguments, as typed values |
//! | [`LockLayer::new`], a tower layer | a route, a group of routes, a service; the handler is not changed | path parameters, headers, the query and extensions of the request, or [a function](LockPolicy::from_fn) |
//! | [`LockLayer::table`], a layer with many policies | many routes in one place, also read from the application's configuration | the same |
//! | [`LockManager`], by axum's `State` | a handler that locks only a part of its work, or several resources | any string |
//!
//! The attribute takes the [`LockManager`] from the router's state (`LockManager: FromRef<State>`). A layer never sees
//! the state: the application passes the manager to its constructor.
//!
//! Each of them locks exclusively, or [shares](guide::modes#readers-and-writers) the lock among readers, or has
//! [permits](guide::modes#permits) for a number of holders.
//!
//! The [`guide`] describes the guarantees and the effect of each fault, the use in production, other
//! languages, and how to test an application.
//!
//! The attribute:
//!
//! ```
//! use axum::extract::Path;
//! use redlock_axum::redis_lock;
//!
//! #[redis_lock(key = "order:{id}")]
//! async fn pay(Path(id): Path<u64>) -> String {
//!     format!("order {id} is paid")
//! }
//! ```
//!
//! A part of a handler, by hand:
//!
//! ```
//! use axum::extract::{Path, State};
//! use redlock_axum::{LockManager, LockRejection};
//!
//! async fn pay(State(locks): State<LockManager>, Path(id): Path<u64>) -> Result<String, LockRejection> {
//!     let receipt = locks.lock(format!("order:{id}")).run(async |_lock| format!("order {id} is paid"));
//!     Ok(receipt.await?)
//! }
//! # let _: axum::routing::MethodRouter<redlock_axum::LockManager> = axum::routing::post(pay);
//! ```
//!
//! | method of a [`LockRequest`] | while another holder has the lock | the end of the lock |
//! |---|---|---|
//! | [`run`](LockRequest::run), [`run_detached`](LockRequest::run_detached) | is refused at once, or after `wait_time` | when the closure has ended |
//! | [`acquire`](LockRequest::acquire) | waits without a limit, or up to `wait_time` | when the [`LockGuard`] is released or dropped |
//! | [`try_acquire`](LockRequest::try_acquire) | is refused at once | the same |
//!
//! The errors of all four become a [`LockRejection`] by `?`. A failed [`release`](LockGuard::release) does not: the work is
//! done, so log the error, or drop the guard, which releases the lock in the background.
//!
//! All of them can be combined. The same key is the same lock, however it is acquired and in every
//! service that uses the same servers and prefix. A handler that must not run unlocked can demand its
//! lock with the extractor [`HeldLock`], which refuses a request without a lock.
//!
//! # Answers
//!
//! | case | status | also |
//! |---|---|---|
//! | another holder has the lock, and `wait_time`, if any, is over; or several requests came at once, and none of them got it ([`LockError::Split`]) | 409, or by option another status such as 423 | `Retry-After` |
//! | no quorum of nodes answered in time, the lock was lost before the handler began, too many requests wait already, or the service stops | 503 | `Retry-After` |
//! | a layer: the body is too long; it broke off; the bodies of too many requests wait; it did not arrive in one lease ([`BodyMode::Stream`]) | 413; 400; 503 with `Retry-After`; 408 | |
//! | a value for the key is missing, repeated, empty, of the wrong type, or not UTF-8 | 400 | |
//! | the request holds this lock already, from an outer layer, and would wait for itself | 500 | an error in the log |
//! | a placeholder that the route lacks, an extension that the request lacks, an option out of range, a foreign key (not a lock) under the lock's name | 500 | an error in the log |
//! | the lock was lost while the handler ran: its lease ran out, or the lock is gone from a quorum of nodes | the handler's own; with [`OnLost::Abort`] the handler is stopped, and the status is 503 | a warning in the log |
//!
//! `Retry-After` is the rest of the holder's lease in whole seconds, rounded up, at least 1, and at most 5 or
//! the option `retry_after_max`. The bodies are RFC 9457
//! `application/problem+json` and contain neither the key nor the nodes. Their member `code` is stable, see the table of
//! [`LockRejection`], which also shows how to replace the bodies.
//!
//! # Options
//!
//! An option has the same name everywhere: as an argument of the attribute, as a method of [`LockPolicy`],
//! and, with the feature `serde`, as a field of a policy. The page [`guide::options`]
//! lists every option with its meaning, its range, its defaults and its spelling in each place.
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::extract::Path;
//! use redlock_axum::{LockPolicy, redis_lock};
//!
//! #[redis_lock(key = "order:{id}", expire = 10, wait_time = "500ms")]
//! async fn pay(Path(id): Path<u64>) {}
//!
//! let policy = LockPolicy::new("order:{id:u64}")
//!     .expire(Duration::from_secs(10))
//!     .wait_time(Duration::from_millis(500));
//! ```
//!
//! # Configuration
//!
//! [`LockManagerConfig`] is the part of a service's configuration that describes the nodes. It is read from
//! environment variables or, with the feature `serde`, from TOML, JSON and other formats:
//!
//! ```no_run
//! use redlock_axum::LockManagerConfig;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! // LOCKS_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 LOCKS_EXPIRE=30s
//! let locks = LockManagerConfig::from_env("LOCKS")?.connect().await?;
//! # Ok(()) }
//! ```
//!
//! `LOCKS_URLS=memory:` runs the service without a server in development.
//!
//! # How long the lock is held
//!
//! A layer acquires the lock before it calls the handler, and after it has [read the body](LockLayer#the-body-of-a-request).
//! The attribute acquires it after the arguments have been extracted, so [a value that an extractor has read may be out of
//! date](redis_lock#values-older-than-the-lock), unless it is an [`UnderLock`]. The lock is held until the handler has
//! returned or, with [`HoldUntil::EndOfBody`], until the response's body has been sent. The release is awaited before
//! the response is sent, so that the client's next request does not meet its own lock. With `EndOfBody`
//! it is awaited before the last frame, if the body knows that the frame is its last. The wait is
//! bounded by the manager's `node_timeout`, and a failed release does not change the response.
//!
//! **When a layer commits after the handler**, the lock of the attribute has ended before. Commit in the handler, or wrap the
//! layer by [`CommitUnderLock`]: see [Locks and transactions](guide::transactions).
//!
//! **When the client disconnects**, hyper drops the handler, and the lock is released in the
//! background. The same holds for a handler that panics.
//!
//! **When a timeout fires**, the effect depends on its place. A timeout outside the lock, such as a
//! `tower_http::timeout::TimeoutLayer` that is added after it, includes the time spent waiting for the
//! lock. It drops the handler and the lock together, so the response may leave shortly before the
//! release. A timeout inside the lock covers the handler alone, and the release is awaited as usual.
//!
//! **When the lease runs out**, the handler is not stopped, but another caller can acquire the lock. Choose
//! `expire` longer than the handler takes, enable `renew`, check [`HeldLock`] before each critical
//! step, or let [`OnLost::Abort`] drop the handler.
//!
//! **When the process ends**, call [`LockManager::shutdown`] after the server has stopped. It releases the
//! locks that are still held; without it they stay until their leases run out.
//!
//! # Pitfalls
//!
//! * A layer reaches only the routes that were added before it. A route that is added later is served without its lock.
//! * Two locks with the same key in one request would wait for each other: a layer on the route and the
//!   attribute on its handler, or the attribute on a service that the handler calls. Each request behind a
//!   [`LockLayer`] or a [`ScopeLayer`], and each call of a function with the attribute, is therefore a [`scope`], in
//!   which the inner lock fails at once, with 500 and an error in the log. Make the inner lock `reentrant`, so that it
//!   joins the outer one, or give it another key. A task that is spawned inside is outside of the scope, and
//!   waits for the lock as any other caller does.
//! * `{id}` takes the text of the path, so `42` and `042` are two keys. Write `{id:u64}` if they are
//!   one order. The attribute uses the extracted value: there, `Path<u64>` has the same effect.
//! * [`Router::route_layer`](axum::Router::route_layer) and `layer` also lock requests that are answered
//!   with 405 and, if the policy names no methods, CORS preflights (`OPTIONS`), unless the CORS layer is
//!   outside of the lock. Name the [methods](LockPolicy::methods).
//! * A login belongs outside of a layer, as in the example of [`LockLayer`]. A login that is an extractor of the handler
//!   runs under the lock, so that strangers keep others out while they are refused.
//! * A client decides how long its upload takes, and how fast it reads a response. The page
//!   [`guide::production`](guide::production#slow-clients) lists the waits under a lock, and their bounds.
//! * Browsers and proxies often repeat a GET request on their own. Lock the methods that change something, and let the
//!   others share the lock ([`LockPolicy::shared_on`]) if they must not see a change that is half done.
//!
#![doc = concat!("[idempotency.md]: guide/idempotency/index.html\n[neighbours.md]: guide::neighbours\n[operating.md]: guide::operating\n[postgres.md]: guide::postgres\n[zookeeper.md]: guide::zookeeper\n\n", include_str!("../docs/features.md"))]
#![warn(clippy::exhaustive_enums)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod __private;
mod attribute;
#[cfg(feature = "board")]
mod board;
mod commit_under_lock;
mod error;
mod extract;
#[cfg(doc)]
pub mod guide;
#[cfg(feature = "idempotency")]
mod idempotency;
mod layer;
#[cfg(any(feature = "aide", feature = "utoipa"))]
mod openapi;
mod options;
mod rejection;
mod scope_layer;
mod serve;
#[cfg(feature = "test-util")]
pub mod test_util;
mod value_source;

#[cfg(feature = "board")]
pub use board::{Board, board};
pub use commit_under_lock::{CommitUnderLock, CommitUnderLockService};
pub use error::SetupError;
pub use extract::{FencedLock, HeldLock, UnderLock};
#[cfg(all(feature = "idempotency", feature = "redis"))]
pub use idempotency::RedisAnswers;
#[cfg(feature = "idempotency")]
pub use idempotency::{
    AnswerClaim, AnswerId, AnswerRecord, AnswerRow, Answers, AnswersError, AnswersFuture,
    ClaimResult, Fingerprint, Idempotency, IdempotencyLayer, IdempotencyRejection,
    IdempotencyRejectionKind, IdempotencyService, MemoryAnswers, ScopedKeys, StoredAnswer,
    Unfinished, UnscopedKeys,
};
#[cfg(all(feature = "idempotency", feature = "postgres"))]
pub use idempotency::{PostgresAnswers, postgres_answers_schema};
pub use layer::{LockLayer, LockPolicy, LockService};
pub use options::{BodyMode, HoldUntil};
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use redlock_core::METRIC_BUCKETS;
#[cfg(feature = "tls")]
#[doc(inline)]
pub use redlock_core::TlsOptions;
/// The interface of nodes, for stores that this crate does not bring.
pub use redlock_core::node;
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use redlock_core::postgres_schema;
#[doc(inline)]
pub use redlock_core::{
    BreakError, BreakRequest, Broken, ConfigError, ConnectError, CounterSnapshot, Credentials,
    Dialect, Drained, FencingToken, ForeignKind, HeldSnapshot, HoldError, Holder, HolderId,
    HolderIdError, InvalidOption, KeyError, KeyPart, KeyState, KeyTemplate, LeadRequest, Leader,
    LockError, LockGuard, LockHandle, LockKey, LockManager, LockManagerBuilder, LockManagerConfig,
    LockOptions, LockRequest, LockState, LockStatus, LossCause, Lost, LostError, LostSnapshot,
    MemoryNode, NodeAnswer, NodeError, NodeSnapshot, NodeUrl, OnLost, OwnerLabel, OwnerLabelError,
    ProcessSnapshot, ReleaseError, RunError, Scoped, Snapshot, StatusError, StatusRequest,
    TemplateError, Vote, Votes, WaitTime, WaitingSnapshot, scope,
};
#[doc(inline)]
pub use redlock_macros::redis_lock;
pub use rejection::{LockRejection, RejectionKind};
pub use scope_layer::{ScopeLayer, ScopeService};
pub use serve::ResponseFuture;

/// The examples of the README compile.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the attribute compile. They are here, because a crate with an attribute cannot depend on this one
/// without building it twice.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../redlock-macros/docs/redis_lock.md")]
#[doc = include_str!("../../redlock-macros/README.md")]
struct Attribute;
