//! Distributed locks on Redis, PostgreSQL or ZooKeeper: on one server or, by Redlock, on a majority of several.
//!
//! A service that runs as several copies must not work on the same order, coupon or stock item twice at
//! the same time. This crate is a lock for such work: a key with an owner and a time to live, on one
//! server or on N independent servers, of which a majority has to grant it. With axum, use
//! `redlock-axum`: it locks handlers and re-exports this crate.
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
//!     .wait_time(Duration::from_millis(500))
//!     .acquire()
//!     .await?;
//! // ... work that must not run twice at the same time ...
//! guard.release().await?;
//!
//! // The same, with the work as a closure.
//! locks.lock("order:42").run(async |lock| { /* ... */ }).await?;
//! # Ok(()) }
//! ```
//!
//! # Overview
//!
//! * [`LockManager`] knows the nodes. A service has one manager, configured by a [`LockManagerBuilder`],
//!   or by a [`LockManagerConfig`] from the configuration of the service or its environment variables.
//! * [`LockRequest`] has the options of one acquisition. [`acquire`](LockRequest::acquire) waits until no other holder has
//!   the lock. [`try_acquire`](LockRequest::try_acquire) asks once. [`run`](LockRequest::run) asks once too, unless a
//!   `wait_time` is set, runs a closure, and releases the lock. [`OnLost`] selects whether the closure is stopped when its
//!   lock is lost.
//! * [`scope()`] makes a future one holder, so that the acquisitions inside do not wait for each other.
//! * [`LockGuard`] is a held lock. It reports how long the lock is valid and when it is lost, extends
//!   the lease, and releases the lock when it is dropped. [`LockHandle`] is a view of a held lock that
//!   can be cloned and passed around.
//! * [`shared`](LockRequest::shared) and [`permits`](LockRequest::permits) let several callers hold a lock at the same
//!   time: the readers of a read-write lock, or at most n holders. [`LockGuard::downgrade`]
//!   turns an exclusive lock into a shared one.
//! * [`FencingToken`] is the number of a holder, which a database can check.
//! * [`node`] is the protocol between a manager and its nodes, for other stores.
//! * [`LockKey`], [`KeyPart`] and [`KeyTemplate`] build keys in which different values give different
//!   keys.
//! * [`LockError`], [`ReleaseError`], [`HoldError`] and [`ConnectError`] report the cause of a
//!   failure, with the [`Vote`] of each node. [`RunError`] is a `LockError`, or the loss of the lock.
//!
//! # Guarantees
//!
//! A key has at most one holder whose guard [is valid](LockHandle::is_valid) or, if its holders
//! [share](LockRequest::shared) it, no exclusive one beside them, as long as
//!
//! * the clocks of the nodes and of this process drift apart by no more than 1 % of the lease plus 2 ms,
//!   and nobody steps a node's wall clock forward: Redis and PostgreSQL measure a lease by their wall
//!   clocks. The manager logs a step when it next reads the server's time: within about half a second
//!   of the next acquisition, renewal or release. With a [`restart_guard`](LockManagerBuilder::restart_guard),
//!   the server then grants no locks for the longest lease;
//! * no node forgets a lock before its lease ends. A server that is restarted without its data, or that
//!   evicts keys, forgets locks. The [`restart_guard`](LockManagerBuilder::restart_guard) helps against
//!   the restart;
//! * the guarded work checks its guard. No lock with a lease can stop a holder that sleeps past the end
//!   of the lease (a paused process, a long garbage collection before a write to the database).
//!
//! The [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/)
//! describes the algorithm. Martin Kleppmann's
//! [critique](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html) and Salvatore
//! Sanfilippo's [answer](http://antirez.com/news/101) discuss its uses. Use the lock to avoid duplicate
//! work. Where a single mistake would be a disaster, let the resource check too: by a unique index, a
//! version number, or a [`FencingToken`].
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at any point. If the lock was acquired by then, or if a
//! server grants it afterwards because the command was already sent, it is released in the background.
//! [`LockManager::shutdown`] waits for such releases.
//!
//! # Features
//!
//! | feature | default | effect |
//! |---|---|---|
//! | `cli` | no | the command `redlock`: `cargo install redlock-core --features cli`. The page [operating] of the guide describes it |
//! | `metrics` | no | records [metrics](#metrics) through the facade of the crate [`metrics`](https://docs.rs/metrics) |
//! | `postgres` | no | nodes that are PostgreSQL servers, given by their URLs; `postgres_schema` |
//! | `redis` | yes | nodes that are Redis or Valkey servers, given by their URLs. Without it there are only nodes in memory and [custom nodes](node) |
//! | `serde` | no | reads and writes [`LockManagerConfig`], [`LockOptions`] and [`LockKey`] in TOML, JSON and other formats |
//! | `test-util` | no | [`test_util`](test_util/index.html), for the tests of applications: a clock that the test moves, and nodes that fail, freeze or forget |
//! | `tls` | no | `rediss://` URLs, `sslmode=require` of PostgreSQL, and `zookeepers://` URLs, by rustls, with `TlsOptions` |
//! | `zookeeper` | no | a node that is a ZooKeeper ensemble, given by its URL |
//!
//! [operating]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/operating/index.html#the-command
//!
//! # Metrics
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `redlock_acquire_seconds` | histogram: the duration of acquisitions, including the time of waiting, also [through an outage](LockManagerBuilder::outage_grace) | `lock`; `outcome`: `acquired`, `contended`, `split`, `unavailable`, `timed_out`, `too_many_waiters`, `already_held`, `lost`, `foreign_key`, `invalid`, `draining`, `shut_down`, `runtime_ended`, `dropped` |
//! | `redlock_hold_seconds` | histogram: how long each holder had its lock | `lock`; `end`: `released`, `lost`, `broken` by an operator. A lock that its release finds gone is `released` |
//! | `redlock_held` | gauge: locks that this process holds | `lock` |
//! | `redlock_waiting` | gauge: callers of this process that wait for another holder | `lock` |
//! | `redlock_broken_total` | counter: holders that [`break_lock`](LockManager::break_lock) of this process has removed | `lock`: `other` for holders of other processes |
//! | `redlock_replayed_total` | counter: stored answers that an `IdempotencyLayer` of `redlock-axum` has sent to repeated requests | `lock`: the name of the layer |
//! | `redlock_lost_total` | counter: locks that were lost before they were released, or that their release found gone, including losses by a shutdown | |
//! | `redlock_lock_order_total` | counter: circles in the [order in which requests take locks](LockManagerBuilder::lock_order) | |
//! | `redlock_extensions_total` | counter: extensions of leases, including renewals | `outcome`: `extended`, `unavailable`, `lost` |
//! | `redlock_quorum` | gauge: 1 if a quorum of nodes would grant a lock now, otherwise 0, also while a [`restart_guard`](LockManagerBuilder::restart_guard) keeps too many of them from it; updated each second while the manager lives | `nodes`: the names of the nodes of the manager, with commas |
//! | `redlock_node_up` | gauge: 1 if the node accepts operations, otherwise 0; updated while the manager lives | `node`: its name, which is host and port of a Redis or Valkey server; also host and port of each master of a Redis Cluster |
//! | `redlock_conductor_changes_total` | counter: changes of the node that keeps the order of [fair](LockRequest::fair) waiters | |
//! | `redlock_promotions_total` | counter: promotions of another server of a Sentinel group or of a PostgreSQL database that the manager noticed | `node`: its name |
//! | `redlock_authentications_total` | counter: attempts to renew the credentials of a connection before they [expire](LockManagerBuilder::credentials) | `node`: its name; `outcome`: `renewed`, `failed` |
//! | `redlock_clock_steps_total` | counter: steps of a node's wall clock that the manager noticed | `node`: host and port; `direction`: `forward`, `back` |
//!
//! `lock` is the [name](LockRequest::named) of the lock, and never its key. A process has at most 200 names in its metrics: each
//! further one counts as `other`, and a warning says so. A counter is 0 before its first event: from the start of the manager,
//! or from the first use of the name. `METRIC_BUCKETS` are boundaries for the histograms.
//!
//! Install the recorder before the manager is created. A manager notices a later one and logs a warning; the metrics lack what
//! happened before. The [`tracing`] events name the key of the lock that they report.
//!
//! # Spans
//!
//! Spans of [`tracing`] with the target `redlock_core` and the level `DEBUG`. Their parent is the span of the caller, and their
//! fields have neither a key nor the name of a node. The library never enters them, so no event is inside of them.
//!
//! | span | fields |
//! |---|---|
//! | `redlock.acquire`: an acquisition | `lock`: the name; `outcome`, as in the metrics; `waited_ms`: its duration; `granted`, `nodes`: how many nodes granted it, of how many; `joined`: `true` if it joined the lock of another reader; `holder`: the [label](LockManagerBuilder::owner_label) of the holder for which it waited, or that refused it; `otel.kind`: `client`; `error.type`: the outcome of an acquisition that failed |
//! | `redlock.hold`: a held lock | `lock`; `end`, as in the metrics; `renewals`: how often its lease was extended; `number`: its fencing number |
//!
//! # Servers
//!
//! Redis 6.2 and later, Valkey 8 and later. A lock is set by `SET key token NX PX milliseconds` and
//! released by a script that compares the token and deletes the key, as the Redis documentation
//! describes, or by the server's own `DELIFEQ` or `DELEX`. Lock libraries of other languages (Jedis, spring-data-redis, redis-py, redsync,
//! node-redlock, RedLock.net) do the same, so their locks and those of this crate exclude each other.
//! With [`Dialect::Redisson`] the lock is the `RLock` of Redisson instead.
//!
//! In PostgreSQL a lock is a row of a table. In ZooKeeper it is that of Curator's `InterProcessMutex`. The guide of
//! `redlock-axum` has a page for each.
//!
#![doc = include_str!("wire.md")]
#![warn(clippy::exhaustive_enums)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod ballot;
mod buffer_space;
mod caller_id;
mod clock;
mod context;
mod counters;
mod drain;
mod error;
mod fencing_token;
mod guard;
mod home;
mod jitter;
mod key;
mod lease;
mod limits;
mod lock;
mod lock_order;
mod log_limit;
mod manager;
pub mod node;
mod operator;
mod options;
mod quorum;
mod random;
mod request;
#[cfg(any(test, feature = "unstable-simulation"))]
mod seeded;
#[cfg(feature = "unstable-simulation")]
#[doc(hidden)]
pub mod simulation;
mod store;
mod telemetry;
#[cfg(feature = "test-util")]
pub mod test_util;
mod time_text;
mod validity;
mod waiting;

pub use access::Credentials;
#[cfg(feature = "tls")]
pub use access::TlsOptions;
pub use error::{
    ConfigError, ConnectError, ForeignKind, HoldError, InvalidOption, LockError, LossCause,
    LostError, NodeError, ReleaseError, RunError, Vote, Votes,
};
pub use fencing_token::FencingToken;
pub use guard::{LockGuard, LockHandle, LockState, Lost};
pub use key::{KeyError, KeyPart, KeyTemplate, LockKey, TemplateError};
pub use lock::{Dialect, HolderId, HolderIdError, OwnerLabel, OwnerLabelError};
pub use manager::{Drained, LockManager, LockManagerBuilder, LockManagerConfig, NodeUrl};
pub use operator::{
    BreakError, BreakRequest, Broken, CounterSnapshot, HeldSnapshot, Holder, KeyState, LockStatus,
    LostSnapshot, NodeAnswer, NodeSnapshot, ProcessSnapshot, Snapshot, StatusError, StatusRequest,
    WaitingSnapshot,
};
pub use options::{LockOptions, OnLost, WaitTime};
pub use request::LockRequest;
pub use request::lead::{LeadRequest, Leader};
pub use request::scope::{Scoped, scope};
pub use store::memory::MemoryNode;
#[cfg(feature = "postgres")]
pub use store::postgres::postgres_schema;
#[cfg(feature = "metrics")]
pub use telemetry::METRIC_BUCKETS;

/// Items for the other crates of this workspace. No public API.
#[doc(hidden)]
pub mod __private {
    pub use crate::buffer_space::{BufferSpace, Reserved};
    pub use crate::context::Context;
    pub use crate::guard::{AbortOnLoss, LossWatcher};
    pub use crate::key::{KeyBuilder, KeyValue, PlaceholderKind};
    pub use crate::lock::{Keys, LockName};
    pub use crate::lock_order::RequestPlace;
    pub use crate::log_limit::LogLimit;
    pub use crate::operator::check_reason;
    #[cfg(feature = "serde")]
    pub use crate::options::{ConfigValue, read_option};
    pub use crate::options::{TimeText, assert_valid, check_name, is_same, read_time};
    pub use crate::request::acquisition::Acquisition;
    pub use crate::request::detached::{delay_shutdown, detach};
    pub use crate::request::scope::{has_lock, is_in_scope, stay};
    #[cfg(feature = "postgres")]
    pub use crate::store::postgres::client::{PostgresClient, statement_error};
    #[cfg(feature = "redis")]
    pub use crate::store::redis::client::{RedisClient, RedisReply, RedisScript};
    #[cfg(feature = "postgres")]
    pub use tokio_postgres;
    pub use tokio_util::task::task_tracker::TaskTrackerToken as ShutdownDelay;
}

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
