//! Processes that start a job at the same moment, without a waiting time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_tests::Servers;

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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// How many acquisitions had each outcome, and how many microseconds they took.
    times: HashMap<String, Vec<u64>>,
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
            let words: Vec<_> = line.split(' ').collect();
            let [tick, outcome, micros] = words[..] else { panic!("{line}") };
            outcomes.times.entry(outcome.to_owned()).or_default().push(micros.parse().unwrap());
            runs[tick.parse::<usize>().unwrap()] += usize::from(outcome == "ran");
        }
        let with = |is: fn(usize) -> bool| {
            runs.iter().enumerate().filter(|(_, runs)| is(**runs)).map(|(tick, _)| tick).collect()
        };
        outcomes.missed = with(|runs| runs == 0);
        outcomes.repeated = with(|runs| runs > 1);
        outcomes
    }

    /// Checks that exactly one copy has run each tick, and that nobody was told that the votes stay split.
    async fn runs_each_tick_once(&self, servers: &Servers) {
        let Outcomes { missed, repeated, times } = self.run(servers).await;
        let counts: HashMap<_, _> =
            times.iter().map(|(outcome, times)| (outcome, times.len())).collect();
        assert_eq!((missed, repeated), (Vec::new(), Vec::new()), "{self:?}: {counts:?}");
        assert_eq!(times.get("failed"), None, "{counts:?}");
        assert_eq!(
            counts[&"ran".to_owned()] + counts[&"held".to_owned()],
            self.copies * self.ticks,
            "{counts:?}"
        );
    }
}

/// Each copy got some of the servers, all were told that another holder has the lock, and nobody did the work: up to 11 % of the
/// ticks.
#[tokio::test(flavor = "multi_thread")]
async fn of_processes_that_ask_at_the_same_moment_exactly_one_gets_the_lock() {
    for (servers, copies) in [(3, 4), (5, 6)] {
        let servers = Servers::start(servers).await;
        for name in ["plain", "fenced", "set", "redisson"] {
            Job { name, copies, ticks: 60, interval: 3 }.runs_each_tick_once(&servers).await;
        }
    }
}

/// The measurements of `VERIFICATION.md`.
mod measured {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn ticks_that_nobody_runs() {
        let number =
            |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
        let (servers, copies) = (number("SERVERS", 5), number("COPIES", 6));
        let down = number("DOWN", 0);
        let ticks = number("TICKS", 1000);
        let interval = number("INTERVAL", 5) as u64;
        let name = std::env::var("JOB").map_or("plain", |job| Box::leak(job.into_boxed_str()));
        let servers = Servers::start(servers).await;
        let _ = down;
        let Outcomes { missed, repeated, times } =
            Job { name, copies, ticks, interval }.run(&servers).await;
        println!("missed {}, repeated {} of {ticks}", missed.len(), repeated.len());
        for (outcome, mut times) in times {
            times.sort_unstable();
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            println!(
                "{outcome}: {} p50 {} p90 {} p99 {} p99.9 {} max {} us",
                times.len(),
                at(0.5),
                at(0.9),
                at(0.99),
                at(0.999),
                at(1.0)
            );
        }
    }
}
