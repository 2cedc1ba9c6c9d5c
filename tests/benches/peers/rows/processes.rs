//! Several processes that contend for one key.

use std::fmt::Write;
use std::time::{Duration, Instant};

use redlock_tests::{Peer, Servers, monotonic_nanos};

use crate::child;
use crate::cores;
use crate::floor::Floor;
use crate::locker::Locker;
use crate::ours::Ours;
use crate::settings::Settings;
use crate::statistics::{Summary, micros, percentile};
use crate::table::Row;
use crate::theirs::Theirs;

const PROCESSES: usize = 8;
const KEY: &str = "hot";

pub(crate) async fn measure(settings: &Settings) {
    if !settings.wants("hot-key-processes") {
        return;
    }
    let servers = Servers::start(1).await;
    let urls = servers.urls();
    let floor = Floor::connect(&urls).await;
    let (mut ours, mut theirs) = (processes("ours", &urls), processes("rslock", &urls));
    let time = settings.slice * 5;
    let (mut trips, mut of_ours, mut of_theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.rounds_up_to(7) {
        // Measure the round trip between two cores: in a hand-over, the woken process does not run on
        // the server's core either.
        cores::pin_separately(&servers);
        trips.push(round_trip(&floor).await);
        cores::unpin(&servers);
        of_ours.push(hand_overs(&mut ours, time));
        of_theirs.push(hand_overs(&mut theirs, time));
    }
    let per_second = |all: &[HandOvers]| Summary::of(all.iter().map(|one| one.per_second));
    let in_trips = |all: &[HandOvers]| {
        Summary::of(all.iter().zip(&trips).map(|(one, trip)| one.wake_up / trip))
    };
    let wake_up = in_trips(&of_ours);
    let cell = |all: &[HandOvers]| {
        let wake_up = Summary::of(all.iter().map(|one| one.wake_up));
        format!("{}; wake-up {wake_up} us = {} round trips", per_second(all), in_trips(all))
    };
    Row {
        work: format!("hot key, {PROCESSES} processes, no work inside, hand-overs/s"),
        floor: format!("round trip {} us", Summary::of(trips.iter().copied())),
        ours: cell(&of_ours),
        rslock: cell(&of_theirs),
        target: "wake-up p50 <= 4 round trips",
        met: wake_up.median <= 4.0,
        ..Row::default()
    }
    .print();
}

/// The hand-overs of the key between processes.
struct HandOvers {
    per_second: f64,
    /// The median time from the start of a release to the next holder's acquisition, in microseconds.
    wake_up: f64,
}

fn processes(library: &str, urls: &[String]) -> Vec<Peer> {
    let environment = [("REDIS_URLS", &*urls.join(",")), ("LIBRARY", library)];
    let mut peers: Vec<Peer> =
        (0..PROCESSES).map(|_| child::start("turns", &environment)).collect();
    for peer in &mut peers {
        assert_eq!(peer.answer(), "ready");
    }
    peers
}

/// Lets all processes contend for the key for the given time. Blocks the thread.
fn hand_overs(peers: &mut [Peer], time: Duration) -> HandOvers {
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
    HandOvers {
        per_second: wake_ups.len() as f64 / time.as_secs_f64(),
        wake_up: micros(percentile(&wake_ups, 0.5)),
    }
}

/// Returns the p50 of a PING, in microseconds.
async fn round_trip(floor: &Floor) -> f64 {
    let mut trips = Vec::with_capacity(1000);
    for _ in 0..1000 {
        let before = Instant::now();
        floor.ping().await;
        trips.push(before.elapsed());
    }
    trips.sort_unstable();
    micros(percentile(&trips, 0.5))
}

/// Runs one of the child processes. An order is a number of milliseconds: for that long the process locks
/// and unlocks the key, then it prints the times at which it held the key.
pub(crate) async fn run() {
    let urls = child::urls();
    match std::env::var("LIBRARY").as_deref() {
        Ok("ours") => serve(Ours::connect(&urls).await).await,
        _ => serve(Theirs::new(&urls)).await,
    }
}

async fn serve(locker: impl Locker) {
    // Connect and warm up before the first order.
    let key = format!("warm:{}", std::process::id());
    let held = locker.lock(&key).await.expect("a lock");
    let _ = locker.unlock(&key, held).await;
    println!("ready");
    while let Some(order) = child::order() {
        let time = Duration::from_millis(order.parse().expect("milliseconds"));
        let begun = Instant::now();
        let mut spans = String::new();
        while begun.elapsed() < time {
            let held = locker.wait(KEY).await.expect("a turn");
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
