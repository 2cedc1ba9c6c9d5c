//! A storm of `redlock run` processes that are killed, stopped and cut off. At most one of their commands runs at a time.

use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_tests::{Proxy, RedisServer, Running, Servers, Traffic, Welcome, seeds};
use rustix::process::Signal;

use crate::KEY;

const LEASE: Duration = Duration::from_secs(2);
/// The exit status of a command that finds another one at work.
const OVERLAP: i32 = 99;
const COPIES: usize = 4;
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

/// The results of one copy.
#[derive(Debug, Default)]
struct Results {
    worked: usize,
    refused: usize,
    ended: usize,
    faults: usize,
    /// How many faults have hit a command at work.
    hit: usize,
}

/// Returns the arguments of a command that works for this time, unless another one is at work. It is one process from its
/// beginning to its end, so that a lock of its file shows whether it lives.
fn arguments(file: &Path, time: Duration) -> Vec<String> {
    let expire = format!("{}ms", LEASE.as_millis());
    let (time, overlap) = (time.as_secs_f64().to_string(), OVERLAP.to_string());
    let run = ["run", KEY, "--wait", "20s", "--expire", &expire, "--grace", "200ms", "--"];
    let command = ["flock", "--nonblock", "--no-fork", "--conflict-exit-code", &overlap];
    let words = run.iter().chain(&command).map(ToString::to_string);
    let script = format!("echo {AT_WORK}; exec sleep {time}");
    words.chain([file.display().to_string(), "/bin/sh".into(), "-c".into(), script]).collect()
}

async fn copy(proxies: Vec<Proxy>, file: &Path, mut random: StdRng, end: Instant) -> Results {
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let mut results = Results::default();
    while Instant::now() < end {
        let fault = [Fault::None, Fault::Killed, Fault::Stopped, Fault::CutOff];
        let fault = fault[random.random_range(0..fault.len())];
        // Work behind a fault goes on until it is ended, for longer than the lease.
        let time = match fault {
            Fault::None => LEASE.mul_f64(random.random_range(0.05..0.2)),
            _ => LEASE * 3,
        };
        let time = if fault == Fault::Stopped { LEASE } else { time };
        let mut running = Running::start(&urls, &arguments(file, time));
        // A fault hits a command at work, or one that still waits after some time.
        let patience = Instant::now() + LEASE * 2;
        while fault != Fault::None
            && !running.log().contains(AT_WORK)
            && Instant::now() < patience
            && running.status().is_none()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(LEASE.mul_f64(random.random_range(0.0..0.1))).await;
        results.faults += usize::from(fault != Fault::None);
        results.hit += usize::from(fault != Fault::None && running.log().contains(AT_WORK));
        if let Some(status) = running.status() {
            assert_ne!(status.code(), Some(OVERLAP), "two commands at once: {}", running.log());
        }
        let status = match fault {
            Fault::None => running.ended().await,
            Fault::Killed => {
                running.kill();
                results.ended += 1;
                continue;
            }
            Fault::Stopped if running.status().is_some() => running.ended().await,
            Fault::Stopped => {
                running.freeze();
                tokio::time::sleep(LEASE / 4).await;
                running.signal(Signal::CONT);
                running.ended().await
            }
            Fault::CutOff => {
                for proxy in &proxies {
                    proxy.welcome(Welcome::Silence);
                    proxy.set_both(Traffic::Hold);
                }
                let status = running.ended().await;
                for proxy in &proxies {
                    proxy.welcome(Welcome::Forward);
                    proxy.reset();
                    proxy.set_both(Traffic::Pass);
                }
                status
            }
        };
        let code = status.code();
        let log = running.log();
        assert_ne!(code, Some(OVERLAP), "two commands at once: {fault:?}, {log}");
        match code {
            Some(0) => results.worked += 1,
            Some(75) => results.refused += 1,
            Some(code) if code > 128 => results.ended += 1,
            other => panic!("{fault:?} {other:?}: {log}"),
        }
    }
    results
}

async fn rages(servers: usize, seed: u64, time: Duration) {
    let servers = Servers::start(servers).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("at-work");
    let end = Instant::now() + time;
    let mut copies = Vec::new();
    for number in 0..COPIES as u64 {
        let mut proxies = Vec::new();
        for server in servers.iter() {
            proxies.push(Proxy::to(server).await);
        }
        copies.push(copy(proxies, &file, StdRng::seed_from_u64(seed * 1000 + number), end));
    }
    let results = futures_util::future::join_all(copies).await;
    println!("seed {seed}: {results:?}");
    let sum = |count: fn(&Results) -> usize| results.iter().map(count).sum::<usize>();
    assert!(sum(|results| results.worked) > 0, "nothing has worked");
    assert!(sum(|results| results.hit) > 0, "no fault has hit a command");
}

#[tokio::test]
async fn never_two_commands_at_once() {
    for seed in seeds("command") {
        rages(1, seed, Duration::from_secs(5)).await;
    }
}

/// The storm would find an overlap: a lock that somebody deletes admits a second command.
#[tokio::test]
async fn the_storm_finds_two_commands_at_once() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("at-work");
    let first = Running::start(&urls, &arguments(&file, LEASE * 5));
    let mut probe = server.probe().await;
    redlock_tests::eventually("the first works", crate::SOON, async || {
        (file.exists() && probe.get(KEY).await.is_some()).then_some(())
    })
    .await;
    // A process that is stopped renews nothing, and its command goes on.
    first.freeze();
    let mut second = Running::start(&urls, &arguments(&file, LEASE));
    assert_eq!(second.ended().await.code(), Some(OVERLAP), "{}", second.log());
}

mod thorough {
    use super::*;

    #[tokio::test]
    async fn never_two_commands_at_once_for_minutes() {
        for servers in [1, 3, 5] {
            rages(servers, 7, Duration::from_secs(60)).await;
        }
    }
}
