//! Nodes with URLs.

use std::sync::Arc;
#[cfg(feature = "redis")]
use std::time::Duration;

use super::LockManager;
use super::builder::{LockManagerBuilder, NodeConfig};
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
use crate::access::Provider;
use crate::access::{Credentials, ProviderError};
use crate::error::ConnectError;
#[cfg(feature = "zookeeper")]
use crate::node::Ordered;
#[cfg(feature = "postgres")]
use crate::store::postgres::{PostgresNode, PostgresUrl};
#[cfg(feature = "redis")]
use crate::store::redis::{
    CheckedLocks, Endpoint, RedisNode, RedisOptions, RedisUrl, ServerRegistry,
};
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::{ZookeeperNode, ZookeeperUrl};

#[cfg(feature = "redis")]
const CLUSTER_REFRESH: Duration = Duration::from_secs(5);

impl LockManager {
    /// Connects to the nodes with these URLs, with the defaults of [`LockManagerBuilder`]. One URL makes
    /// a lock on one server; several URLs make a Redlock on a majority of the servers.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn connect<I>(urls: I) -> Result<Self, ConnectError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        Self::builder().urls(urls).connect().await
    }
}

impl LockManagerBuilder {
    /// Adds a node: an independent server. The features of this crate decide which URLs are known.
    ///
    /// The URL is `redis://[user][:password@]host[:port][/database]`, `rediss://...` for TLS (feature
    /// `tls`), or `unix:///path/to/socket[?db=..&user=..&pass=..]`. The nodes of one manager must not
    /// replicate each other.
    ///
    /// A Sentinel group is one node: `redis+sentinel://[user][:password@]host[:port][,host..]/service[/database]`
    /// with the addresses of all sentinels, or `rediss+sentinel://...`. A majority of them names the master. The user and the
    /// password are those of the servers; the sentinels have the parameters `sentinel_username` and `sentinel_password`. A failover may
    /// forget locks, see [`restart_guard`](Self::restart_guard).
    ///
    /// The URL `redis-cluster://[user][:password@]host[:port][,host[:port]]..[/database]` (`rediss-cluster://...` for TLS) is a
    /// Redis Cluster, with some of its members. The whole cluster is one node with one vote. Only Valkey 9 has more databases
    /// than 0 in a cluster.
    ///
    /// The parameters `tls_ca`, `tls_cert` and `tls_key` of a URL with TLS are the paths of PEM files: the
    /// trusted authorities, and the certificate and the key of the client. `tls_insecure=true` accepts any
    /// certificate of the server, and `tls_insecure=false` none but valid ones. `password_file` is the path of a file that contains only the password, and
    /// is read for each connection.
    ///
    /// With the feature `postgres`, a URL may be
    /// `postgres://user[:password]@host[:port][,host[:port]..]/database[?schema=..&connections=..&pooler=..&sslmode=..]`. Each lock is
    /// then a row of the table `redlock_lease`, which the statements of `postgres_schema` create. The page about PostgreSQL in the
    /// guide of `redlock-axum` describes the parameters.
    ///
    /// With the feature `zookeeper`, a URL may be
    /// `zookeeper://host[:port][,host[:port]..][/chroot][?session_timeout=..&acl=open&auth_file=..]`, or `zookeepers://...` for
    /// TLS. The ensemble is the only node of its manager. The page about ZooKeeper in the guide of `redlock-axum` describes the
    /// parameters.
    ///
    /// The URL `memory:` is a new [`MemoryNode`](crate::MemoryNode), for a service that runs without a server
    /// in development. It must be the only node. `connect` logs a warning about it, because its locks exclude
    /// no other process.
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.nodes.push(NodeConfig::Url(url.as_ref().into()));
        self
    }

    /// Adds a node for each URL, see [`url`](Self::url).
    /// [`LockManagerConfig::split_urls`](crate::LockManagerConfig::split_urls) splits a text with several URLs.
    pub fn urls<I>(self, urls: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        urls.into_iter().fold(self, Self::url)
    }

    /// Gets the credentials for each connection from an async function, for passwords and tokens that
    /// change. The function gets the [name of the node](crate::LockManager::nodes). It is used for nodes
    /// whose URL has no password and no `password_file`. Defaults to the credentials of the URLs.
    ///
    /// The manager calls the function for each connection that it makes. If the credentials
    /// [expire](Credentials::expires_in), it calls the function again after about three quarters of
    /// their life, and sends `AUTH` over the same connection. The locks and their waiters stay. After a
    /// failure it tries again after 1 s, and then at growing intervals of up to 30 s. It logs a warning, and
    /// counts the metric `redlock_authentications_total`. If the server ends a connection because its
    /// credentials have expired, the manager makes a new one.
    ///
    /// An error of the function, and a call that takes longer than three quarters of the
    /// [`connect_timeout`](Self::connect_timeout), is a failed vote of the node
    /// ([`NodeError::Credentials`](crate::NodeError::Credentials)). The text of the error is part of the vote and
    /// of the log, so it must not contain secrets. The function should return a token that it has
    /// in memory while the token is valid for long enough.
    ///
    /// A URL can name a file instead, such as a mounted secret: `redis://app@host?password_file=/run/secrets/redis`.
    /// The file contains only the password, and is read for each connection.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use redlock_core::{Credentials, LockManager};
    ///
    /// # async fn sign_token(_: &str) -> std::io::Result<String> { Ok(String::new()) }
    /// async fn token(node: Arc<str>) -> std::io::Result<Credentials> {
    ///     let token = sign_token(&node).await?;
    ///     Ok(Credentials::new(token).username("app").expires_in(Duration::from_secs(900)))
    /// }
    ///
    /// # async fn run() -> Result<(), redlock_core::ConnectError> {
    /// let locks = LockManager::builder().url("redis://cache.local").credentials(token).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials<F, R, E>(mut self, provider: F) -> Self
    where
        F: Fn(Arc<str>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.credentials = Some(Arc::new(move |node| {
            let credentials = provider(node);
            Box::pin(async move { credentials.await.map_err(Into::<ProviderError>::into) })
        }));
        self
    }

    /// Returns the function that gets the credentials for the node with this name.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
    fn provider(&self, name: String) -> Option<Provider> {
        let function = Arc::clone(self.credentials.as_ref()?);
        Some(Provider::Function(function, name.into()))
    }

    /// Creates the node of a URL.
    #[cfg(feature = "postgres")]
    pub(super) fn postgres_node(&self, mut url: PostgresUrl) -> PostgresNode {
        if !url.has_password() {
            url.provider = self.provider(url.name());
        }
        PostgresNode::new(url)
    }

    /// Creates the node of a URL.
    #[cfg(feature = "zookeeper")]
    pub(super) fn zookeeper_node(
        &self,
        mut url: ZookeeperUrl,
    ) -> Result<Ordered<ZookeeperNode>, String> {
        if !url.has_password() {
            url.provider = self.provider(url.name());
        }
        url.check_acl()?;
        Ok(Ordered::new(ZookeeperNode::new(url)))
    }

    /// Creates the node of a URL. `adapt` adapts the endpoint of one server.
    #[cfg(feature = "redis")]
    pub(super) fn redis_node(
        &self,
        mut url: RedisUrl,
        registry: &Arc<ServerRegistry>,
        adapt: impl Fn(Endpoint) -> Endpoint,
    ) -> RedisNode {
        if url.login.password.is_none() && url.login.provider.is_none() {
            url.login.provider = self.provider(url.name());
        }
        RedisNode::new(RedisOptions {
            endpoint: Endpoint::of_one(&url).map(adapt),
            url,
            registry: Arc::clone(registry),
            locks: CheckedLocks {
                prefix: self.config.prefix.as_deref().unwrap_or_default().into(),
                dialect: self.config.dialect.unwrap_or_default(),
            },
            cluster_refresh: self.config.cluster_refresh.unwrap_or(CLUSTER_REFRESH),
            is_only_node: self.nodes.len() == 1,
        })
    }
}
