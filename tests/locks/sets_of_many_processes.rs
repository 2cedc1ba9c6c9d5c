//! Callers in several processes that lock random sets of keys. Keeps all cores busy.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redlock_tests::{History, Servers, eventually, holds, overlaps};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const KEYS: usize = 20;
const SIZE: usize = 5;

/// A worker process. It is killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn sets_of_sixteen_callers_never_overlap_and_none_starves_on_one_server() {
    contend_for_sets(1, 1000).await;
}

#[tokio::test]
async fn sets_of_sixteen_callers_never_overlap_and_none_starves_on_five_servers() {
    contend_for_sets(5, 250).await;
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
async fn contend_for_sets(servers: usize, turns: usize) {
    let servers = Servers::start(servers).await;
    let dir = tempfile::tempdir().unwrap();
    let history = History::at(dir.path().join("history"));
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|seed| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sets"));
            command
                .env("REDIS_URLS", servers.urls().join(","))
                .env("SEED", seed.to_string())
                .env("TASKS", TASKS.to_string())
                .env("TURNS", turns.to_string())
                .env("KEYS", KEYS.to_string())
                .env("SIZE", SIZE.to_string())
                .env("HISTORY", history.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            Worker(command.spawn().unwrap())
        })
        .collect();
    let mut outputs: Vec<_> =
        workers.iter_mut().map(|worker| BufReader::new(worker.0.stdout.take().unwrap())).collect();
    for output in &mut outputs {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
    let begun = Instant::now();
    for worker in &mut workers {
        worker.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let outputs = tokio::task::spawn_blocking(move || {
        let lines = |output: BufReader<_>| -> Vec<u64> {
            output.lines().map(|line| line.unwrap().parse().unwrap()).collect()
        };
        outputs.into_iter().map(lines).collect::<Vec<_>>()
    });
    let waits = outputs.await.unwrap().concat();
    let took = begun.elapsed();
    assert_eq!(waits.len(), PROCESSES * TASKS * turns, "not all callers have finished");

    let holds = holds(&history.events().unwrap());
    assert_eq!(holds.len(), waits.len() * SIZE);
    assert_eq!(overlaps(&holds), [], "two holders of one key at once");
    eventually("no key is left", Duration::from_secs(10), async || {
        servers.keys().await.is_empty().then_some(())
    })
    .await;

    let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
    let longest = *waits.iter().max().unwrap() as f64;
    println!(
        "{} sets in {took:?}: longest wait {longest:.0} us, mean {mean:.0} us, factor {:.1}",
        waits.len(),
        longest / mean
    );
    assert!(longest <= 20.0 * mean, "longest wait {longest} us, mean {mean} us");
}
