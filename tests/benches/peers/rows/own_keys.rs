//! Callers that lock keys of their own, without contention.

use std::time::Duration;

use futures_util::FutureExt;
use redlock_tests::Servers;

use crate::cores;
use crate::delay::{Delay, delayed};
use crate::floor::Floor;
use crate::load::{Measured, own_keys};
use crate::locker::Locker;
use crate::ours::Ours;
use crate::rounds::{Contender, interleave};
use crate::settings::Settings;
use crate::statistics::Summary;
use crate::table::{Row, ratio};
use crate::theirs::Theirs;
use crate::usage::Meter;

const MANY: usize = 64;
/// The round trip inside a data centre, with all network devices on the path.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// The measurements of the floor, ours and rslock, in the order of the columns.
type Three = Vec<Vec<Measured>>;

pub(crate) async fn measure(settings: &Settings) {
    if ["one-node", "one-node-64", "one-node-delayed"].iter().any(|row| settings.wants(row)) {
        let servers = Servers::start(1).await;
        let urls = servers.urls();
        if settings.wants("one-node") {
            one_caller(settings, &servers, "1 node", 1.10).await;
        }
        if settings.wants("one-node-64") {
            let three = compare(settings, &servers, &urls, MANY).await;
            let row = throughput("1 node, 64 callers, pairs/s", &three);
            let met = throughput_ratio(&three).median >= 0.90;
            Row { target: ">= 0.90x floor", met, ..row }.print();
        }
        if settings.wants("one-node-delayed") {
            let mut proxies: Vec<Delay> = Vec::new();
            let urls = delayed(&mut proxies, &urls, ROUND_TRIP);
            let three = compare(settings, &servers, &urls, MANY).await;
            let row = throughput("1 node 1 ms away, 64 callers, pairs/s", &three);
            let met = throughput_ratio(&three).median >= 0.95;
            Row { target: ">= 0.95x floor", met, ..row }.print();
        }
    }
    if ["five-nodes", "five-nodes-64"].iter().any(|row| settings.wants(row)) {
        let servers = Servers::start(5).await;
        if settings.wants("five-nodes") {
            one_caller(settings, &servers, "5 nodes", 0.95).await;
        }
        if settings.wants("five-nodes-64") {
            let three = compare(settings, &servers, &servers.urls(), MANY).await;
            let row = throughput("5 nodes, 64 callers, pairs/s", &three);
            let beside_rslock = ratio(&three[1], &three[2], Measured::per_second);
            let met = throughput_ratio(&three).median >= 0.95 && beside_rslock.median >= 2.0;
            let work = format!("{}; ours / rslock: {beside_rslock}", row.work);
            Row { work, target: ">= 0.95x floor, >= 2x rslock", met, ..row }.print();
        }
    }
}

async fn one_caller(settings: &Settings, servers: &Servers, nodes: &str, limit: f64) {
    cores::pin_separately(servers);
    let three = compare(settings, servers, &servers.urls(), 1).await;
    cores::unpin(servers);
    let ours = ratio(&three[1], &three[0], Measured::p50);
    let target = if limit > 1.0 {
        "p50 <= 1.10x floor"
    } else {
        "p50 <= 0.95x floor (which waits for all five)"
    };
    Row {
        work: format!("{nodes}, 1 caller, p50 us of acquire + release"),
        floor: Summary::of(three[0].iter().map(Measured::p50)).to_string(),
        ours: Summary::of(three[1].iter().map(Measured::p50)).to_string(),
        ratio: ours.to_string(),
        rslock: Summary::of(three[2].iter().map(Measured::p50)).to_string(),
        rslock_ratio: ratio(&three[2], &three[0], Measured::p50).to_string(),
        target,
        met: ours.median <= limit,
        ..Row::default()
    }
    .used(&three)
    .print();
}

fn throughput_ratio(three: &Three) -> Summary {
    ratio(&three[1], &three[0], Measured::per_second)
}

fn throughput(work: &str, three: &Three) -> Row {
    let per_second =
        |rounds: &[Measured]| Summary::of(rounds.iter().map(Measured::per_second)).to_string();
    Row {
        work: work.to_owned(),
        floor: per_second(&three[0]),
        ours: per_second(&three[1]),
        ratio: throughput_ratio(three).to_string(),
        rslock: per_second(&three[2]),
        rslock_ratio: ratio(&three[2], &three[0], Measured::per_second).to_string(),
        ..Row::default()
    }
    .used(three)
}

/// Measures the floor, ours and rslock in alternation.
async fn compare(settings: &Settings, servers: &Servers, urls: &[String], callers: usize) -> Three {
    let meter = Meter::over(servers).await;
    let (floor, ours) = (Floor::connect(urls).await, Ours::connect(urls).await);
    let theirs = Theirs::new(urls);
    let contenders = vec![
        contender(&floor, settings, callers, &meter),
        contender(&ours, settings, callers, &meter),
        contender(&theirs, settings, callers, &meter),
    ];
    let three = interleave(settings.rounds, contenders).await;
    ours.0.shutdown().await;
    three
}

/// Makes a contender whose callers lock keys of their own.
pub(crate) fn contender<'a>(
    locker: &impl Locker,
    settings: &Settings,
    callers: usize,
    meter: &Meter,
) -> Contender<'a, Measured> {
    let (locker, meter, slice) = (locker.clone(), meter.clone(), settings.slice);
    Box::new(move || {
        let (locker, mut meter) = (locker.clone(), meter.clone());
        async move { own_keys(&locker, callers, slice, &mut meter).await }.boxed_local()
    })
}
