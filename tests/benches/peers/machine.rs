//! Describes the machine of a measurement.

use std::process::Command;
use std::time::Instant;

use redlock_tests::{RedisServer, Servers};

use crate::cores;
use crate::floor::Floor;
use crate::settings::LEAST_ROUNDS;
use crate::statistics::{Summary, micros, percentile};

const PINGS: usize = 1000;

/// Prints the processor, the system, the server and the load, each in a line.
const DESCRIBE: &str = "echo $(nproc) cores; grep -m 1 'model name' /proc/cpuinfo; uname -sr; \
    ${REDIS_SERVER:-redis-server} --version; cat /proc/loadavg";

/// Describes the machine, and its round trip, on which the ratios of a single caller depend.
pub(crate) async fn describe() -> String {
    let output = Command::new("/bin/sh").args(["-c", DESCRIBE]).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    let servers = Servers::start(1).await;
    let floor = Floor::plain(&servers.urls()).await;
    let mut trips = Vec::new();
    for _ in 0..LEAST_ROUNDS {
        trips.push(round_trip(&floor, &servers).await);
    }
    format!(
        "{}round trip {} us (p50 of {PINGS} PINGs, {LEAST_ROUNDS} times; the client and the server are pinned to \
         different cores)",
        String::from_utf8_lossy(&output),
        Summary::of(trips)
    )
}

/// Returns the p50 of a PING, in microseconds, with the server on another core.
pub(crate) async fn round_trip(floor: &Floor, servers: &[RedisServer]) -> f64 {
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
