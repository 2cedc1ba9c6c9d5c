//! Five nodes, one of which is frozen or far away.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_tests::Servers;

use super::own_keys::contender;
use crate::delay::{Delay, delayed};
use crate::floor::Floor;
use crate::load::{Measured, own_keys};
use crate::locker::Locker;
use crate::ours::Ours;
use crate::rounds::interleave;
use crate::settings::Settings;
use crate::statistics::{Summary, figure, micros, percentile};
use crate::table::{Row, ratio};
use crate::theirs::Theirs;
use crate::usage::Meter;

const FAR_AWAY: Duration = Duration::from_millis(20);
const COLD_CALLERS: usize = 20;
const IDLE: Duration = Duration::from_millis(300);

pub(crate) async fn measure(settings: &Settings) {
    if settings.wants("one-frozen") {
        warm(settings).await.print();
    }
    if settings.wants("one-frozen-cold") {
        cold(settings).await.print();
    }
    if settings.wants("one-far-away") {
        far_away(settings).await.print();
    }
}

fn p50(measured: &[Measured]) -> Summary {
    Summary::of(measured.iter().map(Measured::p50))
}

/// Measures one caller while one node is frozen. All clients connected before.
async fn warm(settings: &Settings) -> Row {
    let mut servers = Servers::start(5).await;
    let urls = servers.urls();
    let (ours, theirs) = (Ours::connect(&urls).await, Theirs::new(&urls));
    let mut meter = Meter::over(&servers[..4]).await;
    let (mut healthy, mut frozen) = (Vec::new(), Vec::new());
    let (mut rslock_healthy, mut rslock) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds_up_to(9) {
        healthy.push(own_keys(&ours, 1, settings.slice, &mut meter).await);
        rslock_healthy.push(own_keys(&theirs, 1, settings.slice, &mut meter).await);
        servers[4].freeze();
        frozen.push(own_keys(&ours, 1, settings.slice, &mut meter).await);
        // A slice of zero measures one pair.
        rslock.push(own_keys(&theirs, 1, Duration::ZERO, &mut meter).await);
        servers[4].thaw();
        servers[4].probe().await;
    }
    let ours_ratio = ratio(&frozen, &healthy, Measured::p50);
    let failures: usize = frozen.iter().map(|measured| measured.failures).sum();
    Row {
        work: format!(
            "5 nodes, one frozen, 1 caller, p50 us (floor: ours when all are healthy; {failures} of ours failed)"
        ),
        floor: p50(&healthy).to_string(),
        ours: p50(&frozen).to_string(),
        ratio: ours_ratio.to_string(),
        rslock: p50(&rslock).to_string(),
        rslock_ratio: ratio(&rslock, &rslock_healthy, Measured::p50).to_string(),
        target: "p50 <= 1.2x healthy, nobody fails",
        met: ours_ratio.median <= 1.2 && failures == 0,
        ..Row::default()
    }
}

/// The result of a cold start: the time to connect, and the first pairs.
struct Start {
    connect: Duration,
    pairs: Vec<Duration>,
    failures: usize,
}

async fn start<L: Locker>(connect: impl Future<Output = L>) -> Start {
    let begun = Instant::now();
    let locker = connect.await;
    let connect = begun.elapsed();
    // Start from the same idle state, however long the connection took.
    tokio::time::sleep(IDLE).await;
    let callers = (0..COLD_CALLERS).map(|caller| {
        let locker = locker.clone();
        tokio::spawn(async move {
            let key = format!("cold:{caller}");
            let begun = Instant::now();
            let held = locker.lock(&key).await?;
            locker.unlock(&key, held).await?;
            Ok::<_, String>(begun.elapsed())
        })
    });
    let (mut pairs, mut failures) = (Vec::new(), 0);
    for caller in join_all(callers).await {
        match caller.expect("a caller that does not panic") {
            Ok(pair) => pairs.push(pair),
            Err(_) => failures += 1,
        }
    }
    pairs.sort_unstable();
    Start { connect, pairs, failures }
}

/// Measures the first pairs of callers that connect while one node is frozen.
async fn cold(settings: &Settings) -> Row {
    let mut servers = Servers::start(5).await;
    let urls = servers.urls();
    let (mut healthy, mut frozen) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds_up_to(9) {
        healthy.push(start(Ours::connect(&urls)).await);
        servers[4].freeze();
        frozen.push(start(Ours::connect(&urls)).await);
        servers[4].thaw();
        servers[4].probe().await;
    }
    servers[4].freeze();
    let theirs = start(async { Theirs::new(&urls) }).await;
    let pair = |start: &Start| micros(percentile(&start.pairs, 0.5));
    let ours_ratio = ratio(&frozen, &healthy, pair);
    let failures: usize = frozen.iter().map(|start| start.failures).sum();
    let connect =
        |starts: &[Start]| Summary::of(starts.iter().map(|start| micros(start.connect) / 1e3));
    let cell = |starts: &[Start]| {
        let p50 = Summary::of(starts.iter().map(pair));
        format!("{p50}; connected in {} ms", connect(starts))
    };
    Row {
        work: format!(
            "5 nodes, one frozen before the start, {COLD_CALLERS} callers at once, p50 us of the first pair \
             (floor: ours when all are healthy)"
        ),
        floor: cell(&healthy),
        ours: format!("{}, {failures} failed", cell(&frozen)),
        ratio: ours_ratio.to_string(),
        rslock: format!(
            "{} (one round), {} of {COLD_CALLERS} failed",
            figure(pair(&theirs)),
            theirs.failures
        ),
        target: "p50 <= 1.2x healthy, nobody fails",
        met: ours_ratio.median <= 1.2 && failures == 0,
        ..Row::default()
    }
}

/// Measures one caller while one node is 20 ms away.
async fn far_away(settings: &Settings) -> Row {
    let servers = Servers::start(5).await;
    let mut proxies: Vec<Delay> = Vec::new();
    let (mut near, mut urls) = (servers.urls(), servers.urls());
    // A proxy costs processor time. Both cases use one, so that only the delay differs.
    near.splice(4.., delayed(&mut proxies, &urls[4..], Duration::ZERO));
    urls.splice(4.., delayed(&mut proxies, &servers.urls()[4..], FAR_AWAY));
    let meter = Meter::over(&servers).await;
    let (healthy, ours) = (Ours::connect(&near).await, Ours::connect(&urls).await);
    let (floor, theirs) = (Floor::connect(&urls).await, Theirs::new(&urls));
    let contenders = vec![
        contender(&healthy, settings, 1, &meter),
        contender(&ours, settings, 1, &meter),
        contender(&floor, settings, 1, &meter),
        contender(&theirs, settings, 1, &meter),
    ];
    let measured = interleave(settings.rounds_up_to(15), contenders).await;
    let [healthy, ours, floor, theirs] = &measured[..] else { unreachable!("four contenders") };
    let ours_ratio = ratio(ours, healthy, Measured::p50);
    Row {
        work: format!(
            "5 nodes, one 20 ms away, 1 caller, p50 us (floor: ours when all are near; the plain \
             commands, which wait for all nodes: {})",
            p50(floor)
        ),
        floor: p50(healthy).to_string(),
        ours: p50(ours).to_string(),
        ratio: ours_ratio.to_string(),
        rslock: p50(theirs).to_string(),
        rslock_ratio: ratio(theirs, healthy, Measured::p50).to_string(),
        target: "p50 <= 1.2x healthy",
        met: ours_ratio.median <= 1.2,
        ..Row::default()
    }
}
