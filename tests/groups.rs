//! Nodes that consist of several servers: Redis Clusters and Sentinel groups.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod sentinel;
