//! Fair queues, by the library's own machine.

use std::time::Duration;

use redlock_model::checks_large_worlds;
use redlock_model::fair::{Claim, Rule, World, holds, needs};

const TWO: World = World { name: "two processes", processes: &[0, 1], ..World::CALM };
const PAIR: World = World { name: "two callers of a process", processes: &[0, 0], ..World::CALM };
const THREE: World =
    World { name: "two callers of a process, and another", processes: &[0, 1, 0], ..World::CALM };

/// Returns the end of a world. A lock that stays free breaks a claim only in the longer one.
fn end() -> Duration {
    Duration::from_millis(if checks_large_worlds() { 6500 } else { 1500 })
}

#[test]
fn fair_callers_get_the_lock_in_the_order_of_their_tickets() {
    holds(World { drops: 1, ..TWO });
    holds(World { drops: 1, ..PAIR });
    if checks_large_worlds() {
        holds(THREE);
    }
    needs(TWO, Rule::Wake, Claim::NobodySleepsForEver);
    needs(THREE, Rule::Exchange, Claim::NoTicketTwice);
    let ends_after = Duration::from_millis(6500);
    needs(World { drops: 1, ends_after, ..TWO }, Rule::Leave, Claim::TheLockIsTaken);
}

#[test]
fn a_ticket_leaves_after_it_has_entered() {
    let unordered = World { is_ordered: false, ..PAIR };
    holds(World { drops: 2, ..unordered });
    needs(World { drops: 1, ..unordered }, Rule::LeaveAfterReply, Claim::NoLeaveOvertakes);
}

#[test]
fn fair_callers_bear_outages_and_losses() {
    let world = World { ends_after: end(), ..TWO };
    holds(World { name: "an outage", outages: 1, ..world });
    holds(World { name: "a loss", losses: 1, ..world });
    holds(World { name: "a reply that takes too long", timeouts: 1, ..world });
    if checks_large_worlds() {
        holds(World { name: "an outage of one of two nodes", nodes: 2, outages: 1, ..world });
    }
}

#[test]
fn a_caller_that_is_not_polled_keeps_nobody_out() {
    let ends_after = Duration::from_millis(if checks_large_worlds() { 8000 } else { 3000 });
    holds(World { name: "a caller that stalls", stalls: 1, ends_after, ..TWO });
}

#[test]
fn a_shutdown_removes_the_tickets() {
    holds(World { name: "a shutdown", shutdowns: 1, ends_after: end(), ..TWO });
    holds(World { name: "a shutdown of two callers", shutdowns: 1, ..PAIR });
}
