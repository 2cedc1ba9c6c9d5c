//! The memory of connections.

use redlock_tests::Servers;

use crate::child;
use crate::comparison::{Comparison, Side};
use crate::floor::Floor;
use crate::locker::Locker;
use crate::ours::Ours;
use crate::settings::{LEAST_ROUNDS, Settings};
use crate::theirs::Theirs;
use crate::usage::resident;

const CONNECTIONS: usize = 50;

/// Measures the memory of clients with one connection each. Each measurement is a process of its own, because
/// an allocator keeps the memory of earlier measurements.
pub(crate) async fn measure(settings: &Settings) {
    if !settings.wants("connections") {
        return;
    }
    let servers = Servers::start(1).await;
    let mut sides = Side::ALL.map(|side| (side, Vec::new()));
    for _ in 0..LEAST_ROUNDS {
        for (side, bytes) in &mut sides {
            let mut process = child::start_side("connections", *side, &servers.urls());
            bytes.push(process.answer().parse().expect("bytes"));
        }
    }
    let work = format!("{CONNECTIONS} clients with one connection each, resident bytes per client");
    Comparison::new(sides.into()).bare_row(work, |bytes: &f64| *bytes).print();
}

/// Runs the child process whose memory is measured.
pub(crate) async fn run() {
    let urls = child::urls();
    let bytes = match child::side() {
        Side::Plain => per_connection(async || Floor::plain(&urls).await).await,
        Side::Batched => per_connection(async || Floor::batched(&urls).await).await,
        Side::Ours => per_connection(async || Ours::connect(&urls).await).await,
        _ => per_connection(async || Theirs::new(&urls)).await,
    };
    println!("{bytes}");
}

async fn per_connection<L: Locker>(connect: impl AsyncFn() -> L) -> f64 {
    // Exclude the memory that the process needs for its first connection.
    let _first = connect_and_use(&connect).await;
    let before = resident();
    let mut connected = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        connected.push(connect_and_use(&connect).await);
    }
    let after = resident();
    after.saturating_sub(before) as f64 / connected.len() as f64
}

/// Connects, and locks once: rslock connects at its first command.
async fn connect_and_use<L: Locker>(connect: &impl AsyncFn() -> L) -> L {
    let locker = connect().await;
    let held = locker.lock("connected").await.expect("a lock");
    locker.unlock("connected", held).await.expect("a held lock");
    locker
}
