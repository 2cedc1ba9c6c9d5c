//! Bursts of requests against a locked service with one healthy server. However late the service is, it blames
//! neither the server nor the requests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use redlock_tests::{History, Servers, Service, eventually, holds, overlaps};
use reqwest::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::sleep;

const REQUESTS: usize = 1000;
const SOON: Duration = Duration::from_secs(60);
/// Longer than the node timeout of the service, 2 s.
const STOPPED: Duration = Duration::from_millis(2500);
/// How long a throttled service runs between two stops, which are four times as long.
const RUNNING: Duration = Duration::from_millis(20);

/// Lets this process and its services open a connection for each request, if the system allows it.
fn raise_the_limit_of_open_files() {
    const FILES: u64 = 10_000;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < FILES) {
        let current = Some(maximum.map_or(FILES, |maximum| maximum.min(FILES)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }
}

struct Target {
    service: Service,
    history: History,
    /// How many requests were answered.
    answered: Cell<usize>,
    _directory: tempfile::TempDir,
}

impl Target {
    async fn start(servers: &Servers) -> Self {
        raise_the_limit_of_open_files();
        let directory = tempfile::tempdir().unwrap();
        let history = History::at(directory.path().join("history"));
        let environment = [
            ("LOCKS_URLS", servers.urls().join(",")),
            ("HISTORY", history.path().display().to_string()),
            // Longer than a burst takes on any machine.
            ("LEASE_MS", "300000".to_owned()),
        ];
        let service = Service::start(env!("CARGO_BIN_EXE_locked-service"), &environment).await;
        Self { service, history, answered: Cell::default(), _directory: directory }
    }

    /// Sends a request for each key, `at_once` at a time. Counts the answers by their status.
    async fn burst(
        &self,
        at_once: usize,
        keys: impl Iterator<Item = usize>,
    ) -> BTreeMap<u16, usize> {
        let client = Client::builder().timeout(Duration::from_secs(300)).build().unwrap();
        let requests = keys.map(async |key| {
            let response = client.post(self.service.url(&format!("/layer/{key}"))).send().await;
            self.answered.set(self.answered.get() + 1);
            response.unwrap().status().as_u16()
        });
        let mut answers = BTreeMap::new();
        let mut statuses = stream::iter(requests).buffer_unordered(at_once);
        while let Some(status) = statuses.next().await {
            *answers.entry(status).or_default() += 1;
        }
        let holds = holds(&self.history.events().unwrap());
        assert_eq!(Some(&holds.len()), answers.get(&200), "{answers:?}");
        let found = overlaps(&holds);
        assert!(found.is_empty(), "{found:#?}");
        answers
    }
}

#[tokio::test]
async fn requests_for_distinct_keys_at_once_are_all_served() {
    let servers = Servers::start(1).await;
    let target = Target::start(&servers).await;
    assert_eq!(target.burst(REQUESTS, 0..REQUESTS).await, BTreeMap::from([(200, REQUESTS)]));
}

#[tokio::test]
async fn requests_for_one_key_at_once_are_served_or_contended() {
    let servers = Servers::start(1).await;
    let target = Target::start(&servers).await;
    let mut answers = target.burst(REQUESTS, repeat_n(42, REQUESTS)).await;
    answers.retain(|status, _| ![200, 409].contains(status));
    assert_eq!(answers, BTreeMap::new());
}

#[tokio::test]
async fn a_service_that_is_stopped_again_and_again_serves_every_request() {
    let mut servers = Servers::start(1).await;
    let target = Target::start(&servers).await;
    let stops = async {
        eventually("a part of the requests is answered", SOON, async || {
            (target.answered.get() > REQUESTS / 8).then_some(())
        })
        .await;
        // The service stops while it awaits replies, and the server sends them in the meantime.
        servers[0].freeze();
        sleep(RUNNING).await;
        target.service.freeze();
        servers[0].thaw();
        sleep(STOPPED).await;
        target.service.thaw();
        while target.answered.get() < REQUESTS {
            sleep(RUNNING).await;
            target.service.freeze();
            sleep(4 * RUNNING).await;
            target.service.thaw();
        }
    };
    let (answers, ()) = tokio::join!(target.burst(64, 0..REQUESTS), stops);
    assert_eq!(answers, BTreeMap::from([(200, REQUESTS)]));
}
