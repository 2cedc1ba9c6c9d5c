//! The claims that the checker tests, and the situations that must occur.

use stateright::Property;

use super::model::{Sessions, World};
use super::step::State;

/// A property of every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The leader has heard of a session at or after the moment that is proven to its client.
    TrueEvidence,
    /// At most one client holds the lock with validity left.
    MutualExclusion,
    /// Each fencing number is greater than the number that was handed out before it.
    GrowingNumber,
}

impl Claim {
    /// All claims.
    pub const ALL: [Self; 3] = [Self::TrueEvidence, Self::MutualExclusion, Self::GrowingNumber];

    /// Returns the name of the claim in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::TrueEvidence => "true evidence",
            Self::MutualExclusion => "mutual exclusion",
            Self::GrowingNumber => "growing number",
        }
    }

    pub(super) fn property(self) -> Property<Sessions> {
        let condition = match self {
            Self::TrueEvidence => true_evidence,
            Self::MutualExclusion => mutual_exclusion,
            Self::GrowingNumber => growing_number,
        };
        Property::always(self.name(), condition)
    }
}

fn true_evidence(_: &Sessions, state: &State) -> bool {
    let mut pairs = state.clients.iter().zip(&state.ensemble.sessions);
    pairs.all(|(client, session)| client.evidence.is_true(session.age))
}

fn mutual_exclusion(_: &Sessions, state: &State) -> bool {
    state.clients.iter().filter(|client| client.guard.is_some()).count() <= 1
}

fn growing_number(model: &Sessions, state: &State) -> bool {
    !model.world.is_fenced() || state.handed_out == 0 || state.handed_out > state.handed_out_before
}

/// Situations that must occur in some state. Without them, a model in which nothing happens would pass.
pub(super) fn situations(world: World) -> Vec<Property<Sessions>> {
    let held = Property::sometimes("the lock is held", |_, state: &State| {
        state.clients.iter().any(|client| client.guard.is_some())
    });
    let waits = Property::sometimes("a client waits behind a holder", |_, state: &State| {
        state.ensemble.queue.get(1).is_some_and(|client| state.clients[*client].may_ask())
            && state.clients.iter().any(|client| client.guard.is_some())
    });
    let ends = Property::sometimes("a session ends", |_, state: &State| {
        state.ensemble.sessions.iter().any(|session| session.has_ended)
    });
    let proves = Property::sometimes("beats prove something", |model: &Sessions, state: &State| {
        let span = model.world.times().span;
        state.clients[0].evidence.is_true(span) && !state.clients[0].evidence.is_true(span + 1)
    });
    match world {
        World::Beats { .. } => vec![proves],
        World::Locks { .. } => vec![ends, held, waits],
        World::Numbers => vec![held, waits],
    }
}
