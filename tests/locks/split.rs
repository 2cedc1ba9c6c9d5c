//! Processes that start a job at the same moment, without a waiting time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use redlock_tests::{RedisServer, Servers, connect, eventually};

/// The longest time for something that an idle machine does at once.
const SOON: Duration = Duration::from_secs(60);
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
        self.run_on(&servers.urls()).await
    }

    async fn run_on(&self, urls: &[String]) -> Outcomes {
        let urls = urls.join(",");
        let mut copies: Vec<_> = (0..self.copies)
            .map(|copy| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_ticks"));
                command
                    .env("LOCKS_URLS", &urls)
                    .env("TICKS", self.ticks.to_string())
                    .env("INTERVAL", self.interval.to_string())
                    .env("JOB", self.name)
                    .env("COPY", copy.to_string())
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

/// Each copy wants two of three keys, so that any two sets have a key in common. One copy has both of its keys on a quorum of the
/// servers, and the others have left none.
#[tokio::test(flavor = "multi_thread")]
async fn of_overlapping_sets_exactly_one_is_locked_and_no_key_of_the_others_is_left() {
    const TICKS: usize = 60;
    for (count, copies) in [(3, 3), (3, 6), (5, 6)] {
        let servers = Servers::start(count).await;
        let job = Job { name: "ring", copies, ticks: TICKS, interval: 3 };
        job.runs_each_tick_once(&servers).await;
        let sets = eventually("all clean-ups are executed", SOON, async || {
            let mut sets: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
            for server in servers.iter() {
                let mut of_server: BTreeMap<String, Vec<String>> = BTreeMap::new();
                for key in server.probe().await.keys().await {
                    let (tick, _) = key.rsplit_once(':').unwrap();
                    of_server.entry(tick.to_owned()).or_default().push(key);
                }
                for (tick, mut keys) in of_server {
                    keys.sort();
                    sets.entry(tick).or_default().push(keys);
                }
            }
            let is_one = |sets: &Vec<Vec<String>>| {
                sets.len() > count / 2 && sets.iter().all(|set| set.len() == 2 && *set == sets[0])
            };
            sets.values().all(is_one).then_some(sets)
        })
        .await;
        assert_eq!(sets.len(), TICKS);
    }
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

mod storm {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use redlock_tests::seeds;

    use super::*;

    /// Servers freeze and go on, one at a time, while copies start their jobs at the same moments. A late server executes an
    /// attempt and its clean-up when it goes on.
    #[tokio::test(flavor = "multi_thread")]
    async fn exactly_one_gets_the_lock_while_servers_freeze_and_go_on() {
        for seed in seeds("split::storm") {
            println!("REDLOCK_SEED={seed}");
            for (count, copies) in [(3, 4), (5, 6)] {
                let mut servers = Servers::start(count).await;
                let urls = servers.urls();
                let job = Job { name: "plain", copies, ticks: 150, interval: 20 };
                let mut freezes = 0;
                let mut choices = StdRng::seed_from_u64(seed);
                let strike = async {
                    loop {
                        let server = choices.random_range(0..count);
                        servers[server].freeze();
                        freezes += 1;
                        tokio::time::sleep(Duration::from_millis(choices.random_range(1..300)))
                            .await;
                        servers[server].thaw();
                        tokio::time::sleep(Duration::from_millis(choices.random_range(1..100)))
                            .await;
                    }
                };
                let outcomes = tokio::select! {
                    biased;
                    outcomes = job.run_on(&urls) => outcomes,
                    () = strike => continue,
                };
                for server in 0..count {
                    servers[server].thaw();
                }
                let Outcomes { missed, repeated, counts } = outcomes;
                println!("{count} servers, {freezes} freezes: {counts:?}");
                assert_eq!((missed, repeated), (Vec::new(), Vec::new()), "{job:?}: {counts:?}");
                assert!(freezes > 3, "{freezes}");
                // The lock of each tick, and nothing of the attempts that were given up.
                let keys = (0..job.ticks).map(|tick| format!("plain:{tick}"));
                let words: Vec<_> = std::iter::once("MGET".to_owned()).chain(keys).collect();
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                eventually(
                    "a quorum has one holder of each tick, and no other",
                    SOON,
                    async || {
                        let mut holders = vec![Vec::new(); job.ticks];
                        for server in servers.iter() {
                            let mut probe = server.probe().await;
                            let tokens: Vec<Option<Vec<u8>>> = probe.command(&words).await;
                            for (holders, token) in holders.iter_mut().zip(tokens) {
                                holders.extend(token);
                            }
                        }
                        let is_one = |holders: &Vec<Vec<u8>>| {
                            holders.len() > count / 2
                                && holders.iter().all(|one| *one == holders[0])
                        };
                        holders.iter().all(is_one).then_some(())
                    },
                )
                .await;
            }
        }
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
