//! This library in other modes and with several keys, beside itself.

use redlock_tests::Servers;

use super::own_keys::count;
use crate::comparison::Side::{Other, Ours};
use crate::comparison::Target::{AtMost, NobodyFails};
use crate::comparison::{Comparison, Contender, Side, compare};
use crate::cores;
use crate::load::{Measured, Task, contender};
use crate::lockers::{self, AtOnce, Change, OneByOne};
use crate::settings::Settings;
use crate::usage::Meter;

const MODES: [(&str, Change); 3] = [
    ("reader", |request| request.shared(true)),
    ("fair", |request| request.fair(true)),
    ("permit", |request| request.permits(5)),
];
const ONE_KEY: Side = Other("one key");
const TEN_LOCKS: Side = Other("ten locks");

/// Measures a reader, a fair caller and a holder of a permit beside an exclusive caller.
pub(crate) async fn modes(settings: &Settings) {
    // A quorum has no permits.
    for (name, nodes, modes) in [("modes", 1, &MODES[..]), ("modes-five-nodes", 5, &MODES[..2])] {
        if !settings.wants(name) {
            continue;
        }
        let compared = own_keys(settings, nodes, |ours, task, meter| {
            let side = |(name, mode): &(&'static str, _)| {
                (Other(name), contender(&ours.with(*mode), task, meter))
            };
            let exclusive = (Ours, contender(ours, task, meter));
            modes.iter().map(side).chain([exclusive]).collect()
        });
        let compared = compared.await;
        let notes = modes.iter().map(|(name, _)| {
            let ratio = compared.ratio(Other(name), Ours, Measured::p50);
            let [p50, commands] = [Measured::p50, Measured::commands_per_turn]
                .map(|figure| compared.summary(Other(name), figure));
            format!("{name} {p50} ({ratio} of exclusive, {commands} commands)")
        });
        let place = count(nodes, "node");
        let work = format!("{place}, 1 caller in another mode (first: exclusive), p50 us");
        compared.print(work, Measured::p50, &notes.collect::<Vec<_>>(), &[NobodyFails]);
    }
}

/// Measures a caller that locks ten keys at once.
pub(crate) async fn several_keys(settings: &Settings) {
    let on_one_node = &[AtMost(1.6, ONE_KEY), NobodyFails][..];
    let on_five_nodes = &[AtMost(2.2, ONE_KEY), AtMost(0.3, TEN_LOCKS), NobodyFails];
    for (name, nodes, targets) in
        [("ten-keys", 1, on_one_node), ("ten-keys-five-nodes", 5, on_five_nodes)]
    {
        if !settings.wants(name) {
            continue;
        }
        let compared = own_keys(settings, nodes, |ours, task, meter| {
            vec![
                (ONE_KEY, contender(ours, task, meter)),
                (Ours, contender(&AtOnce(ours.clone()), task, meter)),
                (TEN_LOCKS, contender(&OneByOne(ours.clone()), task, meter)),
            ]
        });
        let compared = compared.await;
        let notes = [ONE_KEY, TEN_LOCKS].map(|side| compared.beside(side, Measured::p50));
        let work = format!("{}, 1 caller, a lock of ten keys, p50 us", count(nodes, "node"));
        compared.print(work, Measured::p50, &notes, targets);
    }
}

/// Measures one caller for each side, with the servers on another core.
async fn own_keys(
    settings: &Settings,
    nodes: usize,
    sides: impl FnOnce(&lockers::Ours, Task, &Meter) -> Vec<(Side, Contender<'static, Measured>)>,
) -> Comparison<Measured> {
    let servers = Servers::start(nodes).await;
    cores::pin_separately(&servers);
    let meter = Meter::over(&servers).await;
    let ours = lockers::Ours::connect(&servers.urls()).await;
    let sides = sides(&ours, Task::OwnKeys(1, settings.slice), &meter);
    let compared = compare(settings.rounds, sides).await;
    cores::unpin(&servers);
    compared
}
