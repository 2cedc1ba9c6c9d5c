//! The way to the server of a node.

use std::sync::Arc;

use super::endpoint::Endpoint;
use crate::error::NodeError;
use crate::node::redis::sentinel::{Master, SentinelGroup};
use crate::node::redis::url::HostPort;

/// Decides to which server the next connection of a node leads.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// A server whose address does not change.
    Server(Box<Endpoint>),
    /// The master of a Sentinel group.
    Sentinel(Arc<SentinelGroup>),
}

impl Route {
    /// Returns the name of the node.
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Self::Server(endpoint) => endpoint.name(),
            Self::Sentinel(group) => group.name(),
        }
    }

    /// Returns the endpoint of the next connection, and the master of a Sentinel group.
    pub(crate) async fn next(&self) -> Result<(Endpoint, Option<Master>), NodeError> {
        match self {
            Self::Server(endpoint) => Ok((Endpoint::clone(endpoint), None)),
            Self::Sentinel(group) => {
                let master = group.master().await?;
                Ok((group.endpoint(&master.address), Some(master)))
            }
        }
    }

    /// Returns the current address of the server. `None` if it does not change, or is not known yet.
    pub(crate) fn address(&self) -> Option<HostPort> {
        match self {
            Self::Server(_) => None,
            Self::Sentinel(group) => group.address(),
        }
    }

    /// Waits until the route leads to another address than this one.
    pub(crate) async fn leaves(&self, address: Option<&HostPort>) {
        match self {
            Self::Server(_) => std::future::pending().await,
            Self::Sentinel(group) => group.differs_from(address).await,
        }
    }
}
