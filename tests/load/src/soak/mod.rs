//! A long run of two copies of a service, whose Redis servers are killed one after another.

mod absences;
mod clients;
mod kills;
mod report;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use redlock_tests::{Servers, Service, eventually};
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::burst::{Burst, Keys};
use crate::client::resolve;
use crate::descriptors::raise_limit;
use crate::markers::{Markers, Overlap};
use crate::memory::resident;
use absences::Absences;
use clients::{steady_clients, vanishing_clients};
use kills::Kills;
pub use report::Report;

const SERVERS: usize = 5;
const SERVICES: usize = 2;
/// The lease of all locks, and with it what the restart guard takes for the longest one.
const LEASE: Duration = Duration::from_secs(1);
/// How many keys the requests of one burst share. The manager lets a thousand callers wait for one.
const BURST_KEYS: usize = 200;
/// How long a burst request may take: longer than the service waits for a lock.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the end may take: handlers that are still at work, locks that are still to be released.
const END: Duration = Duration::from_secs(20);
/// Open files besides the connections of a burst.
const OTHER_FILES: usize = 1000;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Soak {
    /// The program `load-service`.
    pub service: PathBuf,
    /// How long the run takes.
    pub time: Duration,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether servers that were restarted do not vote for a lease.
    pub guarded: bool,
    /// The pause between the restart of one server and the end of the next.
    pub pause: Range<Duration>,
    /// How many clients close their connection in the middle of a request.
    pub vanishing: u32,
    /// How often many requests come at once, and how many those are.
    pub bursts: u32,
    /// How many requests one burst has.
    pub burst_requests: usize,
    /// How long the servers have to answer; the library's default where there is none.
    pub node_timeout: Option<Duration>,
}

impl Soak {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// The limit of open files is too low, or the markers cannot be read.
    ///
    /// # Panics
    ///
    /// A server or a service cannot be started, or a service does not end.
    pub async fn run(self) -> io::Result<Report> {
        raise_limit(self.burst_requests + OTHER_FILES)?;
        let directory = tempfile::tempdir()?;
        let markers = Markers::in_directory(directory.path())?;
        let starting = Instant::now();
        let mut servers = Servers::start(SERVERS).await;
        let mut absences = Absences::of(SERVERS);
        let voting = Instant::now() + kills::votes_again_after(self.guarded);
        for server in 0..SERVERS {
            absences.add(server, starting, voting);
        }
        let mut services = Vec::new();
        for _ in 0..SERVICES {
            services.push(self.start_service(&servers, directory.path()).await);
        }
        let mut addresses = Vec::new();
        for service in &services {
            addresses.push(resolve(&service.url("")).await?);
        }
        sleep_until(voting.into()).await;

        let begun = Instant::now();
        let end = begun + self.time;
        let stop = CancellationToken::new();
        let (kills, answers, bursts, vanished, memory) = tokio::join!(
            async {
                let kills = Kills { pause: self.pause.clone(), guarded: self.guarded };
                let kills = kills.go_on(&mut servers, &mut absences, self.seed, end).await;
                stop.cancel();
                kills
            },
            steady_clients(&addresses, self.seed, &stop),
            self.bursts(&addresses, begun),
            vanishing_clients(&addresses, self.seed, self.vanishing, begun..end),
            watch_memory(&services, &stop, begun),
        );
        let (bursts, mut answers) = (bursts?, answers);
        answers.extend(bursts);
        let handlers_left = wait_for_handlers(&markers).await?;
        let keys_left = wait_for_locks(&servers).await;
        let mut logs = Vec::new();
        for mut service in services {
            let ended = service.terminate().await;
            let log = service.log();
            let lines = log.lines().filter(|line| !line.starts_with("listening"));
            // The first lines are about servers that have just been started.
            logs.extend(lines.clone().rev().take(5).map(str::to_owned));
            // The reasons of the refusals.
            let refusals = lines.filter(|line| line.contains("was rejected"));
            logs.extend(refusals.take(50).map(str::to_owned));
            if !ended.success() {
                logs.push(format!("the service ended with {ended}"));
            }
        }
        let overlaps = markers.overlaps()?.into_iter();
        let (overlaps, held_up) = overlaps.partition(Overlap::breaks_the_promise);
        let lasted = begun.elapsed();
        let without_quorum = absences.without_quorum(SERVERS / 2 + 1);
        Ok(Report {
            seed: self.seed,
            guarded: self.guarded,
            lasted,
            begun,
            answers,
            without_quorum,
            kills,
            vanished,
            bursts: self.bursts,
            overlaps,
            held_up,
            memory,
            handlers_left,
            keys_left,
            logs,
        })
    }

    async fn start_service(&self, servers: &Servers, directory: &std::path::Path) -> Service {
        let mut environment = vec![
            ("REDIS_URLS", servers.urls().join(",")),
            ("MARKERS", directory.display().to_string()),
            ("LEASE_MS", LEASE.as_millis().to_string()),
            ("RESTART_GUARD", self.guarded.to_string()),
        ];
        if let Some(timeout) = self.node_timeout {
            environment.push(("NODE_TIMEOUT_MS", timeout.as_millis().to_string()));
        }
        Service::start(&self.service, &environment).await
    }

    /// Sends the bursts, at equal distances.
    async fn bursts(
        &self,
        services: &[SocketAddr],
        begun: Instant,
    ) -> io::Result<crate::answers::Answers> {
        let mut answers = crate::answers::Answers::default();
        for number in 0..self.bursts {
            let at = self.time * (2 * number + 1) / (2 * self.bursts);
            sleep_until((begun + at).into()).await;
            let burst = Burst {
                services: services.to_vec(),
                requests: self.burst_requests,
                in_flight: self.burst_requests,
                // Not the keys of the steady clients.
                keys: Keys::Among(BURST_KEYS),
                path: "/wait/1000{n}?hold_ms=2".to_owned(),
                patience: PATIENCE,
            };
            answers.extend(burst.run().await?.answers);
        }
        Ok(answers)
    }
}

/// Looks at the memory of the services every second, and prints a line every minute.
async fn watch_memory(
    services: &[Service],
    stop: &CancellationToken,
    begun: Instant,
) -> Vec<Vec<u64>> {
    let mut memory = vec![Vec::new(); services.len()];
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(second.tick()).await.is_some() {
        for (service, memory) in services.iter().zip(&mut memory) {
            memory.extend(resident(service.process_id()));
        }
        let seconds = begun.elapsed().as_secs();
        if seconds > 0 && seconds.is_multiple_of(60) {
            let now: Vec<_> = memory.iter().filter_map(|memory| memory.last()).collect();
            eprintln!("{seconds} s: {now:?} bytes resident");
        }
    }
    memory
}

/// Returns how many handlers have neither ended nor been dropped: zero as soon as that is so.
async fn wait_for_handlers(markers: &Markers) -> io::Result<usize> {
    let deadline = Instant::now() + END;
    loop {
        let left = markers.count_inside()?;
        if left == 0 || Instant::now() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the keys of locks that are left when all leases are over.
async fn wait_for_locks(servers: &Servers) -> Vec<String> {
    let deadline = Instant::now() + END;
    eventually("the servers are looked at", END * 2, async || {
        let mut keys = servers.keys().await;
        // The counters of the fencing tokens stay.
        keys.retain(|key| !key.contains("redlock:fencing"));
        (keys.is_empty() || Instant::now() > deadline).then_some(keys)
    })
    .await
}
