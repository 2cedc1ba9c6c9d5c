//! The URL of a node in a configuration.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "tls")]
use crate::access::TlsOptions;
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresUrl;
#[cfg(feature = "redis")]
use crate::store::redis::RedisUrl;
#[cfg(all(feature = "redis", feature = "tls"))]
use crate::store::redis::Servers;
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::ZookeeperUrl;

/// The URL of a node, as [`LockManagerBuilder::url`](crate::LockManagerBuilder::url) takes it. It is made from a text
/// by `From`, and is not checked before it is used.
///
/// A URL may contain a password. `Debug` shows the name of the node instead: host and port, or the path of the socket.
///
/// # Examples
///
/// ```
/// use redlock_core::NodeUrl;
///
/// # #[cfg(feature = "redis")] {
/// let url = NodeUrl::from("redis://:s3cret@10.0.0.1");
/// assert_eq!(format!("{url:?}"), "10.0.0.1:6379");
/// assert_eq!(url.as_ref(), "redis://:s3cret@10.0.0.1");
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NodeUrl(String);

impl<T: Into<String>> From<T> for NodeUrl {
    fn from(url: T) -> Self {
        Self(url.into())
    }
}

impl AsRef<str> for NodeUrl {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The node that a URL describes.
pub(in crate::manager) enum ParsedUrl {
    /// A node in the memory of this process.
    Memory,
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresUrl>),
    #[cfg(feature = "redis")]
    Redis(Box<RedisUrl>),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Box<ZookeeperUrl>),
}

impl NodeUrl {
    /// Parses the URL of one of `count` nodes. The error explains the mistake without repeating the URL.
    pub(in crate::manager) fn parse(&self, count: usize) -> Result<ParsedUrl, String> {
        match &*self.0 {
            "" => {
                Err("it is empty; write a URL such as redis://127.0.0.1, and a comma only between \
                       two URLs"
                    .to_owned())
            }
            "memory:" if count == 1 => Ok(ParsedUrl::Memory),
            // Several of these nodes could be a quorum, which other processes do not see.
            "memory:" => Err("memory: is allowed only as the one and only node".to_owned()),
            #[cfg(feature = "postgres")]
            url if has_scheme(url, POSTGRES) => {
                PostgresUrl::parse(url).map(Box::new).map(ParsedUrl::Postgres)
            }
            #[cfg(not(feature = "postgres"))]
            url if has_scheme(url, POSTGRES) => Err(without_feature("postgres")),
            #[cfg(feature = "zookeeper")]
            url if has_scheme(url, ZOOKEEPER) => {
                ZookeeperUrl::parse(url).map(Box::new).map(ParsedUrl::Zookeeper)
            }
            #[cfg(not(feature = "zookeeper"))]
            url if has_scheme(url, ZOOKEEPER) => Err(without_feature("zookeeper")),
            #[cfg(feature = "redis")]
            url if has_scheme(url, REDIS) => {
                RedisUrl::parse(url).map(Box::new).map(ParsedUrl::Redis)
            }
            #[cfg(not(feature = "redis"))]
            url if has_scheme(url, REDIS) => Err(without_feature("redis")),
            url => {
                let words =
                    if url.contains("://") { "its scheme is unknown" } else { "it has no scheme" };
                Err(format!("{words}; known are {}memory: alone", SCHEMES.concat()))
            }
        }
    }

    /// Returns the longest lease that the node grants, unless it grants every lease.
    pub(in crate::manager) fn longest_lease(&self) -> Option<Duration> {
        match self.parse(1) {
            #[cfg(feature = "zookeeper")]
            Ok(ParsedUrl::Zookeeper(url)) => Some(url.longest_lease()),
            _ => None,
        }
    }
}

impl ParsedUrl {
    /// Returns the name of the node.
    pub(in crate::manager) fn name(&self) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => url.name(),
            #[cfg(feature = "redis")]
            Self::Redis(url) => url.name(),
            #[cfg(feature = "zookeeper")]
            Self::Zookeeper(url) => url.name(),
        }
    }

    /// Returns the options of TLS, which a node in memory does not have.
    #[cfg(feature = "tls")]
    pub(in crate::manager) fn tls(&mut self) -> Option<&mut Option<TlsOptions>> {
        match self {
            Self::Memory => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => Some(&mut url.tls),
            #[cfg(feature = "redis")]
            Self::Redis(url) => Some(&mut url.tls),
            #[cfg(feature = "zookeeper")]
            Self::Zookeeper(url) => Some(&mut url.tls),
        }
    }

    /// Returns whether the connections do not leave this machine.
    #[cfg(feature = "tls")]
    pub(in crate::manager) fn is_local(&self) -> bool {
        match self {
            Self::Memory => true,
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => url.is_local(),
            #[cfg(feature = "redis")]
            Self::Redis(url) => matches!(url.servers, Servers::Unix(_)),
            #[cfg(feature = "zookeeper")]
            Self::Zookeeper(_) => false,
        }
    }
}

const POSTGRES: &[&str] = &["postgres", "postgresql"];
const ZOOKEEPER: &[&str] = &["zookeeper", "zookeepers"];
/// Without the kind behind a `+` or a `-`, such as `+sentinel`.
const REDIS: &[&str] = &["redis", "rediss", "valkey", "valkeys", "unix"];
/// The schemes of the stores that this build has, for errors.
const SCHEMES: &[&str] = &[
    #[cfg(feature = "redis")]
    "redis://, rediss://, unix://, redis+sentinel://, redis-cluster://, ",
    #[cfg(feature = "postgres")]
    "postgres://, ",
    #[cfg(feature = "zookeeper")]
    "zookeeper://, zookeepers://, ",
];

fn has_scheme(url: &str, schemes: &[&str]) -> bool {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let base = |scheme: &str| scheme.split(['+', '-']).next().map(str::to_owned);
    scheme.as_deref().and_then(base).is_some_and(|scheme| schemes.contains(&scheme.as_str()))
}

#[cfg(not(all(feature = "postgres", feature = "redis", feature = "zookeeper")))]
fn without_feature(feature: &str) -> String {
    format!("it needs the feature `{feature}` of redlock-core (or redlock-axum)")
}

/// Shows the name of the node (secrets stay in).
impl fmt::Debug for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parse(1) {
            Ok(url) => f.write_str(&url.name()),
            Err(_) => f.write_str("(invalid)"),
        }
    }
}
