//! Nodes with URLs.

use std::sync::Arc;

use super::LockManager;
use super::builder::{LockManagerBuilder, NodeConfig};
use crate::access::{Credentials, ProviderError};
use crate::error::ConnectError;
use crate::node::Node;
use crate::store::kit::description::NodeOptions;
#[cfg(feature = "unstable-simulation")]
use crate::store::kit::dial::Dial;

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

    /// Replaces the operating system's network on the way to each node with a URL.
    #[cfg(feature = "unstable-simulation")]
    pub(crate) fn dialed_by(mut self, dial: impl Fn(&str) -> Arc<dyn Dial>) -> Self {
        for node in &self.nodes {
            if let NodeConfig::Url(url) = node
                && let Ok(parsed) = url.parse(1)
            {
                self.dials.insert(parsed.name(), dial(url.as_ref()));
            }
        }
        self
    }

    /// Creates the nodes.
    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unused_async, reason = "only files of TLS are read")
    )]
    pub(super) async fn create_nodes(&self) -> Result<Vec<Arc<dyn Node>>, ConnectError> {
        let options = NodeOptions {
            credentials: self.credentials.as_ref(),
            clock: &self.clock,
            prefix: self.config.prefix.as_deref().unwrap_or_default(),
            dialect: self.config.dialect.unwrap_or_default(),
            cluster_refresh: self.config.cluster_refresh,
            is_only_node: self.nodes.len() == 1,
            registry: Arc::default(),
            #[cfg(feature = "unstable-simulation")]
            dials: &self.dials,
        };
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (index, config) in self.nodes.iter().enumerate() {
            let invalid = |reason| ConnectError::InvalidUrl { position: index + 1, reason };
            nodes.push(match config {
                NodeConfig::Node(node) => Arc::clone(node),
                NodeConfig::Url(url) => {
                    let parsed = url.parse(self.nodes.len()).map_err(invalid)?;
                    #[cfg(feature = "tls")]
                    let parsed = self.with_tls(parsed).await.map_err(invalid)?;
                    parsed.into_node(&options).map_err(invalid)?
                }
            });
        }
        Ok(nodes)
    }
}
