//! Five nodes, one of which is frozen or far away.

use std::slice::from_ref;
use std::time::{Duration, Instant};

use redlock_tests::Servers;
use tokio::time::sleep;

use crate::away::Away;
use crate::comparison::Side::{Other, Ours, Plain, Rslock};
use crate::comparison::Target::{AtMost, NobodyFails};
use crate::comparison::{Comparison, Side, compare};
use crate::load::{self, Measured, Task, column, contender};
use crate::lockers::{self, Theirs};
use crate::settings::{LEAST_ROUNDS, Settings};
use crate::statistics::{Summary, micros};
use crate::usage::Meter;

const FAR_AWAY: Duration = Duration::from_millis(20);
const COLD_CALLERS: usize = 20;
const IDLE: Duration = Duration::from_millis(300);
const HEALTHY: Side = Other("ours with all healthy");
const NEAR: Side = Other("ours with all near");

pub(crate) async fn measure(settings: &Settings) {
    for (name, is_cold) in [("one-frozen", false), ("one-frozen-cold", true)] {
        if settings.wants(name) {
            frozen(settings, is_cold).await;
        }
    }
    if settings.wants("one-far-away") {
        far_away(settings).await;
    }
}

/// Measures one caller while one node is frozen, or the first pairs of callers that connect while it is.
async fn frozen(settings: &Settings, is_cold: bool) {
    let mut servers = Servers::start(5).await;
    let urls = servers.urls();
    let mut meter = Meter::over(&servers[..4]).await;
    let mut connected = Vec::new();
    let (ours, theirs) = (lockers::Ours::connect(&urls).await, Theirs::new(&urls));
    // A time of zero measures one pair of each caller.
    let first = Task::OwnKeys(if is_cold { COLD_CALLERS } else { 1 }, Duration::ZERO);
    let task = if is_cold { first } else { Task::OwnKeys(1, settings.slice) };
    if !is_cold {
        // rslock connects now.
        load::measure(&theirs, first, &mut meter).await;
    }
    let mut sides = [HEALTHY, Ours, Rslock].map(|side| (side, Vec::new()));
    for round in 0..LEAST_ROUNDS {
        for (side, measured) in &mut sides[..2] {
            if *side == Ours {
                servers[4].freeze();
            }
            let begun = Instant::now();
            let new = if is_cold { lockers::Ours::connect(&urls).await } else { ours.clone() };
            if is_cold {
                connected.extend((*side == Ours).then(|| micros(begun.elapsed()) / 1e3));
                // Start from the same idle state, however long the connection took.
                sleep(IDLE).await;
            }
            measured.push(load::measure(&new, task, &mut meter).await);
        }
        if !is_cold || round == 0 {
            sides[2].1.push(load::measure(&theirs, first, &mut meter).await);
        }
        servers[4].thaw();
        servers[4].probe().await;
    }
    let compared = Comparison(sides.into());
    let mut notes = vec![compared.beside(HEALTHY, Measured::p50)];
    let mut work = "5 nodes, one frozen, 1 caller, p50 us".to_owned();
    if is_cold {
        let connected = Summary::of(connected);
        notes.push(format!("connected in {connected} ms"));
        work = format!(
            "5 nodes, one frozen before the start, {COLD_CALLERS} callers at once, p50 us of the first pair (rslock: one \
             round)"
        );
    }
    compared.print(work, Measured::p50, &notes, &[NobodyFails, AtMost(1.2, HEALTHY)]);
}

/// Measures one caller while one node is 20 ms away.
async fn far_away(settings: &Settings) {
    let servers = Servers::start(5).await;
    let urls = servers.urls();
    // A proxy costs processor time. Both cases use one, so that only the delay differs.
    let proxies = [Duration::ZERO, FAR_AWAY].map(|round_trip| Away::by(round_trip, &urls[4]));
    let [near, far] = proxies.each_ref().map(|proxy| [&urls[..4], from_ref(&proxy.url)].concat());
    let (meter, task) = (Meter::over(&servers).await, Task::OwnKeys(1, settings.slice));
    let healthy = lockers::Ours::connect(&near).await;
    let mut sides = vec![(NEAR, contender(&healthy, task, &meter))];
    for side in [Ours, Plain, Rslock] {
        sides.push(column(side, &far, task, &meter).await);
    }
    let compared = compare(LEAST_ROUNDS, sides).await;
    let work = "5 nodes, one 20 ms away, 1 caller, p50 us (the floor waits for all five)";
    let notes = [compared.beside(NEAR, Measured::p50)];
    compared.print(work, Measured::p50, &notes, &[AtMost(1.2, NEAR)]);
}
