//! Notices that the name of a server leads to other servers too, or to another one by now.
//!
//! A process that connects later would use another server than this one, and both would grant the same lock. Two connections
//! lead to two servers if each has shown another `run_id`, and the first one still shows its own after that: a restart
//! would have ended it. A name may have several addresses of one server, and a part of them in each answer, so the addresses alone
//! show nothing.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::time::sleep;

use super::connection::Connection;
use super::identity::Identity;
use super::{Inner, Role};
use crate::log_limited;
use crate::store::kit::names;
use crate::store::kit::pauses::SHORT_LIVED;
use crate::store::redis::link::open::within;

impl Inner {
    /// Warns if the name of the server leads to several servers. Ends the connection if the name leads only to another server. May
    /// never complete.
    ///
    /// The locks on the former server are lost at their next renewal, unless a quorum of other nodes has them (loss is never silent).
    pub(super) async fn watch_name(&self, connection: &Connection) {
        // Sentinels and clusters name the addresses of their servers themselves.
        let (Role::Alone, Some(own)) = (&self.role, connection.link.address) else { return };
        // A connection that breaks at once makes no further ones.
        sleep(SHORT_LIVED).await;
        let mut compared = BTreeSet::new();
        loop {
            let addresses = self.endpoint.look_up().await.unwrap_or_default();
            let addresses = BTreeSet::from_iter(addresses);
            let is_moved = names::leads_elsewhere(own, &addresses);
            if addresses != compared {
                let mut others = Vec::new();
                for address in &addresses {
                    others.extend(self.another_server(connection, *address).await);
                }
                if let Some(other) = others.first() {
                    self.warn_of_another(own, *other, is_moved);
                    if is_moved {
                        connection.link.end("the name of the server leads to another server");
                        return;
                    }
                }
                // A server that starts later at the new address is compared then.
                if !is_moved {
                    compared = addresses;
                }
            }
            names::pause().await;
        }
    }

    /// Returns the address if it certainly leads to another master than the connection.
    async fn another_server(
        &self,
        connection: &Connection,
        address: SocketAddr,
    ) -> Option<SocketAddr> {
        let limit = self.settings.node.connect_timeout;
        let link = self.endpoint.at(address).open(limit, false, |_| {}).await.ok()?;
        let other = within(limit, Identity::ask_master_run_id(&link)).await.ok()??;
        // A server that was restarted in between does not reply any more.
        let own = within(limit, Identity::ask_master_run_id(&connection.link)).await.ok()??;
        let is_stable = connection.identity.run_id.as_ref() == Some(&own);
        (is_stable && other != own).then_some(address)
    }

    fn warn_of_another(&self, address: SocketAddr, other: SocketAddr, is_moved: bool) {
        let (node, limit) = (self.name(), &self.settings.log_limit);
        if is_moved {
            log_limited!(
                limit, "moved", node, warn, %node, former = %address, present = %other,
                "the name of a node leads to another server by now, and the node connects to it: locks on the former server are \
                 lost, and processes that still use it may hold them; stop it, and wait for the longest lease, before a name moves"
            );
        } else {
            log_limited!(
                limit, "several-servers", node, warn, %node, %address, %other,
                "the name of a node leads to several servers, which do not know the locks of each other, so two callers may hold a \
                 lock; list each server by a name of its own"
            );
        }
    }
}
