//! Reads the slots of a cluster from the replies of a server.

use std::ops::RangeInclusive;

use bb8_redis::redis::{Cmd, Value};

use crate::error::NodeError;
use crate::node::redis::url::HostPort;

/// The ranges of the slots with their masters, as one server sees them.
pub(super) type Masters = Vec<(RangeInclusive<u16>, HostPort)>;

/// The state of a cluster, as one server sees it. Each is `None` if the user has no right to `CLUSTER INFO`. Of two states
/// the better one is the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterState {
    /// Whether the server sees a majority of the masters, and owners for the slots.
    pub(super) is_ok: Option<bool>,
    /// The number of the last failover or change of a slot that the server knows.
    pub(super) epoch: Option<u64>,
}

/// Encodes `CLUSTER SLOTS`, which Redis 6.2 knows too.
pub(super) fn slots_command() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

/// Encodes `CLUSTER INFO`.
pub(super) fn info_command() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("INFO");
    command
}

impl ClusterState {
    /// Reads the reply to `CLUSTER INFO`.
    pub(super) fn of(reply: &Value) -> Self {
        let text = match reply {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
            Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.into(),
            _ => return Self::default(),
        };
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        Self {
            is_ok: value("cluster_state").map(|state| state == "ok"),
            epoch: value("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()),
        }
    }
}

/// Reads the reply to `CLUSTER SLOTS`. A server that does not know its own host has that of `asked`.
pub(super) fn masters(reply: &Value, asked: &HostPort) -> Result<Masters, NodeError> {
    let Value::Array(ranges) = reply else { return Err(NodeError::UnexpectedReply) };
    let read = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), master, ..] = &**range else { return None };
        let slot = |number: &i64| u16::try_from(*number).ok();
        Some((slot(first)?..=slot(last)?, server(master, asked)?))
    };
    ranges.iter().map(read).collect::<Option<_>>().ok_or(NodeError::UnexpectedReply)
}

/// Reads the address of a server: `[host, port, id, ..]`.
fn server(value: &Value, asked: &HostPort) -> Option<HostPort> {
    let Value::Array(parts) = value else { return None };
    let [host, Value::Int(port), ..] = &**parts else { return None };
    let host = match host {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) => text,
        Value::Nil => "",
        _ => return None,
    };
    // "?" stands for a name that the operator has not set.
    let host = if matches!(host, "" | "?") { &asked.host } else { host };
    Some(HostPort { host: host.to_owned(), port: u16::try_from(*port).ok()? })
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
