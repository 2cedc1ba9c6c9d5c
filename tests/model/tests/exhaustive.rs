//! Every state of three nodes and two clients. Each test is one world: the rules on, and every
//! promise holds; one rule off, and the checker finds the way to break it.
//!
//! `cargo test -p redlock-model -- --nocapture` shows the counts, and each way step by step.

use redlock_model::Claim::{GrowingNumber, MutualExclusion, NoOrphan, NothingBeyondItsLease};
use redlock_model::{Check, Clocks, Restarts, Rule, Search, World};

fn every(name: &'static str, world: World) -> Check<3, 2> {
    Check { name, world, search: Search::Every }
}

#[test]
fn messages_are_lost_delayed_and_reordered() {
    let calm = every("calm", World::CALM);
    calm.holds();
    calm.needs(Rule::QuorumOfAll, MutualExclusion);
    calm.needs(Rule::CleanUpBehindItsSet, NoOrphan);
    calm.needs(Rule::LeaseWithTheKey, NothingBeyondItsLease);
    calm.needs_no(Rule::Margin);
}

#[test]
fn there_may_be_more_nodes_and_clients() {
    let (world, search) = (World { clocks: Clocks::ClientsDrift, ..World::CALM }, Search::Every);
    Check::<1, 2> { name: "clocks of clients drift", world, search }.holds();
    Check::<5, 2> { name: "clocks of clients drift", world, search }.holds();
    Check::<3, 3> { name: "clocks of clients drift", world, search }.holds();
}

#[test]
fn clocks_drift() {
    let drifting = |name, clocks| every(name, World { clocks, ..World::CALM });
    let nodes = drifting("clocks of nodes drift", Clocks::NodesDrift);
    nodes.holds();
    nodes.needs(Rule::Margin, MutualExclusion);
    // Where clocks run alike, the margin makes up for a late reply.
    nodes.needs(Rule::ValidityFromTheStart, MutualExclusion);
    let clients = drifting("clocks of clients drift", Clocks::ClientsDrift);
    clients.holds();
    clients.needs(Rule::Margin, MutualExclusion);
    // The margin is for both together.
    drifting("both drift", Clocks::BothDrift).is_too_much_for(MutualExclusion);
    drifting("clocks are set", Clocks::Unbounded).is_too_much_for(MutualExclusion);
}

#[test]
fn nodes_restart_without_memory() {
    let restarts = Restarts::Forgetting;
    let forgetting = every("nodes forget", World { restarts, ..World::CALM });
    forgetting.needs(Rule::RestartDelay, MutualExclusion);
    let clocks = Clocks::NodesDrift;
    let drifting = every("nodes forget and drift", World { clocks, ..forgetting.world });
    drifting.holds();
    drifting.needs(Rule::WholeLeaseOfRestartDelay, MutualExclusion);
}

#[test]
fn nodes_restart_with_memory() {
    let restarts = Restarts::Remembering;
    every("nodes remember", World { restarts, ..World::CALM }).needs_no(Rule::RestartDelay);
}

#[test]
fn clients_try_again_at_once() {
    let retrying = every("clients retry", World { retries: true, ..World::CALM });
    retrying.holds();
    let clocks = Clocks::Stopped;
    let at_once = every("clients retry within a moment", World { clocks, ..retrying.world });
    at_once.needs(Rule::FreshToken, MutualExclusion);
    at_once.needs(Rule::CompareBeforeDelete, MutualExclusion);
    at_once.needs(Rule::CleanUpBehindItsSet, NoOrphan);
}

#[test]
fn leases_are_renewed() {
    let renewing = World { renewals: true, ..World::CALM };
    let drifting = every("drift, renewals", World { clocks: Clocks::NodesDrift, ..renewing });
    drifting.holds();
    drifting.needs(Rule::ValidityFromTheStart, MutualExclusion);
    drifting.needs(Rule::Margin, MutualExclusion);
    let restarts = Restarts::Forgetting;
    every("nodes forget, renewals", World { restarts, ..renewing }).holds();
}

/// A fencing number needs no clock. It needs nodes that remember.
#[test]
fn locks_are_fenced() {
    let world = World { clocks: Clocks::Unbounded, fencing: Some(3), ..World::CALM };
    let fenced = every("clocks are set, fenced", world);
    fenced.keeps(GrowingNumber);
    fenced.needs(Rule::NumberWrittenBack, GrowingNumber);
    let restarts = Restarts::Forgetting;
    let fencing = Some(1);
    every("nodes forget, fenced", World { restarts, fencing, ..world })
        .is_too_much_for(GrowingNumber);
}
