//! The checks of a manager's configuration.

use std::time::Duration;

use super::builder::LockManagerBuilder;
use crate::context::{check_expire, check_restart_guard};
use crate::error::{ConnectError, InvalidOption};
use crate::validity;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_PREFIX: usize = 100;
/// The most nodes of a manager. More nodes would make locks slower but not safer. An attempt records the
/// nodes that it asked in 64 bits.
pub(crate) const MAX_NODES: usize = 63;

impl LockManagerBuilder {
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        if self.nodes.is_empty() {
            return Err(ConnectError::NoNodes);
        }
        check_expire("expire", self.expire)?;
        if let Some(longest_lease) = self.restart_guard {
            check_expire("restart_guard", longest_lease)?;
            check_restart_guard(self.expire, self.restart_guard)?;
        }
        if let Some(margin) = self.failover_margin {
            check_failover_margin(margin)?;
            if self.restart_guard.is_none() {
                let allowed = "set together with restart_guard";
                return Err(
                    InvalidOption::new("failover_margin", format!("{margin:?}"), allowed).into()
                );
            }
        }
        let node_timeout = self.resolved_node_timeout(self.nodes.len());
        check_timeout("node_timeout", node_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if self.nodes.len() > MAX_NODES {
            let allowed = format!("at most {MAX_NODES}");
            return Err(InvalidOption::new("nodes", self.nodes.len().to_string(), allowed).into());
        }
        check_outage_grace(self.outage_grace)?;
        check_cluster_refresh(self.cluster_refresh)?;
        check_max_waiters(self.max_waiters)?;
        if validity::remaining(self.expire, node_timeout).is_zero() {
            return Err(InvalidOption::new(
                "node_timeout",
                format!("{node_timeout:?}"),
                format!("shorter than the lease (expire) of {:?}", self.expire),
            )
            .into());
        }
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        Ok(check_prefix(&self.prefix)?)
    }
}

pub(super) fn check_prefix(prefix: &str) -> Result<(), InvalidOption> {
    if prefix.len() > LONGEST_PREFIX || prefix.contains(char::is_control) {
        let allowed = format!("at most {LONGEST_PREFIX} bytes without control characters");
        return Err(InvalidOption::new("prefix", format!("{prefix:?}"), allowed));
    }
    Ok(())
}

pub(super) fn check_max_waiters(max_waiters: usize) -> Result<(), InvalidOption> {
    if max_waiters == 0 {
        return Err(InvalidOption::new("max_waiters", "0", "at least 1"));
    }
    Ok(())
}

pub(super) fn check_outage_grace(grace: Duration) -> Result<(), InvalidOption> {
    if grace > LONGEST_TIMEOUT {
        return Err(InvalidOption::new("outage_grace", format!("{grace:?}"), "from 0 to 60 s"));
    }
    Ok(())
}

pub(super) fn check_failover_margin(margin: Duration) -> Result<(), InvalidOption> {
    if margin > LONGEST_TIMEOUT {
        return Err(InvalidOption::new("failover_margin", format!("{margin:?}"), "from 0 to 60 s"));
    }
    Ok(())
}

pub(super) fn check_cluster_refresh(refresh: Duration) -> Result<(), InvalidOption> {
    if (Duration::from_millis(100)..=LONGEST_TIMEOUT).contains(&refresh) {
        Ok(())
    } else {
        Err(InvalidOption::new("cluster_refresh", format!("{refresh:?}"), "from 100 ms to 60 s"))
    }
}

pub(super) fn check_timeout(option: &'static str, timeout: Duration) -> Result<(), InvalidOption> {
    if (Duration::from_millis(1)..=LONGEST_TIMEOUT).contains(&timeout) {
        Ok(())
    } else {
        Err(InvalidOption::new(option, format!("{timeout:?}"), "from 1 ms to 60 s"))
    }
}
