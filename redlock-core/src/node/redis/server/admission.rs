//! Decides whether a new connection is used, and which votes of its server count.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::gate::{Closures, Gate};
use super::history::History;
use super::identity::{Identity, LagSetting, Replication};
use super::promotions::Promotions;
use super::settings::ServerSettings;
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::node::redis::link::Link;
use crate::telemetry;

/// The lag after which a server without replicas refuses writes, if the server does not report it: the default of the
/// servers.
const DEFAULT_MAX_LAG: Duration = Duration::from_secs(10);

/// How much longer than the lag a server may accept writes: it counts the lag in whole seconds, and checks it once per
/// second.
const LAG_ROUNDING: Duration = Duration::from_secs(2);

/// The role of a server in its node.
#[derive(Debug)]
pub(crate) enum Role {
    /// The node is this server.
    Alone,
    /// The sentinels name the server as the master.
    Master {
        /// What the sentinels report. `None` until then.
        promotion: Mutex<Option<Promotion>>,
        /// Whether the node has used another master before.
        is_successor: bool,
    },
    /// One of the masters of a cluster.
    Member(Arc<Promotions>),
}

/// The promotion of a master, as the sentinels report it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promotion {
    /// The latest time at which the server can have been promoted.
    pub(crate) since: Instant,
    /// Whether no majority names the master now, so that a failover would not be noticed.
    pub(crate) is_kept: bool,
}

/// Checks the new connections to one server.
#[derive(Debug)]
pub(super) struct Admission {
    server: Arc<str>,
    /// Represents the server in the registry.
    registered: Arc<()>,
    role: Role,
    settings: Arc<ServerSettings>,
    log_limit: Arc<LogLimit>,
    history: Mutex<History>,
}

impl Admission {
    pub(super) fn new(
        server: &Arc<str>,
        role: Role,
        settings: &Arc<ServerSettings>,
        log_limit: &Arc<LogLimit>,
    ) -> Self {
        Self {
            server: Arc::clone(server),
            registered: Arc::new(()),
            role,
            settings: Arc::clone(settings),
            log_limit: Arc::clone(log_limit),
            history: Mutex::default(),
        }
    }

    /// Returns the setting that limits how long the server accepts writes after it was cut off, if it matters.
    pub(super) fn lag_setting(&self) -> Option<LagSetting> {
        if self.settings.restart_guard.is_none() || self.settings.failover_margin.is_some() {
            return None;
        }
        match self.role {
            Role::Alone => None,
            Role::Master { .. } => Some(LagSetting::REPLICAS),
            Role::Member(_) => Some(LagSetting::CLUSTER),
        }
    }

    /// Checks a new connection, and closes the gate of its server if it may have forgotten locks. Returns an error if the
    /// connection must not be used.
    pub(super) fn admit(&self, identity: &Identity, gate: &Gate) -> Result<(), NodeError> {
        self.check_server(identity)?;
        match &self.role {
            Role::Alone => {}
            Role::Master { .. } => self.check_master(identity)?,
            Role::Member(promotions) => self.check_member(identity, promotions)?,
        }
        match self.settings.restart_guard {
            Some(longest_lease) => self.close(gate, identity, longest_lease),
            None => self.warn_if_restarted(identity),
        }
        Ok(())
    }

    /// Sets what the sentinels report about the promotion of a master.
    pub(super) fn set_promotion(&self, reported: Promotion) {
        if let Role::Master { promotion, .. } = &self.role {
            *promotion.lock() = Some(reported);
        }
    }

    /// Records that a connection broke.
    pub(super) fn disconnected(&self, identity: &Identity) {
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
        let server = &self.server;
        if let Some(run_id) = &identity.run_id {
            let registry = &self.settings.registry;
            if let Some(other) = registry.register(&self.registered, &self.settings.voter, run_id) {
                return Err(NodeError::SameServer(other));
            }
        } else if let Some(suppressed) = self.log_limit.admit("run_id", server) {
            tracing::warn!(
                node = %server, suppressed,
                "the run_id of the server is unknown (INFO denied), so two nodes may be the same server"
            );
        }
        if let Some(policy) = identity.maxmemory_policy.as_deref()
            && policy != "noeviction"
            && let Some(suppressed) = self.log_limit.admit("eviction", server)
        {
            tracing::warn!(
                node = %server, policy, suppressed,
                "the server evicts keys when its memory is full, and with them locks that are held; set maxmemory-policy to noeviction"
            );
        }
        Ok(())
    }

    /// Checks the server that the sentinels name as the master.
    fn check_master(&self, identity: &Identity) -> Result<(), NodeError> {
        let (node, master) = (&self.settings.voter, &self.server);
        let Some(replication) = &identity.replication else {
            if let Some(suppressed) = self.log_limit.admit("role", master) {
                tracing::warn!(
                    %node, %master, suppressed,
                    "the role of the server is unknown (INFO denied), so that it may be a replica"
                );
            }
            return Ok(());
        };
        if replication.is_replica {
            let words = format!("{master}, which the sentinels name as master, is a replica");
            return Err(NodeError::Server(words.into()));
        }
        if !replication.needs_replicas
            && let Some(suppressed) = self.log_limit.admit("min-replicas", master)
        {
            tracing::warn!(
                %node, %master, suppressed,
                "the master accepts writes without its replicas: if it is cut off while another server is promoted, it does not stop granting locks; set min-replicas-to-write"
            );
        }
        Ok(())
    }

    /// Checks a master of a cluster. Counts a promotion, and warns about it without a restart guard.
    fn check_member(&self, identity: &Identity, promotions: &Promotions) -> Result<(), NodeError> {
        if identity.replication.as_ref().is_some_and(|replication| replication.is_replica) {
            return Err(NodeError::Server("the server is a replica".into()));
        }
        if promotions.record(identity) {
            let (node, server) = (&self.settings.voter, &self.server);
            telemetry::promoted(node);
            if self.settings.restart_guard.is_none()
                && let Some(suppressed) = self.log_limit.admit("promotion", server)
            {
                tracing::warn!(
                    %node, %server, suppressed,
                    "a replica was promoted to master, and may not know all locks that are held; set restart_guard"
                );
            }
        }
        Ok(())
    }

    /// Warns about a server that may have forgotten locks, and votes at once without a `restart_guard`.
    fn warn_if_restarted(&self, identity: &Identity) {
        let is_successor = matches!(self.role, Role::Master { is_successor: true, .. });
        let history = self.history.lock();
        let is_restart = history.is_restart(self.generation(identity).as_deref());
        if !(is_restart || is_successor && history.is_empty()) {
            return;
        }
        drop(history);
        let Some(suppressed) = self.log_limit.admit("restart", &self.settings.voter) else {
            return;
        };
        let (node, server) = (&self.settings.voter, &self.server);
        if matches!(self.role, Role::Master { .. }) {
            tracing::warn!(
                %node, master = %server, suppressed,
                "the master has changed, or was restarted, and may not know all locks that are held; set restart_guard"
            );
        } else {
            tracing::warn!(
                node = %server, suppressed,
                "a node was restarted and may have forgotten held locks; set restart_guard, or let the server \
                 write its data before it replies (appendonly yes, appendfsync always)"
            );
        }
    }

    /// Closes the gate of a server that may have forgotten locks.
    fn close(&self, gate: &Gate, identity: &Identity, longest_lease: Duration) {
        let ended = self.history.lock().connected(self.generation(identity).as_deref());
        gate.close(Closures::after_restart(longest_lease, identity.uptime, ended));
        let margin = |default: Duration| self.settings.failover_margin.unwrap_or(default);
        let promoted = match &self.role {
            Role::Alone => None,
            Role::Master { promotion, .. } => {
                let lag = identity.max_lag.unwrap_or(DEFAULT_MAX_LAG);
                let now = Instant::now();
                let promotion = promotion.lock().unwrap_or(Promotion { since: now, is_kept: true });
                // Without a majority of the sentinels, another generation shows that the server was a replica in between.
                let since = match ended {
                    Some(ended) if promotion.is_kept => ended.max(promotion.since),
                    _ => promotion.since,
                };
                Some((since, margin(lag + LAG_ROUNDING)))
            }
            Role::Member(promotions) => promotions
                .promoted_since(identity)
                .map(|since| (since, margin(Promotions::margin(identity)))),
        };
        if let Some((since, margin)) = promoted {
            gate.close(Closures::after_promotion(longest_lease, margin, since));
        }
        if let Err(reason) = gate.check_grants()
            && let Some(suppressed) = self.log_limit.admit("quarantine", &self.server)
        {
            tracing::warn!(
                node = %self.server, %reason, suppressed,
                "a node may have forgotten held locks, and is quarantined"
            );
        }
    }
}
