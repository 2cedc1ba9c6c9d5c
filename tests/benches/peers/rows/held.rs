//! Attempts on a held key, many held locks, and many keys.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use redlock_core::LockGuard;
use redlock_tests::Servers;

use crate::child;
use crate::comparison::Side;
use crate::locker::Locker;
use crate::ours::Ours;
use crate::settings::Settings;
use crate::statistics::{Summary, figure};
use crate::table::Row;
use crate::usage::{Meter, processor_time, resident};

const HELD: usize = 10_000;
const DISTINCT: usize = 1_000_000;
/// The measured time: longer than the time between two renewals of a lock.
const RENEWAL: Duration = Duration::from_secs(11);
const AT_ONCE: usize = 64;

pub(crate) async fn measure(settings: &Settings) {
    if settings.wants("try-held") {
        try_held(settings).await.print();
    }
    if settings.wants("renewed") {
        renewed().await.print();
    }
    if settings.wants("distinct") {
        distinct().await.print();
    }
}

/// Measures attempts on a key that this process holds itself.
async fn try_held(settings: &Settings) -> Row {
    const TRIES: u32 = 20_000;
    let servers = Servers::start(1).await;
    let ours = Ours::connect(&servers.urls()).await;
    let _guard = ours.lock("held").await.expect("a lock");
    let mut meter = Meter::over(&servers).await;
    let (mut nanos, mut commands) = (Vec::new(), 0);
    for _ in 0..settings.rounds {
        let usage = meter.begin().await;
        let begun = Instant::now();
        for _ in 0..TRIES {
            let refused = ours.0.lock("held").try_acquire().await;
            assert!(refused.is_err(), "the key is locked twice");
        }
        nanos.push((begun.elapsed() / TRIES).as_nanos() as f64);
        commands += meter.end(usage).await.commands;
    }
    let nanos = Summary::of(nanos);
    let row = Row::ours("try on a key that this process holds, ns", nanos.to_string());
    row.target("no command", commands == 0).target("< 1 us", nanos.median < 1000.0)
}

/// Measures the memory and the processor time of held locks with renewal.
async fn renewed() -> Row {
    let servers = Servers::start(1).await;
    let mut process = child::start_side("many-locks", Side::Ours, &servers.urls());
    let bytes: f64 = process.ask("hold").parse().expect("bytes");
    let share: f64 = process.ask("renew").parse().expect("a share of a core");
    Row::ours(
        format!("{HELD} held locks with renewal, resident bytes each, share of a core"),
        format!("{}; {:.1} %", figure(bytes), share * 100.0),
    )
    .target("<= 1 KiB each", bytes <= 1024.0)
    .target("<= 2 % of one core", share <= 0.02)
}

/// Measures the memory growth over a million keys, each used once.
async fn distinct() -> Row {
    let servers = Servers::start(1).await;
    let mut process = child::start_side("many-locks", Side::Ours, &servers.urls());
    let early: f64 = process.ask("distinct").parse().expect("bytes");
    let late: f64 = process.answer().parse().expect("bytes");
    let failures = process.answer();
    let growth = (late - early) / (DISTINCT * 9 / 10) as f64;
    Row::ours(
        format!("{DISTINCT} distinct keys, resident bytes after a tenth and at the end"),
        format!("{}, {}; {growth:.2} per key", figure(early), figure(late)),
    )
    .target("no growth per key", growth < 1.0)
    .target("nobody fails", failures == "0")
}

/// Runs the child process whose memory and processor time are measured.
pub(crate) async fn run() {
    let ours = Ours::connect(&child::urls()).await;
    let mut held: Vec<LockGuard> = Vec::new();
    while let Some(order) = child::order() {
        match &*order {
            "hold" => {
                // Exclude the memory that the process needs for its first locks.
                drop(hold(&ours, "warm", AT_ONCE).await);
                let before = resident();
                held = hold(&ours, "held", HELD).await;
                println!("{}", resident().saturating_sub(before) as f64 / held.len() as f64);
            }
            "renew" => {
                let (begun, before) = (Instant::now(), processor_time());
                tokio::time::sleep(RENEWAL).await;
                let used = processor_time().saturating_sub(before);
                assert!(held.iter().all(LockGuard::is_valid), "a lock was lost");
                println!("{}", used.as_secs_f64() / begun.elapsed().as_secs_f64());
            }
            "distinct" => {
                let early = lock_each(&ours, 0..DISTINCT / 10).await;
                println!("{}", resident());
                let late = lock_each(&ours, DISTINCT / 10..DISTINCT).await;
                println!("{}", resident());
                println!("{}", early + late);
            }
            other => panic!("no such order: {other}"),
        }
    }
}

/// Acquires `count` locks with the default lease and with renewal.
async fn hold(ours: &Ours, name: &str, count: usize) -> Vec<LockGuard> {
    let locks = stream::iter(0..count).map(|number| {
        let request = ours.0.lock(format!("{name}:{number}"));
        async move { request.try_acquire().await.expect("a lock") }
    });
    let mut held = Vec::with_capacity(count);
    let mut locks = locks.buffer_unordered(AT_ONCE);
    while let Some(guard) = locks.next().await {
        held.push(guard);
    }
    held
}

/// Locks and unlocks each key. Returns how many pairs failed.
async fn lock_each(ours: &Ours, keys: std::ops::Range<usize>) -> usize {
    let pairs = stream::iter(keys).map(|number| async move {
        let key = format!("order:{number}");
        let held = ours.lock(&key).await?;
        ours.unlock(&key, held).await
    });
    let failed = pairs.buffer_unordered(AT_ONCE).filter(|pair| std::future::ready(pair.is_err()));
    failed.count().await
}
