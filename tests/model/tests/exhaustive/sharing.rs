//! Clients that share the lock: readers beside writers, downgrades, and permits.

use redlock_model::Claim::{MutualExclusion, NoMoreThanPermits, NoOrphan, NothingBeyondItsLease};
use redlock_model::{Check, Clocks, Restarts, Rule, Sharing, World, checks_large_worlds};

use super::every;

const READERS: World = World { sharing: Sharing::Readers, ..World::CALM };

#[test]
fn readers_and_writers_exclude_each_other_on_one_node() {
    let drifting = World { clocks: Clocks::NodesDrift, renewals: true, ..READERS };
    let node: Check<1, 2> = every("readers, drift, renewals", drifting);
    node.holds();
    node.needs(Rule::NoReaderBesideAWriter, MutualExclusion);
    node.needs(Rule::NoWriterBesideReaders, MutualExclusion);
    node.needs(Rule::Margin, MutualExclusion);
    node.needs(Rule::ValidityFromTheStart, MutualExclusion);
    node.needs(Rule::CleanUpBehindItsSet, NoOrphan);
    node.needs(Rule::ValidityFromTheFirstRequest, MutualExclusion);
    node.needs(Rule::KeyUntilTheLastEnd, MutualExclusion);
    node.needs(Rule::EntryOfEachReader, MutualExclusion);
    // A dead reader would keep writers out as long as others extend the key.
    node.needs(Rule::EntryOfEachReader, NothingBeyondItsLease);
    every::<1, 3>("readers, drift, renewals", drifting).holds();
    let clients = World { clocks: Clocks::ClientsDrift, ..drifting };
    every::<1, 3>("readers, clocks of clients drift, renewals", clients).holds();
}

#[test]
fn readers_and_writers_exclude_each_other_on_a_quorum() {
    let drifting = World { clocks: Clocks::NodesDrift, ..READERS };
    let quorum: Check<3, 2> = every("readers, drift", drifting);
    if checks_large_worlds() {
        quorum.holds();
        quorum.needs(Rule::Margin, MutualExclusion);
    }
    let calm: Check<3, 2> = every("readers", READERS);
    calm.holds();
    calm.needs(Rule::NoReaderBesideAWriter, MutualExclusion);
    calm.needs(Rule::NoWriterBesideReaders, MutualExclusion);
    calm.needs(Rule::QuorumOfAll, MutualExclusion);
    let forgetting = World { restarts: Restarts::Forgetting, ..READERS };
    every::<1, 2>("readers, the node forgets", forgetting)
        .needs(Rule::RestartDelay, MutualExclusion);
    if checks_large_worlds() {
        every::<3, 2>("readers, nodes forget", forgetting)
            .needs(Rule::RestartDelay, MutualExclusion);
    }
}

#[test]
fn a_downgrade_makes_a_reader() {
    let node: Check<1, 2> = every("downgrades", READERS);
    node.needs(Rule::ReaderBeforeTheDowngrade, MutualExclusion);
    node.needs(Rule::CompareBeforeDowngrade, MutualExclusion);
    // Otherwise a release would leave the key behind on a node that the downgrade has not reached.
    node.needs(Rule::OwnKeyIsAnEntry, NoOrphan);
}

#[test]
fn permits_limit_the_holders_on_one_node_and_not_on_a_quorum() {
    let permits = World { sharing: Sharing::Permits(2), ..World::CALM };
    let drifting = World { clocks: Clocks::NodesDrift, renewals: true, ..permits };
    let node: Check<1, 3> = every("permits, drift, renewals", drifting);
    node.holds();
    node.needs(Rule::EntryOfEachReader, NothingBeyondItsLease);
    node.needs(Rule::Margin, NoMoreThanPermits);
    // Three nodes, two permits each: one for each pair of nodes.
    let at_once = World { clocks: Clocks::Stopped, ..permits };
    every::<3, 3>("permits within a moment", at_once).is_too_much_for(NoMoreThanPermits);
}
