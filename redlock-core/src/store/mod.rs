//! The stores that this crate knows: each is a [node](crate::node), or a group of servers that acts as one.
//!
//! A store imports the protocol of nodes and the kit that the stores share, and no other store. The manager knows the stores
//! by their [table](STORES).
//!
//! # Adding a store
//!
//! * A folder here, a row in the table, and `StoreUrl` of `kit/description.rs` for its URL.
//! * A feature in both manifests, both `lib.rs` and `.ci/run`, and a metric in `telemetry/mod.rs`.
//! * Tests: `tests/harness/nodes.rs`, `tests/locks`, `tests/http/leftovers`, `tests/tools.sh`.

pub(crate) mod kit;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use kit::description::StoreDescription;

/// Describes a store that a feature compiles.
macro_rules! described {
    ($url:ty, $feature:literal, $schemes:expr, $forms:literal) => {
        StoreDescription {
            schemes: $schemes,
            forms: $forms,
            #[cfg(feature = $feature)]
            read: Ok(|url| Ok(Box::new(<$url>::parse(url)?))),
            #[cfg(not(feature = $feature))]
            read: Err($feature),
            is_alone: false,
        }
    };
}

/// All stores, in the order in which errors name them.
pub(crate) const STORES: &[StoreDescription] = &[
    described!(
        redis::RedisUrl,
        "redis",
        &["redis", "rediss", "valkey", "valkeys", "unix"],
        "redis://, rediss://, valkey://, valkeys://, unix:///, redis+sentinel://, redis-cluster://"
    ),
    described!(postgres::PostgresUrl, "postgres", &["postgres", "postgresql"], "postgres://"),
    described!(
        zookeeper::ZookeeperUrl,
        "zookeeper",
        &["zookeeper", "zookeepers"],
        "zookeeper://, zookeepers://"
    ),
    StoreDescription {
        schemes: &["memory"],
        forms: "memory: alone",
        read: Ok(memory::read),
        // Several of these nodes could be a quorum, which other processes do not see.
        is_alone: true,
    },
];
