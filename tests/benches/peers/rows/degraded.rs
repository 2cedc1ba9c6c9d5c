//! Five nodes, one of which is frozen or far away.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_tests::Servers;

use crate::comparison::{Comparison, Side, compare};
use crate::delay::{Delay, delayed};
use crate::floor::Floor;
use crate::load::{Measured, contender, own_keys};
use crate::locker::Locker;
use crate::ours::Ours;
use crate::settings::{LEAST_ROUNDS, Settings};
use crate::statistics::{figure, micros, percentile};
use crate::table::Row;
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
        cold().await.print();
    }
    if settings.wants("one-far-away") {
        far_away(settings).await.print();
    }
}

/// Makes a row whose target is a ratio to this library without a fault, the reference. `without` describes the
/// reference.
fn beside_reference<T>(
    compared: &Comparison<T>,
    row: Row,
    without: &str,
    figure: impl Fn(&T) -> f64,
) -> Row {
    let ratio = compared.ours_to(Side::Reference, &figure);
    let reference = compared.summary(Side::Reference, &figure);
    let mut row = row.limit(&format!("ours / ours with {without}"), ratio.median, 1.2);
    row.add_to_ours(format!("{ratio} of ours with {without}: {reference}"));
    row
}

/// Measures one caller while one node is frozen. All clients connected before.
async fn warm(settings: &Settings) -> Row {
    let mut servers = Servers::start(5).await;
    let urls = servers.urls();
    let (ours, theirs) = (Ours::connect(&urls).await, Theirs::new(&urls));
    let mut meter = Meter::over(&servers[..4]).await;
    // rslock connects now.
    own_keys(&theirs, 1, Duration::ZERO, &mut meter).await;
    let (mut healthy, mut frozen, mut rslock) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..LEAST_ROUNDS {
        healthy.push(own_keys(&ours, 1, settings.slice, &mut meter).await);
        servers[4].freeze();
        frozen.push(own_keys(&ours, 1, settings.slice, &mut meter).await);
        // A slice of zero measures one pair.
        rslock.push(own_keys(&theirs, 1, Duration::ZERO, &mut meter).await);
        servers[4].thaw();
        servers[4].probe().await;
    }
    let failures: usize = frozen.iter().map(|measured| measured.failures).sum();
    let compared = Comparison::new(vec![
        (Side::Reference, healthy),
        (Side::Ours, frozen),
        (Side::Rslock, rslock),
    ]);
    let row = compared.row("5 nodes, one frozen, 1 caller, p50 us", Measured::p50);
    let row = row.target("nobody fails", failures == 0);
    beside_reference(&compared, row, "all healthy", Measured::p50)
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
async fn cold() -> Row {
    let mut servers = Servers::start(5).await;
    let urls = servers.urls();
    let (mut healthy, mut frozen) = (Vec::new(), Vec::new());
    for _ in 0..LEAST_ROUNDS {
        healthy.push(start(Ours::connect(&urls)).await);
        servers[4].freeze();
        frozen.push(start(Ours::connect(&urls)).await);
        servers[4].thaw();
        servers[4].probe().await;
    }
    servers[4].freeze();
    let theirs = start(async { Theirs::new(&urls) }).await;
    let pair = |start: &Start| micros(percentile(&start.pairs, 0.5));
    let failures: usize = frozen.iter().map(|start| start.failures).sum();
    let compared = Comparison::new(vec![(Side::Reference, healthy), (Side::Ours, frozen)]);
    let mut row = compared.bare_row(
        format!(
            "5 nodes, one frozen before the start, {COLD_CALLERS} callers at once, p50 us of the first pair"
        ),
        pair,
    );
    let connect = compared.summary(Side::Ours, |start| micros(start.connect) / 1e3);
    row.add_to_ours(format!("connected in {connect} ms"));
    row.figures[Side::Rslock as usize] = format!(
        "{} (one round), {} of {COLD_CALLERS} failed",
        figure(pair(&theirs)),
        theirs.failures
    );
    let row = row.target("nobody fails", failures == 0);
    beside_reference(&compared, row, "all healthy", pair)
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
    let (floor, theirs) = (Floor::plain(&urls).await, Theirs::new(&urls));
    let sides = vec![
        (Side::Reference, contender(&healthy, settings.slice, 1, &meter)),
        (Side::Ours, contender(&ours, settings.slice, 1, &meter)),
        (Side::Plain, contender(&floor, settings.slice, 1, &meter)),
        (Side::Rslock, contender(&theirs, settings.slice, 1, &meter)),
    ];
    let compared = compare(LEAST_ROUNDS, sides).await;
    let work = "5 nodes, one 20 ms away, 1 caller, p50 us (the floor waits for all five)";
    let row = compared.row(work, Measured::p50);
    beside_reference(&compared, row, "all near", Measured::p50)
}
