//! Many held locks, many keys and many connections: each in a process of its own, because an allocator keeps the memory
//! of earlier measurements. Besides, attempts on a held key.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use redlock_core::LockGuard;
use redlock_tests::Servers;

use crate::child;
use crate::comparison::Target::Limit;
use crate::comparison::{Comparison, Side};
use crate::floor::Floor;
use crate::lockers::{Locker, Ours, Theirs};
use crate::settings::{LEAST_ROUNDS, Settings};
use crate::usage::{Meter, processor_time, resident};

const TRIES: u32 = 20_000;
const HELD: usize = 10_000;
const DISTINCT: usize = 1_000_000;
const CONNECTIONS: usize = 50;
/// The measured time: longer than the time between two renewals of a lock.
const RENEWAL: Duration = Duration::from_secs(11);
const AT_ONCE: usize = 64;

pub(crate) async fn measure(settings: &Settings) {
    let servers = Servers::start(1).await;
    let url = servers[0].url();
    if settings.wants("try-held") {
        let ours = Ours::connect(&servers.urls()).await;
        let _guard = ours.lock("held", false).await.expect("a lock");
        let mut meter = Meter::over(&servers).await;
        let mut tries = Vec::new();
        for _ in 0..settings.rounds {
            let (usage, begun) = (meter.begin().await, Instant::now());
            for _ in 0..TRIES {
                let refused = ours.0.lock("held").try_acquire().await;
                assert!(refused.is_err(), "the key is locked twice");
            }
            let nanos = (begun.elapsed() / TRIES).as_nanos() as f64;
            tries.push([nanos, meter.end(usage).await.commands as f64]);
        }
        let work = "try on a key that this process holds, ns";
        let targets = [
            Limit::<[f64; 2]>("commands", |[_, sent]| *sent, 0.0),
            Limit("ns", |[ns, _]| *ns, 1000.0),
        ];
        Comparison(vec![(Side::Ours, tries)]).print(work, |[nanos, _]| *nanos, &[], &targets);
    }
    if settings.wants("renewed") {
        let [bytes, percent] = in_child("renewed", Side::Ours, &url);
        let work = format!("{HELD} held locks with renewal, resident bytes each");
        let targets = [
            Limit::<[f64; 2]>("bytes each", |[bytes, _]| *bytes, 1024.0),
            Limit("% of a core", |[_, share]| *share, 2.0),
        ];
        let notes = [format!("{percent:.1} % of a core")];
        let compared = Comparison(vec![(Side::Ours, vec![[bytes, percent]])]);
        compared.print(work, |[bytes, _]| *bytes, &notes, &targets);
    }
    if settings.wants("distinct") {
        let [early, late, failures] = in_child("distinct", Side::Ours, &url);
        let growth = (late - early) / (DISTINCT * 9 / 10) as f64;
        let work = format!("{DISTINCT} distinct keys, growth of the resident bytes per key");
        let targets = [
            Limit::<[f64; 2]>("growth per key", |[growth, _]| *growth, 1.0),
            Limit("failures", |[_, failures]| *failures, 0.0),
        ];
        let notes = [format!("{early} bytes after a tenth of the keys, {late} at the end")];
        let compared = Comparison(vec![(Side::Ours, vec![[growth, failures]])]);
        compared.print(work, |[growth, _]| *growth, &notes, &targets);
    }
    if settings.wants("connections") {
        let mut sides = Side::COLUMNS.map(|side| (side, Vec::new()));
        for _ in 0..LEAST_ROUNDS {
            for (side, bytes) in &mut sides {
                bytes.push(in_child("connections", *side, &url));
            }
        }
        let work =
            format!("{CONNECTIONS} clients with one connection each, resident bytes per client");
        Comparison(sides.into()).print(work, |[bytes]| *bytes, &[], &[]);
    }
}

/// Returns the figures that a child prints.
fn in_child<const FIGURES: usize>(role: &str, side: Side, url: &str) -> [f64; FIGURES] {
    let mut child = child::start(role, side, url);
    std::array::from_fn(|_| child.answer().parse().expect("a figure"))
}

/// Prints the memory and the processor time of held locks with renewal.
pub(crate) async fn renewed(urls: &[String]) {
    let ours = Ours::connect(urls).await;
    // Exclude the memory that the process needs for its first locks.
    drop(hold(&ours, "warm", AT_ONCE).await);
    let before = resident();
    let held = hold(&ours, "held", HELD).await;
    println!("{}", resident().saturating_sub(before) as f64 / held.len() as f64);
    let (begun, before) = (Instant::now(), processor_time());
    tokio::time::sleep(RENEWAL).await;
    let used = processor_time().saturating_sub(before);
    assert!(held.iter().all(|guard| guard.is_valid()), "a lock was lost");
    println!("{}", used.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0);
}

/// Prints the memory after a tenth of the keys and after all, and how many failed.
pub(crate) async fn distinct(urls: &[String]) {
    let ours = Ours::connect(urls).await;
    let early = lock_each(&ours, 0..DISTINCT / 10).await;
    println!("{}", resident());
    let late = lock_each(&ours, DISTINCT / 10..DISTINCT).await;
    println!("{}\n{}", resident(), early + late);
}

/// Prints the memory of a connection.
pub(crate) async fn connections(side: &str, urls: &[String]) {
    match side {
        "plain" => per_connection(async || Floor::plain(urls).await).await,
        "batched" => per_connection(async || Floor::batched(urls).await).await,
        "ours" => per_connection(async || Ours::connect(urls).await).await,
        _ => per_connection(async || Theirs::new(urls)).await,
    }
}

async fn per_connection<L: Locker>(connect: impl AsyncFn() -> L) {
    // Exclude the memory that the process needs for its first connection.
    let mut connected = vec![connect_and_use(&connect).await];
    let before = resident();
    for _ in 0..CONNECTIONS {
        connected.push(connect_and_use(&connect).await);
    }
    println!("{}", resident().saturating_sub(before) as f64 / CONNECTIONS as f64);
}

/// Connects, and locks once: rslock connects at its first command.
async fn connect_and_use<L: Locker>(connect: &impl AsyncFn() -> L) -> L {
    let locker = connect().await;
    let held = locker.lock("connected", false).await.expect("a lock");
    locker.unlock("connected", held).await.expect("a held lock");
    locker
}

/// Acquires `count` locks with the default lease and with renewal.
async fn hold(ours: &Ours, name: &str, count: usize) -> Vec<LockGuard> {
    let locks = stream::iter(0..count).map(|number| {
        let request = ours.0.lock(format!("{name}:{number}"));
        async move { request.try_acquire().await.expect("a lock") }
    });
    locks.buffer_unordered(AT_ONCE).collect().await
}

/// Locks and unlocks each key. Returns how many pairs failed.
async fn lock_each(ours: &Ours, keys: Range<usize>) -> usize {
    let pairs = stream::iter(keys).map(|number| async move {
        let key = format!("order:{number}");
        let held = ours.lock(&key, false).await?;
        ours.unlock(&key, held).await
    });
    let failed = pairs.buffer_unordered(AT_ONCE).filter(|pair| std::future::ready(pair.is_err()));
    failed.count().await
}
