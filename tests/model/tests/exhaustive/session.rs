//! A lock that ends with a session.

use redlock_model::checks_large_worlds;
use redlock_model::session::Claim::{GrowingNumber, MutualExclusion, TrueEvidence};
use redlock_model::session::{Check, Rule, World};

fn beats(name: &'static str, span: u8, ping: u8, most: usize) -> Check {
    Check { name, world: World::Beats { span, ping, most } }
}

/// The leader pings four times while a chain lasts that proves something: the session timeout is 8 ticks of the ensemble.
#[test]
fn a_chain_of_beats_is_true_evidence() {
    let chain = beats("sessions with beats", 4, 1, 2);
    chain.holds();
    chain.needs(Rule::ChainWithoutGaps, TrueEvidence);
    chain.needs(Rule::AgeOfTheChain, TrueEvidence);
    beats("sessions of less than 3 ticks", 4, 3, 1).is_too_much_for(TrueEvidence);
    if checks_large_worlds() {
        beats("sessions with beats, small ticks", 8, 2, 1).holds();
        beats("sessions of less than 6 ticks, small ticks", 8, 3, 1).is_too_much_for(TrueEvidence);
    }
}

#[test]
fn the_lock_is_exclusive_while_sessions_end() {
    let locks = |timeout| {
        let world = World::Locks { timeout, limit: timeout / 4 };
        Check { name: "locks with sessions", world }
    };
    locks(4).holds();
    locks(4).needs(Rule::Evidence, MutualExclusion);
    locks(4).needs(Rule::EvidenceOfTheSameSession, MutualExclusion);
    locks(4).needs(Rule::LimitBeforeTheSession, MutualExclusion);
    locks(4).needs(Rule::ListAfterTheCreation, MutualExclusion);
    if checks_large_worlds() {
        locks(8).holds();
    }
}

#[test]
fn fencing_numbers_grow_with_the_queue() {
    let numbers = Check { name: "numbers of a queue", world: World::Numbers };
    numbers.holds();
    numbers.needs(Rule::NumberOfTheQueue, GrowingNumber);
}
