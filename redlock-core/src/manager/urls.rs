//! Nodes with URLs: Redis and Valkey servers.

use std::sync::Arc;

use super::LockManager;
use super::builder::{LockManagerBuilder, NodeConfig};
use crate::clock::Clock;
use crate::error::ConnectError;
use crate::node::Node;
use crate::node::redis::{Endpoint, RedisNode, RedisOptions, RedisUrl, ServerRegistry};

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
    /// Adds a node: an independent Redis or Valkey server.
    ///
    /// The URL is `redis://[user][:password@]host[:port][/database]`, `rediss://...` for TLS (feature
    /// `tls`), or `unix:///path/to/socket[?db=..&user=..&pass=..]`. The nodes of one manager must not
    /// replicate each other.
    ///
    /// A Sentinel group is one node: `redis+sentinel://[user][:password@]host[:port][,host..]/service[/database]`
    /// with the addresses of all sentinels, or `rediss+sentinel://...`. A majority of them names the master. The user and the password are those of the
    /// servers; the sentinels have the parameters `sentinel_username` and `sentinel_password`. A failover may
    /// forget locks, see [`restart_guard`](Self::restart_guard).
    ///
    /// The URL `redis-cluster://[user][:password@]host[:port][,host[:port]]..` (`rediss-cluster://...` for TLS) is a
    /// Redis Cluster, with some of its members. The whole cluster is one node with one vote.
    ///
    /// The parameters `tls_ca`, `tls_cert` and `tls_key` of a URL with TLS are the paths of PEM files: the
    /// trusted authorities, and the certificate and the key of the client. `tls_insecure=true` accepts any
    /// certificate of the server, and `tls_insecure=false` none but valid ones. `password_file` is the path of a file that contains only the password, and
    /// is read for each connection.
    ///
    /// The URL `memory:` is a new [`MemoryNode`](crate::MemoryNode), for a service that runs without a server
    /// in development. It must be the only node. `connect` logs a warning about it, because its locks exclude
    /// no other process.
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.nodes.push(NodeConfig::Url(url.as_ref().to_owned()));
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

    /// Connects to the nodes, and measures leases on `clock`. `adapt` adapts the endpoint of each URL.
    pub(crate) async fn connect_with(
        self,
        clock: Arc<dyn Clock>,
        adapt: impl Fn(&str, Endpoint) -> Endpoint,
    ) -> Result<LockManager, ConnectError> {
        self.check()?;
        self.check_tls().await?;
        let mut nodes: Vec<Arc<dyn Node>> = Vec::with_capacity(self.nodes.len());
        let registry = Arc::<ServerRegistry>::default();
        for (index, config) in self.nodes.iter().enumerate() {
            nodes.push(match config {
                NodeConfig::Memory(node) => Arc::new(node.clone()),
                NodeConfig::Node(node) => Arc::clone(node),
                NodeConfig::Url(url) => {
                    let position = index + 1;
                    if let Some(node) = self.memory_url_node(url, position, &clock)? {
                        node
                    } else {
                        let invalid = |reason| ConnectError::InvalidUrl { position, reason };
                        let parsed = RedisUrl::parse(url).map_err(invalid)?;
                        let parsed = self.with_access(parsed).await.map_err(invalid)?;
                        Arc::new(RedisNode::new(RedisOptions {
                            endpoint: Endpoint::of_one(&parsed)
                                .map(|endpoint| adapt(url, endpoint)),
                            url: parsed,
                            registry: Arc::clone(&registry),
                            cluster_refresh: self.cluster_refresh,
                            is_only_node: self.nodes.len() == 1,
                        }))
                    }
                }
            });
        }
        self.start(nodes, clock).await
    }
}
