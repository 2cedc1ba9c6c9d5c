//! The settings of a manager in the configuration of a service.

#[cfg(feature = "serde")]
mod file;
mod node_url;
#[cfg(test)]
#[cfg(feature = "serde")]
mod serde_tests;
mod settings;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod url_tests;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::ConfigError;
use crate::lock::Dialect;
pub use node_url::NodeUrl;
pub(in crate::manager) use settings::NO_OWNER_LABEL;
use settings::SETTINGS;

/// The settings of a [`LockManager`](crate::LockManager) in the configuration of a service: a part of its TOML, JSON or
/// RON file (feature `serde`), or environment variables ([`from_env`](Self::from_env)).
///
/// | field | value | default |
/// |---|---|---|
/// | [`urls`](Self::urls) | a list of URLs, or a text with commas between the URLs | none: `connect` fails |
/// | [`prefix`](Self::prefix) | up to 100 bytes without control characters | no prefix |
/// | [`owner_label`](Self::owner_label) | 1 to 64 printable ASCII characters without blanks, or `"off"` | host name and process id |
/// | [`dialect`](Self::dialect) | `"plain"` or `"redisson"` | `"plain"` |
/// | [`expire`](Self::expire) | a time from 10 ms to 7 days | 30 s, or the longest lease that all nodes grant if that is shorter |
/// | [`node_timeout`](Self::node_timeout) | a time from 1 ms to 60 s, shorter than `expire` | 1 s with one node, 200 ms with several; half of `expire` if that is shorter |
/// | [`connect_timeout`](Self::connect_timeout) | a time from 1 ms to 60 s | 1 s |
/// | [`max_waiters`](Self::max_waiters) | a whole number, at least 1 | 1000 |
/// | [`body_buffers`](Self::body_buffers) | a whole number of bytes, at least 1 | 67108864 (64 MiB) |
/// | [`outage_grace`](Self::outage_grace) | a time from 0 to 60 s | 2 s |
/// | [`restart_guard`](Self::restart_guard) | a time from 10 ms to 7 days, at least `expire` | none |
/// | [`failover_margin`](Self::failover_margin) | a time from 0 to 60 s, only with `restart_guard` | Sentinel: `min-replicas-max-lag` of the servers, and 2 s; cluster: `cluster-node-timeout`, and 1 s |
/// | [`cluster_refresh`](Self::cluster_refresh) | a time from 100 ms to 60 s | 5 s |
/// | [`lock_order`](Self::lock_order) | `true` or `false` | `true` |
/// | [`tls_ca`](Self::tls_ca) | the path of a file with certificates | the system's root certificates |
/// | [`tls_cert`](Self::tls_cert), [`tls_key`](Self::tls_key) | the paths of the client's certificate and key | no client certificate |
///
/// A time is a text such as `"500ms"` or `"1m 30s"`, or a whole number of seconds: `30` and `"30"` are the same as
/// `"30s"`. A setting without a value has its default. [`LockManagerBuilder`](crate::LockManagerBuilder) explains each
/// setting in the method of the same name.
///
/// # From a file
///
/// With the feature `serde`, a field of this type reads the settings. An unknown field, a field that occurs
/// twice, a value of a wrong type and a value out of its range are errors. They name the field and the allowed
/// values. Mistakes in a URL, and settings that exclude each other, are errors of [`connect`](Self::connect).
///
/// No error contains a password, with one exception: the crate `toml` prints the line of a mistake. Therefore an
/// error of a setting has the position of its table (`[locks]`). But a syntax error has its own line, and an inline
/// table is one line: print `error.message()` where that matters.
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
/// The format must describe its values, as TOML, JSON and RON do. A number may be a text, and the dialect must be a
/// text. `null` is the default. A configuration is written in the same form. A setting without a value is left out. The
/// URLs are written **with their passwords**, so that a copy that is read back equals the original. `Debug` shows only
/// host and port of each URL.
///
/// # From environment variables
///
/// `LOCKS_URLS=redis://10.0.0.1,redis://10.0.0.2 LOCKS_EXPIRE=30s`, see [`from_env`](Self::from_env).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a configuration does nothing until a manager is connected"]
pub struct LockManagerConfig {
    /// The URLs of the nodes, as `LockManagerBuilder::url` takes them: `redis://`, `unix:`, `redis+sentinel://`, and
    /// `rediss://` or `rediss+sentinel://` for TLS (feature `tls`), or `postgres://` (feature `postgres`).
    ///
    /// Defaults to none. Then [`connect`](Self::connect) fails with
    /// [`ConnectError::NoNodes`](crate::ConnectError::NoNodes), unless [nodes are added](Self::builder) to the builder.
    /// `memory:` alone is a node in the memory of this process, for a service that runs without a server in
    /// development.
    pub urls: Vec<NodeUrl>,
    /// The prefix of all keys on the nodes, see [`LockManagerBuilder::prefix`](crate::LockManagerBuilder::prefix). At
    /// most 100 bytes without control characters. Defaults to no prefix.
    pub prefix: Option<String>,
    /// The label of the manager, see [`LockManagerBuilder::owner_label`](crate::LockManagerBuilder::owner_label). 1 to 64
    /// printable ASCII characters without blanks; `off` stores no label. Defaults to the host name and the id of the process.
    pub owner_label: Option<String>,
    /// How locks are written on the nodes, see [`LockManagerBuilder::dialect`](crate::LockManagerBuilder::dialect).
    /// Defaults to [`Dialect::Plain`].
    pub dialect: Option<Dialect>,
    /// The lease of locks whose request sets no lease, see
    /// [`LockManagerBuilder::expire`](crate::LockManagerBuilder::expire). From 10 ms to 7 days. Defaults to 30 s, or to
    /// the longest lease that all nodes grant if that is shorter.
    pub expire: Option<Duration>,
    /// How long a node may be silent, see
    /// [`LockManagerBuilder::node_timeout`](crate::LockManagerBuilder::node_timeout). From 1 ms to 60 s, and shorter
    /// than the lease. Defaults to 1 s with one node, to 200 ms with several, and to half of `expire` if that is
    /// shorter.
    pub node_timeout: Option<Duration>,
    /// How long a connection attempt to a node may take, see
    /// [`LockManagerBuilder::connect_timeout`](crate::LockManagerBuilder::connect_timeout). From 1 ms to 60 s. Defaults
    /// to 1 s.
    pub connect_timeout: Option<Duration>,
    /// How many callers may wait for one key, see
    /// [`LockManagerBuilder::max_waiters`](crate::LockManagerBuilder::max_waiters). At least 1. Defaults to 1000.
    pub max_waiters: Option<usize>,
    /// How many bytes of request bodies the layers of `redlock-axum` keep in memory for this manager, see
    /// [`LockManagerBuilder::body_buffers`](crate::LockManagerBuilder::body_buffers). At least 1. Defaults to 67,108,864
    /// (64 MiB).
    pub body_buffers: Option<usize>,
    /// How long waiters keep their place while no quorum of nodes replies, see
    /// [`LockManagerBuilder::outage_grace`](crate::LockManagerBuilder::outage_grace). From 0, which disables the grace,
    /// to 60 s. Defaults to 2 s.
    pub outage_grace: Option<Duration>,
    /// The longest lease that any client of the servers requests, see
    /// [`LockManagerBuilder::restart_guard`](crate::LockManagerBuilder::restart_guard). From 10 ms to 7 days, and at
    /// least `expire`. Defaults to none: the servers are trusted to keep their locks.
    pub restart_guard: Option<Duration>,
    /// How long a former master of a Sentinel group or a Redis Cluster may still grant locks, see
    /// [`LockManagerBuilder::failover_margin`](crate::LockManagerBuilder::failover_margin). From 0 to 60 s, and only
    /// with `restart_guard`. Defaults to the `min-replicas-max-lag` of the servers and 2 s, and in a cluster to the
    /// `cluster-node-timeout` and 1 s.
    pub failover_margin: Option<Duration>,
    /// The time between two readings of the slots of a Redis Cluster, see
    /// [`LockManagerBuilder::cluster_refresh`](crate::LockManagerBuilder::cluster_refresh). From 100 ms to 60 s.
    /// Defaults to 5 s.
    pub cluster_refresh: Option<Duration>,
    /// Whether the manager warns of requests that take locks in different orders, see
    /// [`LockManagerBuilder::lock_order`](crate::LockManagerBuilder::lock_order). Defaults to true.
    pub lock_order: Option<bool>,
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
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the settings from the environment variables of this process whose names begin with
    /// `{prefix}_`. With the prefix `LOCKS`:
    ///
    /// | variable | example |
    /// |---|---|
    /// | `LOCKS_URLS` | `redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3`, or `memory:` |
    /// | `LOCKS_PREFIX` | `shop:` |
    /// | `LOCKS_OWNER_LABEL` | `shop-7f9c`, or `off` |
    /// | `LOCKS_DIALECT` | `plain`, `redisson` |
    /// | `LOCKS_EXPIRE` | `30s`, or `30` |
    /// | `LOCKS_NODE_TIMEOUT` | `50ms` |
    /// | `LOCKS_CONNECT_TIMEOUT` | `1s` |
    /// | `LOCKS_MAX_WAITERS` | `1000` |
    /// | `LOCKS_BODY_BUFFERS` | `67108864` |
    /// | `LOCKS_OUTAGE_GRACE` | `2s` |
    /// | `LOCKS_RESTART_GUARD` | `1m` |
    /// | `LOCKS_FAILOVER_MARGIN` | `12s` |
    /// | `LOCKS_CLUSTER_REFRESH` | `5s` |
    /// | `LOCKS_LOCK_ORDER` | `false` |
    /// | `LOCKS_TLS_CA` | `/etc/redis/ca.pem` |
    /// | `LOCKS_TLS_CERT`, `LOCKS_TLS_KEY` | `/etc/redis/client.pem`, `/etc/redis/client.key` |
    ///
    /// A variable that is empty or blank counts as unset. White space around a value is ignored, except in
    /// `LOCKS_PREFIX`. [`split_urls`](Self::split_urls) describes how several URLs are separated.
    ///
    /// Every other variable that begins with `LOCKS_` is an error, so that a misspelt setting is noticed.
    /// Choose a prefix with which no other variables begin. Variables with the word `SERVICE` or `PORT` in their names
    /// are ignored, because Kubernetes sets such variables for a service called `locks` or `locks-..`, for example
    /// `LOCKS_SERVICE_HOST` and `LOCKS_REDIS_PORT_6379_TCP`.
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
        Self::from_variables(prefix, std::env::vars_os())
    }

    fn from_variables(
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        if prefix.is_empty() {
            return Err(ConfigError::EmptyPrefix);
        }
        let mut config = Self::new();
        for (variable, value) in variables {
            // A name that is not Unicode is the name of no setting.
            let variable = variable.to_string_lossy().into_owned();
            let name = variable.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
            let Some(name) = name else {
                continue;
            };
            let mut settings = SETTINGS.iter();
            let Some(setting) = settings.find(|setting| setting.name.to_ascii_uppercase() == name)
            else {
                if name.split('_').any(|word| matches!(word, "SERVICE" | "PORT")) {
                    continue;
                }
                let known = SETTINGS.iter();
                let known =
                    known.map(|setting| format!("{prefix}_{}", setting.name.to_ascii_uppercase()));
                return Err(ConfigError::UnknownVariable { known: known.collect(), variable });
            };
            let Some(text) = value.to_str() else {
                return Err(ConfigError::NotUnicode { variable });
            };
            if !text.trim().is_empty() {
                config
                    .set(setting, text)
                    .map_err(|reason| ConfigError::InvalidValue { variable, reason })?;
            }
        }
        for (index, url) in config.urls.iter().enumerate() {
            url.parse(config.urls.len()).map_err(|reason| ConfigError::InvalidUrl {
                variable: format!("{prefix}_URLS"),
                position: index + 1,
                reason,
            })?;
        }
        Ok(config)
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
        if text.trim().is_empty() {
            return Vec::new();
        }
        let begins_url = |rest: &str| {
            let next = rest.split_once(',').map_or(rest, |(next, _)| next).trim();
            // `redis://`, `redis+sentinel://`, and also `unix:/path`.
            let scheme = next.split_once(":/").map(|(scheme, _)| scheme);
            let is_in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-".contains(c);
            matches!(next, "" | "memory:")
                || scheme.is_some_and(|scheme| scheme.chars().all(is_in_scheme))
        };
        let commas = text.match_indices(',').map(|(comma, _)| comma);
        let mut urls = Vec::new();
        let mut start = 0;
        for comma in commas.filter(|comma| begins_url(&text[comma + 1..])) {
            urls.push(text[start..comma].trim());
            start = comma + 1;
        }
        urls.push(text[start..].trim());
        urls
    }
}
