//! The claims that the checker tests, and the situations that must occur.

use std::time::Duration;

use stateright::Property;

use super::machine::FairPosition;
use super::state::{Phase, State};
use super::world::{Fair, Rule, World};

/// The presence of the first process may have to end, and the next one to look again.
const LONGEST_FREE: Duration = Duration::from_millis(4100);
/// The same, after the first process has stalled.
const LONGEST_FREE_AFTER_STALL: Duration = Duration::from_millis(6100);
const REFRESH: Duration = Duration::from_secs(1);

/// A property of every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The first waiter of the first process looks at its position, or is told to.
    NobodySleepsForEver,
    /// A machine that rests goes on by itself within a second. Otherwise it waits for a reply.
    EachWaitEnds,
    /// While nodes do not fail, a caller gets the lock before all callers that have come when its ticket was on the node.
    OrderIsKept,
    /// A lock that is free is taken, however many operations have failed: nobody is overtaken for ever.
    TheLockIsTaken,
    /// Two callers do not get the lock by one ticket. A ticket that was removed does not enter again.
    NoTicketTwice,
    /// A process waits for one reply at most.
    OneOperation,
    /// A ticket leaves a node after it has entered.
    NoLeaveOvertakes,
    /// A process without waiters has no ticket on a node.
    NoTicketStays,
}

impl Claim {
    pub(super) const ALL: [Self; 8] = [
        Self::NobodySleepsForEver,
        Self::EachWaitEnds,
        Self::OrderIsKept,
        Self::TheLockIsTaken,
        Self::NoTicketTwice,
        Self::OneOperation,
        Self::NoLeaveOvertakes,
        Self::NoTicketStays,
    ];

    /// Returns the name of the claim in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::NobodySleepsForEver => "nobody who may go sleeps for ever",
            Self::EachWaitEnds => "each wait ends",
            Self::OrderIsKept => "the order of the tickets is kept",
            Self::TheLockIsTaken => "nobody is overtaken for ever",
            Self::NoTicketTwice => "no ticket is used twice",
            Self::OneOperation => "one operation is on its way",
            Self::NoLeaveOvertakes => "no ticket leaves before it enters",
            Self::NoTicketStays => "no ticket stays",
        }
    }

    pub(super) fn property(self) -> Property<Fair> {
        let condition = match self {
            Self::NobodySleepsForEver => nobody_sleeps_for_ever,
            Self::EachWaitEnds => each_wait_ends,
            Self::OrderIsKept => order_is_kept,
            Self::TheLockIsTaken => the_lock_is_taken,
            Self::NoTicketTwice => no_ticket_twice,
            Self::OneOperation => one_operation,
            Self::NoLeaveOvertakes => no_leave_overtakes,
            Self::NoTicketStays => no_ticket_stays,
        };
        Property::always(self.name(), condition)
    }
}

/// Situations that must occur in some state of a world.
pub(super) fn situations(world: &World) -> Vec<Property<Fair>> {
    let mut all: Vec<Property<Fair>> =
        vec![Property::sometimes("all have had the lock", |_: &Fair, state: &State| {
            state.used.len() == state.callers.len()
        })];
    if world.stalls > 0 {
        all.push(Property::sometimes("a process has stalled", |_: &Fair, state: &State| {
            let mut machines = state.processes.iter().filter_map(|one| one.machine.as_ref());
            machines.any(|machine| !machine.is_first() && machine.may_have_stalled(state.now))
        }));
    }
    if usize::from(world.outages) >= world.nodes {
        all.push(Property::sometimes("no node keeps the order", |_: &Fair, state: &State| {
            let mut callers = 0..state.callers.len();
            callers.any(|one| matches!(state.position(one), Some(FairPosition::NoConductor(_))))
        }));
    }
    all
}

fn nobody_sleeps_for_ever(model: &Fair, state: &State) -> bool {
    (0..state.processes.len()).all(|process| {
        let Some(first) = state.first_of(process) else { return true };
        let is_told = model.world.keeps(Rule::Wake) && state.is_told(first);
        if state.callers[first].phase != Phase::Fair || is_told {
            return true;
        }
        !matches!(state.position(first), Some(FairPosition::First(..)) | None)
    })
}

fn each_wait_ends(_: &Fair, state: &State) -> bool {
    state.processes.iter().all(|process| {
        let is_awaited = process.reply.is_some()
            || process.subscribes
            || process.sent.iter().any(|sent| sent.is_awaited);
        let goes_on = |until| until <= state.now + REFRESH;
        process.machine.is_none() || is_awaited || process.until.is_some_and(goes_on)
    })
}

fn order_is_kept(model: &Fair, state: &State) -> bool {
    !model.world.is_calm() || !state.broken.contains(&Claim::OrderIsKept)
}

fn the_lock_is_taken(model: &Fair, state: &State) -> bool {
    let stalls = model.world.stalls > 0;
    let longest = if stalls { LONGEST_FREE_AFTER_STALL } else { LONGEST_FREE };
    state.free_since.is_none_or(|since| state.now <= since + longest)
}

fn no_ticket_twice(_: &Fair, state: &State) -> bool {
    !state.broken.contains(&Claim::NoTicketTwice)
}

fn one_operation(_: &Fair, state: &State) -> bool {
    !state.broken.contains(&Claim::OneOperation)
}

/// An operation whose reply is lost, or that a shutdown abandons, may arrive at any time on a node that keeps no order.
fn is_ordered(world: &World) -> bool {
    world.is_ordered || world.timeouts + world.shutdowns == 0
}

fn no_leave_overtakes(model: &Fair, state: &State) -> bool {
    !is_ordered(&model.world) || !state.broken.contains(&Claim::NoLeaveOvertakes)
}

/// A removal that fails, or whose reply is lost, may leave a ticket until the presence of the process ends.
fn no_ticket_stays(model: &Fair, state: &State) -> bool {
    let World { outages, timeouts, .. } = model.world;
    let is_over = |process: usize| {
        let one = &state.processes[process];
        one.machine.is_none() && one.sent.is_empty()
    };
    let mut tickets = state.nodes.iter().flat_map(|node| &node.tickets);
    outages + timeouts > 0
        || !is_ordered(&model.world)
        || !tickets.any(|(_, process, _)| is_over(*process))
}
