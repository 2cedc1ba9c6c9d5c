//! A storm of `redlock run` processes that are killed, stopped and cut off. At most one of their commands runs at a time.
//!
//! A command that is cut off ignores SIGTERM, so that only SIGKILL ends it. A command that is behind a fault would work for
//! longer than its lease.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_tests::{Proxy, RedisServer, Running, Servers, Traffic, Welcome, seeds};
use rustix::process::Signal;

use crate::KEY;

/// SIGKILL comes a twentieth of it before the end of the validity, so that a busy machine has some time to deliver it.
const LEASE: Duration = Duration::from_secs(4);
/// The exit status of a command that finds another one at work.
const OVERLAP: i32 = 99;
const COPIES: u64 = 3;
/// A command prints this when it begins.
const AT_WORK: &str = "at work";

/// What happens to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Killed,
    /// For a time that is shorter than the rest of the lease. A longer one is beyond the guarantees.
    Stopped,
    CutOff,
}

const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Stopped, Fault::CutOff];

/// A storm of copies that contend for one lock.
struct Storm<'a> {
    faults: &'a [Fault],
    file: &'a Path,
    /// How many commands at work the faults have to hit.
    wanted: usize,
    hit: AtomicUsize,
    worked: AtomicUsize,
}

/// Returns the arguments of a command that works for this time, unless another one is at work. It is one process from its
/// beginning to its end, so that a lock of its file shows whether it lives.
fn arguments(file: &Path, time: Duration, ignores_sigterm: bool) -> Vec<String> {
    let expire = format!("{}ms", LEASE.as_millis());
    let (time, overlap) = (time.as_secs_f64().to_string(), OVERLAP.to_string());
    let run = ["run", KEY, "--wait", "50s", "--expire", &expire, "--grace", "700ms", "--"];
    let command = ["flock", "--nonblock", "--no-fork", "--conflict-exit-code", &overlap];
    let words = run.iter().chain(&command).map(ToString::to_string);
    let trap = if ignores_sigterm { "trap '' TERM; " } else { "" };
    let script = format!("{trap}echo {AT_WORK}; exec sleep {time}");
    words.chain([file.display().to_string(), "/bin/sh".into(), "-c".into(), script]).collect()
}

impl Storm<'_> {
    fn is_over(&self) -> bool {
        self.hit.load(Ordering::SeqCst) >= self.wanted
    }

    /// Runs a command after the other, until the faults have hit enough of them.
    async fn copy(&self, proxies: Vec<Proxy>, mut random: StdRng) {
        while !self.is_over() {
            let is_hit = random.random_ratio(2, 3);
            let fault = self.faults[random.random_range(0..self.faults.len())];
            self.run(if is_hit { fault } else { Fault::None }, &proxies, &mut random).await;
        }
    }

    async fn run(&self, fault: Fault, proxies: &[Proxy], random: &mut StdRng) {
        let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
        let time = match fault {
            Fault::None => LEASE.mul_f64(random.random_range(0.02..0.1)),
            Fault::Stopped => LEASE,
            Fault::Killed | Fault::CutOff => LEASE * 3,
        };
        let arguments = arguments(self.file, time, fault == Fault::CutOff);
        let mut running = Running::start(&urls, &arguments);
        let at_work = |running: &Running| running.log().contains(AT_WORK);
        while fault != Fault::None && !at_work(&running) && running.status().is_none() {
            if self.is_over() {
                // It waits for the lock, or begins its work a moment later.
                running.signal(Signal::TERM);
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if at_work(&running) && fault != Fault::None && running.status().is_none() {
            tokio::time::sleep(LEASE.mul_f64(random.random_range(0.0..0.1))).await;
            match fault {
                Fault::None => {}
                Fault::Killed => {
                    running.kill();
                    self.hit.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                Fault::Stopped => {
                    running.freeze();
                    tokio::time::sleep(LEASE / 4).await;
                    running.signal(Signal::CONT);
                }
                Fault::CutOff => {
                    for proxy in proxies {
                        proxy.welcome(Welcome::Silence);
                        proxy.set_both(Traffic::Hold);
                    }
                }
            }
            self.hit.fetch_add(1, Ordering::SeqCst);
        }
        let status = running.ended().await;
        for proxy in proxies.iter().filter(|_| fault == Fault::CutOff) {
            proxy.welcome(Welcome::Forward);
            proxy.reset();
            proxy.set_both(Traffic::Pass);
        }
        let log = running.log();
        match status.code() {
            Some(0) => {
                self.worked.fetch_add(1, Ordering::SeqCst);
            }
            Some(OVERLAP) => panic!("two commands at once: {fault:?}, {log}"),
            // The lock was not had, or lost; a signal has ended the command.
            Some(75 | 129..) => {}
            other => panic!("{fault:?} {other:?}: {log}"),
        }
    }
}

/// Rages until these faults have hit so many commands at work. The last command works alone, too.
async fn rages(servers: usize, seed: u64, faults: &[Fault], wanted: usize) {
    println!("seed {seed}: {servers} servers, {faults:?}");
    let servers = Servers::start(servers).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("at-work");
    let (hit, worked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let storm = Storm { faults, file: &file, wanted, hit, worked };
    let proxies = async || join_all(servers.iter().map(Proxy::to)).await;
    let mut copies = Vec::new();
    for number in 0..COPIES {
        let random = StdRng::seed_from_u64(seed * 1000 + number);
        copies.push(storm.copy(proxies().await, random));
    }
    join_all(copies).await;
    let worked = storm.worked.load(Ordering::SeqCst);
    storm.run(Fault::None, &proxies().await, &mut StdRng::seed_from_u64(seed)).await;
    assert!(storm.worked.load(Ordering::SeqCst) > worked, "the last command has not worked");
}

#[tokio::test]
async fn never_two_commands_at_once() {
    for seed in seeds("command") {
        join_all(FAULTS.iter().map(|fault| rages(1, seed, std::slice::from_ref(fault), 1))).await;
    }
}

/// The storm would find an overlap: a lock that somebody deletes admits a second command.
#[tokio::test]
async fn the_storm_finds_two_commands_at_once() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("at-work");
    let first = Running::start(&urls, &arguments(&file, LEASE * 5, false));
    let mut probe = server.probe().await;
    redlock_tests::eventually("the first works", crate::SOON, async || {
        (file.exists() && probe.get(KEY).await.is_some()).then_some(())
    })
    .await;
    // A process that is stopped renews nothing, and its command goes on.
    first.freeze();
    let mut second = Running::start(&urls, &arguments(&file, LEASE, false));
    assert_eq!(second.ended().await.code(), Some(OVERLAP), "{}", second.log());
}

mod thorough {
    use super::*;

    #[tokio::test]
    async fn never_two_commands_at_once_for_minutes() {
        for (servers, seed) in [(1, 7), (3, 8), (5, 9)] {
            rages(servers, seed, &FAULTS, 15).await;
        }
    }
}
