//! Compares a lock in ZooKeeper with Curator's `InterProcessMutex`, and a refused attempt with a bare `getChildren`. Starts
//! its own servers. Needs Java and Maven.
//!
//! Prints one Markdown table. A pair is an acquisition and its release. Each round measures both sides, one after another,
//! and begins with the next side. A ratio compares figures of the same round. A cell shows the median over the rounds, with
//! the smallest and the largest figure.
//!
//! ```text
//! cargo run --release                 all rows, about two minutes
//! cargo run --release -- refused      only these rows: server, ensemble, refused
//! ```
//!
//! `ZOOKEEPER_ROUNDS` (15) sets the number of rounds, `ZOOKEEPER_SLICE_MS` (1000) the duration of a measurement.

#[path = "../peers/statistics.rs"]
mod statistics;

use std::time::{Duration, Instant};

use redlock_core::LockManager;
use redlock_tests::{Peer, ZookeeperClient, ZookeeperEnsemble, ZookeeperServer, java};

use statistics::{Summary, micros, percentile};

const ROWS: [&str; 3] = ["server", "ensemble", "refused"];
const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(30);
/// The number of attempts whose transactions are counted.
const ATTEMPTS: usize = 1000;

struct Settings {
    rounds: usize,
    slice: Duration,
}

#[tokio::main]
async fn main() {
    redlock_logs::do_not_watch();
    let number = |variable, default| {
        let Ok(value) = std::env::var(variable) else { return default };
        value.parse().unwrap_or_else(|_| panic!("{variable} is {value}, not a number"))
    };
    let settings = Settings {
        rounds: number("ZOOKEEPER_ROUNDS", 15).try_into().expect("a small number"),
        slice: Duration::from_millis(number("ZOOKEEPER_SLICE_MS", 1000)),
    };
    let mut rows: Vec<String> = std::env::args().skip(1).collect();
    if rows.is_empty() {
        rows = ROWS.map(str::to_owned).into();
    }
    println!("| work | side | us | ours / side | target | met |\n|---|---|---|---|---|---|");
    for row in &rows {
        match &**row {
            "server" => {
                let server = start_server().await;
                let (port, url) = (server.port(), server.url());
                pairs(&settings, "pair, one server", port, server.chroot(), &url, 1.15).await;
            }
            "ensemble" => {
                let ensemble = ZookeeperEnsemble::options().measured().start().await;
                let ensemble = ensemble.unwrap_or_else(|missing| panic!("{missing}"));
                // Both sides use the same server.
                let [follower, _] = ensemble.followers().await;
                let port = ensemble.port(follower);
                let (chroot, url) = (ensemble.chroot(), ensemble.url_at(&[port]));
                pairs(&settings, "pair, follower of three", port, chroot, &url, 0.9).await;
            }
            "refused" => refused(&settings).await,
            other => panic!("there is no row {other}; the rows are {}", ROWS.join(", ")),
        }
    }
}

async fn start_server() -> ZookeeperServer {
    let server = ZookeeperServer::options().measured().start().await;
    server.unwrap_or_else(|missing| panic!("{missing}"))
}

async fn connect(url: &str) -> LockManager {
    LockManager::builder().url(url).connect().await.expect("a manager")
}

/// Starts a Java process with Curator.
fn curator(port: u16, chroot: &str) -> Peer {
    let mut java = java("curator").unwrap_or_else(|missing| panic!("{missing}"));
    // As in production. The last option of a name counts.
    java.args(["-XX:TieredStopAtLevel=4", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]);
    let mut peer =
        Peer::start(java.args(["CuratorPeer", &format!("127.0.0.1:{port}{chroot}"), "40000"]));
    assert_eq!(peer.answer(), "ready");
    peer
}

async fn pairs(settings: &Settings, work: &str, port: u16, chroot: &str, url: &str, limit: f64) {
    let (manager, mut curator) = (connect(url).await, curator(port, chroot));
    let pair = async || {
        let lock = manager.lock(KEY).fenced(true).expire(LEASE);
        lock.try_acquire().await.expect("a free lock").release().await.expect("a release");
    };
    let curators_pair = async || {
        let order = format!("pairs {} /curator", settings.slice.as_millis());
        let answer = tokio::task::block_in_place(|| curator.ask(&order));
        answer.parse::<f64>().expect("a time") / 1000.0
    };
    let (ours, theirs) =
        compare(settings, async || median(settings.slice, &pair).await, curators_pair).await;
    print(work, ["ours", "Curator"], &ours, &theirs, limit);
}

/// Attempts on a lock that another manager holds, beside the bare request on a connection of its own.
async fn refused(settings: &Settings) {
    let server = start_server().await;
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let _held = holder.lock(KEY).expire(LEASE * 10).try_acquire().await.expect("a free lock");
    let attempt = async || {
        let refused = other.lock(KEY).fenced(true).expire(LEASE).try_acquire().await;
        refused.expect_err("a held lock");
    };
    let bare = ZookeeperClient::connect(server.port(), LEASE * 10).await.expect("a connection");
    let (bare, path) = (tokio::sync::Mutex::new(bare), server.path(KEY));
    let list = async || {
        bare.lock().await.children(&path).await.expect("the children");
    };
    let (attempts, lists) = compare(
        settings,
        async || median(settings.slice / 4, &attempt).await,
        async || median(settings.slice / 4, &list).await,
    )
    .await;
    print("refused attempt", ["ours", "getChildren"], &attempts, &lists, 2.0);

    let before = server.zxid().await;
    for _ in 0..ATTEMPTS {
        attempt().await;
    }
    let transactions = server.zxid().await - before;
    let met = if transactions == 0 { "yes" } else { "**no**" };
    println!("| {ATTEMPTS} refused attempts, transactions | ours | {transactions} | | 0 | {met} |");
}

/// Measures both sides in every round. An additional first round is a warm-up.
async fn compare(
    settings: &Settings,
    mut ours: impl AsyncFnMut() -> f64,
    mut theirs: impl AsyncFnMut() -> f64,
) -> (Vec<f64>, Vec<f64>) {
    let mut figures = (Vec::new(), Vec::new());
    for round in 0..=settings.rounds {
        let (one, other) = if round % 2 == 0 {
            let one = ours().await;
            (one, theirs().await)
        } else {
            let other = theirs().await;
            (ours().await, other)
        };
        if round > 0 {
            figures.0.push(one);
            figures.1.push(other);
        }
    }
    figures
}

/// Returns the median time of an operation in microseconds.
async fn median(slice: Duration, operation: &impl AsyncFn()) -> f64 {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < slice {
        let start = Instant::now();
        operation().await;
        times.push(start.elapsed());
    }
    times.sort();
    micros(percentile(&times, 0.5))
}

fn print(work: &str, [ours, side]: [&str; 2], own: &[f64], others: &[f64], limit: f64) {
    let ratio = Summary::of(own.iter().zip(others).map(|(own, other)| own / other));
    let met = if ratio.median <= limit { "yes" } else { "**no**" };
    println!("| {work} | {ours} | {} | | | |", Summary::of(own.iter().copied()));
    let others = Summary::of(others.iter().copied());
    println!("| {work} | {side} | {others} | {ratio} | <= {limit} | {met} |");
}
