//! Reacts to a step of a server's wall clock.

use std::sync::Arc;
use std::time::Duration;

use super::gate::{Closures, Gate};
use super::wall_clock::ClockStep;
use crate::log_limit::LogLimit;
use crate::{log_limited, telemetry};

impl ClockStep {
    /// Closes the gate of the server after a step forward, if there is a `restart_guard`. Logs and counts the step.
    pub(crate) fn report(
        self,
        server: &Arc<str>,
        gate: &Gate,
        restart_guard: Option<Duration>,
        log_limit: &LogLimit,
    ) {
        let (direction, by, effect) = match (self, restart_guard) {
            (Self::Back(by), _) => ("back", by, "leases on it last longer"),
            (Self::Forward(by), None) => (
                "forward",
                by,
                "leases on it end early, so a second caller may get a lock that is held",
            ),
            (Self::Forward(by), Some(longest_lease)) => {
                gate.close(Closures::after_clock_step(longest_lease, by));
                (
                    "forward",
                    by,
                    "leases on it end early, so it grants no locks for the longest lease",
                )
            }
        };
        telemetry::clock_stepped(server, direction, 1);
        log_limited!(
            log_limit, direction, server, warn, node = %server, ?by,
            "a node's wall clock was stepped {direction}, or does not keep time; {effect}"
        );
    }
}
