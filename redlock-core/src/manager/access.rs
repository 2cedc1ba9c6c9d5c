//! The access to the servers: the options of all nodes complete those of each URL.

use super::builder::{LockManagerBuilder, NodeConfig};
use crate::access::TlsOptions;
use crate::error::{ConnectError, InvalidOption};
use crate::node::redis::{RedisUrl, Servers};

impl LockManagerBuilder {
    /// Checks that the options of TLS for all nodes are used, and that their files can be used.
    pub(super) fn check_tls(&self) -> Result<(), ConnectError> {
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        let urls = self.nodes.iter().filter_map(|node| match node {
            // `connect` reports a URL that cannot be read.
            NodeConfig::Url(url) => RedisUrl::parse(url).ok(),
            _ => None,
        });
        let is_plain = |url: &RedisUrl| !matches!(url.servers, Servers::Unix(_));
        let (with_tls, without): (Vec<_>, Vec<_>) = urls.partition(|url| url.tls.is_some());
        if with_tls.is_empty() && without.iter().any(is_plain) {
            let message =
                "tls is set, but no URL begins with rediss: the connections would not be encrypted";
            return Err(InvalidOption::conflict("tls", message).into());
        }
        check_files(tls).map_err(|reason| InvalidOption::conflict("tls", reason).into())
    }

    /// Completes the options of a URL by those of all nodes. The error explains a mistake in the files that the URL
    /// names.
    pub(super) fn with_access(&self, mut url: RedisUrl) -> Result<RedisUrl, String> {
        if let Some(tls) = url.tls.take() {
            check_files(&tls)?;
            let tls = tls.or(self.tls.as_ref().unwrap_or(&TlsOptions::default()));
            if tls.insecure {
                tracing::warn!(
                    node = url.name(),
                    "the certificates of this node are not verified: anybody on the network can pose as its servers"
                );
            }
            url.tls = Some(tls);
        }
        Ok(url)
    }
}

#[cfg(feature = "tls")]
use crate::node::redis::check_tls as check_files;

#[cfg(not(feature = "tls"))]
fn check_files(_: &TlsOptions) -> Result<(), String> {
    Ok(())
}
