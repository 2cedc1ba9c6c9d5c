//! Storms: several faults per lease, while many processes contend for a few locks and record when they
//! believe that they hold one. A checker outside of the library searches the records for two holders of one
//! lock at the same time, for grants to clients that were cut off from a quorum, for fencing tokens that do
//! not grow, for attempts that took too long, and for keys that were left behind.
//!
//! Faults strike nodes, clients and the network. Each client has a network path of its own to each node.
//!
//! The checker must detect deliberate errors: clients that ignore the end of their validity, clients that
//! release without comparing the token, nodes that evict locks, and nodes that vote again at once after
//! losing their data, the end of their data, or the right time. When the clients have the restart guard, the
//! same schedules of such nodes must produce no finding. Every fault that the promises cover is made alone.
//! Then all faults are made in random sequences, on average every second one with the guard.
//!
//! Limits: a process cannot suspend its own machine, so a stopped client stands in for a suspended machine.
//! A clock is set forward only while no client is connected to its node, because the library promises nothing
//! about locks that are granted between a step and the next poll of the clock.
//!
//! The seeds of `tests/seeds.txt` run, those of the module `thorough` at night. `REDLOCK_EXPLORE_SECONDS` tries fresh
//! ones:
//!
//!     REDLOCK_EXPLORE_SECONDS=3600 cargo test -p redlock-tests --test faults storm::random -- --nocapture
//!
//! The seed alone determines all faults and what each client does. The processes and their clocks are
//! real, so the same seed repeats the storm but not the exact interleaving: to reproduce a rare failure, run
//! its seed several times.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_tests::{
    Client, Fault, NodeKind, PostgresServer, Report, Schedule, Storm, overlapping_readers, seeds,
    skip,
};

use crate::QUIET;

const SECOND: Duration = Duration::from_secs(1);

fn storm(client: Client, schedule: Schedule) -> Storm {
    Storm { program: env!("CARGO_BIN_EXE_contender").into(), client, schedule }
}

/// Runs a storm with each seed of this name, and checks that it breaks no promise.
async fn breaks_no_promise(
    name: &str,
    schedule: impl Fn(u64) -> Schedule,
    expected: impl Fn(&Report),
) {
    let _quiet = QUIET.write().await;
    let (mut storms, mut grants, mut faults, mut steps) = (0, 0, 0, 0);
    let mut longest_waits: BTreeMap<&str, Duration> = BTreeMap::new();
    for seed in seeds(name) {
        println!("REDLOCK_SEED={seed}");
        let report = storm(Client::Honest, schedule(seed)).rage().await;
        println!("{report}");
        assert!(report.violations.is_empty(), "REDLOCK_SEED={seed}\n{report}");
        expected(&report);
        storms += 1;
        grants += report.grants();
        faults += report.fault_count();
        for step in [Fault::StepBack, Fault::StepForward] {
            steps += report.faults.get(&format!("{step:?}")).map_or(0, |(count, _)| *count);
        }
        for (mode, wait) in report.findings.longest_waits {
            let longest = longest_waits.entry(mode).or_default();
            *longest = wait.max(*longest);
        }
    }
    println!(
        "{storms} storms, {grants} grants, {faults} faults, {steps} of them steps of a clock by 600 s"
    );
    println!("longest wait for a grant: {longest_waits:?}");
}

/// Checks that each fault was made. Returns during how many of them a lock was granted.
fn made(report: &Report, faults: &[Fault]) -> usize {
    let seen = faults.iter().map(|fault| report.faults.get(&format!("{fault:?}")));
    let grants: Vec<usize> = seen.map(|seen| seen.map_or(0, |(_, grants)| *grants)).collect();
    assert!(
        faults.iter().all(|fault| report.faults.contains_key(&format!("{fault:?}"))),
        "{report}"
    );
    grants.into_iter().filter(|grants| *grants > 0).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_alone_breaks_no_promise() {
    let schedule = |seed| Schedule::alone(seed, &Fault::COVERED, SECOND / 10);
    breaks_no_promise("storm::alone", schedule, |report| {
        // On a busy machine a fault may pass without a grant.
        assert!(made(report, &Fault::COVERED) > Fault::COVERED.len() / 2, "{report}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_refuse_their_clients_break_no_promise() {
    breaks_no_promise("storm::refusals", Schedule::refusals, |report| {
        made(report, &Fault::REFUSALS);
        // The last fault comes when the clients have connected again, so locks are granted during it.
        assert!(made(report, &[Fault::Stutter]) > 0, "{report}");
    })
    .await;
}

/// A late vote grants a lease that is partly used up, because validity counts from before the command was
/// sent.
#[tokio::test(flavor = "multi_thread")]
async fn votes_that_come_late_break_no_promise() {
    let schedule = |seed| Schedule::late_votes(seed, 3 * SECOND);
    breaks_no_promise("storm::late_votes", schedule, |report| {
        assert!(report.fault_count() > 10, "{report}");
    })
    .await;
}

/// Half of the requests for four of the keys are shared, on a single node also by permits, and some holders change the
/// mode of their lock.
#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_of_eight_processes_break_no_promise() {
    let nodes = |seed: u64| [5, 1, 3][usize::try_from(seed % 3).unwrap()];
    let schedule = |seed| Schedule::random_with(seed, 4 * SECOND, nodes(seed), 8);
    breaks_no_promise("storm::readers", schedule, |report| {
        let readers = overlapping_readers(&report.findings.holds);
        assert!(readers >= 2, "{readers} readers overlapped\n{report}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_faults_break_no_promise() {
    breaks_no_promise(
        "storm::random",
        |seed| Schedule::random(seed, 6 * SECOND),
        |report| {
            assert!(report.fault_count() > 20, "{report}");
        },
    )
    .await;
}

/// The storm has to find two holders of a lock under one of these seeds. On a busy machine the faults may follow each
/// other too slowly.
async fn finds_an_overlap(client: Client, schedule: impl Fn(u64) -> Schedule) {
    let _quiet = QUIET.read().await;
    let mut reports = Vec::new();
    for seed in seeds("storm::errors") {
        println!("REDLOCK_SEED={seed}");
        let report = storm(client, schedule(seed)).rage_until_overlap().await;
        if report.overlaps() > 0 {
            return;
        }
        reports.push(report.to_string());
    }
    panic!("no overlap was found:\n{}", reports.join("\n"));
}

/// Within a lease, a majority of the nodes loses its locks, one node after another, and votes again at once. No lock
/// survives this without the restart guard.
async fn is_detected(fault: Fault) {
    finds_an_overlap(Client::Honest, |seed| Schedule::rolling(seed, fault, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_forget_and_vote_again_at_once_are_detected() {
    is_detected(Fault::RestartAtOnce).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_are_detected() {
    is_detected(Fault::PowerCutAtOnce).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_set_forward_are_detected() {
    is_detected(Fault::StepForward).await;
}

/// Nothing protects against evictions, not even the restart guard: the servers must not evict.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_evict_locks_are_detected() {
    finds_an_overlap(Client::Honest, |seed| Schedule::rolling(seed, Fault::Evict, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ignore_their_validity_or_release_without_comparing_are_detected() {
    for client in [Client::IgnoresValidity, Client::DeletesWithoutComparing] {
        finds_an_overlap(client, |seed| Schedule::alone(seed, &[Fault::StopClient], SECOND)).await;
    }
}

mod thorough {
    use super::*;

    /// The faults of the tests above, which clients without the guard do not survive. The storms with faults alone make
    /// them on nodes that vote again only after a lease.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_restart_guard_protects_from_nodes_that_lose_their_locks() {
        for fault in [Fault::RestartAtOnce, Fault::PowerCutAtOnce, Fault::StepForward] {
            let schedule = |seed| Schedule::rolling(seed, fault, 2).guarded();
            breaks_no_promise("storm::guarded", schedule, |report| {
                made(report, &[fault]);
            })
            .await;
        }
    }

    /// Nodes that fail over, each with faults of its own at the same time.
    fn failovers(kind: NodeKind) -> impl Fn(u64) -> Schedule {
        move |seed| Schedule::failovers(seed, 20 * SECOND, kind)
    }

    async fn the_guard_protects(name: &str, kind: NodeKind, nodes: &[&str]) {
        let schedule = |seed| failovers(kind)(seed).guarded();
        breaks_no_promise(name, schedule, |report| {
            for node in nodes {
                assert!(report.faults.keys().any(|fault| fault.ends_with(node)), "{report}");
            }
        })
        .await;
    }

    /// The faults are strong enough: without the restart guard, nodes that have forgotten a lock grant it again.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_quorum_of_three_kinds_of_nodes_grants_a_lock_twice_unless_guarded() {
        the_guard_protects("storm::mixed", NodeKind::Mixed, &["server", "group", "cluster"]).await;
        finds_an_overlap(Client::Honest, failovers(NodeKind::Mixed)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sentinel_group_grants_a_lock_twice_unless_guarded() {
        the_guard_protects("storm::group", NodeKind::Group, &["group"]).await;
        finds_an_overlap(Client::Honest, failovers(NodeKind::Group)).await;
    }

    /// Without the guard, few of these storms show two holders: a replica of a cluster rarely lacks a lock.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_cluster_with_the_guard_breaks_no_promise_when_it_fails_over() {
        the_guard_protects("storm::cluster", NodeKind::Cluster, &["cluster"]).await;
    }

    /// A server forgets nothing when it is killed and restarted, so no client needs the restart guard.
    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_servers_that_freeze_and_restart_break_no_promise() {
        if let Err(reason) = PostgresServer::start().await {
            return skip(&reason);
        }
        for (postgres, redis) in [(1, 0), (3, 0), (1, 2)] {
            let schedule = failovers(NodeKind::Postgres(postgres, redis));
            breaks_no_promise("storm::postgres", schedule, |report| {
                assert!(report.faults.keys().any(|made| made.ends_with("postgres")), "{report}");
            })
            .await;
        }
    }

    /// As the random storms of the gate, but longer, and on one server too.
    #[tokio::test(flavor = "multi_thread")]
    async fn random_faults_of_one_and_of_five_servers_break_no_promise() {
        for nodes in [1, 5] {
            let schedule = |seed| Schedule::random_with(seed, 20 * SECOND, nodes, 8);
            breaks_no_promise("storm::servers", schedule, |report| {
                assert!(report.fault_count() > 60, "{report}");
            })
            .await;
        }
    }
}
