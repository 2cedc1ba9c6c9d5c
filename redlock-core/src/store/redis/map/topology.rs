//! Reads the slots of a cluster from the replies of a server.

use std::ops::RangeInclusive;

use bb8_redis::redis::{FromRedisValue, InfoDict, Value};

use crate::error::NodeError;
use crate::error::legible;
use crate::store::kit::url::HostPort;

/// The ranges of the slots with their masters, as one server sees them.
pub(super) type Masters = Vec<(RangeInclusive<usize>, HostPort)>;

/// The state of a cluster, as one server sees it. Each is `None` if the user has no right to `CLUSTER INFO`. Of two states
/// the better one is the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterState {
    /// Whether the server sees a majority of the masters, and owners for the slots.
    pub(super) is_ok: Option<bool>,
    /// The number of the last failover or change of a slot that the server knows.
    pub(super) epoch: Option<u64>,
}

impl ClusterState {
    /// Reads the reply to `CLUSTER INFO`.
    pub(super) fn of(reply: &Value) -> Self {
        let Ok(info) = InfoDict::from_redis_value_ref(reply) else { return Self::default() };
        let state: Option<String> = info.get("cluster_state");
        Self { is_ok: state.map(|state| state == "ok"), epoch: info.get("cluster_current_epoch") }
    }
}

/// Reads the reply to `CLUSTER SLOTS`. A server that does not know its own host has that of `asked`.
pub(super) fn masters(reply: &Value, asked: &HostPort) -> Result<Masters, NodeError> {
    let ranges = Vec::<Vec<Value>>::from_redis_value_ref(reply).ok();
    let masters =
        ranges.and_then(|ranges| ranges.iter().map(|range| master(range, asked)).collect());
    masters.ok_or(NodeError::UnexpectedReply)
}

/// Reads a range of slots and its master: `[first, last, [host, port, id, ..], replicas ..]`.
fn master(range: &[Value], asked: &HostPort) -> Option<(RangeInclusive<usize>, HostPort)> {
    let [first, last, Value::Array(master), ..] = range else { return None };
    let [host, port, ..] = &master[..] else { return None };
    let slot = |value| u16::from_redis_value_ref(value).ok().map(usize::from);
    let host = Option::<String>::from_redis_value_ref(host).ok()?;
    // "?" stands for a name that the operator has not set.
    let host = host.filter(|host| !matches!(host.as_str(), "" | "?"));
    // The address is logged.
    let host = host.map_or_else(|| asked.host.clone(), |host| legible(&host));
    Some((
        slot(first)?..=slot(last)?,
        HostPort { host, port: u16::from_redis_value_ref(port).ok()? },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Masters, NodeError> {
        let asked = HostPort { host: "seed".into(), port: 1 };
        masters(&bb8_redis::redis::parse_redis_value(text.as_bytes()).unwrap(), &asked)
    }

    #[test]
    fn ranges_have_a_master_and_replicas() {
        let text = "*2\r\n\
            *4\r\n:0\r\n:5460\r\n\
            *4\r\n$8\r\n10.0.0.1\r\n:7000\r\n$2\r\nid\r\n*0\r\n\
            *3\r\n$8\r\n10.0.0.2\r\n:7001\r\n$2\r\nid\r\n\
            *3\r\n:5461\r\n:16383\r\n*3\r\n$0\r\n\r\n:7002\r\n$2\r\nid\r\n";
        let masters = read(text).unwrap();
        let masters: Vec<_> =
            masters.iter().map(|(slots, server)| format!("{slots:?} {server}")).collect();
        assert_eq!(masters, ["0..=5460 10.0.0.1:7000", "5461..=16383 seed:7002"]);
        for text in ["+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:70000\r\n*0\r\n"] {
            assert_eq!(read(text), Err(NodeError::UnexpectedReply), "{text}");
        }
    }

    #[test]
    fn the_state_and_the_epoch_are_read_from_cluster_info() {
        let text = "cluster_enabled:1\r\ncluster_state:fail\r\ncluster_current_epoch:17\r\n";
        let state = ClusterState::of(&Value::BulkString(text.into()));
        assert_eq!(state, ClusterState { is_ok: Some(false), epoch: Some(17) });
        assert_eq!(ClusterState::of(&Value::Nil), ClusterState::default());
    }
}
