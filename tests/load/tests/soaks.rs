//! Short runs of the soak. The program `soak` is for long ones.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use redlock_load::{Burst, Keys, Markers, Report, Soak, resolve};
use redlock_tests::{Servers, Service, eventually};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// The runs disturb each other.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A program that was built without optimization on a machine that is busy may be late.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(60);

fn soak() -> Soak {
    Soak {
        service: env!("CARGO_BIN_EXE_load-service").into(),
        time: Duration::from_secs(15),
        seed: u64::from(rand::random::<u32>()),
        guarded: true,
        pause: Duration::from_millis(1500)..Duration::from_secs(4),
        vanishing: 125,
        bursts: 1,
        burst_requests: 500,
        node_timeout: Some(NODE_TIMEOUT),
    }
}

async fn run(soak: Soak) -> Report {
    let _alone = ALONE.lock().await;
    let report = soak.run().await.unwrap();
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_killed_now_and_then_break_no_promise() {
    let report = run(soak()).await;
    assert_eq!(report.violations(), [""; 0], "{report}");
    assert!(report.kills() >= 2, "{report}");
}

/// Two copies of the service.
struct Shop {
    services: Vec<Service>,
    markers: Markers,
    _directory: TempDir,
}

impl Shop {
    const LEASE: Duration = Duration::from_secs(6);

    async fn start(servers: &Servers, guarded: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let environment = [
            ("REDIS_URLS", servers.urls().join(",")),
            ("MARKERS", directory.path().display().to_string()),
            ("LEASE_MS", Self::LEASE.as_millis().to_string()),
            ("NODE_TIMEOUT_MS", NODE_TIMEOUT.as_millis().to_string()),
            ("RESTART_GUARD", guarded.to_string()),
        ];
        let program = Path::new(env!("CARGO_BIN_EXE_load-service"));
        let mut services = Vec::new();
        for _ in 0..2 {
            services.push(Service::start(program, &environment).await);
        }
        let markers = Markers::in_directory(directory.path()).unwrap();
        Self { services, markers, _directory: directory }
    }

    /// Sends one request to one copy of the service, and returns the status.
    async fn post(&self, service: usize, path: &str) -> u16 {
        let burst = Burst {
            services: vec![resolve(&self.services[service].url("")).await.unwrap()],
            requests: 1,
            in_flight: 1,
            keys: Keys::Among(1),
            path: path.to_owned(),
            patience: Duration::from_secs(60),
        };
        let answers = burst.run().await.unwrap().answers;
        [200, 409, 503].into_iter().find(|status| answers.count(*status) == 1).unwrap()
    }

    /// Restarts a majority of the servers while a handler of one service is at work. Meanwhile the same
    /// request is sent to the other service again and again. Returns the answers.
    async fn forget_a_held_lock(&self, servers: &mut Servers) -> Vec<u16> {
        // Servers that are guarded do not vote at first.
        eventually("the servers vote", SOON, async || {
            (self.post(0, "/try/2").await == 200).then_some(())
        })
        .await;
        let majority = &mut servers[..3];
        let work = self.post(0, "/try/1?hold_ms=5000");
        let others = async {
            eventually("the handler is at work", SOON, async || {
                (self.markers.count_inside().unwrap() == 1).then_some(())
            })
            .await;
            for server in &mut *majority {
                server.kill();
            }
            for server in &mut *majority {
                server.restart().await;
            }
            let mut answers = Vec::new();
            while self.markers.count_inside().unwrap() == 1 {
                answers.push(self.post(1, "/try/1").await);
                sleep(Duration::from_millis(20)).await;
            }
            answers
        };
        let (_, answers) = tokio::join!(work, others);
        answers
    }

    fn overlaps(&self) -> usize {
        let overlaps = self.markers.overlaps().unwrap();
        overlaps.iter().filter(|overlap| overlap.breaks_the_promise()).count()
    }
}

/// Shows that the detector of the soak finds overlaps, and that the restart guard prevents them.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_forgets_locks_is_found_out_unless_it_is_guarded() {
    let _alone = ALONE.lock().await;
    for guarded in [false, true] {
        // The restarts may take longer than the handler works, on a machine that is busy.
        for attempt in 0.. {
            assert!(attempt < 10, "no majority was restarted in time, guarded: {guarded}");
            let mut servers = Servers::start(5).await;
            let shop = Shop::start(&servers, guarded).await;
            let answers = shop.forget_a_held_lock(&mut servers).await;
            let overlaps = shop.overlaps();
            if guarded {
                assert_eq!(overlaps, 0, "{answers:?}");
                assert!(!answers.contains(&200), "{answers:?}");
                if answers.len() > 10 {
                    break;
                }
            } else if answers.contains(&200) && overlaps > 0 {
                break;
            }
        }
    }
}
