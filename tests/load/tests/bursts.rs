//! Bursts of requests against a locked service on one Redis server that has nothing else to do. The
//! server is healthy all the time, so no request may be answered as if it were not.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use redlock_load::{
    Burst, Keys, Markers, Outcome, Overlap, Throttle, ThrottleBy, raise_limit, resolve,
};
use redlock_tests::{Servers, Service};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The bursts disturb each other.
static ALONE: Mutex<()> = Mutex::const_new(());

const REQUESTS: usize = 2000;

/// A service with the defaults of the library, on one server.
struct Target {
    _servers: Servers,
    service: Service,
    markers: Markers,
    _directory: TempDir,
}

impl Target {
    async fn start() -> Self {
        raise_limit(2 * REQUESTS).unwrap();
        let servers = Servers::start(1).await;
        let directory = tempfile::tempdir().unwrap();
        let environment = [
            ("REDIS_URLS", servers.urls().join(",")),
            ("MARKERS", directory.path().display().to_string()),
            // A busy machine may need longer for a burst than the library's default lease.
            ("LEASE_MS", "60000".to_owned()),
        ];
        let program = Path::new(env!("CARGO_BIN_EXE_load-service"));
        let service = Service::start(program, &environment).await;
        let markers = Markers::in_directory(directory.path()).unwrap();
        Self { _servers: servers, service, markers, _directory: directory }
    }

    async fn burst(&self, requests: usize, keys: Keys) -> Burst {
        Burst {
            services: vec![resolve(&self.service.url("")).await.unwrap()],
            requests,
            in_flight: requests,
            keys,
            path: "/try/{n}".to_owned(),
            patience: Duration::from_secs(120),
        }
    }

    /// Every request was answered with one of these statuses, and no two handlers worked on one key
    /// at once.
    fn check(&self, outcome: &Outcome, allowed: &[u16]) {
        let answers = &outcome.answers;
        println!("{answers}");
        let unexpected = answers.outside(allowed);
        assert!(unexpected.is_empty(), "status and how often: {unexpected:?}\n{answers}");
        assert_eq!(answers.connection_errors(), 0, "{answers}");
        let overlaps = self.markers.overlaps().unwrap().into_iter();
        let broken: Vec<_> = overlaps.filter(Overlap::breaks_the_promise).collect();
        assert_eq!(broken, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_requests_for_distinct_keys_at_once_are_all_served() {
    let _alone = ALONE.lock().await;
    let target = Target::start().await;
    let burst = target.burst(REQUESTS, Keys::Distinct).await;
    let outcome = burst.run().await.unwrap();
    target.check(&outcome, &[200]);
    assert_eq!(outcome.answers.count(200), REQUESTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_requests_for_one_key_at_once_are_served_or_contended() {
    let _alone = ALONE.lock().await;
    let target = Target::start().await;
    let burst = target.burst(REQUESTS, Keys::Among(1)).await;
    let outcome = burst.run().await.unwrap();
    target.check(&outcome, &[200, 409]);
    assert!(outcome.answers.count(200) > 0, "nobody was served\n{}", outcome.answers);
}

/// A service that is throttled is late itself, and its server is not.
async fn a_throttled_service_serves_every_request(by: ThrottleBy) {
    const REQUESTS: usize = 3000;
    let _alone = ALONE.lock().await;
    let target = Target::start().await;
    let mut burst = target.burst(REQUESTS, Keys::Distinct).await;
    burst.in_flight = 64;
    let open = burst.open().await.unwrap();
    let throttle = Throttle::process(target.service.process_id(), by).unwrap();
    println!("throttled by       {}", throttle.means());
    let outcome = open.send().await;
    drop(throttle);
    target.check(&outcome, &[200]);
    assert_eq!(outcome.answers.count(200), REQUESTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_stopped_for_80_ms_of_every_100_serves_every_request() {
    a_throttled_service_serves_every_request(ThrottleBy::Signals).await;
}

/// Where no quota can be set, this is the same once more.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_a_quota_of_a_fifth_of_a_core_serves_every_request() {
    a_throttled_service_serves_every_request(ThrottleBy::Any).await;
}
