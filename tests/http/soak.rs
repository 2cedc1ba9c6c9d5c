//! The soak: two services under load, while their servers are killed and come back without their data.
//!
//! The gate runs it with the seeds of `tests/seeds.txt`, one round for each. A longer run takes as many rounds as fit
//! into its time, with the same services and servers:
//!
//!     tests/run.sh --explore 1200 soak

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, read_dir, read_to_string};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use redlock_tests::{History, Hold, Servers, Service, What, eventually, holds, overlaps, seeds};
use reqwest::Client;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const SERVERS: usize = 5;
/// At most this many servers are down or quarantined at the same time, so the others are a quorum.
const MINORITY: usize = 2;
/// The lease of the soak's locks, and the longest lease of the restart guard.
const LEASE: Duration = Duration::from_secs(2);
/// How long the servers are struck in one round.
const ROUND: Duration = Duration::from_secs(8);
/// The number of requests that come together with each strike, and the number of their keys.
const BURST: u64 = 60;
const BURST_KEYS: u64 = 20;
const SOON: Duration = Duration::from_secs(60);

/// The path of a request for short work.
fn short_work(random: &mut StdRng) -> String {
    let (key, hold) = (random.random_range(0..2), random.random_range(2..8));
    format!("/waiting/{key}?hold_ms={hold}")
}

/// The path of a request for work that takes most of the lease, so that servers can forget its lock meanwhile.
fn long_work(random: &mut StdRng) -> String {
    let (key, hold) = (random.random_range(10..12), random.random_range(1000..1600));
    format!("/fenced/{key}?hold_ms={hold}")
}

/// The clients of each service.
const CLIENTS: [fn(&mut StdRng) -> String; 5] =
    [short_work, short_work, long_work, long_work, long_work];

struct Soak {
    servers: Servers,
    services: Vec<Service>,
    history: History,
    _directory: tempfile::TempDir,
}

/// The result of one round.
struct Round {
    /// The number of answers by their status.
    answers: BTreeMap<u16, usize>,
    kills: usize,
    overlaps: Vec<(Hold, Hold)>,
}

impl Soak {
    /// Starts five servers and two services with this lease, with or without the restart guard.
    async fn start(lease: Duration, is_guarded: bool) -> Self {
        let servers = Servers::start(SERVERS).await;
        let directory = tempfile::tempdir().unwrap();
        let history = History::at(directory.path().join("history"));
        let mut environment = vec![
            ("LOCKS_URLS", servers.urls().join(",")),
            ("HISTORY", history.path().display().to_string()),
            ("LEASE_MS", lease.as_millis().to_string()),
        ];
        if is_guarded {
            environment.push(("RESTART_GUARD_MS", lease.as_millis().to_string()));
        }
        let mut services = Vec::new();
        for _ in 0..2 {
            let program = env!("CARGO_BIN_EXE_locked-service");
            services.push(Service::start(program, &environment).await);
        }
        // Servers that have just started do not vote. A quorum is enough for the clients.
        let client = Client::new();
        for service in &services {
            eventually("the servers vote", SOON, async || {
                let answer = client.post(service.url("/layer/0")).send().await.unwrap();
                answer.status().is_success().then_some(())
            })
            .await;
        }
        Self { servers, services, history, _directory: directory }
    }

    /// Kills servers under load for a while. Waits until the handlers have ended and the locks are gone.
    async fn round(&mut self, seed: u64) -> Round {
        // The handlers of the round before have ended.
        File::create(self.history.path()).unwrap();
        let mut random = StdRng::seed_from_u64(seed);
        let load = Load {
            client: Client::builder().timeout(SOON).build().unwrap(),
            services: &self.services,
            answers: RefCell::default(),
            stop: CancellationToken::new(),
        };
        let clients = (0..self.services.len()).flat_map(|service| {
            CLIENTS.map(|work| (service, work, StdRng::seed_from_u64(random.random())))
        });
        let clients: Vec<_> = clients.collect();
        let clients = clients
            .into_iter()
            .map(|(service, work, random)| load.ask_again_and_again(service, work, random));
        let vanishing = load.ask_and_vanish(StdRng::seed_from_u64(random.random()));
        let strikes = async {
            let begun = Instant::now();
            let mut kills = 0;
            while begun.elapsed() < ROUND {
                wait_for_votes(&self.servers, self.services.len()).await;
                kills += strike(&mut self.servers, &load, &mut random).await;
            }
            wait_for_votes(&self.servers, self.services.len()).await;
            load.stop.cancel();
            kills
        };
        let (kills, ..) = tokio::join!(strikes, join_all(clients), vanishing);
        let answers = load.answers.into_inner();

        let events = eventually("the handlers end", SOON, async || {
            let events = self.history.events().unwrap();
            let count =
                |wanted: fn(&What) -> bool| events.iter().filter(|it| wanted(&it.what)).count();
            let begun = count(|what| matches!(what, What::Granted { .. }));
            let ended = count(|what| matches!(what, What::Released));
            (begun == ended).then_some(events)
        })
        .await;
        eventually("no key but those of the fencing tokens is left", SOON, async || {
            let keys = self.servers.keys().await;
            keys.iter().all(|key| key.contains("redlock:fencing")).then_some(())
        })
        .await;
        let round = Round { answers, kills, overlaps: overlaps(&holds(&events)) };
        println!("{:?}, {kills} kills, {} overlaps", round.answers, round.overlaps.len());
        round
    }
}

/// The clients of both services.
struct Load<'a> {
    client: Client,
    services: &'a [Service],
    answers: RefCell<BTreeMap<u16, usize>>,
    stop: CancellationToken,
}

impl Load<'_> {
    async fn ask(&self, service: usize, path: &str) {
        let answer = self.client.post(self.services[service].url(path)).send().await.unwrap();
        *self.answers.borrow_mut().entry(answer.status().as_u16()).or_default() += 1;
    }

    async fn ask_again_and_again(
        &self,
        service: usize,
        work: fn(&mut StdRng) -> String,
        mut random: StdRng,
    ) {
        while !self.stop.is_cancelled() {
            self.ask(service, &work(&mut random)).await;
            sleep(Duration::from_millis(random.random_range(50..150))).await;
        }
    }

    /// Closes connections in the middle of their requests.
    async fn ask_and_vanish(&self, mut random: StdRng) {
        while !self.stop.is_cancelled() {
            let path = if random.random() { short_work } else { long_work }(&mut random);
            let service = random.random_range(0..self.services.len());
            let patience = Duration::from_millis(random.random_range(0..40));
            // A request that is answered in time counts like the others.
            let _ = timeout(patience, self.ask(service, &path)).await;
            sleep(patience).await;
        }
    }

    /// Sends many requests at once, for keys that the other clients do not use.
    async fn burst(&self) {
        let requests = (0..BURST).map(async |request| {
            let path = format!("/waiting/{}?hold_ms=2", 100 + request % BURST_KEYS);
            self.ask(usize::from(request % 2 == 0), &path).await;
        });
        join_all(requests).await;
    }
}

/// Kills one or two servers and starts them again. Returns how many there were.
async fn strike(servers: &mut Servers, load: &Load<'_>, random: &mut StdRng) -> usize {
    let count = random.random_range(1..=MINORITY);
    let struck = (0..SERVERS).sample(random, count);
    let down = Duration::from_millis(random.random_range(0..100));
    for server in &struck {
        servers[*server].kill();
    }
    tokio::join!(load.burst(), sleep(down));
    for server in &struck {
        servers[*server].restart().await;
    }
    count
}

/// Waits until both services ask all servers for locks. They do not ask a server that is quarantined.
async fn wait_for_votes(servers: &Servers, services: usize) {
    for server in servers.iter() {
        let (mut probe, mut asked) = (server.probe().await, BTreeSet::new());
        eventually("both services ask the server for locks", SOON, async || {
            let clients: String = probe.command(["CLIENT", "LIST"]).await;
            let clients = clients.lines().filter(|client| client.contains(" cmd=set "));
            asked.extend(clients.filter_map(|client| Some(client.split_once(' ')?.0.to_owned())));
            (asked.len() >= services).then_some(())
        })
        .await;
    }
}

/// Returns the resident memory of a process in bytes, and the number of its open files; zero without `/proc`.
fn resources(service: &Service) -> (u64, usize) {
    let process = format!("/proc/{}", service.process_id());
    let status = read_to_string(format!("{process}/status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = resident.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let files = read_dir(format!("{process}/fd")).map_or(0, Iterator::count);
    (kibibytes.unwrap_or_default() * 1024, files)
}

/// Checks that the memory after the last third of the rounds is about that after the second third. In fewer rounds the
/// memory has not reached its level.
fn check_memory(rounds: &[u64]) {
    const LEAST_ROUNDS: usize = 30;
    const MARGIN: u64 = 2 * 1024 * 1024;
    let third = rounds.len() / 3;
    let median = |rounds: &[u64]| {
        let mut rounds = rounds.to_vec();
        rounds.sort_unstable();
        rounds[rounds.len() / 2]
    };
    if rounds.len() >= LEAST_ROUNDS {
        let (before, after) = (median(&rounds[third..2 * third]), median(&rounds[2 * third..]));
        println!("{before} bytes resident in the second third, {after} in the last");
        assert!(after <= before + before / 10 + MARGIN, "the memory grows: {rounds:?}");
    }
}

#[tokio::test]
async fn killed_servers_break_no_promise() {
    let mut soak = Soak::start(LEASE, true).await;
    let files: Vec<_> = soak.services.iter().map(|service| resources(service).1).collect();
    let mut memory = vec![Vec::new(); soak.services.len()];
    for seed in seeds("soak") {
        println!("REDLOCK_SEED={seed}");
        let Round { answers, kills, overlaps } = soak.round(seed).await;
        assert!(overlaps.is_empty(), "{overlaps:#?}");
        assert!(answers.keys().all(|status| [200, 409, 503].contains(status)), "{answers:?}");
        assert!(answers[&200] >= 10 && kills > 0, "{answers:?}, {kills} kills");
        // A quorum has voted all the time. So only a busy machine, on which a vote takes longer than the node timeout
        // or the lease, refuses a few requests with 503.
        let unavailable = answers.get(&503).copied().unwrap_or_default();
        assert!(unavailable <= answers[&200], "{answers:?}");
        for (service, files) in soak.services.iter().zip(&files) {
            eventually("the service has closed its connections", SOON, async || {
                (resources(service).1 <= *files).then_some(())
            })
            .await;
        }
        for (service, memory) in soak.services.iter().zip(&mut memory) {
            memory.push(resources(service).0);
        }
    }
    for rounds in &memory {
        check_memory(rounds);
    }
}

/// The checker finds the overlap that the restart guard prevents.
#[tokio::test]
async fn without_the_restart_guard_a_majority_that_forgets_a_lock_leads_to_an_overlap() {
    let Soak { mut servers, services, history, _directory } = Soak::start(SOON * 5, false).await;
    let client = Client::new();
    let held = client.post(services[0].url("/layer/42?hold_ms=300000")).send();
    let other = async {
        eventually("the handler is at work", SOON, async || {
            let held = holds(&history.events().unwrap());
            held.iter().any(|hold| hold.key == "order:42").then_some(())
        })
        .await;
        for server in &mut servers[..3] {
            server.kill();
        }
        for server in &mut servers[..3] {
            server.restart().await;
        }
        eventually("the other service gets the lock", SOON, async || {
            let answer = client.post(services[1].url("/layer/42")).send().await.unwrap();
            answer.status().is_success().then_some(())
        })
        .await;
    };
    tokio::select! {
        answer = held => panic!("the handler has ended: {answer:?}"),
        () = other => {}
    }
    assert!(!overlaps(&holds(&history.events().unwrap())).is_empty());
}
