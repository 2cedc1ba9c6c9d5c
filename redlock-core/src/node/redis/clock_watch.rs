//! Looks at a server's wall clock for as long as locks are asked of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::link::Link;
use super::probation::Probation;
use super::wall_clock::{Reading, Step, WallClock};
use super::{commands, reply};
use crate::clock::Clock;
use crate::error::NodeError;
use crate::telemetry;

/// How often it is looked at: for so long, and the time of a round trip, a server may grant what it
/// should not.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches the wall clock of one node over all of its connections.
#[derive(Debug)]
pub(super) struct ClockWatch {
    node: Arc<str>,
    clock: Arc<dyn Clock>,
    restart_guard: Option<Duration>,
    /// Of whichever server was there: that it is another one, or was started again, changes nothing for
    /// leases that it has kept or copied, which end at a time on the wall clock.
    known: Option<WallClock>,
    /// Because of the last step. It does not end with the connection.
    probation: Option<Probation>,
}

impl ClockWatch {
    pub(super) fn new(
        node: &Arc<str>,
        clock: &Arc<dyn Clock>,
        restart_guard: Option<Duration>,
    ) -> Self {
        let (node, clock) = (Arc::clone(node), Arc::clone(clock));
        Self { node, clock, restart_guard, known: None, probation: None }
    }

    /// Goes on with a new connection, before anything is asked over it.
    pub(super) fn begin(&mut self, link: &Link) {
        if let Some(probation) = self.probation {
            link.put_on(probation);
        }
        let Some(reading) = link.identity.time else {
            self.warn_of_silence();
            return;
        };
        self.compare(link, reading);
    }

    /// Asks now and then what time it is, while locks are asked for. A manager with the guard asks
    /// when it is idle too: otherwise it would find out after it had counted a vote.
    ///
    /// However long the answer takes, it is waited for: it is worth something all the same, and as
    /// with every other question the server is silent until then.
    pub(super) async fn watch(&mut self, link: &Link) {
        let command = commands::time();
        while link.identity.time.is_some() {
            sleep(PAUSE).await;
            let was_used = link.was_used();
            if !was_used && self.restart_guard.is_none() {
                continue;
            }
            match Reading::take(&*self.clock, link.ask(&command)).await {
                Ok(reading) => self.compare(link, reading),
                Err(error) if matches!(reply::node_error(&error), NodeError::NotPermitted(_)) => {
                    self.warn_of_silence();
                    break;
                }
                // A broken connection, or a server that is busy, is noticed by those who lock.
                Err(_) => {}
            }
        }
        std::future::pending::<()>().await;
    }

    fn compare(&mut self, link: &Link, reading: Reading) {
        let Some(known) = &mut self.known else {
            self.known = Some(WallClock::new(reading));
            return;
        };
        match known.read_again(reading) {
            None => {}
            Some(Step::Forward(by)) => self.stepped_forward(link, by),
            Some(Step::Back(by)) => {
                telemetry::clock_stepped(&self.node, "back");
                tracing::warn!(
                    node = %self.node, ?by,
                    "a node's wall clock was stepped back, or runs slow; leases last longer there"
                );
            }
        }
    }

    fn stepped_forward(&mut self, link: &Link, by: Duration) {
        telemetry::clock_stepped(&self.node, "forward");
        let Some(longest_lease) = self.restart_guard else {
            tracing::warn!(
                node = %self.node, ?by,
                "a node's wall clock was stepped forward, or runs fast; leases end early there, as if it had forgotten locks that are held"
            );
            return;
        };
        let probation = Probation::of_stepped(longest_lease, by);
        link.put_on(probation);
        self.probation = Some(probation);
        tracing::warn!(
            node = %self.node, ?by,
            "a node's wall clock was stepped forward, or runs fast; leases end early there, so it grants no locks for {longest_lease:?}"
        );
    }

    fn warn_of_silence(&self) {
        tracing::warn!(
            node = %self.node,
            "the server does not tell its time (TIME), so that steps of its wall clock go unnoticed"
        );
    }
}
