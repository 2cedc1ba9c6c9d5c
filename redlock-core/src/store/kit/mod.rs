//! The parts that several stores need.
//!
//! * [`description`]: the description of a store, by which the manager makes nodes from URLs.
//! * [`url`], [`query`]: read what the URLs of all stores have in common.
//! * [`provider`]: gets the credentials for each connection.
//! * [`client_config`], [`encrypt`]: TLS of a connection.
//! * [`registry`]: which node of a manager has which server.
//!
//! The state of a node over a server that outlives its connections:
//!
//! * [`gate`]: decides whether the votes of the server count.
//! * [`wall_clock`]: detects steps of the server's wall clock.
//! * [`clock_step`]: closes the gate after such a step, and reports the step.
//! * [`kept`]: one connection, which is made anew when it has broken.
//! * [`connect_time`]: the error of an attempt to connect that takes too long.
//! * [`names`]: notices that the name of the server leads to another address.
//! * [`pauses`]: the pauses between the attempts to connect.
//! * [`link_state`]: the reason of the end of a connection, and the silence of its server.
//! * [`keepalive`]: lets the kernel notice that the machine of a server has disappeared.
//! * [`outage_log`]: the log lines about a server that goes down and comes back.
#![cfg_attr(
    not(all(feature = "postgres", feature = "redis", feature = "tls", feature = "zookeeper")),
    allow(dead_code, reason = "each store needs a part of the kit")
)]

#[cfg(feature = "tls")]
pub(crate) mod client_config;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod clock_step;
pub(crate) mod connect_time;
pub(crate) mod description;
#[cfg(feature = "unstable-simulation")]
pub(crate) mod dial;
#[cfg(all(feature = "tls", any(feature = "postgres", feature = "zookeeper")))]
pub(crate) mod encrypt;
pub(crate) mod gate;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod keepalive;
pub(crate) mod kept;
#[cfg(test)]
#[cfg(any(feature = "redis", feature = "zookeeper"))]
pub(crate) mod link_contract;
pub(crate) mod link_state;
pub(crate) mod names;
pub(crate) mod outage_log;
pub(crate) mod pauses;
pub(crate) mod provider;
pub(crate) mod query;
pub(crate) mod registry;
pub(crate) mod url;
pub(crate) mod wall_clock;
