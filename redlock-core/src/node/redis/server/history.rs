//! The generations of one server, as its connections show them.

use tokio::time::Instant;

/// Tracks the earliest time at which the current generation of a server can have begun. A generation lasts as long as the
/// server keeps all locks: until it is restarted or, in a replicated group, demoted.
///
/// The uptime that the server reports is not enough. The server may have started while the clock of its machine was wrong,
/// and may have been a replica in between.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The last known generation, and the time when its connection broke.
    last: Option<(String, Instant)>,
    /// The time when the last connection to the previous generation broke.
    not_before: Option<Instant>,
}

impl History {
    /// Returns whether no connection has ended yet.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Returns whether the last connection showed another generation.
    pub(super) fn is_restart(&self, generation: Option<&str>) -> bool {
        self.last.as_ref().zip(generation).is_some_and(|((last, _), now)| last != now)
    }

    /// Records a connection to a generation. Returns the earliest time at which this generation can have begun, which is
    /// the same for all of its connections. Returns `None` if the connections have shown no earlier generation.
    pub(super) fn connected(&mut self, generation: Option<&str>) -> Option<Instant> {
        if self.is_restart(generation) {
            self.not_before = self.last.as_ref().map(|(_, broke)| *broke);
        }
        self.not_before
    }

    /// Records that the connection to a generation broke.
    pub(super) fn disconnected(&mut self, generation: Option<String>) {
        if let Some(generation) = generation {
            self.last = Some((generation, Instant::now()));
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
    async fn a_generation_begins_after_the_previous_one_on_each_connection() {
        let mut history = History::default();
        let begun = Instant::now();
        for connection in 0..2 {
            assert_eq!(history.connected(Some("first")), None, "{connection}");
            advance(SECOND).await;
            history.disconnected(Some("first".into()));
        }
        for connection in 0..3 {
            let not_before = history.connected(Some("second"));
            assert_eq!(not_before, Some(begun + 2 * SECOND), "{connection}");
            advance(SECOND).await;
            history.disconnected(Some("second".into()));
        }
        assert_eq!(history.connected(Some("third")), Some(begun + 5 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_run_id_shows_no_new_generation() {
        let mut history = History::default();
        history.connected(Some("first"));
        let broke = Instant::now();
        history.disconnected(Some("first".into()));
        assert_eq!(history.connected(Some("second")), Some(broke));
        advance(SECOND).await;
        history.disconnected(None);
        assert_eq!(history.connected(None), Some(broke));
    }
}
