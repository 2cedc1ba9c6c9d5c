//! The state that a manager, its requests and its guards share.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::DropGuard;

use crate::ballot::{Ballot, MinHold};
use crate::buffer_space::BufferSpace;
use crate::error::{InvalidOption, LossCause};
use crate::lease::LeaseKeeper;
use crate::lock::{Dialect, LockSpec, Mode};
use crate::log_limit::LogLimit;
use crate::node::{Capabilities, Fencing, LeaseRange, NodeSettings};
use crate::queue::{FairQueues, Queues};
use crate::{telemetry, validity};

/// The state that a manager, its requests and its guards share.
pub(crate) struct Context {
    pub(crate) ballot: Ballot,
    pub(crate) keeper: Arc<LeaseKeeper>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) fair: Arc<FairQueues>,
    pub(crate) prefix: Box<str>,
    pub(crate) dialect: Dialect,
    pub(crate) expire: Duration,
    /// Limits how often similar events are logged.
    pub(crate) log_limit: Arc<LogLimit>,
    /// The range of leases that all nodes grant.
    pub(crate) leases: LeaseRange,
    pub(crate) restart_guard: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    /// The request bodies that the layers of `redlock-axum` read before they request a lock.
    pub(crate) body_buffers: Arc<BufferSpace>,
    /// Ends the background work when the manager and its last guard have been dropped.
    pub(crate) _end_on_drop: DropGuard,
}

impl Context {
    /// Checks that the servers can keep a lease of `expire`, that all nodes grant it, and that the restart
    /// guard covers it.
    pub(crate) fn check_expire(&self, expire: Duration) -> Result<(), InvalidOption> {
        check_expire("expire", expire)?;
        self.leases.check(expire)?;
        check_restart_guard(expire, "", self.restart_guard)
    }

    /// Refuses options of the manager that a node does not support, and a failover margin that no node uses.
    pub(crate) fn check_manager(&self, settings: &NodeSettings) -> Result<(), InvalidOption> {
        let guard = "the restart guard";
        if let Some(longest) = settings.restart_guard {
            let is_safe = |node: Capabilities| node.durable || node.restart_guard;
            self.require("restart_guard", &format!("{longest:?}"), "unset", guard, is_safe)?;
        }
        let has_guard = |node: Capabilities| node.restart_guard;
        if let Some(margin) = settings.failover_margin
            && !self.ballot.nodes.iter().any(|node| has_guard(node.capabilities()))
        {
            self.require("failover_margin", &format!("{margin:?}"), "unset", guard, has_guard)?;
        }
        let nodes = &self.ballot.nodes;
        if nodes.len() > 1
            && let Some(node) = nodes.iter().find(|node| node.capabilities().only_node)
        {
            let name = node.name();
            let allowed =
                format!("1: the store of the node {name} is a quorum of servers by itself");
            return Err(InvalidOption::new("nodes", nodes.len(), allowed));
        }
        self.check_dialect(self.dialect)?;
        self.check_expire(self.expire)
    }

    fn check_dialect(&self, dialect: Dialect) -> Result<(), InvalidOption> {
        match dialect {
            Dialect::Plain => Ok(()),
            Dialect::Redisson => {
                let has = |node: Capabilities| node.redisson;
                self.require("dialect", dialect.name(), "plain", "this dialect", has)
            }
        }
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
            self.require("fair", "true", "unset", "fair queues", |node| node.fair)?;
        }
        if fenced {
            let has_numbers = |node: Capabilities| node.fencing != Fencing::None;
            self.require("fenced", "true", "unset", "fencing", has_numbers)?;
            if self.ballot.nodes.len() > 1 {
                let joins = |node: Capabilities| node.fencing == Fencing::Quorum;
                self.require("fenced", "true", "unset", "fencing beside other nodes", joins)?;
            }
        }
        if fair || fenced {
            self.ballot.nodes.iter().try_for_each(|node| node.check_prefix(&self.prefix))?;
        }
        if spec.has_list_of_keys() {
            self.check_list_of_keys(spec, fair)?;
        }
        Ok(())
    }

    /// Refuses a lock that stays after its holder has released it if a node has no such locks.
    pub(crate) fn check_min_hold(&self, min_hold: MinHold) -> Result<(), InvalidOption> {
        let (option, value) = match min_hold {
            MinHold::For(time) => ("min_hold", format!("{time:?}")),
            MinHold::UntilExpiry => ("keep", "true".to_owned()),
        };
        let capability = "locks that stay after their release";
        self.require(option, &value, "unset", capability, |node| node.min_hold)
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
        let nodes = self.ballot.nodes.len();
        if permits.is_some() && nodes > 1 {
            let allowed = format!(
                "unset for a manager with {nodes} nodes: more callers could get a majority of the nodes than there \
                 are permits, because different majorities count different holders"
            );
            return Err(InvalidOption::new(option, value, allowed));
        }
        self.require(option, &value, "unset", "shared locks", |node| node.shared)
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
        self.require("keys", "a list", "one key", "several keys", |node| node.several_keys)?;
        if spec.dialect() == Dialect::Redisson {
            let message = "dialect is redisson, but the lock of a list of keys must be plain, \
                           because an RLock of Redisson has one key";
            return Err(InvalidOption::conflict("dialect", message));
        }
        self.ballot.nodes.iter().try_for_each(|node| node.check_keys(spec.keys()))
    }

    /// Returns whether all nodes can confirm the number of a holder that takes a lock over.
    pub(crate) fn can_confirm(&self) -> bool {
        self.ballot.nodes.iter().all(|node| node.capabilities().fencing == Fencing::Quorum)
    }

    /// Refuses the value of an option if a node lacks the capability that it needs.
    fn require(
        &self,
        option: &'static str,
        value: &str,
        allowed: &str,
        capability: &str,
        has: fn(Capabilities) -> bool,
    ) -> Result<(), InvalidOption> {
        let lacks = self.ballot.nodes.iter().find(|node| !has(node.capabilities()));
        lacks.map_or(Ok(()), |node| {
            let allowed =
                format!("{allowed}: the node {} does not support {capability}", node.name());
            Err(InvalidOption::new(option, value, allowed))
        })
    }

    /// Reports the status of each node to the metrics, until the manager and its last guard have been dropped.
    fn report_statuses(&self, runtime: &Handle) {
        if cfg!(not(feature = "metrics")) {
            return;
        }
        let Ballot { nodes, statuses, home, .. } = &self.ballot;
        for (node, status) in nodes.iter().zip(&**statuses) {
            let (name, status, mut was_up) = (Arc::clone(node.name()), status.clone(), None);
            let report = async move {
                loop {
                    let changed = status.wait_for(|status| Some(status.is_up()) != was_up).await;
                    telemetry::node_up(&name, changed.is_up());
                    was_up = Some(changed.is_up());
                }
            };
            runtime.spawn(home.gone.clone().run_until_cancelled_owned(report));
        }
    }

    /// Starts the background work in the runtime of this thread, unless it runs already.
    pub(crate) fn enter(self: &Arc<Self>) {
        self.ballot.home.enter(|runtime| {
            self.keeper.start(runtime, &self.ballot);
            self.report_statuses(runtime);
            let context = Arc::downgrade(self);
            move || {
                let Some(context) = context.upgrade() else { return };
                // Nobody renews these locks any more, and nobody notices when they end.
                for held in context.queues.close() {
                    held.lose(
                        "shutdown",
                        LossCause::ManagerEnded,
                        "the Tokio runtime of its manager has ended",
                    );
                }
            }
        });
    }
}

/// Checks that `expire`, the value of `option`, is a lease that the servers can keep.
pub(crate) fn check_expire(option: &'static str, expire: Duration) -> Result<(), InvalidOption> {
    if validity::is_allowed(expire) {
        Ok(())
    } else {
        Err(InvalidOption::new(option, format!("{expire:?}"), validity::allowed_leases!()))
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
