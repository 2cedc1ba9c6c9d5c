//! The replies of a server that does not serve the slot of a lock.

use crate::error::NodeError;
use crate::node::redis::url::HostPort;

/// A reply that names another server. The server that sent it has not executed the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) kind: RedirectKind,
    pub(super) slot: u16,
    /// The host is empty if it is that of the server that sent the reply.
    pub(super) target: HostPort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectKind {
    /// The slot belongs to the other server.
    Moved,
    /// The slot is moving, and the other server has the key or may set it. The command must follow `ASKING`.
    Ask,
}

impl Redirect {
    /// Reads the message of a server: `MOVED 3999 127.0.0.1:6381` or `ASK 3999 127.0.0.1:6381`.
    pub(super) fn of(error: &NodeError) -> Option<Self> {
        let NodeError::Server(message) = error else { return None };
        let mut words = message.split(' ');
        let kind = match words.next()? {
            "MOVED" => RedirectKind::Moved,
            "ASK" => RedirectKind::Ask,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        // Redis does not put an IPv6 address into brackets. "?" stands for a name that the operator has not set.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if host == "?" { "" } else { host }.to_owned();
        let target = HostPort { host, port: port.parse().ok()? };
        Some(Self { kind, slot, target })
    }
}

/// Returns whether a server reports that the cluster is not complete, as it sees it.
pub(super) fn is_cluster_down(error: &NodeError) -> bool {
    matches!(error, NodeError::Server(message) if message.starts_with("CLUSTERDOWN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(message: &str) -> Option<(RedirectKind, u16, String, u16)> {
        let Redirect { kind, slot, target } = Redirect::of(&NodeError::Server(message.into()))?;
        Some((kind, slot, target.host, target.port))
    }

    #[test]
    fn redirects_name_a_slot_and_a_server() {
        use RedirectKind::{Ask, Moved};
        for (message, kind, slot, host, port) in [
            ("MOVED 3999 127.0.0.1:6381", Moved, 3999, "127.0.0.1", 6381),
            ("ASK 0 cache.local:7000", Ask, 0, "cache.local", 7000),
            ("MOVED 16383 ::1:6381", Moved, 16_383, "::1", 6381),
            ("MOVED 1 [2001:db8::1]:6381", Moved, 1, "2001:db8::1", 6381),
            ("MOVED 1 :6381", Moved, 1, "", 6381),
            ("MOVED 1 ?:6381", Moved, 1, "", 6381),
        ] {
            assert_eq!(redirect(message), Some((kind, slot, host.to_owned(), port)), "{message}");
        }
        for message in ["MOVED", "MOVED x y", "MOVED 1 host", "TRYAGAIN Multiple keys", "ASKING"] {
            assert_eq!(redirect(message), None, "{message}");
        }
        assert_eq!(Redirect::of(&NodeError::ConnectionBroke("MOVED 1 a:1".into())), None);
    }
}
