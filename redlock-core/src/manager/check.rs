//! The checks of a manager's options together.

use super::builder::LockManagerBuilder;
use crate::error::{ConnectError, InvalidOption};
use crate::limits::check_restart_guard;
use crate::validity;

/// The most nodes of a manager. More nodes would make locks slower but not safer. An attempt records the
/// nodes that it asked in 64 bits.
pub(crate) const MAX_NODES: usize = 63;

impl LockManagerBuilder {
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let (nodes, config, expire) = (self.nodes.len(), &self.config, self.resolved_expire());
        if nodes == 0 {
            return Err(ConnectError::NoNodes);
        }
        if nodes > MAX_NODES {
            let allowed = format!("at most {MAX_NODES}");
            return Err(InvalidOption::new("nodes", nodes, allowed).into());
        }
        config.check_ranges()?;
        let origin = if config.expire.is_none() { " by default" } else { "" };
        check_restart_guard(expire, origin, config.restart_guard)?;
        if let (Some(margin), None) = (config.failover_margin, config.restart_guard) {
            let allowed = "set together with restart_guard";
            return Err(
                InvalidOption::new("failover_margin", format!("{margin:?}"), allowed).into()
            );
        }
        let node_timeout = self.resolved_node_timeout(nodes);
        if validity::remaining(expire, node_timeout).is_zero() {
            let allowed = format!("shorter than the lease (expire) of {expire:?}");
            return Err(
                InvalidOption::new("node_timeout", format!("{node_timeout:?}"), allowed).into()
            );
        }
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        Ok(())
    }
}
