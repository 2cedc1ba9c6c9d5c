//! A node over a ZooKeeper ensemble.
//!
//! * [`url`]: reads the URL of a node.
//! * [`session`]: keeps the session connected.
//! * [`evidence`]: the evidence that the session is alive.
//! * [`link`]: drives a connection.
//! * [`connect`]: makes a connection.
//! * [`requests`]: the requests and their replies.
//! * [`frames`], [`jute`]: the encoding.
#![expect(dead_code, unused_imports, reason = "the votes follow")]

mod connect;
mod evidence;
mod frames;
mod jute;
mod link;
mod requests;
mod session;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub(crate) use url::ZookeeperUrl;
