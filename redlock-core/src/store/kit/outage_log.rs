//! The log lines about a server that goes down and comes back.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::NodeError;
use crate::node::NodeStatus;

/// The shortest time between two lines of one kind.
const PERIOD: Duration = Duration::from_secs(1);

/// Logs when a server goes down and when it is back, each at most once per second.
///
/// A connection may break many times in a second. An outage that ends before the next line is due is only
/// counted, and the next line contains the count. The last line always matches the final state: a server that
/// stays down is logged as down once the second is over, and a server is logged as back only after it was
/// logged as down. An outage gets another line when its reason becomes one of another kind: a connection that broke may be
/// followed by a server that refuses the password.
#[derive(Debug, Default)]
pub(crate) struct OutageLog {
    is_down: bool,
    /// The time of the last line that reported the server as down.
    last_down: Option<Instant>,
    /// The kind of the reason in the last line, if it reported the server as down.
    logged_as_down: Option<Discriminant<NodeError>>,
    /// The outages that began since the last line that reported the server as down.
    outages: u64,
}

impl OutageLog {
    /// Records the status of a server after an attempt to connect, or after the end of a connection.
    pub(crate) fn record(&mut self, server: &str, status: &NodeStatus) {
        match status {
            NodeStatus::Up => self.up(server),
            NodeStatus::Down(reason) => self.down(server, reason),
            NodeStatus::Connecting => {}
        }
    }

    /// Records that the connection broke, or that an attempt to connect has failed.
    fn down(&mut self, server: &str, reason: &NodeError) {
        if !std::mem::replace(&mut self.is_down, true) {
            self.outages += 1;
        }
        let (kind, is_due) = (discriminant(reason), |last: Instant| last.elapsed() >= PERIOD);
        if self.logged_as_down == Some(kind) || !self.last_down.is_none_or(is_due) {
            return;
        }
        self.logged_as_down = Some(kind);
        self.last_down = Some(Instant::now());
        let suppressed = std::mem::take(&mut self.outages).saturating_sub(1);
        tracing::warn!(node = %server, %reason, suppressed, "a node is down; reconnecting");
    }

    /// Records that the server is connected.
    fn up(&mut self, server: &str) {
        self.is_down = false;
        if self.logged_as_down.take().is_some() {
            tracing::info!(node = %server, "a node is back");
        }
    }
}

#[cfg(test)]
mod tests {
    use redlock_logs::Logs;

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    fn down(reason: &str) -> NodeError {
        NodeError::NotConnected(reason.into())
    }

    /// Returns the level of each line about a node, and its number of suppressed lines.
    fn lines(logs: &Logs, node: &str) -> Vec<String> {
        let word = |line: &str| {
            let (_, suppressed) = line.split_once("suppressed=").unwrap_or_default();
            format!("{} {suppressed}", line.split_whitespace().next().unwrap_or_default())
        };
        let lines = logs.lines().into_iter().filter(|line| line.contains(node));
        lines.map(|line| word(&line).trim_end().to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_breaks_all_the_time_takes_one_line_of_each_kind_per_second() {
        let logs = Logs::collect();
        let (mut log, node) = (OutageLog::default(), "flapping:1");
        // Three seconds.
        for _ in 0..30 {
            log.down(node, &down("it broke"));
            log.down(node, &down("it does not listen"));
            log.up(node);
            tokio::time::advance(STEP).await;
        }
        let expected = ["WARN 0", "INFO", "WARN 9", "INFO", "WARN 9", "INFO"];
        assert_eq!(lines(&logs, "flapping:1"), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_of_another_kind_is_logged() {
        let logs = Logs::collect();
        let (mut log, node) = (OutageLog::default(), "refusing:1");
        log.down(node, &down("it broke"));
        for _ in 0..100 {
            log.down(node, &NodeError::NotPermitted("WRONGPASS".into()));
            tokio::time::advance(STEP).await;
        }
        assert_eq!(lines(&logs, "refusing:1"), ["WARN 0", "WARN 0"]);
        assert_eq!(logs.count("WARN", "WRONGPASS"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_stays_down_is_logged_as_down_in_the_end() {
        let logs = Logs::collect();
        let (mut log, node) = (OutageLog::default(), "staying:1");
        log.down(node, &down("it broke"));
        log.up(node);
        log.down(node, &down("it broke again"));
        assert_eq!(lines(&logs, "staying:1"), ["WARN 0", "INFO"]);
        for _ in 0..100 {
            tokio::time::advance(STEP).await;
            log.down(node, &down("it does not listen"));
        }
        assert_eq!(lines(&logs, "staying:1"), ["WARN 0", "INFO", "WARN 0"]);
        log.up(node);
        assert_eq!(lines(&logs, "staying:1"), ["WARN 0", "INFO", "WARN 0", "INFO"]);
    }
}
