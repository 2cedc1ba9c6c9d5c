//! What the tests of this workspace stand on: real `redis-server` processes that can be frozen,
//! killed and restarted, a view of what is on them that does not go through the library, and a
//! checker of mutual exclusion that does not trust it.
//!
//! * [`RedisServer`] and [`Servers`] start servers of their own on free ports. Nothing uses, or
//!   touches, a Redis that runs on the machine already. [`AppendOnlyFile`] is what such a server has
//!   written down, of which a power cut takes the end away.
//! * [`Proxy`] is the network between: it delays, holds back, cuts and never answers, as it is told.
//! * [`Probe`] looks at a server over a connection of its own.
//! * [`History`] collects who believed to hold what and when, from any number of processes;
//!   [`Findings`] says what that proves.
//! * [`Storm`] makes faults by a [`Schedule`] while many processes contend for locks, and writes down
//!   what they believe.
//! * [`Service`] runs an axum application as a process of its own, as many times as a test needs:
//!   the `index` example, or `locked-service`, whose handlers write such a history.
//! * [`Nodes`] is what one test can run over, in memory or on real servers.
//! * [`Postgres`] is a database that checks what the locks' holders write.
//! * [`Peer`] is another library's lock, in a process that takes orders.
//! * [`Logs`] collects what is logged, [`drop_after`] drops a future in the middle, [`Traces`] sees
//!   what is left behind.
//! * [`find_secret`] finds passwords and tokens in a text. Whatever is logged while a test runs is
//!   searched for them, and so are the logs of services: a secret ends the test run.
//! * [`eventually`] waits for a condition with a deadline.
//!
//! All processes end with the value that started them, and also when the test process itself is
//! killed.

#![allow(clippy::expect_used, reason = "a failure of the harness fails the test")]

mod append_only_file;
mod drop_after;
mod eventually;
mod history;
mod nodes;
mod peer;
mod port;
mod postgres;
mod probe;
mod process;
mod proxy;
mod redis_server;
mod servers;
mod service;
mod snapshots;
mod storm;
mod traces;

pub use append_only_file::AppendOnlyFile;
pub use drop_after::{Moment, drop_after};
pub use eventually::eventually;
pub use history::{
    Attempt, Belief, Event, Findings, History, Hold, Late, What, holds, monotonic_nanos, overlaps,
};
pub use nodes::Nodes;
pub use peer::Peer;
pub use postgres::Postgres;
pub use probe::{Monitor, Probe};
pub use proxy::{Connection, Direction, Proxy, Traffic, Welcome};
pub use redis_server::{RedisOptions, RedisServer};
pub use redlock_logs::{Logs, find_secret};
pub use servers::Servers;
pub use service::Service;
pub use storm::{
    CONTENDED_KEYS, Client, Fault, LONGEST_LEASE, Report, Schedule, Storm, Strike, Target, Totals,
};
pub use traces::Traces;

/// The examples of the workspace's README compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
