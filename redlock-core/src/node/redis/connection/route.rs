//! The way to the server of a node.

use std::sync::Arc;

use super::endpoint::Endpoint;
use crate::error::NodeError;
use crate::node::redis::cluster::generation::ClusterMembership;
use crate::node::redis::sentinel::{Master, SentinelGroup};
use crate::node::redis::url::HostPort;

/// Decides to which server the next connection of a node leads.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// A server whose address does not change.
    Server(Box<Endpoint>),
    /// The master of a Sentinel group.
    Sentinel(Arc<SentinelGroup>),
    /// A master of a cluster.
    Shard(Box<Endpoint>, Arc<ClusterMembership>),
}

impl Route {
    /// Returns the name of the node.
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Self::Server(endpoint) | Self::Shard(endpoint, _) => endpoint.name(),
            Self::Sentinel(group) => group.name(),
        }
    }

    /// Returns the name of the node that votes: that of the cluster for one of its masters.
    pub(crate) fn voter(&self) -> &Arc<str> {
        self.membership().map_or(self.name(), |membership| membership.name())
    }

    /// Returns the membership of a master of a cluster.
    pub(crate) fn membership(&self) -> Option<&ClusterMembership> {
        match self {
            Self::Shard(_, membership) => Some(membership),
            Self::Server(_) | Self::Sentinel(_) => None,
        }
    }

    /// Returns the endpoint of the next connection, and the master of a Sentinel group.
    pub(crate) async fn next(&self) -> Result<(Endpoint, Option<Master>), NodeError> {
        match self {
            Self::Server(endpoint) | Self::Shard(endpoint, _) => {
                Ok((Endpoint::clone(endpoint), None))
            }
            Self::Sentinel(group) => {
                let master = group.master().await?;
                Ok((group.endpoint(&master.address), Some(master)))
            }
        }
    }

    /// Returns the current address of the server. `None` if it does not change, or is not known yet.
    pub(crate) fn address(&self) -> Option<HostPort> {
        match self {
            Self::Server(_) | Self::Shard(..) => None,
            Self::Sentinel(group) => group.address(),
        }
    }

    /// Waits until the route leads to another address than this one.
    pub(crate) async fn leaves(&self, address: Option<&HostPort>) {
        match self {
            Self::Server(_) | Self::Shard(..) => std::future::pending().await,
            Self::Sentinel(group) => group.differs_from(address).await,
        }
    }
}
