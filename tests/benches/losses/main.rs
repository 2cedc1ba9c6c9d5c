//! Measures how soon a holder knows that its lock is gone, how soon a waiter has the lock of another library, and what the
//! hints of 10,000 held locks cost the server. Starts its own servers.
//!
//! ```text
//! cargo bench -p redlock-tests --bench losses
//! ```
//!
//! A cell shows the median of 15 rounds, with the smallest and the largest figure. Each round measures all rows, one after
//! another. Rows of rueidislock, a lock for Go, need Go 1.25 and its registry of modules.

#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a benchmark that cannot continue must stop"
)]

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockGuard, LockManager};
use redlock_tests::{Probe, Servers, builder};

const ROUNDS: usize = 15;
const LONG: Duration = Duration::from_secs(300);
const KEY: &str = "order:42";
/// The release of redis-py 5.
const REDIS_PY: &str = "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end \
     redis.call('del', KEYS[1]) return 1";
const HELD: usize = 10_000;
/// Each lock is renewed after a third of it.
const LEASE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
enum Cause {
    Del,
    Set,
    FlushAll,
    Break,
}

/// The figures of each row, in milliseconds.
#[derive(Default)]
struct Table(BTreeMap<String, Vec<f64>>);

impl Table {
    fn add(&mut self, row: String, figure: f64) {
        self.0.entry(row).or_default().push(figure);
    }

    fn print(mut self) {
        for (row, figures) in &mut self.0 {
            figures.sort_by(f64::total_cmp);
            let (least, most) = (figures[0], figures[figures.len() - 1]);
            println!("| {row} | {:.2} ({least:.2} to {most:.2}) |", figures[figures.len() / 2]);
        }
    }
}

/// A process that holds a lock of rueidislock, and loses it.
struct Rueidislock {
    process: Child,
    causes: ChildStdin,
    figures: BufReader<ChildStdout>,
}

impl Rueidislock {
    /// `None` without Go.
    fn start(port: u16) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/losses/rueidislock");
        let program = env::temp_dir().join(format!("rueidislock-{}", std::process::id()));
        let built = Command::new("go")
            .arg("build")
            .arg("-o")
            .arg(&program)
            .arg(".")
            .current_dir(source)
            .status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("Without Go, there are no rows of rueidislock.");
            return None;
        }
        let mut process = Command::new(&program)
            .arg(format!("127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process of rueidislock");
        std::fs::remove_file(program).expect("the program can be removed");
        let (causes, figures) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Some(Self { process, causes, figures: BufReader::new(figures) })
    }

    fn loss(&mut self, cause: Cause) -> f64 {
        writeln!(self.causes, "{cause:?}").expect("rueidislock runs");
        let mut figure = String::new();
        self.figures.read_line(&mut figure).expect("rueidislock answers");
        figure.trim().parse().expect("a figure")
    }
}

impl Drop for Rueidislock {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::main]
async fn main() {
    let mut table = Table::default();
    let nodes = [Servers::start(1).await, Servers::start(5).await];
    let mut rueidislock = Rueidislock::start(nodes[0][0].port());
    for _ in 0..ROUNDS {
        for servers in &nodes {
            for cause in [Cause::Del, Cause::Set, Cause::FlushAll, Cause::Break] {
                for extensions in [0, 3] {
                    let row = format!(
                        "{cause:?} until `lost()` returns, nodes: {}, renewals before: {extensions}, ms",
                        servers.iter().count()
                    );
                    table.add(row, loss(servers, cause, extensions).await);
                }
            }
        }
        for cause in [Cause::Del, Cause::Set, Cause::FlushAll] {
            if let Some(rueidislock) = &mut rueidislock {
                table.add(
                    format!("{cause:?} until rueidislock's context ends, nodes: 1, ms"),
                    rueidislock.loss(cause),
                );
            }
        }
        for (name, script) in [
            ("DEL by hand", "return redis.call('DEL', KEYS[1])"),
            ("release of redis-py", REDIS_PY),
        ] {
            let row = format!("{name} until the waiter has the lock, ms");
            table.add(row, wake_up(&nodes[0], script).await);
        }
    }
    table.print();
    let mut costs = Table::default();
    for _ in 0..3 {
        for waits in [false, true] {
            let (processor, memory) = held(waits).await;
            let kind = if waits { "with `lost()`" } else { "without" };
            costs.add(
                format!("{HELD} renewed locks {kind}: processor time of the server, ms/s"),
                processor,
            );
            costs.add(format!("{HELD} renewed locks {kind}: memory of the server, MB"), memory);
        }
    }
    costs.print();
}

async fn probes(servers: &Servers) -> Vec<Probe> {
    let mut probes = Vec::new();
    for server in servers.iter() {
        probes.push(server.probe().await);
    }
    probes
}

async fn manager(servers: &Servers) -> LockManager {
    builder(servers.urls()).connect().await.expect("a manager")
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

async fn settled(guard: &LockGuard) {
    // The reply to an extension follows those to all reads before it.
    guard.extend(LONG).await.expect("an extension");
}

async fn loss(servers: &Servers, cause: Cause, extensions: usize) -> f64 {
    let (locks, ops) = (manager(servers).await, manager(servers).await);
    let mut probes = probes(servers).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.expect("a lock");
    let lost = guard.lost();
    settled(&guard).await;
    for _ in 0..extensions {
        guard.extend(2 * LONG).await.expect("an extension");
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    let holder = match cause {
        Cause::Break => Some(ops.status(KEY).await.expect("a status").holders()[0].clone()),
        _ => None,
    };
    let waiting = tokio::spawn(async move {
        lost.await;
        Instant::now()
    });
    let begun = Instant::now();
    if let (Cause::Break, Some(holder)) = (cause, &holder) {
        drop(ops.break_lock(KEY, holder).await.expect("a break"));
    } else {
        let words: &[&str] = match cause {
            Cause::Set => &["SET", KEY, "another", "PX", "300000"],
            Cause::FlushAll => &["FLUSHALL"],
            _ => &["DEL", KEY],
        };
        join_all(probes.iter_mut().map(|probe| probe.command::<redis::Value>(words))).await;
    }
    let known = waiting.await.expect("the holder learns of it");
    drop(guard);
    for probe in &mut probes {
        probe.command::<()>(["FLUSHALL"]).await;
    }
    known.duration_since(begun).as_secs_f64() * 1000.0
}

async fn wake_up(servers: &Servers, release: &str) -> f64 {
    let locks = manager(servers).await;
    let mut probe = servers[0].probe().await;
    probe.command::<()>(["SET", KEY, "another", "PX", "300000"]).await;
    let waiting = tokio::spawn(async move {
        let guard = locks.lock(KEY).expire(LONG).wait_time(LONG).acquire().await.expect("a lock");
        (Instant::now(), guard)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    probe.command::<i64>(["EVAL", release, "1", KEY, "another"]).await;
    let (granted, guard) = waiting.await.expect("the waiter gets the lock");
    guard.release().await.expect("a release");
    granted.duration_since(begun).as_secs_f64() * 1000.0
}

/// Returns the processor time of the server for each second, and its memory, while locks are held and renewed.
async fn held(waits: bool) -> (f64, f64) {
    let servers = Servers::start(1).await;
    let locks = manager(&servers).await;
    let mut guards = Vec::new();
    for number in 0..HELD {
        let request = locks.lock(format!("order:{number}")).expire(LEASE).renew(true);
        guards.push(request.try_acquire().await.expect("a lock"));
    }
    let lost: Vec<_> = guards.iter().filter(|_| waits).map(|guard| guard.lost()).collect();
    // Two renewals spread the locks over the time between them.
    tokio::time::sleep(LEASE * 2 / 3).await;
    let mut probe = servers[0].probe().await;
    let (begun, before) = (Instant::now(), figure(&mut probe, "cpu", "used_cpu").await);
    tokio::time::sleep(LEASE).await;
    let used = figure(&mut probe, "cpu", "used_cpu").await - before;
    let processor = used * 1e6 / milliseconds(begun);
    let memory = figure(&mut probe, "memory", "used_memory:").await / 1e6;
    assert!(guards.iter().all(|guard| guard.is_valid()), "a lock was lost");
    drop(lost);
    (processor, memory)
}

/// Returns the sum of the figures of the server's own process with this name.
async fn figure(probe: &mut Probe, section: &str, name: &str) -> f64 {
    let info: String = probe.command(["INFO", section]).await;
    let lines = info.lines().filter(|line| line.starts_with(name) && !line.contains("children"));
    let own = lines.filter(|line| !line.contains("thread"));
    own.filter_map(|line| line.split_once(':')?.1.trim().parse::<f64>().ok()).sum()
}
