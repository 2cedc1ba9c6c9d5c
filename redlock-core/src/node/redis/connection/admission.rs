//! Decides whether a new connection is used, and which votes of its server count.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Connection;
use crate::error::NodeError;
use crate::node::redis::RedisNode;
use crate::node::redis::cluster::generation::ClusterMembership;
use crate::node::redis::delayed_restart::quarantine::Quarantine;
use crate::node::redis::sentinel::Master;

/// The lag after which a server without replicas refuses writes, if the server does not report it: the default of the
/// servers.
const DEFAULT_MAX_LAG: Duration = Duration::from_secs(10);
/// How much longer than the lag a server may accept writes: it counts the lag in whole seconds, and checks it once per
/// second.
const LAG_ROUNDING: Duration = Duration::from_secs(2);

/// Maps nodes to servers, so that no server votes twice, even if it returns later under another name.
#[derive(Debug, Default)]
pub(crate) struct ServerRegistry {
    servers: Mutex<Vec<RegisteredServer>>,
}

#[derive(Debug)]
struct RegisteredServer {
    node: Weak<RedisNode>,
    /// The name of the node that votes. The masters of a cluster share it, and no other nodes do.
    voter: Arc<str>,
    run_id: String,
}

impl ServerRegistry {
    /// Records that a node is this server, or returns the name of the other node that is this server.
    fn register(&self, node: &RedisNode, run_id: &str) -> Option<Arc<str>> {
        let voter = node.route.voter();
        let mut servers = self.servers.lock();
        servers
            .retain(|known| known.node.strong_count() > 0 && !known.node.ptr_eq(&node.weak_self));
        let same = servers
            .iter()
            .find(|known| known.run_id == run_id && !Arc::ptr_eq(&known.voter, voter));
        if let Some(same) = same {
            return Some(Arc::clone(&same.voter));
        }
        servers.push(RegisteredServer {
            node: Weak::clone(&node.weak_self),
            voter: Arc::clone(voter),
            run_id: run_id.to_owned(),
        });
        None
    }
}

/// Checks a new connection, and quarantines its server if it may have forgotten locks. Returns an error if the
/// connection must not be used.
pub(super) fn admit(node: &RedisNode, connection: &Connection) -> Result<(), NodeError> {
    check_server(node, connection)?;
    if let Some(master) = &connection.master {
        check_master(node, connection, master)?;
    }
    if let Some(membership) = node.route.membership() {
        membership.check(node, connection)?;
    }
    match node.settings.restart_guard {
        Some(longest_lease) => quarantine(node, connection, longest_lease),
        None => warn_if_restarted(node, connection),
    }
    node.clock_watch.begin(connection);
    Ok(())
}

fn check_server(node: &RedisNode, connection: &Connection) -> Result<(), NodeError> {
    let (name, identity) = (node.route.name(), &connection.identity);
    if let Some(run_id) = &identity.run_id {
        if let Some(other) = node.settings.servers.register(node, run_id) {
            return Err(NodeError::SameServer(other));
        }
    } else if let Some(suppressed) = node.log_limit.admit("run_id", name) {
        tracing::warn!(
            node = %name, suppressed,
            "the run_id of the server is unknown (INFO denied), so two nodes may be the same server"
        );
    }
    if let Some(policy) = identity.maxmemory_policy.as_deref()
        && policy != "noeviction"
        && let Some(suppressed) = node.log_limit.admit("eviction", name)
    {
        tracing::warn!(
            node = %name, policy, suppressed,
            "the server evicts keys when its memory is full, and with them locks that are held; set maxmemory-policy to noeviction"
        );
    }
    Ok(())
}

/// Checks the server that the sentinels name as the master.
fn check_master(
    node: &RedisNode,
    connection: &Connection,
    master: &Master,
) -> Result<(), NodeError> {
    let name = node.route.name();
    let Some(replication) = &connection.identity.replication else {
        if let Some(suppressed) = node.log_limit.admit("role", name) {
            tracing::warn!(
                node = %name, master = %master.address, suppressed,
                "the role of the server is unknown (INFO denied), so that it may be a replica"
            );
        }
        return Ok(());
    };
    if replication.is_replica {
        let words = format!("{}, which the sentinels name as master, is a replica", master.address);
        return Err(NodeError::Server(words.into()));
    }
    if !replication.needs_replicas
        && let Some(suppressed) = node.log_limit.admit("min-replicas", name)
    {
        tracing::warn!(
            node = %name, master = %master.address, suppressed,
            "the master accepts writes without its replicas: if it is cut off while another server is promoted, it does not stop granting locks; set min-replicas-to-write"
        );
    }
    Ok(())
}

/// Warns about a server that may have forgotten locks, and votes at once without a `restart_guard`.
fn warn_if_restarted(node: &RedisNode, connection: &Connection) {
    let (name, generation) = (node.route.name(), connection.identity.generation());
    if !node.incarnations.lock().is_restart(generation.as_deref()) {
        return;
    }
    let Some(suppressed) = node.log_limit.admit("restart", name) else { return };
    if let Some(master) = &connection.master {
        tracing::warn!(
            node = %name, master = %master.address, suppressed,
            "the master has changed, or was restarted, and may not know all locks that are held; set restart_guard"
        );
    } else {
        tracing::warn!(
            node = %name, suppressed,
            "a node was restarted and may have forgotten held locks; set restart_guard, or let the server \
             write its data before it replies (appendonly yes, appendfsync always)"
        );
    }
}

/// Quarantines a server that may have forgotten locks.
fn quarantine(node: &RedisNode, connection: &Connection, longest_lease: Duration) {
    let identity = &connection.identity;
    let mut quarantine = Quarantine::new(longest_lease, Instant::now(), identity.uptime);
    let ended = node.incarnations.lock().connected(identity.generation().as_deref());
    if let Some(ended) = ended {
        quarantine = quarantine.not_before(ended);
    }
    connection.start(quarantine);
    if let Some(master) = &connection.master {
        let max_lag = identity.replication.as_ref().and_then(|replication| replication.max_lag);
        let margin = node
            .settings
            .failover_margin
            .unwrap_or(max_lag.unwrap_or(DEFAULT_MAX_LAG) + LAG_ROUNDING);
        // Without a sentinel, another generation shows that the server was a replica in between.
        let since = match ended {
            Some(ended) if !master.is_confirmed => master.since.max(ended),
            _ => master.since,
        };
        connection.start(Quarantine::after_promotion(longest_lease, margin, since));
    }
    if let Some(membership) = node.route.membership()
        && let Some(since) = membership.promoted_since(identity)
    {
        let margin =
            node.settings.failover_margin.unwrap_or_else(|| ClusterMembership::margin(identity));
        connection.start(Quarantine::after_promotion(longest_lease, margin, since));
    }
    if let Err(reason) = connection.may_grant()
        && let name = node.route.name()
        && let Some(suppressed) = node.log_limit.admit("quarantine", name)
    {
        tracing::warn!(
            node = %name, %reason, suppressed,
            "a node may have forgotten held locks, and is quarantined"
        );
    }
}
