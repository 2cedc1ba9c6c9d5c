//! Distributed locks on one Redis or, by Redlock, on a majority of several.
//!
//! A service that runs as several copies must not work on the same order, coupon or stock item twice
//! at the same time. This crate is the lock for that: a key with an owner and a time to live on one
//! Redis, or on N independent ones of which a majority has to agree. With axum, use `redlock-axum`,
//! which puts these locks over handlers and re-exports this crate.
//!
//! ```
//! use std::time::Duration;
//! use redlock_core::LockManager;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Or LockManager::connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).await?
//! let locks = LockManager::in_memory();
//!
//! let guard = locks
//!     .lock("order:42")
//!     .expire(Duration::from_secs(5))
//!     .wait_time(Duration::from_millis(500))
//!     .acquire()
//!     .await?;
//! // ... what must not happen twice at the same time ...
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # The way through
//!
//! * [`LockManager`] knows the nodes; one per service. [`LockManagerBuilder`] has its options.
//! * [`LockRequest`] holds the options of one acquisition and ends in
//!   [`acquire`](LockRequest::acquire) or [`try_acquire`](LockRequest::try_acquire).
//! * [`scope()`] makes what one request does one holder, which does not wait for itself.
//! * [`LockGuard`] is the lock that is held: it knows how long it may be believed, can be extended,
//!   tells when it is lost, and releases when it is dropped. [`LockHandle`] is a view of it to hand
//!   around.
//! * [`FencedGuard`] is one that is numbered, by a [`FencingToken`] that a database can check.
//! * [`node`] is the protocol between a manager and its nodes: for stores of other kinds than Redis.
//! * [`LockKey`], [`KeyPart`] and [`KeyTemplate`] make keys that no value can break out of.
//! * [`LockError`], [`ReleaseError`], [`ExtendError`] and [`ConnectError`] say what went wrong, with
//!   the [`Vote`] of each node.
//!
//! # What a lock of this kind promises
//!
//! At most one holder whose guard [is valid](LockGuard::is_valid) per key, as long as
//!
//! * the clocks of nodes and client run apart by no more than 1 % of the lease plus 2 ms, and nobody
//!   steps a node's wall clock forward, which is what Redis counts a time to live by (such a step is
//!   told when the server's time is read next, half a second later while locks are acquired or renewed,
//!   and with the guard of the next line the server grants nothing after that);
//! * no node forgets a lock inside its lease: one that is restarted without its data, or evicts keys,
//!   does (against the first, see [`restart_guard`](LockManagerBuilder::restart_guard));
//! * the guarded work looks at its guard. No lock with a lease can stop a holder that sleeps past
//!   it (a paused process, a long garbage collection on the way to the database).
//!
//! The [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/)
//! describes the algorithm; Martin Kleppmann's
//! [critique](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html) and
//! Salvatore Sanfilippo's [answer](http://antirez.com/news/101) discuss what it is good for. Use it to
//! avoid work that is done twice; where being wrong once would be a disaster, let the resource itself
//! check too (a unique index, a version number, a [`FencingToken`]).
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at every point. A lock that was acquired by then, or that
//! a server acquires afterwards because the command was already on its way, is released in the
//! background. [`LockManager::shutdown`] waits for that.
//!
//! # Features
//!
//! | feature | default | what it does |
//! |---|---|---|
//! | `metrics` | no | counts and measures, by the facade of the crate [`metrics`](https://docs.rs/metrics): see [below](#metrics) |
//! | `redis` | yes | nodes that are Redis or Valkey servers, given by their URLs; without it the nodes are those in memory and [your own](node) |
//! | `serde` | no | [`LockOptions`] and [`LockKey`] from TOML, JSON and the like |
//! | `test-util` | no | [`test_util`](test_util/index.html), for the tests of applications: a clock that the test moves, and nodes that fail, freeze or forget |
//! | `tls` | no | `rediss://` URLs, by rustls with the system's root certificates |
//!
//! # Metrics
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `redlock_acquire_seconds` | histogram: how long acquisitions took, waiting included, also [through an outage](LockManagerBuilder::outage_grace) | `outcome`: `acquired`, `contended`, `unavailable`, `timed_out`, `too_many_waiters`, `already_held`, `foreign_key`, `invalid`, `shut_down`, `dropped` |
//! | `redlock_lost_total` | counter: locks that were lost before they were released, by a shutdown too | |
//! | `redlock_extensions_total` | counter: extensions of leases, renewal included | `outcome`: `extended`, `unavailable`, `lost` |
//! | `redlock_node_up` | gauge: whether a node can be asked, as long as its manager lives | `node`: host and port |
//! | `redlock_clock_steps_total` | counter: how often a node's wall clock was found stepped | `node`: host and port; `direction`: `forward`, `back` |
//!
//! Install the recorder before the manager connects. No label holds a key. What happened to which lock is told by the events of [`tracing`].
//!
//! # Servers
//!
//! Redis 6.2 and later, Valkey 8 and later. A lock is `SET key token NX PX milliseconds` and is
//! released by comparing and deleting in a script, as the Redis documentation describes it and as the
//! lock libraries of other languages (Jedis, spring-data-redis, redis-py, redsync, node-redlock,
//! RedLock.net) do, so that they exclude each other. With [`Dialect::Redisson`] it is the `RLock` of
//! Redisson instead.
//!
#![doc = include_str!("wire.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod ballot;
mod clock;
mod context;
mod error;
mod fencing_token;
mod guard;
mod jitter;
mod key;
mod lease;
mod lock;
mod log_limit;
mod manager;
pub mod node;
mod options;
mod queue;
mod quorum;
mod request;
mod runtimes;
#[cfg(feature = "unstable-simulation")]
#[doc(hidden)]
pub mod simulation;
mod telemetry;
#[cfg(feature = "test-util")]
pub mod test_util;
mod validity;

pub use error::{
    ConnectError, ExtendError, ForeignKind, InvalidOption, LockError, LostError, NodeError,
    ReleaseError, RunError, Vote, Votes,
};
pub use fencing_token::FencingToken;
pub use guard::{FencedGuard, LockGuard, LockHandle, LockState, Lost};
pub use key::{IntoLockKey, KeyError, KeyPart, KeyTemplate, LockKey, TemplateError};
pub use lock::Dialect;
pub use manager::{LockManager, LockManagerBuilder};
pub use node::memory::MemoryNode;
pub use options::{LockOptions, WaitTime};
pub use request::LockRequest;
pub use request::scope::scope;

/// What the other crates of this workspace use. No public API.
#[doc(hidden)]
pub mod __private {
    pub use crate::log_limit::LogLimit;
    pub use crate::options::assert_valid;
}

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
