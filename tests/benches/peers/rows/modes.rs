//! One reader, holder of a permit, or fair caller, beside an exclusive caller. Each has a key of its own.

use redlock_core::LockRequest;
use redlock_tests::Servers;

use crate::comparison::Costs;
use crate::cores;
use crate::load::{Measured, contender};
use crate::ours::{Ours, With};
use crate::rounds::interleave;
use crate::settings::Settings;
use crate::statistics::Summary;
use crate::table::Row;
use crate::usage::Meter;

type Mode = (&'static str, fn(LockRequest) -> LockRequest);

const EXCLUSIVE: Mode = ("exclusive", |request| request);
const READER: Mode = ("reader", LockRequest::shared);
const PERMIT: Mode = ("permit", |request| request.permits(5));
const FAIR: Mode = ("fair", LockRequest::fair);

pub(crate) async fn measure(settings: &Settings) {
    if settings.wants("modes") {
        compare(settings, 1, "1 node", &[EXCLUSIVE, READER, PERMIT, FAIR]).await.print();
    }
    if settings.wants("modes-five-nodes") {
        // A quorum has no permits.
        compare(settings, 5, "5 nodes", &[EXCLUSIVE, READER, FAIR]).await.print();
    }
}

async fn compare(settings: &Settings, servers: usize, nodes: &str, modes: &[Mode]) -> Row {
    let servers = Servers::start(servers).await;
    cores::pin_separately(&servers);
    let meter = Meter::over(&servers).await;
    let ours = Ours::connect(&servers.urls()).await;
    let lockers = modes.iter().map(|(_, mode)| With(ours.0.clone(), *mode));
    let sides = lockers.map(|locker| contender(&locker, settings.slice, 1, &meter)).collect();
    let measured = interleave(settings.rounds, sides).await;
    cores::unpin(&servers);
    ours.0.shutdown().await;
    let names = modes.iter().map(|(name, _)| *name);
    let mut row = Row::ours(format!("{nodes}, 1 caller in another mode, p50 us"), "");
    for (name, side) in names.zip(&measured) {
        let p50 = Summary::of(side.iter().map(Measured::p50));
        let rounds = side.iter().zip(&measured[0]);
        let ratio = Summary::of(rounds.map(|(this, exclusive)| this.p50() / exclusive.p50()));
        let commands = Summary::of(side.iter().map(Measured::commands));
        row.add_to_ours(format!("{name} {p50} ({ratio} of exclusive, {commands} commands)"));
    }
    let failures: usize = measured.iter().flatten().map(|measured| measured.failures).sum();
    row.target("nobody fails", failures == 0)
}
