//! The URL of a node: a server, a Sentinel group or a Redis Cluster.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use crate::access::TlsOptions;
use crate::store::kit::provider::Provider;
use crate::store::kit::url::HostPort;

/// Says which URLs are allowed, at the end of errors.
const ALLOWED: &str = "allowed are redis://[user][:password@]host[:port][/database], rediss://..., valkey://..., valkeys://..., \
                       unix:///path, redis+sentinel://[user][:password@]host[:port][,host..]/service[/database], \
                       redis-cluster://[user][:password@]host[:port][,host..][/database], or memory: alone";

/// The addresses of a node, and the settings of the connections to its servers.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) struct RedisUrl {
    pub(crate) servers: Servers,
    /// `None` without TLS.
    pub(crate) tls: Option<TlsOptions>,
    /// The credentials for the servers that have the locks.
    pub(crate) login: Login,
    pub(crate) db: i64,
}

/// The servers behind a URL.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) enum Servers {
    Tcp(HostPort),
    Unix(PathBuf),
    /// A master and its replicas, which these sentinels watch under the name `service`.
    Sentinel {
        sentinels: Vec<HostPort>,
        service: String,
        /// The credentials for the sentinels. They are never those of the servers.
        login: Login,
    },
    /// A Redis Cluster, of which these servers are members.
    Cluster {
        seeds: Vec<HostPort>,
    },
}

/// The credentials for a server. `Debug` shows neither the user nor the password.
#[derive(Clone, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    /// Gets the password, and perhaps the user, for each connection.
    pub(crate) provider: Option<Provider>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}
