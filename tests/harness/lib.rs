//! The test harness of this workspace: real `redis-server` processes that tests can freeze, kill and
//! restart, a view of their data that does not use the library under test, and an independent checker of
//! mutual exclusion.
//!
//! * [`RedisServer`] and [`Servers`] start servers of their own on free ports. No test connects to a Redis
//!   that already runs on the machine. [`AppendOnlyFile`] truncates the persisted data of a server, as a
//!   power cut does.
//! * [`FailoverGroup`] is a master with replicas, and three sentinels that watch them.
//! * [`RedisCluster`] is a cluster of such servers, whose slots a test can move.
//! * [`Proxy`] is a network between client and server that delays data, holds it back, cuts connections, or
//!   never answers.
//! * [`PlayedServer`] is a server in front of a real one, whose replies a test replaces.
//! * [`Probe`] reads a server's state over a connection of its own.
//! * [`History`] records which process believed to hold which lock at what time. [`Findings`] checks the
//!   record for violations.
//! * [`Storm`] makes the faults of a [`Schedule`] while many processes contend for locks and write such a
//!   history.
//! * [`Service`] runs an axum application in a process of its own: an [`example`], or `locked-service`, whose
//!   handlers write a history. A test can start several.
//! * [`redlock`] is the command, and [`Running`] one that runs in a process of its own.
//! * [`builder`] and [`connect`] make lock managers with timeouts for a busy machine.
//! * [`Nodes`] are the nodes of a lock manager over stores of any kind, so that one test runs over all kinds.
//! * [`PostgresServer`] is a database server, and [`PgBouncer`] a pooler in front of it.
//! * [`Prometheus`] is a server that reads the metrics of an example.
//! * [`ZookeeperServer`] and [`ZookeeperEnsemble`] are servers of ZooKeeper, and [`ZookeeperClient`] is a client that
//!   sends only what the test says.
//! * [`Peer`] is a process that uses the lock of another library, and takes orders from the test. [`java`] starts such a
//!   program.
//! * [`Logs`] collects log lines, [`drop_after`] drops a future before it is ready, and [`Traces`] finds
//!   keys, subscriptions, connections and tasks that a test left behind.
//! * [`find_secret`] finds passwords and tokens in a text. The harness searches every log line of the tests
//!   and of the services, and a secret ends the test run.
//! * [`eventually`] polls a condition until a deadline, [`reaches`] as long as a count grows, [`held_briefly`] acquires a lock with a short lease, and [`best_of_five`] measures up to five times.
//! * [`seeds`] returns the seeds of a test that explores orders of events, and [`skip`] reports a test that cannot run.
//!
//! Dropping the value that started a process ends the process. All processes also end when the test process
//! itself is killed.

#![allow(clippy::expect_used, reason = "a failure of the harness fails the test")]

mod append_only_file;
mod cluster;
mod command;
mod drop_after;
mod eventually;
mod example;
mod held_briefly;
mod history;
mod java;
mod keepalive;
mod manager;
mod measured;
mod nodes;
mod peer;
mod played_server;
mod port;
mod postgres;
mod probe;
mod process;
mod prometheus;
mod proxy;
mod redis_server;
mod scratch;
mod seeds;
#[cfg(test)]
mod self_tests;
mod sentinel;
mod sentinel_group;
mod servers;
mod service;
mod skip;
mod snapshots;
mod stores;
mod storm;
mod ticket_shop;
mod tls;
mod traces;
mod zookeeper;

pub use append_only_file::AppendOnlyFile;
pub use cluster::RedisCluster;
pub use command::{Running, redlock};
pub use drop_after::{Moment, drop_after};
pub use eventually::{eventually, reaches};
pub use example::example;
pub use held_briefly::held_briefly;
pub use history::{
    Attempt, Belief, Event, Findings, History, Hold, Late, Sharing, What, holds, monotonic_nanos,
    overlapping_readers, overlaps, too_many,
};
pub use java::{java, java_with, target};
pub use keepalive::keepalive_timer;
pub use manager::{builder, connect};
pub use measured::best_of_five;
pub use nodes::Nodes;
pub use peer::Peer;
pub use played_server::{Command, Play, PlayedServer};
pub use postgres::{PgBouncer, PostgresOptions, PostgresServer};
pub use probe::{Monitor, Probe};
pub use prometheus::Prometheus;
pub use proxy::{Connection, Direction, Proxy, Traffic, Welcome};
pub use redis_server::{RedisOptions, RedisServer};
pub use redlock_logs::{Logs, find_secret};
pub use scratch::end_with_parent;
pub use seeds::seeds;
pub use sentinel::Sentinel;
pub use sentinel_group::{FailoverGroup, GroupOptions};
pub use servers::Servers;
pub use service::Service;
pub use skip::skip;
pub use storm::{
    CONTENDED_KEYS, Client, ClientSettings, Fault, LONGEST_LEASE, NodeKind, Report, Schedule,
    Storm, Strike, Target,
};
pub use ticket_shop::TicketShop;
pub use traces::Traces;
pub use zookeeper::{
    EnsembleOptions, ZookeeperClient, ZookeeperEnsemble, ZookeeperError, ZookeeperKind,
    ZookeeperOptions, ZookeeperServer, ZookeeperStat,
};

/// The examples of the workspace's README compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
