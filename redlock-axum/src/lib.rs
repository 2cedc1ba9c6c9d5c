//! Distributed locks for axum handlers and tower services, on one Redis or, by Redlock, on a
//! majority of several.
//!
//! A service that runs as several copies must not process the same order, coupon or stock item
//! twice at the same time. This crate takes a lock before a handler runs, releases it when the
//! handler is done, whatever happened to it, and answers the request itself when the lock is not to
//! be had: a handler never runs without its lock.
//!
//! It contains all that an application needs: the locks themselves come from [`redlock_core`], and
//! are re-exported here.
//!
//! # Quick start
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::extract::Path;
//! use axum::routing::post;
//! use axum::{Extension, Router};
//! use redlock_axum::{LockLayer, LockManager};
//!
//! async fn pay(Path(id): Path<u64>) -> String {
//!     format!("order {id} is paid")
//! }
//!
//! # #[cfg(feature = "redis")]
//! # async fn connect() -> Result<LockManager, Box<dyn std::error::Error>> {
//! // One URL makes a lock on one Redis, several make a Redlock on their majority.
//! let locks = LockManager::connect(["redis://10.0.0.1"]).await?;
//! # Ok(locks) }
//! // Or, for tests and for services that run as one copy, with nothing installed:
//! let locks = LockManager::in_memory();
//!
//! let lock = LockLayer::new("order:{id:u64}").expire(Duration::from_secs(5));
//! let app: Router = Router::new()
//!     .route("/orders/{id}/pay", post(pay).route_layer(lock))
//!     .layer(Extension(locks)); // the last call on the router
//! ```
//!
//! While one request for `/orders/42/pay` is being processed, by any copy of the service, another
//! one is answered with 409 Conflict, and one for order 43 is served.
//!
//! # Three ways to lock, and one by hand
//!
//! | | for | the key is made from |
//! |---|---|---|
//! | [`redis_lock`], an attribute | a handler or any other async function; the lock stands where the code does | the function's arguments, by their types |
//! | [`LockLayer`], a tower layer | a route, a group of routes, a service; the handler stays as it is | the path of the matched route |
//! | [`LockPolicies`], a table | many routes in one place, also out of the application's configuration | the path of the matched route |
//! | [`Locks`], an extractor | a handler that locks only a part of its work, or several things | what you like |
//!
//! The attribute:
//!
//! ```
//! use axum::extract::Path;
//! use redlock_axum::redis_lock;
//!
//! #[redis_lock(key = "order:{id}", expire = 5)]
//! async fn pay(Path(id): Path<u64>) -> String {
//!     format!("order {id} is paid")
//! }
//! ```
//!
//! They combine: what one of them locks, the others respect, as do other services that use the same
//! keys. A handler that must not run unlocked can ask for its lock with the extractor [`HeldLock`],
//! whichever way it was taken; without a lock the request is refused.
//!
//! # Answers
//!
//! | case | status | also |
//! |---|---|---|
//! | somebody else holds the lock, and waiting, if any, is over | 409, by option 423 | `Retry-After` |
//! | no quorum of nodes answered in time, too many requests wait already, or the manager was shut down | 503 | `Retry-After` |
//! | a value for the key is empty, of the wrong type, or not UTF-8 | 400 | |
//! | the request holds this lock already, by a layer further out, and would wait for itself | 500 | an error in the log |
//! | no manager installed, a placeholder that the route lacks, an option out of range, something that is no lock at the lock's name | 500 | an error in the log |
//! | the lock was lost while the handler ran: its lease ran out, or is gone from a quorum of nodes | the handler's own; by option ([`OnLost::Abort`]) the handler is stopped, and it is 503 | a warning in the log |
//!
//! `Retry-After` is in whole seconds, rounded up, at least 1. The bodies are RFC 9457
//! `application/problem+json` and tell neither key nor nodes; [`LockRejection`] says how to write
//! your own.
//!
//! # Options
//!
//! The same words everywhere: as an argument of the attribute, a method of [`LockLayer`] and
//! [`LockPolicy`], and, with the feature `serde`, a field of a policy.
//!
//! The options of the lock are [`LockOptions`], whose page has their ranges and rules; a whole `LockOptions`
//! can be set at once.
//!
//! | option | what it does | default |
//! |---|---|---|
//! | `expire` | the lease: the lock frees itself after this time | 5 s |
//! | `wait_time` | how long to wait while somebody else holds the lock; `"forever"`, or `wait_forever()`, for as long as it takes | one attempt |
//! | `renew` | extends the lease for as long as the lock is held | not renewed |
//! | `max_hold` | ends the renewal after this time | no bound |
//! | `min_hold` | keeps the key locked for this time, even if the work ends before | released at the end |
//! | `keep` | leaves the lock to run out, however the work ends | released at the end |
//! | `reentrant` | shares a lock that the request holds already | refused with 500 |
//! | `dialect` | how the lock is written on the nodes: [`Dialect`] | the manager's |
//! | `fenced` | numbers the holders, so that a database can refuse one that comes late: [`FencedLock`] | no numbers |
//! | `on_lost` | stops the work when its lock is lost, or does not: [`OnLost`] | goes on |
//!
//! # What is held until when
//!
//! The lock is taken before the handler is called, in the case of the attribute after its arguments
//! have been extracted. It is held until the handler has returned, or, with
//! [`HoldUntil::EndOfBody`], until the response's body has been sent. The release is awaited before
//! the response leaves (with `EndOfBody`: before the last piece of a body that knows which is its
//! last), so that the client's next request does not meet its own lock. Waiting for it is bounded by
//! the manager's `node_timeout`, and its failure does not change the response.
//!
//! **When the client goes away**, hyper drops the handler, and the lock is released in the
//! background. The same holds for a handler that panics.
//!
//! **When a timeout runs out** it depends on where it stands. Around the lock, such as
//! `tower_http::timeout::TimeoutLayer` added after it, the timeout counts the waiting for the lock,
//! and drops handler and lock together: the answer may overtake the release by a moment. Within the
//! lock it counts the handler alone, and the release is awaited as always.
//!
//! **When the lease runs out** the handler is not stopped, but somebody else can take the lock. Choose
//! `expire` longer than the handler takes, let it be renewed, look at [`HeldLock`] before each step
//! that matters, or have the handler dropped then, by [`OnLost::Abort`].
//!
//! **When the process ends**, call [`LockManager::shutdown`] after the server has stopped: what is
//! still held is released then, and not only when its lease runs out.
//!
//! # Pitfalls
//!
//! * `Extension(locks)` must stand outside of whatever locks, so make it the last
//!   [`Router::layer`](axum::Router::layer). A request that does not find it is answered with 500,
//!   and the log names the line to add.
//! * Two locks with the same key around one handler, such as a layer on its route and the attribute,
//!   or the attribute on a service that the handler calls, would wait for each other. The request is
//!   a [`scope`], so that the inner one fails at once instead: with 500, and an error in the log. Make
//!   the inner one `reentrant`, so that it shares the lock, or give it another key. What a handler
//!   spawns is outside of its scope, and does wait.
//! * `{id}` takes the text of the path, and `42` and `042` are two texts. Write `{id:u64}` where they
//!   are one order. The attribute has the value itself: there, `Path<u64>` does it.
//! * [`Router::route_layer`](axum::Router::route_layer) and `layer` also lock the answer 405, and,
//!   where no methods are named, CORS preflights (`OPTIONS`) unless the CORS layer stands outside.
//!   Name the [methods](LockLayer::methods).
//! * A GET is often repeated by browsers and proxies without asking. Lock what changes something.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `metrics` | no | counts and measures, by the facade of the crate `metrics`; the names are on the page of `redlock-core` |
//! | `redis` | yes | nodes that are Redis or Valkey servers, given by their URLs |
//! | `serde` | no | [`LockPolicies`] and [`LockPolicy`] from TOML, JSON and the like |
//! | `test-util` | no | [`test_util`](test_util/index.html), for the tests of applications: a clock that the test moves, and nodes that fail, freeze or forget |
//! | `tls` | no | `rediss://` URLs |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod __private;
mod config;
mod error;
mod extract;
mod layer;
mod options;
mod policy;
mod rejection;
mod serve;
#[cfg(feature = "test-util")]
pub mod test_util;

pub use error::{PolicyError, SetupError};
pub use extract::{FencedLock, HeldLock, Locks, NotFenced, NotLocked};
pub use layer::{LockLayer, LockService};
pub use options::{HoldUntil, OnLost};
pub use policy::{LockPolicies, LockPolicy, PolicyService};
/// The crate that the locks come from, with what this crate does not re-export by name.
pub use redlock_core;
#[doc(inline)]
pub use redlock_core::{
    ConnectError, Dialect, ExtendError, FencedGuard, FencingToken, ForeignKind, IntoLockKey,
    InvalidOption, KeyError, KeyPart, KeyTemplate, LockError, LockGuard, LockHandle, LockKey,
    LockManager, LockManagerBuilder, LockOptions, LockRequest, LockState, Lost, LostError,
    MemoryNode, NodeError, ReleaseError, RunError, TemplateError, Vote, Votes, WaitTime, scope,
};
#[doc(inline)]
pub use redlock_macros::redis_lock;
pub use rejection::{LockRejection, RejectionKind};
pub use serve::ResponseFuture;

/// The examples of the README compile.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
