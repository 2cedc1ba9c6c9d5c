//! Five nodes and three clients, everything at once: too many states to see them all, so random
//! walks.
//!
//! A few seconds in the normal run. `REDLOCK_MODEL_SECONDS` lets each test walk for as long as
//! wanted, `REDLOCK_MODEL_SEED` repeats the walks of the seed that a run has printed.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use redlock_model::Claim::{GrowingNumber, MutualExclusion, NoOrphan, NothingBeyondItsLease};
use redlock_model::{Check, Clocks, Restarts, Rule, Search, World};

/// Higher than the counters get in a walk.
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
fn everything_at_once() {
    walks("everything", EVERYTHING).holds();
}

#[test]
fn everything_at_once_fenced() {
    walks("everything, fenced", FENCED).holds();
}

/// The walks find what is broken. Not two ways that take many steps in a certain order (validity from
/// the last reply, a restart delay that is a tick short): those the exhaustive search finds.
#[test]
fn rules_are_needed() {
    // Always the same walks, so that it does not depend on luck. They end when they have found it.
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
}

const EVERYTHING: World = World {
    clocks: Clocks::NodesDrift,
    restarts: Restarts::Forgetting,
    retries: true,
    renewals: true,
    fencing: None,
};

/// Nodes that forget break every counter.
const FENCED: World =
    World { restarts: Restarts::Remembering, fencing: Some(NO_BOUND), ..EVERYTHING };
