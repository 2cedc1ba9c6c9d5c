//! The settings of a manager in the configuration of a service.

#[cfg(feature = "serde")]
mod checked;
#[cfg(feature = "serde")]
mod de;
mod env;
mod fields;
#[cfg(feature = "serde")]
mod ser;
#[cfg(test)]
#[cfg(feature = "serde")]
mod serde_tests;
mod setting;
mod suggestion;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod url_tests;
mod urls;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::LockManager;
use super::builder::{LockManagerBuilder, NodeConfig};
use crate::error::{ConfigError, ConnectError};
use crate::lock::Dialect;

#[cfg(not(feature = "redis"))]
pub(super) use urls::NO_REDIS;

/// The settings of a [`LockManager`] in the configuration of a service: a part of its TOML, JSON or RON file
/// (feature `serde`), or environment variables ([`from_env`](Self::from_env)).
///
/// | field | value | default |
/// |---|---|---|
/// | [`urls`](Self::urls) | a list of URLs, or a text with commas between the URLs | none: `connect` fails |
/// | [`prefix`](Self::prefix) | up to 100 bytes without control characters | no prefix |
/// | [`dialect`](Self::dialect) | `"plain"` or `"redisson"` | `"plain"` |
/// | [`expire`](Self::expire) | a time from 10 ms to 7 days | 30 s |
/// | [`node_timeout`](Self::node_timeout) | a time from 1 ms to 60 s, shorter than `expire` | 1 s with one node, 200 ms with several; half of `expire` if that is shorter |
/// | [`connect_timeout`](Self::connect_timeout) | a time from 1 ms to 60 s | 1 s |
/// | [`max_waiters`](Self::max_waiters) | a whole number, at least 1 | 1000 |
/// | [`outage_grace`](Self::outage_grace) | a time from 0 to 60 s | 2 s |
/// | [`restart_guard`](Self::restart_guard) | a time from 10 ms to 7 days, at least `expire` | none |
/// | [`failover_margin`](Self::failover_margin) | a time from 0 to 60 s, only with `restart_guard` | Sentinel: `min-replicas-max-lag` of the servers, and 2 s; cluster: `cluster-node-timeout`, and 1 s |
/// | [`cluster_refresh`](Self::cluster_refresh) | a time from 100 ms to 60 s | 5 s |
/// | [`tls_ca`](Self::tls_ca) | the path of a file with certificates | the system's root certificates |
/// | [`tls_cert`](Self::tls_cert), [`tls_key`](Self::tls_key) | the paths of the client's certificate and key | no client certificate |
///
/// A time is a text such as `"500ms"` or `"1m 30s"`, or a whole number of seconds: `30` and `"30"` are the same
/// as `"30s"`. A setting without a value has its default. [`LockManagerBuilder`] explains each setting in the
/// method of the same name.
///
/// # From a file
///
/// With the feature `serde`, a field of this type reads the settings. An unknown field, a field that occurs
/// twice, a value of a wrong type and a value out of its range are errors. They name the field and the allowed
/// values, and the reader adds the line and the column. Mistakes in a URL, and settings that exclude each
/// other, are errors of `connect`: the crate `toml` prints the line of a mistake, and a line with URLs may
/// contain passwords. For the same reason, a mistake that may be in such a line has the position of its table
/// (`[locks]`) instead. A syntax error still has its own line, and an inline table is one line: print
/// `error.message()` where that matters.
///
/// ```
/// # #[cfg(feature = "serde")] {
/// #[derive(serde::Deserialize)]
/// struct Config {
///     locks: redlock_core::LockManagerConfig,
/// }
///
/// let config: Config = toml::from_str(
///     r#"
///     [locks]
///     urls = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
///     prefix = "shop:"
///     expire = "30s"
///     "#,
/// )?;
/// # async fn connect(config: Config) -> Result<(), redlock_core::ConnectError> {
/// let locks = config.locks.connect().await?;
/// # Ok(()) }
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The format must describe its values, as TOML, JSON and RON do. A number may be a text, and `null` is the
/// default. A configuration is written in the same form. A setting without a value is left out. The URLs are written
/// **with their passwords**, so that a copy that is read back equals the original. `Debug` shows only host and
/// port of each URL.
///
/// # From environment variables
///
/// `LOCKS_URLS=redis://10.0.0.1,redis://10.0.0.2 LOCKS_EXPIRE=30s`, see [`from_env`](Self::from_env).
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a configuration does nothing until a manager is connected"]
pub struct LockManagerConfig {
    /// The URLs of the nodes, as `LockManagerBuilder::url` takes them: `redis://`, `unix:`, `redis+sentinel://`, and
    /// `rediss://` or `rediss+sentinel://` for TLS (feature `tls`).
    ///
    /// Defaults to none. Then [`connect`](Self::connect) fails with [`ConnectError::NoNodes`], unless
    /// [nodes are added](Self::builder) to the builder. `memory:` alone is a node in the memory of this
    /// process, for a service that runs without a server in development.
    pub urls: Vec<String>,
    /// The prefix of all keys on the nodes, see [`LockManagerBuilder::prefix`]. At most 100 bytes without
    /// control characters. Defaults to no prefix.
    pub prefix: Option<String>,
    /// How locks are written on the nodes, see [`LockManagerBuilder::dialect`]. Defaults to
    /// [`Dialect::Plain`].
    pub dialect: Option<Dialect>,
    /// The lease of locks whose request sets no lease, see [`LockManagerBuilder::expire`]. From 10 ms to
    /// 7 days. Defaults to 30 s.
    pub expire: Option<Duration>,
    /// How long a node may be silent, see [`LockManagerBuilder::node_timeout`]. From 1 ms to 60 s, and shorter
    /// than the lease. Defaults to 1 s with one node, to 200 ms with several, and to half of `expire` if that
    /// is shorter.
    pub node_timeout: Option<Duration>,
    /// How long a connection attempt to a node may take, see [`LockManagerBuilder::connect_timeout`]. From
    /// 1 ms to 60 s. Defaults to 1 s.
    pub connect_timeout: Option<Duration>,
    /// How many callers may wait for one key, see [`LockManagerBuilder::max_waiters`]. At least 1. Defaults to
    /// 1000.
    pub max_waiters: Option<usize>,
    /// How long waiters keep their place while no quorum of nodes replies, see
    /// [`LockManagerBuilder::outage_grace`]. From 0, which disables the grace, to 60 s. Defaults to 2 s.
    pub outage_grace: Option<Duration>,
    /// The longest lease that any client of the servers requests, see
    /// [`LockManagerBuilder::restart_guard`]. From 10 ms to 7 days, and at least `expire`. Defaults to none:
    /// the servers are trusted to keep their locks.
    pub restart_guard: Option<Duration>,
    /// How long a former master of a Sentinel group or a Redis Cluster may still grant locks, see
    /// [`LockManagerBuilder::failover_margin`]. From 0 to 60 s, and only with `restart_guard`. Defaults to the
    /// `min-replicas-max-lag` of the servers and 2 s, and in a cluster to the `cluster-node-timeout` and 1 s.
    pub failover_margin: Option<Duration>,
    /// The time between two readings of the slots of a Redis Cluster, see
    /// [`LockManagerBuilder::cluster_refresh`]. From 100 ms to 60 s. Defaults to 5 s.
    pub cluster_refresh: Option<Duration>,
    /// The file with the certificates of the authorities that `rediss://` URLs trust (PEM, feature `tls`). Defaults to
    /// the root certificates of the system. A URL can name another file by its parameter `tls_ca`.
    pub tls_ca: Option<PathBuf>,
    /// The file with the certificate chain of the client for `rediss://` URLs (PEM, feature `tls`). Needs
    /// [`tls_key`](Self::tls_key). Defaults to no client certificate. A URL can name another file by its parameter
    /// `tls_cert`.
    pub tls_cert: Option<PathBuf>,
    /// The file with the key of [`tls_cert`](Self::tls_cert).
    pub tls_key: Option<PathBuf>,
}

impl LockManagerConfig {
    /// Creates a configuration without a value: each setting has its default, and there are no URLs.
    pub const fn new() -> Self {
        Self {
            urls: Vec::new(),
            prefix: None,
            dialect: None,
            expire: None,
            node_timeout: None,
            connect_timeout: None,
            max_waiters: None,
            outage_grace: None,
            restart_guard: None,
            failover_margin: None,
            cluster_refresh: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
        }
    }

    /// Reads the settings from the environment variables of this process whose names begin with
    /// `{prefix}_`. With the prefix `LOCKS`:
    ///
    /// | variable | example |
    /// |---|---|
    /// | `LOCKS_URLS` | `redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3`, or `memory:` |
    /// | `LOCKS_PREFIX` | `shop:` |
    /// | `LOCKS_DIALECT` | `plain`, `redisson` |
    /// | `LOCKS_EXPIRE` | `30s`, or `30` |
    /// | `LOCKS_NODE_TIMEOUT` | `50ms` |
    /// | `LOCKS_CONNECT_TIMEOUT` | `1s` |
    /// | `LOCKS_MAX_WAITERS` | `1000` |
    /// | `LOCKS_OUTAGE_GRACE` | `2s` |
    /// | `LOCKS_RESTART_GUARD` | `1m` |
    /// | `LOCKS_FAILOVER_MARGIN` | `12s` |
    /// | `LOCKS_CLUSTER_REFRESH` | `5s` |
    /// | `LOCKS_TLS_CA` | `/etc/redis/ca.pem` |
    /// | `LOCKS_TLS_CERT`, `LOCKS_TLS_KEY` | `/etc/redis/client.pem`, `/etc/redis/client.key` |
    ///
    /// A variable that is empty or blank counts as unset. White space around a value is ignored, except in
    /// `LOCKS_PREFIX`. [`split_urls`](Self::split_urls) describes how several URLs are separated.
    ///
    /// Every other variable that begins with `LOCKS_` is an error, so that a misspelt setting is noticed.
    /// Choose a prefix with which no other variables begin. Variables that Kubernetes sets for a service called
    /// `locks` or `locks-..` (such as `LOCKS_SERVICE_HOST` and `LOCKS_REDIS_PORT_6379_TCP`) are ignored.
    ///
    /// # Errors
    ///
    /// * [`ConfigError::UnknownVariable`] for a variable that begins with the prefix but is no setting.
    /// * [`ConfigError::InvalidValue`] for a value of a wrong form, or out of its range.
    /// * [`ConfigError::InvalidUrl`] for a mistake in a URL.
    /// * [`ConfigError::NotUnicode`] for a value that is not Unicode.
    /// * [`ConfigError::EmptyPrefix`] if `prefix` is empty.
    ///
    /// Settings that exclude each other, such as an `expire` that is longer than the `restart_guard`, are
    /// errors of [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use redlock_core::LockManagerConfig;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManagerConfig::from_env("LOCKS")?.connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn from_env(prefix: &str) -> Result<Self, ConfigError> {
        env::from_variables(prefix, std::env::vars_os())
    }

    /// Splits a text with several URLs, such as the value of an environment variable, at the commas between
    /// the URLs. White space around a URL is removed. A blank text has no URLs.
    ///
    /// A comma belongs to a URL unless another URL, another comma or the end of the text follows it. So a
    /// password may contain a comma. Between two commas, and after a comma at the end, there is an empty URL,
    /// which is an error of [`connect`](Self::connect): the text may have lost a server.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::LockManagerConfig;
    ///
    /// let urls = LockManagerConfig::split_urls("redis://:a,b@10.0.0.1, unix:///run/redis.sock");
    /// assert_eq!(urls, ["redis://:a,b@10.0.0.1", "unix:///run/redis.sock"]);
    /// ```
    pub fn split_urls(text: &str) -> Vec<&str> {
        urls::split(text)
    }

    /// Returns a builder with these settings, to which the service can add others, such as
    /// [nodes in memory](LockManagerBuilder::memory_node) and [custom nodes](LockManagerBuilder::node).
    pub fn builder(&self) -> LockManagerBuilder {
        let mut builder = LockManager::builder();
        builder.nodes.extend(self.urls.iter().cloned().map(NodeConfig::Url));
        self.apply(builder)
    }

    /// Connects to the nodes and returns the manager, as [`LockManagerBuilder::connect`] does.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`], for example [`ConnectError::NoNodes`] without URLs.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. If the future is dropped, its connections are closed.
    pub async fn connect(&self) -> Result<LockManager, ConnectError> {
        self.builder().connect().await
    }
}

/// Shows the names of the servers instead of the URLs, which may contain passwords (secrets stay in).
impl fmt::Debug for LockManagerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            urls,
            prefix,
            dialect,
            expire,
            node_timeout,
            connect_timeout,
            max_waiters,
            outage_grace,
            restart_guard,
            failover_margin,
            cluster_refresh,
            tls_ca,
            tls_cert,
            tls_key,
        } = self;
        f.debug_struct("LockManagerConfig")
            .field("urls", &urls.iter().map(|url| urls::name(url)).collect::<Vec<_>>())
            .field("prefix", prefix)
            .field("dialect", dialect)
            .field("expire", expire)
            .field("node_timeout", node_timeout)
            .field("connect_timeout", connect_timeout)
            .field("max_waiters", max_waiters)
            .field("outage_grace", outage_grace)
            .field("restart_guard", restart_guard)
            .field("failover_margin", failover_margin)
            .field("cluster_refresh", cluster_refresh)
            .field("tls_ca", tls_ca)
            .field("tls_cert", tls_cert)
            .field("tls_key", tls_key)
            .finish()
    }
}
