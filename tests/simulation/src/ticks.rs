//! Clients that start a job at the same moment, without a waiting time.
//!
//! Each of them gets some of the servers, as the latencies of the packets decide. One of them has to get the lock in the end: the
//! model in `tests/model` claims it under fair pauses, and this module measures it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redlock_core::{LockManager, simulation};
use tokio::time::Instant;

use super::network::Network;
use super::panics;
use super::server::{Server, WallClock};
use super::trace::Trace;

const TICKS: u32 = 60;
const LEASE: Duration = Duration::from_secs(600);
/// Milliseconds from a client to a server, and back. No repeated attempt ends within two of the longest ones.
const LATENCY: std::ops::RangeInclusive<u64> = 5..=8;
const ONE_ATTEMPT: Duration = Duration::from_millis(2 * 8);

/// How many ticks nobody has run.
#[derive(Debug, Default, Clone, Copy)]
struct Missed {
    /// Of the clients' first attempts, as if nobody repeated one.
    at_first: u32,
    in_the_end: u32,
}

/// Runs the ticks with so many servers and clients, and so many servers that are down.
fn ticks(seed: u64, servers: usize, down: usize, clients: usize) -> Missed {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    panics::watch();
    let _seeded = simulation::seed(seed);
    runtime.block_on(async {
        let (network, trace) = (Network::new(seed, LATENCY), Trace::new(false));
        let clock = WallClock { drift: 0, ahead: 0 };
        let start = |number| Server::start(number, &network, &trace, clock, LEASE, true);
        let running: Vec<_> = (0..servers).map(start).collect();
        let managers: Vec<_> =
            join_all((0..clients).map(|client| connect(client, servers, &network))).await;
        for server in &running[..down] {
            server.crash();
        }
        let mut missed = Missed::default();
        for tick in 0..TICKS {
            let begun = Instant::now();
            let attempts = managers.iter().map(|locks| async move {
                let request = locks.lock(format!("nightly:{tick}")).expire(LEASE).keep(true);
                request.try_acquire().await.ok().map(|_guard| begun.elapsed())
            });
            let granted: Vec<_> = join_all(attempts).await.into_iter().flatten().collect();
            assert!(granted.len() <= 1, "seed {seed}, tick {tick}: {granted:?}");
            missed.at_first += u32::from(granted.iter().all(|took| *took > ONE_ATTEMPT));
            missed.in_the_end += u32::from(granted.is_empty());
        }
        missed
    })
}

async fn connect(client: usize, servers: usize, network: &Network) -> LockManager {
    let urls: Vec<_> = (0..servers).map(|server| format!("redis://server-{server}")).collect();
    let dial = |to: &str| -> Arc<dyn simulation::Dial> {
        let server = urls.iter().position(|url| url == to).expect("the URL of a server");
        Arc::new(network.dial(client, server))
    };
    let start = Instant::now();
    let builder = LockManager::builder().urls(&urls).expire(LEASE);
    simulation::connect(builder, move || start.elapsed(), dial).await.expect("no faults")
}

/// An earlier version ran none of these ticks for which the first attempts of all clients are split.
#[test]
fn one_of_the_clients_that_ask_at_the_same_moment_gets_the_lock() {
    for (servers, down, clients) in [(2, 0, 2), (3, 0, 3), (3, 1, 2), (5, 0, 6), (5, 2, 6)] {
        let missed = ticks(7, servers, down, clients);
        let Missed { at_first, in_the_end } = missed;
        eprintln!(
            "{servers} servers, {down} down, {clients} clients, {TICKS} ticks: nobody has run {in_the_end}, \
             and {at_first} without a repetition"
        );
        assert_eq!(in_the_end, 0, "{servers} servers, {down} down, {clients} clients");
        assert!(at_first > TICKS / 50, "the votes are hardly ever split: {missed:?}");
    }
}
