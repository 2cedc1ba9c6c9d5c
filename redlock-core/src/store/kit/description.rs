//! The description of a store: which URLs lead to it, and how a URL becomes a node. The manager knows nothing else of it.

#[cfg(feature = "unstable-simulation")]
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "unstable-simulation")]
use super::dial::Dial;
use super::provider::Provider;
use super::registry::ServerRegistry;
use crate::access::ProviderFn;
use crate::access::TlsOptions;
use crate::clock::Clock;
use crate::lock::Dialect;
use crate::node::Node;

/// Reads a URL of a store. The error explains the mistake without repeating the URL.
pub(crate) type ReadUrl = fn(&str) -> Result<Box<dyn StoreUrl>, String>;

/// The description of a store.
pub(crate) struct StoreDescription {
    /// The schemes of its URLs, in lower case and without the kind behind a `+` or a `-`, such as `+sentinel`.
    pub(crate) schemes: &'static [&'static str],
    /// How its URLs begin, for errors.
    pub(crate) forms: &'static str,
    /// Reads its URLs. If this build does not have the store, the feature that compiles it.
    pub(crate) read: Result<ReadUrl, &'static str>,
    /// Whether a manager with such a URL has no other node.
    pub(crate) is_alone: bool,
}

/// A URL that was read, from which a node is made.
pub(crate) trait StoreUrl: Send {
    /// Returns the name of the node, which contains no credentials.
    fn name(&self) -> String;

    /// Returns the longest lease that the node grants, unless it grants every lease.
    fn longest_lease(&self) -> Option<Duration> {
        None
    }

    /// Returns the options of TLS: `None` if the store has no connections, `Some(None)` if they are not encrypted.
    fn tls(&mut self) -> Option<&mut Option<TlsOptions>> {
        None
    }

    /// Returns whether the connections do not leave this machine.
    fn is_local(&self) -> bool {
        false
    }

    /// Creates the node. It is not started yet. The error explains a mistake in the URL without repeating it.
    fn into_node(self: Box<Self>, options: &NodeOptions<'_>) -> Result<Arc<dyn Node>, String>;
}

/// The options of a manager that the nodes of URLs need before they are started.
pub(crate) struct NodeOptions<'a> {
    /// Gets the credentials for nodes whose URLs have none.
    pub(crate) credentials: Option<&'a ProviderFn>,
    /// The clock that measures leases.
    pub(crate) clock: &'a Arc<dyn Clock>,
    /// The prefix of the locks.
    pub(crate) prefix: &'a str,
    /// The dialect of the locks, unless a request sets another one.
    pub(crate) dialect: Dialect,
    /// The time between two readings of the slots of a Redis Cluster, if it is set.
    pub(crate) cluster_refresh: Option<Duration>,
    /// Whether the manager has no other node.
    pub(crate) is_only_node: bool,
    /// Which node of the manager has which server.
    pub(crate) registry: Arc<ServerRegistry>,
    /// The networks that replace the operating system's, by the names of the nodes.
    #[cfg(feature = "unstable-simulation")]
    pub(crate) dials: &'a BTreeMap<String, Arc<dyn Dial>>,
}

impl NodeOptions<'_> {
    /// Returns what gets the credentials for the node with this name, if its URL has none.
    pub(crate) fn provider(&self, name: String) -> Option<Provider> {
        let function = Arc::clone(self.credentials?);
        Some(Provider::Function(function, name.into()))
    }
}
