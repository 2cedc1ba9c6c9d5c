//! The incarnations of one server, as its connections show them.

use tokio::time::Instant;

/// Tracks the earliest time at which the current incarnation of a server can have started.
///
/// The uptime that the server reports is not enough. The server may have started while the clock of its
/// machine was wrong. After a failover, the new server may have been running for long without knowledge of
/// all held locks.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    /// The last known `run_id`, and the time when its connection broke.
    last: Option<(String, Instant)>,
    /// The time when the last connection to the previous incarnation broke.
    not_before: Option<Instant>,
}

impl Incarnations {
    /// Returns whether the last connection showed another incarnation.
    pub(crate) fn is_restart(&self, run_id: Option<&str>) -> bool {
        self.last.as_ref().zip(run_id).is_some_and(|((last, _), run_id)| last != run_id)
    }

    /// Records a connection to an incarnation. Returns the earliest time at which this incarnation can have
    /// started, which is the same for all of its connections. Returns `None` if the connections have shown
    /// no earlier incarnation.
    pub(crate) fn connected(&mut self, run_id: Option<&str>) -> Option<Instant> {
        if let (Some((last, broke)), Some(run_id)) = (&self.last, run_id)
            && last != run_id
        {
            self.not_before = Some(*broke);
        }
        self.not_before
    }

    /// Records that the connection to an incarnation broke.
    pub(crate) fn disconnected(&mut self, run_id: Option<&str>) {
        if let Some(run_id) = run_id {
            self.last = Some((run_id.to_owned(), Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_incarnation_begins_after_the_previous_one_on_each_connection() {
        let mut incarnations = Incarnations::default();
        let begun = Instant::now();
        for connection in 0..2 {
            assert_eq!(incarnations.connected(Some("first")), None, "{connection}");
            advance(SECOND).await;
            incarnations.disconnected(Some("first"));
        }
        for connection in 0..3 {
            let not_before = incarnations.connected(Some("second"));
            assert_eq!(not_before, Some(begun + 2 * SECOND), "{connection}");
            advance(SECOND).await;
            incarnations.disconnected(Some("second"));
        }
        assert_eq!(incarnations.connected(Some("third")), Some(begun + 5 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_run_id_shows_no_new_incarnation() {
        let mut incarnations = Incarnations::default();
        incarnations.connected(Some("first"));
        let broke = Instant::now();
        incarnations.disconnected(Some("first"));
        assert_eq!(incarnations.connected(Some("second")), Some(broke));
        advance(SECOND).await;
        incarnations.disconnected(None);
        assert_eq!(incarnations.connected(None), Some(broke));
    }
}
