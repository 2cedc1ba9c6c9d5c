//! The lives of one server, as far as its connections show them.

use tokio::time::Instant;

/// Since when a server can be running at most, whatever it says of itself.
///
/// It may have been started while its machine's clock was wrong, or have taken the place of another
/// one, as after a failover: it has been running for long then, and may not know who holds what.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    /// The `run_id` of the life that was connected to last, and when that connection broke.
    last: Option<(String, Instant)>,
    /// When the last connection to the life before this one broke.
    not_before: Option<Instant>,
}

impl Incarnations {
    /// Notes a connection to this life. Returns what it has to be taken to have begun after, which is
    /// the same for each of its connections; `None` if no other life was seen.
    pub(crate) fn connected(&mut self, run_id: Option<&str>) -> Option<Instant> {
        if let (Some((last, broke)), Some(run_id)) = (&self.last, run_id)
            && last != run_id
        {
            self.not_before = Some(*broke);
        }
        self.not_before
    }

    /// Notes that the connection to this life broke.
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
