//! The cost of owner labels and of snapshots. Starts its own server.
//!
//! ```text
//! cargo bench -p redlock-tests --bench labels
//! ```
//!
//! Other programs disturb each measurement, so both sides are measured in many short slices, in the order A B B A: what changes
//! slowly is on both sides of each ratio. A cell has the median of the ratios, with its 95 % interval, and below it the same for
//! two sides that do not differ. `LABELS_ROUNDS` (15) multiplies the number of ratios.

#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot continue must stop")]

mod compare;
#[path = "../peers/cores.rs"]
mod cores;
mod work;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redlock_core::LockManager;
use redlock_tests::RedisServer;
use tokio::runtime::{Builder, Runtime};

use compare::{compare, row};
use work::{Figures, held, paced, pairs, refusals};

/// 24 bytes, as the name of a pod and a process have.
const LABEL: &str = "shop-7f9c6d5b48-x2x:4121";
const HELD: usize = 10_000;
/// The ratios of short slices for each round.
const SHORT: usize = 20;

fn main() {
    let rounds = std::env::var("LABELS_ROUNDS").map_or(15, |text| text.parse().expect("a number"));
    println!("| work | reference | ratio: median (95 % interval) | limit |\n|---|---|---|---|");
    // One thread and one core for the callers, the other core for the server.
    let narrow = Builder::new_current_thread().enable_all().build().expect("a runtime");
    narrow.block_on(labels(SHORT * rounds));
    // The first manager of a process makes what all share.
    memory(&narrow, LABEL);
    let (with, without) = (memory(&narrow, LABEL), memory(&narrow, "off"));
    let ratio = with / without;
    println!("| bytes of a held lock: {with:.0} | without labels | {ratio:.3} | <= 1.15 |");
    // Snapshots are taken beside the callers.
    let wide = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    wide.block_on(snapshots(rounds));
}

async fn manager(server: &RedisServer, label: &str) -> LockManager {
    let builder = LockManager::builder().url(server.url()).owner_label(label);
    builder.connect().await.expect("a manager")
}

async fn labels(ratios: usize) {
    let server = RedisServer::start().await;
    cores::pin_separately(std::slice::from_ref(&server));
    let [labelled, other] = [manager(&server, LABEL).await, manager(&server, LABEL).await];
    let [plain, again] = [manager(&server, "off").await, manager(&server, "off").await];
    let work = "64 callers, pairs a second";
    let without = async || pairs(&plain).await;
    let compared = compare(ratios, async || pairs(&labelled).await, without).await;
    row(work, "without labels", &compared, |side| side.per_second, ">= 0.98");
    let same = compare(ratios, async || pairs(&again).await, without).await;
    row(work, "no labels on both sides", &same, |side| side.per_second, "the noise");

    let _held = [
        held(&labelled, "held:labelled").await,
        held(&plain, "held:plain").await,
        held(&plain, "held:again").await,
    ];
    let without = async || refusals(&again, "held:plain").await;
    let with = async || refusals(&other, "held:labelled").await;
    let compared = compare(ratios, with, without).await;
    row("refusal, p50", "without labels", &compared, |side| side.p50, "<= 1.03");
    let same = compare(ratios, async || refusals(&again, "held:again").await, without).await;
    row("refusal, p50", "no labels on both sides", &same, |side| side.p50, "the noise");
    cores::unpin(std::slice::from_ref(&server));
}

/// Returns the allocated bytes for each held and renewed lock.
fn memory(runtime: &Runtime, label: &str) -> f64 {
    let server = runtime.block_on(RedisServer::start());
    let locks = runtime.block_on(manager(&server, label));
    let mut guards = Vec::with_capacity(2 * HELD);
    let mut hold = |name: &str| {
        runtime.block_on(async {
            for number in 0..HELD {
                guards.push(held(&locks, &format!("{name}:{number}")).await);
            }
        });
    };
    // The tables of the manager double now and then. They have the same size on both sides.
    hold("before");
    let counted = allocation_counter::measure(|| hold("more"));
    runtime.block_on(locks.shutdown());
    counted.bytes_current as f64 / HELD as f64
}

async fn snapshots(rounds: usize) {
    let server = RedisServer::start().await;
    let many = manager(&server, LABEL).await;
    let mut guards = Vec::with_capacity(HELD);
    for number in 0..HELD {
        guards.push(held(&many, &format!("many:{number}")).await);
    }
    let times = Arc::new(Mutex::new(Vec::new()));
    let observed = async || {
        let ends = Arc::new(AtomicBool::new(false));
        let (locks, times, until) = (many.clone(), Arc::clone(&times), Arc::clone(&ends));
        let snapshots = tokio::spawn(async move {
            // The first within the slice, and one each second.
            while !until.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let snapshot = locks.snapshot();
                let took = begun.elapsed();
                assert!(snapshot.held.len() >= HELD, "{} locks", snapshot.held.len());
                times.lock().expect("no panic").push(took);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let figures: Figures = paced(&many).await;
        ends.store(true, Ordering::Relaxed);
        snapshots.abort();
        figures
    };
    let quiet = async || paced(&many).await;
    let compared = compare(rounds, observed, quiet).await;
    let same = compare(rounds, quiet, quiet).await;
    let work = "200 acquisitions a second beside 10,000 renewed locks, a snapshot each second";
    row(
        &format!("{work}: pairs a second"),
        "no snapshots",
        &compared,
        |side| side.per_second,
        ">= 0.98",
    );
    row("the same: p99", "no snapshots", &compared, |side| side.p99, "<= 1.2");
    row("the same: p99", "no snapshots on both sides", &same, |side| side.p99, "the noise");
    let mut times = std::mem::take(&mut *times.lock().expect("no panic"));
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "| one of {} snapshots | | {median:.1?}, the longest {longest:.1?} | <= 10 ms |",
        times.len()
    );
    drop(guards);
    many.shutdown().await;
}
