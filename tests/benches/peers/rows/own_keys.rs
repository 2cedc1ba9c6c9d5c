//! Callers that lock keys of their own, without contention.

use std::time::Duration;

use redlock_tests::Servers;

use crate::comparison::{Comparison, Costs, Side, compare};
use crate::cores;
use crate::delay::{Delay, delayed};
use crate::floor::Floor;
use crate::load::{Measured, contender};
use crate::ours::Ours;
use crate::settings::Settings;
use crate::theirs::Theirs;
use crate::usage::Meter;

pub(crate) const MANY: usize = 64;
/// The round trip inside a data centre, with all network devices on the path.
const ROUND_TRIP: Duration = Duration::from_millis(1);

pub(crate) async fn one_node(settings: &Settings) {
    const NAMES: [&str; 6] = [
        "one-node",
        "one-node-8",
        "one-node-64",
        "one-node-256",
        "one-node-delayed",
        "one-node-shared-cores",
    ];
    if !settings.wants_any(&NAMES) {
        return;
    }
    let servers = Servers::start(1).await;
    let urls = servers.urls();
    if settings.wants("one-node") {
        let compared = on_separate_cores(settings, &servers, &urls, 1).await;
        let row = compared.row("1 node, 1 caller, p50 us", Measured::p50);
        row.at_most(1.10, Side::Plain).print();
    }
    if settings.wants("one-node-8") {
        let compared = on_separate_cores(settings, &servers, &urls, 8).await;
        let row = compared.row("1 node, 8 callers, pairs/s", Measured::per_second);
        row.at_least(1.0, Side::Plain).print();
    }
    if settings.wants("one-node-64") {
        let compared = on_separate_cores(settings, &servers, &urls, MANY).await;
        let row = compared.row("1 node, 64 callers, pairs/s", Measured::per_second);
        let row = row.at_least(1.0, Side::Plain).at_least(0.75, Side::Batched);
        row.at_least(1.4, Side::Rslock).print();
        let work = "1 node, 64 callers, client CPU us per pair";
        compared.bare_row(work, Measured::client).at_most(1.3, Side::Plain).print();
    }
    if settings.wants("one-node-256") {
        let compared = on_separate_cores(settings, &servers, &urls, 256).await;
        let row = compared.row("1 node, 256 callers, pairs/s", Measured::per_second);
        row.at_least(1.0, Side::Plain).print();
        let tail = compared.summary(Side::Ours, Measured::tail).median;
        let row = compared.bare_row("1 node, 256 callers, p99 / p50", Measured::tail);
        row.target("p99 <= 3x p50", tail <= 3.0).print();
    }
    if settings.wants("one-node-delayed") {
        let mut proxies: Vec<Delay> = Vec::new();
        let urls = delayed(&mut proxies, &urls, ROUND_TRIP);
        let compared = on_separate_cores(settings, &servers, &urls, MANY).await;
        let row = compared.row("1 node 1 ms away, 64 callers, pairs/s", Measured::per_second);
        row.at_least(0.97, Side::Plain).print();
    }
    if settings.wants("one-node-shared-cores") {
        for callers in [8, MANY] {
            let compared = sides(settings, &servers, &servers.urls(), callers).await;
            let work = format!("1 node on the cores of the callers, {callers} callers, pairs/s");
            compared.row(work, Measured::per_second).print();
        }
    }
}

pub(crate) async fn five_nodes(settings: &Settings) {
    if !settings.wants_any(&["five-nodes", "five-nodes-64"]) {
        return;
    }
    let servers = Servers::start(5).await;
    if settings.wants("five-nodes") {
        let compared = on_separate_cores(settings, &servers, &servers.urls(), 1).await;
        let work = "5 nodes, 1 caller, p50 us (the floors wait for all five)";
        compared.row(work, Measured::p50).at_most(0.85, Side::Plain).print();
    }
    if settings.wants("five-nodes-64") {
        let compared = sides(settings, &servers, &servers.urls(), MANY).await;
        let row = compared.row("5 nodes, 64 callers, pairs/s", Measured::per_second);
        row.at_least(0.9, Side::Plain).at_least(1.6, Side::Rslock).print();
    }
}

/// Measures all four sides, with the servers on another core than the callers, as on machines of their own.
pub(crate) async fn on_separate_cores(
    settings: &Settings,
    servers: &Servers,
    urls: &[String],
    callers: usize,
) -> Comparison<Measured> {
    cores::pin_separately(servers);
    let compared = sides(settings, servers, urls, callers).await;
    cores::unpin(servers);
    compared
}

/// Measures all four sides.
async fn sides(
    settings: &Settings,
    servers: &Servers,
    urls: &[String],
    callers: usize,
) -> Comparison<Measured> {
    let meter = Meter::over(servers).await;
    let (plain, batched) = (Floor::plain(urls).await, Floor::batched(urls).await);
    let (ours, theirs) = (Ours::connect(urls).await, Theirs::new(urls));
    let sides = vec![
        (Side::Plain, contender(&plain, settings.slice, callers, &meter)),
        (Side::Batched, contender(&batched, settings.slice, callers, &meter)),
        (Side::Ours, contender(&ours, settings.slice, callers, &meter)),
        (Side::Rslock, contender(&theirs, settings.slice, callers, &meter)),
    ];
    let compared = compare(settings.rounds, sides).await;
    ours.0.shutdown().await;
    compared
}
