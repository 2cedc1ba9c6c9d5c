//! The generations of one server, as its connections show them.

use tokio::time::Instant;

/// Tracks when the current generation of a server can have begun. A generation lasts as long as the
/// server keeps all locks: until it is restarted or, in a replicated group, demoted.
///
/// The uptime that the server reports is not enough. The server may have started while the clock of its machine was wrong,
/// and may have been a replica in between.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The last known generation, and the time when its connection broke.
    last: Option<(String, Instant)>,
    /// The beginning of the present generation, if there was an earlier one.
    begun: Option<Begun>,
}

/// When a generation began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    /// The time when the last connection to the previous generation broke.
    pub(super) not_before: Instant,
    /// The time of the first connection to the generation.
    pub(super) not_after: Instant,
}

impl History {
    /// Returns whether the last connection showed another generation.
    pub(super) fn is_restart(&self, generation: Option<&str>) -> bool {
        self.last.as_ref().zip(generation).is_some_and(|((last, _), now)| last != now)
    }

    /// Records a connection to a generation. Returns when the generation began, which is the same for all of its connections.
    /// Returns `None` if the connections have shown no earlier generation.
    pub(super) fn connected(&mut self, generation: Option<&str>) -> Option<Begun> {
        if let Some((last, broke)) = &self.last
            && generation.is_some_and(|now| now != last)
        {
            self.begun = Some(Begun { not_before: *broke, not_after: Instant::now() });
        }
        self.begun
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
            let Begun { not_before, not_after } = history.connected(Some("second")).unwrap();
            assert_eq!(
                (not_before, not_after),
                (begun + 2 * SECOND, begun + 2 * SECOND),
                "{connection}"
            );
            advance(SECOND).await;
            history.disconnected(Some("second".into()));
        }
        advance(SECOND).await;
        let third = history.connected(Some("third")).unwrap();
        assert_eq!((third.not_before, third.not_after), (begun + 5 * SECOND, begun + 6 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_run_id_shows_no_new_generation() {
        let mut history = History::default();
        history.connected(Some("first"));
        let broke = Instant::now();
        history.disconnected(Some("first".into()));
        assert_eq!(history.connected(Some("second")).unwrap().not_before, broke);
        advance(SECOND).await;
        history.disconnected(None);
        assert_eq!(history.connected(None).unwrap().not_before, broke);
    }
}
