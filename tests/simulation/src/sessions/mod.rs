//! The real manager over a node whose locks end with a session, as those over ZooKeeper do.
//!
//! The [ensemble] has a leader and followers, which pause. Its clients pause, too, and lose their connections. The [node] is
//! a short copy of the node over ZooKeeper, without the protocol, with the evidence of redlock-core.
//! Every run checks that no two callers believe that they hold one key at the same time, that fencing tokens grow, and
//! that in the end no child is left in a queue, and every client gets the lock.

mod ensemble;
mod node;
mod plan;
mod run;

#[path = "../../../../redlock-core/src/store/zookeeper/evidence.rs"]
mod evidence;

use plan::Weakness;
use run::{Counts, Outcome, run};

use super::seeds::seeds;
use super::{SEED, assert_reached};

#[test]
fn no_promise_breaks_while_sessions_end() {
    let traced = std::env::var_os(SEED).is_some();
    let (mut runs, mut total) = (0, Counts::default());
    for seed in seeds("simulation").step_by(2) {
        let Outcome { violations, counts, mut trace } = run(seed, Weakness::None, traced);
        if !violations.is_empty() && !traced {
            trace = run(seed, Weakness::None, true).trace;
        }
        for line in trace {
            eprintln!("{line}");
        }
        let violations = violations.join("\n");
        assert!(violations.is_empty(), "seed {seed} ({SEED}={seed} repeats it):\n{violations}");
        runs += 1;
        total.add(counts);
    }
    eprintln!("{runs} runs: {total:?}");
    let outcomes = [
        ("granted", total.granted, 3 * runs),
        ("lost", total.lost, runs / 2),
        ("unproven", total.unproven, 1),
        ("places taken", total.taken, runs),
    ];
    assert_reached(runs, outcomes);
}

/// Checks that the simulation finds a weakness.
fn assert_found(weakness: Weakness, known: u64) {
    const TRIES: u64 = 300;
    let breaks = |seed: &u64| {
        let violations = run(*seed, weakness, false).violations;
        violations.iter().any(|violation| violation.contains("two holders at the same time"))
    };
    let found = std::iter::once(known).chain(0..TRIES).find(breaks);
    eprintln!("{weakness:?} is found by seed {found:?}");
    assert!(found.is_some(), "no violation in {TRIES} runs with {weakness:?}");
}

#[test]
fn the_simulation_finds_grants_without_evidence() {
    assert_found(Weakness::NoEvidence, 19);
}

#[test]
fn the_simulation_finds_grants_without_a_list_after_the_creation() {
    assert_found(Weakness::NoListAfterTheCreation, 3);
}

#[test]
fn the_simulation_finds_sessions_that_a_server_has_shortened() {
    assert_found(Weakness::NoLimitBeforeTheSession, 25);
}

#[test]
fn the_same_seed_gives_the_same_run_with_sessions() {
    for seed in 0..2 {
        let (one, two) = (run(seed, Weakness::None, true), run(seed, Weakness::None, true));
        assert!(one.trace.len() > 20, "{} lines", one.trace.len());
        let differs = one.trace.iter().zip(&two.trace).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.trace.len(), two.trace.len());
        assert_eq!(one.violations, two.violations);
    }
}
