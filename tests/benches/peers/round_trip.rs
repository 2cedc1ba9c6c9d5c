//! The round trip of a small command between two cores of this machine.

use std::time::Instant;

use redlock_tests::{RedisServer, Servers};

use crate::cores;
use crate::floor::Floor;
use crate::settings::LEAST_ROUNDS;
use crate::statistics::{Summary, micros, percentile};

const PINGS: usize = 1000;

/// Describes the round trip of this machine. The ratios of a single caller depend on it.
pub(crate) async fn describe() -> String {
    let servers = Servers::start(1).await;
    let floor = Floor::plain(&servers.urls()).await;
    let mut trips = Vec::new();
    for _ in 0..LEAST_ROUNDS {
        trips.push(measure(&floor, &servers).await);
    }
    format!(
        "Round trip {} us (p50 of {PINGS} PINGs, {LEAST_ROUNDS} times; the client and the server are pinned to \
         different cores)",
        Summary::of(trips)
    )
}

/// Returns the p50 of a PING, in microseconds, with the server on another core.
pub(crate) async fn measure(floor: &Floor, servers: &[RedisServer]) -> f64 {
    cores::pin_separately(servers);
    let mut trips = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let before = Instant::now();
        floor.ping().await;
        trips.push(before.elapsed());
    }
    cores::unpin(servers);
    trips.sort_unstable();
    micros(percentile(&trips, 0.5))
}
