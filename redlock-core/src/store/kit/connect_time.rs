//! The time that an attempt to connect takes.

use std::time::{Duration, Instant as SystemInstant};

use tokio::time::Instant;

use crate::error::NodeError;

/// The time since the beginning of an attempt to connect, by Tokio's clock and by that of the system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectTime {
    limit: Duration,
    begun: Instant,
    begun_by_system: SystemInstant,
}

impl ConnectTime {
    /// Begins an attempt that may take as long as the caller has set.
    pub(crate) fn begin(limit: Duration) -> Self {
        Self { limit, begun: Instant::now(), begun_by_system: SystemInstant::now() }
    }

    /// Returns the error of an attempt that has taken too long.
    pub(crate) fn late(self) -> NodeError {
        // Outside of tests, both clocks are the same.
        let is_paused = self.begun_by_system.elapsed() < self.begun.elapsed() / 2;
        let paused = if is_paused {
            "; the time of this Tokio runtime is paused (`start_paused`, `tokio::time::pause`), so the limit was over \
             as soon as all tasks waited for the server: use real time in a test with a server"
        } else {
            ""
        };
        NodeError::NotConnected(format!("no connection within {:?}{paused}", self.limit).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn late() -> String {
        let limit = Duration::from_millis(20);
        let time = ConnectTime::begin(limit);
        tokio::time::sleep(limit).await;
        time.late().to_string()
    }

    #[tokio::test]
    async fn the_error_has_the_limit() {
        assert_eq!(late().await, "not connected: no connection within 20ms");
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_names_a_time_that_is_paused() {
        let error = late().await;
        let begin =
            "not connected: no connection within 20ms; the time of this Tokio runtime is paused";
        assert!(error.starts_with(begin), "{error}");
    }
}
