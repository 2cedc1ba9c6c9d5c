//! Random walks through five nodes and three clients with all kinds of faults at once, which have too many
//! states to visit them all.
//!
//! A walk takes 5 s by default. `REDLOCK_MODEL_SECONDS` sets another duration, and `REDLOCK_MODEL_SEED`
//! repeats the walks of a printed seed.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use redlock_model::Claim::{GrowingNumber, MutualExclusion, NoOrphan, NothingBeyondItsLease};
use redlock_model::{Check, Clocks, Restarts, Rule, Search, Sharing, World};

/// A bound that no counter reaches in a walk.
const NO_BOUND: u8 = 200;

fn walks(name: &'static str, world: World) -> Check<5, 3> {
    let time = Duration::from_secs(variable("REDLOCK_MODEL_SECONDS").unwrap_or(5));
    let seed = variable("REDLOCK_MODEL_SEED").unwrap_or_else(rand::random);
    Check { name, world, search: Search::Walks { seed, time } }
}

fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error}")))
}

#[test]
fn all_claims_hold_with_all_faults_at_once() {
    walks("everything", EVERYTHING).holds();
}

#[test]
fn all_claims_hold_with_all_faults_and_fencing() {
    walks("everything, fenced", FENCED).holds();
}

#[test]
fn all_claims_hold_with_all_faults_while_clients_share_the_lock() {
    walks("everything, shared", SHARED).holds();
}

/// Two broken rules take many steps in a certain order to find (validity from the last reply, and a restart
/// delay that is a tick too short). Only the exhaustive search finds those.
#[test]
fn walks_find_broken_rules() {
    // A fixed seed, so that the test does not depend on luck. A walk ends when it has found a violation.
    let search = Search::Walks { seed: 1, time: Duration::from_secs(120) };
    let everything: Check<5, 3> = Check { name: "everything", world: EVERYTHING, search };
    for (rule, claim) in [
        (Rule::FreshToken, MutualExclusion),
        (Rule::RestartDelay, MutualExclusion),
        (Rule::QuorumOfAll, MutualExclusion),
        (Rule::CompareBeforeDelete, MutualExclusion),
        (Rule::CleanUpBehindItsSet, NoOrphan),
        (Rule::LeaseWithTheKey, NothingBeyondItsLease),
    ] {
        everything.needs(rule, claim);
    }
    let drifting = World { clocks: Clocks::NodesDrift, ..World::CALM };
    let drift = Check { name: "drift", world: drifting, ..everything };
    drift.needs(Rule::Margin, MutualExclusion);
    let fenced = Check { name: "everything, fenced", world: FENCED, ..everything };
    fenced.needs(Rule::NumberWrittenBack, GrowingNumber);
    let shared = Check { name: "everything, shared", world: SHARED, ..everything };
    for (rule, claim) in [
        (Rule::NoReaderBesideAWriter, MutualExclusion),
        (Rule::NoWriterBesideReaders, MutualExclusion),
        (Rule::OwnEndOfEachReader, NothingBeyondItsLease),
        (Rule::UpgradeAlone, MutualExclusion),
    ] {
        shared.needs(rule, claim);
    }
}

const EVERYTHING: World = World {
    clocks: Clocks::NodesDrift,
    restarts: Restarts::Forgetting,
    retries: true,
    renewals: true,
    fencing: None,
    sharing: Sharing::None,
};

const SHARED: World = World { retries: false, sharing: Sharing::ChangingModes, ..EVERYTHING };

/// Nodes remember here: a node that forgets its counter breaks the growth of fencing numbers.
const FENCED: World =
    World { restarts: Restarts::Remembering, fencing: Some(NO_BOUND), ..EVERYTHING };
