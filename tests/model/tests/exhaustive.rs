//! Visits every state of three nodes and two clients. Each test is one world: with all rules kept, every
//! claim holds; with one rule broken, the checker finds the steps that break a claim.
//!
//! `cargo test -p redlock-model -- --nocapture` prints the number of states and the steps that break a claim.

use redlock_model::Claim::{GrowingNumber, MutualExclusion, NoOrphan, NothingBeyondItsLease};
use redlock_model::{Check, Clocks, Restarts, Rule, Search, World};

fn every(name: &'static str, world: World) -> Check<3, 2> {
    Check { name, world, search: Search::Every }
}

#[test]
fn all_claims_hold_when_messages_are_lost_delayed_and_reordered() {
    let calm = every("calm", World::CALM);
    calm.holds();
    calm.needs(Rule::QuorumOfAll, MutualExclusion);
    calm.needs(Rule::CleanUpBehindItsSet, NoOrphan);
    calm.needs(Rule::LeaseWithTheKey, NothingBeyondItsLease);
    calm.needs_no(Rule::Margin);
}

#[test]
fn all_claims_hold_with_other_numbers_of_nodes_and_clients() {
    let (world, search) = (World { clocks: Clocks::ClientsDrift, ..World::CALM }, Search::Every);
    Check::<1, 2> { name: "clocks of clients drift", world, search }.holds();
    Check::<5, 2> { name: "clocks of clients drift", world, search }.holds();
    Check::<3, 3> { name: "clocks of clients drift", world, search }.holds();
}

#[test]
fn the_margin_is_needed_when_clocks_drift() {
    let drifting = |name, clocks| every(name, World { clocks, ..World::CALM });
    let nodes = drifting("clocks of nodes drift", Clocks::NodesDrift);
    nodes.holds();
    nodes.needs(Rule::Margin, MutualExclusion);
    // With clocks that run alike, the margin alone would make up for a late reply.
    nodes.needs(Rule::ValidityFromTheStart, MutualExclusion);
    let clients = drifting("clocks of clients drift", Clocks::ClientsDrift);
    clients.holds();
    clients.needs(Rule::Margin, MutualExclusion);
    // The margin has to cover the drift of nodes and clients together.
    drifting("both drift", Clocks::BothDrift).is_too_much_for(MutualExclusion);
    drifting("clocks are set", Clocks::Unbounded).is_too_much_for(MutualExclusion);
}

#[test]
fn the_restart_delay_is_needed_when_nodes_forget() {
    let restarts = Restarts::Forgetting;
    let forgetting = every("nodes forget", World { restarts, ..World::CALM });
    forgetting.needs(Rule::RestartDelay, MutualExclusion);
    let clocks = Clocks::NodesDrift;
    let drifting = every("nodes forget and drift", World { clocks, ..forgetting.world });
    drifting.holds();
    drifting.needs(Rule::WholeLeaseOfRestartDelay, MutualExclusion);
}

#[test]
fn no_restart_delay_is_needed_when_nodes_remember() {
    let restarts = Restarts::Remembering;
    every("nodes remember", World { restarts, ..World::CALM }).needs_no(Rule::RestartDelay);
}

#[test]
fn fresh_tokens_and_compare_and_delete_are_needed_when_clients_retry() {
    let retrying = every("clients retry", World { retries: true, ..World::CALM });
    retrying.holds();
    let clocks = Clocks::Stopped;
    let at_once = every("clients retry within a moment", World { clocks, ..retrying.world });
    at_once.needs(Rule::FreshToken, MutualExclusion);
    at_once.needs(Rule::CompareBeforeDelete, MutualExclusion);
    at_once.needs(Rule::CleanUpBehindItsSet, NoOrphan);
}

#[test]
fn all_claims_hold_when_leases_are_renewed() {
    let renewing = World { renewals: true, ..World::CALM };
    let drifting = every("drift, renewals", World { clocks: Clocks::NodesDrift, ..renewing });
    drifting.holds();
    drifting.needs(Rule::ValidityFromTheStart, MutualExclusion);
    drifting.needs(Rule::Margin, MutualExclusion);
    let restarts = Restarts::Forgetting;
    every("nodes forget, renewals", World { restarts, ..renewing }).holds();
}

/// Fencing numbers grow whatever the clocks do, as long as the nodes remember their counters.
#[test]
fn fencing_numbers_grow_unless_nodes_forget() {
    let world = World { clocks: Clocks::Unbounded, fencing: Some(3), ..World::CALM };
    let fenced = every("clocks are set, fenced", world);
    fenced.keeps(GrowingNumber);
    fenced.needs(Rule::NumberWrittenBack, GrowingNumber);
    let restarts = Restarts::Forgetting;
    let fencing = Some(1);
    every("nodes forget, fenced", World { restarts, fencing, ..world })
        .is_too_much_for(GrowingNumber);
}
