//! The stores that this crate knows: each is a [node](crate::node), or a group of servers that acts as one.
//!
//! A store imports the protocol of nodes and the kit that the stores share, and no other store.

#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(crate) mod kit;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;
