//! Decides whether a new connection is used, and which votes of its server count.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::Inner;
use super::identity::{Identity, LagSetting, Replication};
use super::promotions::Promotions;
use crate::error::NodeError;
use crate::store::kit::gate::Closures;
use crate::store::kit::url::HostPort;
use crate::store::redis::link::Link;
use crate::{log_limited, telemetry};

/// The role of a server in its node.
#[derive(Debug)]
pub(crate) enum Role {
    /// The node is this server.
    Alone,
    /// The sentinels name the server as the master, and report its promotion.
    Master(Mutex<Promoted>),
    /// One of the masters of a cluster.
    Member(Arc<Promotions>),
}

/// A server that a majority of the sentinels has named as the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promoted {
    pub(crate) address: HostPort,
    /// The failover that made it the master, or an earlier one if a majority does not know that failover yet.
    pub(crate) epoch: u64,
    /// The latest time at which it can have been promoted.
    pub(crate) since: Instant,
    /// The sentinels that named it at the last majority.
    pub(crate) announced_by: Arc<[Arc<str>]>,
    /// Whether it is the master because no majority names any now. A failover would not be noticed.
    pub(crate) is_unconfirmed: bool,
}

impl Role {
    /// Returns the setting that limits how long the server accepts writes after it was cut off.
    pub(super) fn lag_setting(&self) -> Option<LagSetting> {
        match self {
            Self::Alone => None,
            Self::Master(_) => Some(LagSetting::REPLICAS),
            Self::Member(_) => Some(LagSetting::CLUSTER),
        }
    }
}

impl Inner {
    /// Checks a new connection, and closes the gate of its server if it may have forgotten locks. Returns an error if the
    /// connection must not be used.
    pub(super) fn admit(&self, identity: &Identity) -> Result<(), NodeError> {
        self.check_server(identity)?;
        self.check_role(identity)?;
        match self.settings.node.restart_guard {
            Some(longest_lease) => self.close_gate(identity, longest_lease),
            None => self.warn_if_restarted(identity),
        }
        Ok(())
    }

    /// Sets what the sentinels report about the promotion of this master. After a later promotion, a new connection closes the
    /// gate.
    pub(crate) fn set_promotion(&self, reported: &Promoted) {
        let Role::Master(promoted) = &self.role else { return };
        let before = std::mem::replace(&mut *promoted.lock(), reported.clone());
        // Until all sentinels have replied, the time may change by itself.
        if reported.epoch > before.epoch
            && reported.since > before.since
            && let Ok(connection) = self.connection()
        {
            connection.link.end("the server was promoted again");
        }
    }

    /// Records that a connection broke.
    pub(super) fn record_end(&self, identity: &Identity) {
        self.history.lock().disconnected(self.generation(identity));
    }

    /// Ends the connection to a master of a cluster that was demoted, or promoted again, since the connection was made. A new
    /// connection shows its state.
    pub(super) async fn watch_role(&self, link: &Link) {
        let Role::Member(promotions) = &self.role else { return };
        loop {
            sleep(self.settings.refresh).await;
            let Ok(replication) = Replication::ask(link).await else { continue };
            if replication.is_replica {
                link.end("the server has become a replica");
            } else if replication.promoted_id().is_some_and(|id| !promotions.has_met(id)) {
                link.end("the server was promoted to master");
            }
        }
    }

    /// Returns the ID of the time since which the server has kept all locks: of its incarnation, and of its role as a master.
    fn generation(&self, identity: &Identity) -> Option<String> {
        let run_id = identity.run_id.clone()?;
        let id = identity.replication.as_ref().and_then(|replication| replication.id.as_ref());
        match (&self.role, id) {
            (Role::Alone, _) | (_, None) => Some(run_id),
            (_, Some(id)) => Some(format!("{run_id}/{id}")),
        }
    }

    fn check_server(&self, identity: &Identity) -> Result<(), NodeError> {
        let (server, limit) = (self.name(), &self.settings.log_limit);
        if let Some(run_id) = &identity.run_id {
            let registry = &self.settings.registry;
            if let Some(other) = registry.register(&self.registered, &self.settings.voter, run_id) {
                return Err(NodeError::SameServer(other));
            }
        } else {
            log_limited!(
                limit, "run_id", server, warn, node = %server, reason = identity.info_refusal,
                "the run_id of the server is unknown, so two nodes may be the same server, and a master may be a replica"
            );
        }
        if let Some(policy) = identity.maxmemory_policy.as_deref()
            && policy != "noeviction"
        {
            log_limited!(
                limit, "eviction", server, warn, node = %server, policy,
                "the server evicts keys when its memory is full, and with them locks that are held; set maxmemory-policy to noeviction"
            );
        }
        Ok(())
    }

    /// Checks that a master is no replica, and warns about a replica that is listed by its own address. Counts the promotion of
    /// a master of a cluster, and warns about it without a restart guard.
    fn check_role(&self, identity: &Identity) -> Result<(), NodeError> {
        let (node, server, limit) =
            (&self.settings.voter, self.endpoint.name(), &self.settings.log_limit);
        let replication = identity.replication.as_ref();
        match &self.role {
            Role::Alone => {
                if replication.is_some_and(|replication| replication.is_replica) {
                    log_limited!(
                        limit, "replica", server, warn, %node,
                        "the server is a replica: if it accepts writes (replica-read-only no), its master does not know the locks \
                         that it grants; use the address of the master"
                    );
                }
            }
            _ if replication.is_some_and(|replication| replication.is_replica) => {
                return Err(NodeError::Server(format!("{server} is a replica").into()));
            }
            Role::Master(_) => {
                if replication.is_some_and(|replication| !replication.needs_replicas) {
                    log_limited!(
                        limit, "min-replicas", server, warn, %node, master = %server,
                        "the master accepts writes without its replicas: if it is cut off while another server is promoted, it does not stop granting locks; set min-replicas-to-write"
                    );
                }
            }
            Role::Member(promotions) => {
                if promotions.record(identity) {
                    telemetry::promoted(node, 1);
                    if self.settings.node.restart_guard.is_none() {
                        log_limited!(
                            limit, "promotion", server, warn, %node, %server,
                            "a replica was promoted to master, and may not know all locks that are held; set restart_guard"
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Warns about a server that may have forgotten locks, and votes at once without a `restart_guard`.
    fn warn_if_restarted(&self, identity: &Identity) {
        let (node, server) = (&self.settings.voter, self.endpoint.name());
        if self.history.lock().is_restart(self.generation(identity).as_deref()) {
            log_limited!(
                self.settings.log_limit, "restart", node, warn, %node, %server, uptime = identity.uptime.map(debug),
                "a node was restarted and may have forgotten held locks, or its name leads to another server; set restart_guard, or let the server \
                 write its data before it replies (appendonly yes, appendfsync always)"
            );
        }
    }

    /// Closes the gate of a server that may have forgotten locks.
    fn close_gate(&self, identity: &Identity, longest_lease: Duration) {
        let begun = self.history.lock().connected(self.generation(identity).as_deref());
        let not_before = begun.map(|begun| begun.not_before);
        self.gate.close(Closures::after_restart(longest_lease, identity.uptime, not_before));
        let promoted_since = match &self.role {
            Role::Alone => None,
            Role::Master(promoted) => {
                let Promoted { since, is_unconfirmed, .. } = *promoted.lock();
                // Without a majority of the sentinels, another generation shows that the server was a replica in between. It
                // may have been promoted just before this node has met it.
                Some(
                    begun
                        .filter(|_| is_unconfirmed)
                        .map_or(since, |begun| begun.not_after.max(since)),
                )
            }
            Role::Member(promotions) => promotions.promoted_since(identity),
        };
        if let Some((since, setting)) = promoted_since.zip(self.role.lag_setting()) {
            let margin = self.settings.node.failover_margin;
            let margin = margin.unwrap_or_else(|| setting.margin(identity.max_lag));
            self.gate.close(Closures::after_promotion(longest_lease, margin, since));
        }
        if let Err(reason) = self.gate.check_grants() {
            let server = self.name();
            log_limited!(
                self.settings.log_limit, "quarantine", server, warn, node = %server, %reason,
                "a node may have forgotten held locks, and is quarantined"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::node::NodeSettings;
    use crate::store::redis::server::{Server, ServerSettings};

    const LEASE: Duration = Duration::from_secs(30);
    const MINUTE: Duration = Duration::from_secs(60);

    #[cfg(feature = "metrics")]
    #[tokio::test]
    async fn the_promotion_of_a_master_of_a_cluster_is_counted_once() {
        let counted = crate::telemetry::Counted::begin();
        let promotions = Arc::new(Promotions::default());
        let settings = ServerSettings::for_tests(NodeSettings::for_tests(LEASE));
        let server = Server::for_tests(Role::Member(Arc::clone(&promotions)), settings);
        let identity = |id: &str| Identity {
            replication: Some(Replication {
                id: Some(id.into()),
                was_replica: true,
                ..Replication::default()
            }),
            ..Identity::default()
        };
        // It was promoted before the node was up.
        server.admit(&identity("one")).unwrap();
        promotions.record_start();
        for _ in 0..2 {
            server.admit(&identity("two")).unwrap();
        }
        let expected = format!("{}: 1", server.settings.voter);
        assert_eq!(counted.events("redlock_promotions_total"), [expected]);
    }

    /// This process was cut off from all servers, and another master has granted locks until a moment ago.
    #[tokio::test(start_paused = true)]
    async fn an_unconfirmed_master_of_another_generation_counts_as_promoted_when_it_is_met() {
        advance(60 * MINUTE).await;
        let identity = |id: &str| Identity {
            run_id: Some("run".into()),
            uptime: Some(1000 * MINUTE),
            replication: Some(Replication {
                id: Some(id.into()),
                was_replica: true,
                ..Replication::default()
            }),
            ..Identity::default()
        };
        for (is_unconfirmed, is_closed) in [(true, true), (false, false)] {
            let settings =
                NodeSettings { restart_guard: Some(LEASE), ..NodeSettings::for_tests(LEASE) };
            let role = Role::Master(Mutex::new(Promoted {
                address: HostPort { host: "a".into(), port: 1 },
                epoch: 1,
                since: Instant::now().checked_sub(50 * MINUTE).unwrap(),
                announced_by: Arc::new([]),
                is_unconfirmed,
            }));
            let server = Server::for_tests(role, ServerSettings::for_tests(settings));
            server.admit(&identity("one")).unwrap();
            assert_eq!(server.gate.check_grants(), Ok(()));
            server.record_end(&identity("one"));
            advance(5 * MINUTE).await;
            for _ in 0..2 {
                server.admit(&identity("two")).unwrap();
                assert_eq!(server.gate.check_grants().is_err(), is_closed, "{is_unconfirmed}");
            }
            // The next connection to the same generation does not close the gate again.
            server.record_end(&identity("two"));
            advance(5 * MINUTE).await;
            server.admit(&identity("two")).unwrap();
            assert_eq!(server.gate.check_grants(), Ok(()));
        }
    }
}
