//! Checks whether the nodes and the settings of a manager allow a request, before any node is asked.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::error::InvalidOption;
use crate::lock::{Dialect, LockSpec, Mode};
use crate::node::{Capabilities, Fencing, KeyRules, Node, NodeSettings};
use crate::options::{Defaults, MinHold, ResolvedOptions};
use crate::validity;

/// The checks of a manager's requests.
#[derive(Debug)]
pub(crate) struct Limits {
    nodes: Arc<[Arc<dyn Node>]>,
    /// The leases that all nodes grant.
    leases: RangeInclusive<Duration>,
    prefix: Arc<str>,
    restart_guard: Option<Duration>,
}

impl Limits {
    pub(crate) fn new(
        nodes: &Arc<[Arc<dyn Node>]>,
        prefix: &Arc<str>,
        restart_guard: Option<Duration>,
    ) -> Self {
        let Capabilities { shortest_lease, longest_lease, .. } = Capabilities::default();
        let all = (shortest_lease, longest_lease);
        let granted = nodes.iter().map(|node| node.capabilities());
        let (shortest, longest) = granted.fold(all, |(shortest, longest), node| {
            (shortest.max(node.shortest_lease), longest.min(node.longest_lease))
        });
        let (nodes, prefix) = (Arc::clone(nodes), Arc::clone(prefix));
        Self { leases: shortest..=longest, nodes, prefix, restart_guard }
    }

    /// Checks that the servers can keep a lease of `expire`, that all nodes grant it, and that the restart
    /// guard covers it.
    pub(crate) fn check_expire(&self, expire: Duration) -> Result<(), InvalidOption> {
        if !validity::is_allowed(expire) {
            let allowed = validity::allowed_leases!();
            return Err(InvalidOption::new("expire", format!("{expire:?}"), allowed));
        }
        if !self.leases.contains(&expire) {
            let (shortest, longest) = (self.leases.start(), self.leases.end());
            let allowed =
                format!("from {shortest:?} to {longest:?}, the leases that all nodes grant");
            return Err(InvalidOption::new("expire", format!("{expire:?}"), allowed));
        }
        check_restart_guard(expire, "", self.restart_guard)
    }

    /// Refuses options of the manager that a node does not support, and a failover margin that no node uses.
    pub(crate) fn check_manager(
        &self,
        settings: &NodeSettings,
        defaults: &Defaults,
    ) -> Result<(), InvalidOption> {
        let guard = "the restart guard";
        if let Some(longest) = settings.restart_guard {
            let is_safe = |node: &dyn Node| {
                let Capabilities { durable, restart_guard, .. } = node.capabilities();
                durable || restart_guard
            };
            self.require("restart_guard", &format!("{longest:?}"), "unset", guard, is_safe)?;
        }
        let has_guard = |node: &dyn Node| node.capabilities().restart_guard;
        if let Some(margin) = settings.failover_margin
            && !self.nodes.iter().any(|node| has_guard(&**node))
        {
            self.require("failover_margin", &format!("{margin:?}"), "unset", guard, has_guard)?;
        }
        if self.nodes.len() > 1
            && let Some(node) = self.nodes.iter().find(|node| node.capabilities().only_node)
        {
            let name = node.name();
            let allowed =
                format!("1: the store of the node {name} is a quorum of servers by itself");
            return Err(InvalidOption::new("nodes", self.nodes.len(), allowed));
        }
        self.check_dialect(defaults.dialect)?;
        self.check_expire(defaults.expire)
    }

    fn check_dialect(&self, dialect: Dialect) -> Result<(), InvalidOption> {
        if dialect == Dialect::Plain {
            return Ok(());
        }
        self.require("dialect", dialect.name(), "plain", "this dialect", |node| {
            node.capabilities().redisson
        })
    }

    /// Returns the options if all nodes and the restart guard allow them.
    pub(crate) fn allowed(
        &self,
        options: ResolvedOptions,
    ) -> Result<ResolvedOptions, InvalidOption> {
        self.check_expire(options.expire)?;
        options.min_hold.map_or(Ok(()), |min_hold| self.check_min_hold(min_hold))?;
        Ok(options)
    }

    /// Refuses a lock that its dialect or a node does not have: a mode, several keys, a place in a fair queue, or a number of
    /// its holder.
    pub(crate) fn check_lock(
        &self,
        spec: &LockSpec,
        fair: bool,
        fenced: bool,
    ) -> Result<(), InvalidOption> {
        self.check_dialect(spec.dialect())?;
        self.check_mode(spec.mode(), spec.dialect())?;
        if fair {
            let has_queues = |node: &dyn Node| node.fair_order().is_some();
            self.require("fair", "true", "unset", "fair queues", has_queues)?;
        }
        if fenced {
            let has_numbers = |node: &dyn Node| node.capabilities().fencing != Fencing::None;
            self.require("fenced", "true", "unset", "fencing", has_numbers)?;
            if self.nodes.len() > 1 {
                let joins = |node: &dyn Node| node.capabilities().fencing == Fencing::Quorum;
                self.require("fenced", "true", "unset", "fencing beside other nodes", joins)?;
            }
        }
        if fair || fenced {
            self.key_rules().try_for_each(|rules| rules.check_prefix(&self.prefix))?;
        }
        if spec.has_list_of_keys() {
            self.check_list_of_keys(spec, fair)?;
        }
        Ok(())
    }

    /// Refuses a lock that stays after its holder has released it if a node has no such locks.
    fn check_min_hold(&self, min_hold: MinHold) -> Result<(), InvalidOption> {
        let (option, value) = match min_hold {
            MinHold::For(time) => ("min_hold", format!("{time:?}")),
            MinHold::UntilExpiry => ("keep", "true".to_owned()),
        };
        let capability = "locks that stay after their release";
        self.require(option, &value, "unset", capability, |node| node.capabilities().min_hold)
    }

    /// Refuses a mode that the dialect or a node does not have. Refuses permits on several nodes: of three holders,
    /// each could have the votes of another two of three nodes, of which each has only two holders.
    fn check_mode(&self, mode: Mode, dialect: Dialect) -> Result<(), InvalidOption> {
        let Mode::Shared { permits } = mode else { return Ok(()) };
        let (option, value) = match permits {
            None => ("shared", "true".to_owned()),
            Some(permits) => ("permits", permits.to_string()),
        };
        if dialect != Dialect::Plain {
            let allowed = "unset: the dialect of the lock has no shared locks";
            return Err(InvalidOption::new(option, value, allowed));
        }
        let nodes = self.nodes.len();
        if permits.is_some() && nodes > 1 {
            let allowed = format!(
                "unset for a manager with {nodes} nodes: more callers could get a majority of the nodes than there \
                 are permits, because different majorities count different holders"
            );
            return Err(InvalidOption::new(option, value, allowed));
        }
        self.require(option, &value, "unset", "shared locks", |node| node.capabilities().shared)
    }

    /// Refuses a list of keys if a node, another option or the dialect has no locks of several keys, or if a node can never
    /// hold these keys together. Refuses a list of one key, too: the next list of the caller may have two.
    fn check_list_of_keys(&self, spec: &LockSpec, fair: bool) -> Result<(), InvalidOption> {
        let conflicting = match spec.mode() {
            Mode::Shared { permits: None } => Some("shared"),
            Mode::Shared { permits: Some(_) } => Some("permits"),
            // A caller of several keys would need the first ticket of each of their queues at the same time.
            Mode::Exclusive => fair.then_some("fair"),
        };
        if let Some(option) = conflicting {
            let message = format!(
                "{option} cannot be combined with a list of keys, even if it has one key; lock one key by `lock`, or by \
                 `key` in the attribute"
            );
            return Err(InvalidOption::conflict(option, message));
        }
        self.require("keys", "a list", "one key", "several keys", |node| {
            node.capabilities().several_keys
        })?;
        if spec.dialect() == Dialect::Redisson {
            let message = "dialect is redisson, but the lock of a list of keys must be plain, \
                           because an RLock of Redisson has one key";
            return Err(InvalidOption::conflict("dialect", message));
        }
        self.key_rules().try_for_each(|rules| rules.check_keys(spec.keys()))
    }

    fn key_rules(&self) -> impl Iterator<Item = &dyn KeyRules> {
        self.nodes.iter().filter_map(|node| node.key_rules())
    }

    /// Returns whether all nodes can confirm the number of a holder that takes a lock over.
    pub(crate) fn can_confirm(&self) -> bool {
        self.nodes.iter().all(|node| node.capabilities().fencing == Fencing::Quorum)
    }

    /// Refuses the value of an option if a node lacks the capability that it needs.
    fn require(
        &self,
        option: &'static str,
        value: &str,
        allowed: &str,
        capability: &str,
        has: fn(&dyn Node) -> bool,
    ) -> Result<(), InvalidOption> {
        let Some(node) = self.nodes.iter().find(|node| !has(&***node)) else { return Ok(()) };
        let allowed = format!("{allowed}: the node {} does not support {capability}", node.name());
        Err(InvalidOption::new(option, value, allowed))
    }
}

/// Refuses a lease that is longer than the restart guard covers. A restarted server that has forgotten such a
/// lease would vote again before the lease is over. `origin` follows the lease in the message.
pub(crate) fn check_restart_guard(
    expire: Duration,
    origin: &str,
    guard: Option<Duration>,
) -> Result<(), InvalidOption> {
    match guard {
        Some(longest) if expire > longest => {
            let allowed = format!("at most {longest:?}, the longest lease of the restart_guard");
            Err(InvalidOption::new("expire", format!("{expire:?}{origin}"), allowed))
        }
        _ => Ok(()),
    }
}
