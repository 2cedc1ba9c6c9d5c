//! Processes that start a job at the same moment, without a waiting time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use redlock_tests::{RedisServer, Servers, connect, eventually};

/// The longest time for something that an idle machine does at once.
const SOON: Duration = Duration::from_secs(10);
/// The longest time for all ticks, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time from the order to begin to the first tick.
const LEAD: Duration = Duration::from_millis(20);

/// A process that is killed when dropped.
struct Copy(Child);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies of a service, each of which starts a job at each tick.
#[derive(Debug)]
struct Job {
    name: &'static str,
    copies: usize,
    ticks: usize,
    /// The milliseconds from one tick to the next.
    interval: u64,
}

/// The outcomes of a job.
#[derive(Debug, Default)]
struct Outcomes {
    /// The ticks that no copy has run.
    missed: Vec<usize>,
    /// The ticks that several copies have run.
    repeated: Vec<usize>,
    /// How many acquisitions had each outcome.
    counts: BTreeMap<String, usize>,
}

impl Job {
    async fn run(&self, servers: &Servers) -> Outcomes {
        let urls = servers.urls().join(",");
        let mut copies: Vec<_> = (0..self.copies)
            .map(|_| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_ticks"));
                command
                    .env("LOCKS_URLS", &urls)
                    .env("TICKS", self.ticks.to_string())
                    .env("INTERVAL", self.interval.to_string())
                    .env("JOB", self.name)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped());
                Copy(command.spawn().unwrap())
            })
            .collect();
        let mut outputs: Vec<_> =
            copies.iter_mut().map(|copy| BufReader::new(copy.0.stdout.take().unwrap())).collect();
        for output in &mut outputs {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
        }
        let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + LEAD;
        for copy in &mut copies {
            let mut input = copy.0.stdin.take().unwrap();
            input.write_all(format!("{}\n", first.as_millis()).as_bytes()).unwrap();
        }
        // The outputs end with the processes.
        let read = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            for output in &mut outputs {
                output.read_to_string(&mut text).unwrap();
            }
            text
        });
        let text = tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
        for copy in &mut copies {
            assert!(copy.0.wait().unwrap().success());
        }
        self.outcomes(&text)
    }

    fn outcomes(&self, text: &str) -> Outcomes {
        let (mut runs, mut outcomes) = (vec![0; self.ticks], Outcomes::default());
        for line in text.lines() {
            let (tick, outcome) = line.split_once(' ').unwrap();
            *outcomes.counts.entry(outcome.to_owned()).or_default() += 1;
            runs[tick.parse::<usize>().unwrap()] += usize::from(outcome == "ran");
        }
        let with = |is: fn(usize) -> bool| {
            runs.iter().enumerate().filter(|(_, runs)| is(**runs)).map(|(tick, _)| tick).collect()
        };
        outcomes.missed = with(|runs| runs == 0);
        outcomes.repeated = with(|runs| runs > 1);
        outcomes
    }

    /// Checks that exactly one copy has run each tick, and that no votes stay split.
    async fn runs_each_tick_once(&self, servers: &Servers) {
        let Outcomes { missed, repeated, counts } = self.run(servers).await;
        assert_eq!((missed, repeated), (Vec::new(), Vec::new()), "{self:?}: {counts:?}");
        let expected = [("held", (self.copies - 1) * self.ticks), ("ran", self.ticks)];
        let expected = expected.map(|(outcome, count)| (outcome.to_owned(), count));
        assert_eq!(counts, BTreeMap::from(expected), "{self:?}");
    }
}

/// In an earlier version, each copy got some of the servers, and took the others for a holder. So up to 11 % of the ticks were
/// missed.
#[tokio::test(flavor = "multi_thread")]
async fn of_processes_that_ask_at_the_same_moment_exactly_one_gets_the_lock() {
    for (servers, copies) in [(3, 4), (5, 6)] {
        let servers = Servers::start(servers).await;
        for name in ["plain", "fenced", "set", "redisson"] {
            Job { name, copies, ticks: 60, interval: 3 }.runs_each_tick_once(&servers).await;
        }
    }
}

/// Each of two copies gets one of the two servers that are left. The third server may have the other copy, too.
#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_gets_the_lock_while_a_server_is_down() {
    let mut servers = Servers::start(3).await;
    servers[0].kill();
    Job { name: "plain", copies: 2, ticks: 100, interval: 3 }.runs_each_tick_once(&servers).await;
}

/// How often a caller is refused.
const REFUSALS: u64 = 20;

/// A plain refusal is a `SET` and a look-up on each server, as on one server. Nothing is repeated.
#[tokio::test]
async fn a_refusal_because_of_one_holder_costs_two_commands_on_each_server() {
    let servers = Servers::start(3).await;
    let [one, other] = [connect(servers.urls()).await, connect(servers.urls()).await];
    let _guard = one.lock("order:42").try_acquire().await.unwrap();
    let mut probes = join_all(servers.iter().map(RedisServer::probe)).await;
    for probe in &mut probes {
        eventually("each server has the lock", SOON, async || {
            (probe.keys().await.len() == 1).then_some(())
        })
        .await;
        probe.reset_calls().await;
    }
    for _ in 0..REFUSALS {
        let refused = other.lock("order:42").try_acquire().await.unwrap_err();
        assert!(refused.is_contended(), "{refused:?}");
    }
    for probe in &mut probes {
        let calls = eventually("the last SET is executed", SOON, async || {
            let calls = probe.calls().await;
            (calls["set"] >= REFUSALS).then_some(calls)
        })
        .await;
        // Of the scripts that may run, only the look-up calls PTTL. A look-up is left out if the others have decided.
        assert!(calls["set"] == REFUSALS && calls["pttl"] <= REFUSALS, "{calls:?}");
    }
}

mod thorough {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn exactly_one_gets_the_lock_at_each_of_many_ticks() {
        let servers = Servers::start(5).await;
        let job = Job { name: "plain", copies: 6, ticks: 20_000, interval: 5 };
        job.runs_each_tick_once(&servers).await;
    }
}
