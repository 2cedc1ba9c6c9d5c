//! Several processes that contend for one key.

use std::fmt::Write;
use std::time::{Duration, Instant};

use redlock_tests::{Peer, Servers, monotonic_nanos};

use crate::child;
use crate::comparison::Target::Limit;
use crate::comparison::{Comparison, Side};
use crate::floor::Floor;
use crate::lockers::{Locker, Ours, Theirs};
use crate::machine::round_trip;
use crate::settings::{LEAST_ROUNDS, Settings};
use crate::statistics::{Summary, micros, percentile};

const PROCESSES: usize = 8;
const KEY: &str = "hot";

pub(crate) async fn measure(settings: &Settings) {
    if !settings.wants("hot-key-processes") {
        return;
    }
    let servers = Servers::start(1).await;
    let urls = servers.urls();
    let floor = Floor::plain(&urls).await;
    let mut sides = [Side::Ours, Side::Rslock].map(|side| {
        let start = |_| child::start("turns", side, &urls[0]);
        (side, (0..PROCESSES).map(start).collect::<Vec<_>>(), Vec::new())
    });
    for peer in sides.iter_mut().flat_map(|(_, peers, _)| peers) {
        assert_eq!(peer.answer(), "ready");
    }
    let mut trips = Vec::new();
    for _ in 0..LEAST_ROUNDS {
        // The round trip between two cores: in a hand-over, the woken process does not run on the server's
        // core either.
        let trip = round_trip(&floor, &servers).await;
        trips.push(trip);
        for (_, peers, measured) in &mut sides {
            measured.push(hand_overs(peers, settings.slice * 3, trip));
        }
    }
    let compared = Comparison(sides.map(|(side, _, measured)| (side, measured)).into());
    let work = format!("hot key, {PROCESSES} processes, no work inside, hand-overs/s");
    compared.print(work, |[per_second, ..]| *per_second, &[], &[]);
    let work = format!(
        "the same, p50 from the start of a release to the next holder, in round trips of {} us",
        Summary::of(trips)
    );
    let micros = format!("{} us", compared.summary(Side::Ours, |[_, wake_up, _]| *wake_up));
    let targets = [Limit::<[f64; 3]>("round trips of ours", |[.., trips]| *trips, 6.0)];
    compared.print(work, |[.., trips]| *trips, &[micros], &targets);
}

/// Lets all processes contend for the key for the given time. Returns the number of hand-overs per second, and the
/// median time from the start of a release to the next holder's acquisition, in microseconds and in round trips.
/// Blocks the thread.
fn hand_overs(peers: &mut [Peer], time: Duration, trip: f64) -> [f64; 3] {
    for peer in &mut *peers {
        peer.order(&time.as_millis().to_string());
    }
    let mut turns: Vec<(u64, u64, usize)> = Vec::new();
    for (process, peer) in peers.iter_mut().enumerate() {
        let answer = peer.answer();
        let spans = answer.split_whitespace().filter_map(|span| {
            let (enter, leave) = span.split_once(':')?;
            Some((enter.parse().ok()?, leave.parse().ok()?, process))
        });
        turns.extend(spans);
    }
    turns.sort_unstable();
    let mut wake_ups = Vec::new();
    for pair in turns.windows(2) {
        let ((_, leave, before), (enter, _, after)) = (pair[0], pair[1]);
        assert!(leave <= enter, "two processes held the key at once");
        if before != after {
            wake_ups.push(Duration::from_nanos(enter - leave));
        }
    }
    wake_ups.sort_unstable();
    let wake_up = micros(percentile(&wake_ups, 0.5));
    [wake_ups.len() as f64 / time.as_secs_f64(), wake_up, wake_up / trip]
}

/// Runs one of the child processes. An order is a number of milliseconds: for that long the process locks
/// and unlocks the key, then it prints the times at which it held the key.
pub(crate) async fn run(side: &str, urls: &[String]) {
    match side {
        "ours" => serve(Ours::connect(urls).await).await,
        _ => serve(Theirs::new(urls)).await,
    }
}

async fn serve(locker: impl Locker) {
    // Connect and warm up before the first order.
    let key = format!("warm:{}", std::process::id());
    let held = locker.lock(&key, false).await.expect("a lock");
    let _ = locker.unlock(&key, held).await;
    println!("ready");
    while let Some(order) = child::order() {
        let time = Duration::from_millis(order.parse().expect("milliseconds"));
        let begun = Instant::now();
        let mut spans = String::new();
        while begun.elapsed() < time {
            let held = locker.lock(KEY, true).await.expect("a turn");
            let enter = monotonic_nanos();
            tokio::task::yield_now().await;
            let leave = monotonic_nanos();
            let _ = locker.unlock(KEY, held).await;
            // Writing to a String does not fail.
            let _ = write!(spans, "{enter}:{leave} ");
        }
        println!("{spans}");
    }
}
