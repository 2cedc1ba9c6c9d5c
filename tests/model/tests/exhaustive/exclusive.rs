//! Clients that hold the lock alone.

use redlock_model::Claim::{GrowingNumber, MutualExclusion, NoOrphan, NothingBeyondItsLease};
use redlock_model::{Check, Clocks, Restarts, Rule, World, checks_large_worlds};

use super::every;

fn three(name: &'static str, world: World) -> Check<3, 2> {
    every(name, world)
}

#[test]
fn all_claims_hold_when_messages_are_lost_delayed_and_reordered() {
    let calm = three("calm", World::CALM);
    calm.holds();
    calm.needs(Rule::QuorumOfAll, MutualExclusion);
    calm.needs(Rule::CleanUpBehindItsSet, NoOrphan);
    calm.needs(Rule::LeaseWithTheKey, NothingBeyondItsLease);
    calm.needs_no(Rule::Margin);
}

#[test]
fn all_claims_hold_with_other_numbers_of_nodes_and_clients() {
    let (name, world) =
        ("clocks of clients drift", World { clocks: Clocks::ClientsDrift, ..World::CALM });
    every::<1, 2>(name, world).holds();
    every::<1, 3>(name, world).holds();
    if checks_large_worlds() {
        every::<5, 2>(name, world).holds();
        every::<3, 3>(name, world).holds();
    }
}

#[test]
fn the_margin_is_needed_when_clocks_drift() {
    let drifting = |name, clocks| three(name, World { clocks, ..World::CALM });
    let nodes = drifting("clocks of nodes drift", Clocks::NodesDrift);
    nodes.holds();
    nodes.needs(Rule::Margin, MutualExclusion);
    // With clocks that run alike, the margin alone would make up for a late reply.
    nodes.needs(Rule::ValidityFromTheStart, MutualExclusion);
    let clients = drifting("clocks of clients drift", Clocks::ClientsDrift);
    clients.holds();
    clients.needs(Rule::Margin, MutualExclusion);
    drifting("clocks are set", Clocks::Unbounded).is_too_much_for(MutualExclusion);
    if checks_large_worlds() {
        // The margin has to cover the drift of nodes and clients together.
        drifting("both drift", Clocks::BothDrift).is_too_much_for(MutualExclusion);
    }
}

#[test]
fn the_restart_delay_is_needed_when_nodes_forget() {
    let forgetting = World { restarts: Restarts::Forgetting, ..World::CALM };
    let drifting = World { clocks: Clocks::NodesDrift, ..forgetting };
    three("nodes forget", forgetting).needs(Rule::RestartDelay, MutualExclusion);
    let one: Check<1, 2> = every("the node forgets and drifts", drifting);
    one.holds();
    one.needs(Rule::RestartDelay, MutualExclusion);
    one.needs(Rule::WholeLeaseOfRestartDelay, MutualExclusion);
    if checks_large_worlds() {
        let drifting = three("nodes forget and drift", drifting);
        drifting.holds();
        drifting.needs(Rule::WholeLeaseOfRestartDelay, MutualExclusion);
    }
}

#[test]
fn no_restart_delay_is_needed_when_nodes_remember() {
    let restarts = Restarts::Remembering;
    three("nodes remember", World { restarts, ..World::CALM }).needs_no(Rule::RestartDelay);
}

#[test]
fn fresh_tokens_and_compare_and_delete_are_needed_when_clients_retry() {
    let retrying = three("clients retry", World { retries: true, ..World::CALM });
    retrying.holds();
    let clocks = Clocks::Stopped;
    let at_once = three("clients retry within a moment", World { clocks, ..retrying.world });
    at_once.needs(Rule::FreshToken, MutualExclusion);
    at_once.needs(Rule::CompareBeforeDelete, MutualExclusion);
    at_once.needs(Rule::CleanUpBehindItsSet, NoOrphan);
}

#[test]
fn all_claims_hold_when_leases_are_renewed() {
    let renewing = World { renewals: true, ..World::CALM };
    let drifting = three("drift, renewals", World { clocks: Clocks::NodesDrift, ..renewing });
    drifting.holds();
    let restarts = Restarts::Forgetting;
    three("nodes forget, renewals", World { restarts, ..renewing }).holds();
    if checks_large_worlds() {
        drifting.needs(Rule::ValidityFromTheStart, MutualExclusion);
        drifting.needs(Rule::Margin, MutualExclusion);
    }
}

/// Fencing numbers grow whatever the clocks do, as long as the nodes remember their counters.
#[test]
fn fencing_numbers_grow_unless_nodes_forget() {
    let world = World { clocks: Clocks::Unbounded, fencing: Some(3), ..World::CALM };
    let fenced = three("clocks are set, fenced", world);
    fenced.needs(Rule::NumberWrittenBack, GrowingNumber);
    three("clocks are set, two numbers", World { fencing: Some(2), ..world }).keeps(GrowingNumber);
    every::<1, 3>("clocks are set, fenced", world).keeps(GrowingNumber);
    if checks_large_worlds() {
        fenced.keeps(GrowingNumber);
    }
    let forgetting = World { restarts: Restarts::Forgetting, fencing: Some(1), ..world };
    three("nodes forget, fenced", forgetting).is_too_much_for(GrowingNumber);
}
