//! SIGTERM to a service under load, whose handlers hold locks and wait for them without a limit.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_tests::{RedisServer, Service, eventually};
use reqwest::StatusCode;

use crate::SOON;

/// The time for which a handler works under its lock, once or twice.
const WORK: Duration = Duration::from_millis(700);
/// The requests for each key.
const REQUESTS: usize = 5;

/// The ways to lock, each with the handlers that begin before the others wait.
const WAYS: [(&str, usize); 10] = [
    ("attribute", 1),
    ("layer", 1),
    ("fair", 1),
    ("fenced", 1),
    ("permits", 2),
    ("cart", 1),
    ("detached", 1),
    ("shared", REQUESTS),
    ("nested", 1),
    ("by_hand", 1),
];

async fn start(redis: &RedisServer) -> Service {
    let environment = [("LOCKS_URLS", redis.url())];
    Service::start(env!("CARGO_BIN_EXE_stopping-service"), &environment).await
}

/// Sends the requests of all ways. Returns how many were served.
async fn send(service: String) -> usize {
    let client = reqwest::Client::new();
    let requests = WAYS.iter().flat_map(|(way, _)| {
        let url = format!("{service}/{way}/7?hold_ms={}", WORK.as_millis());
        [(); REQUESTS].map(|()| (*way, client.post(&url).send()))
    });
    let answers = join_all(requests.map(async |(way, answer)| {
        let answer = answer.await.unwrap_or_else(|error| panic!("{way} has no answer: {error}"));
        let status = answer.status();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(answer.headers()["retry-after"], "1", "{way}");
        } else {
            assert_eq!(status, StatusCode::OK, "{way}");
        }
        usize::from(status == StatusCode::OK)
    }));
    answers.await.iter().sum()
}

/// Without a drain, the server would wait for its waiting requests for ever.
#[tokio::test]
async fn at_sigterm_holders_finish_waiters_are_answered_and_no_key_is_left() {
    let redis = RedisServer::start().await;
    let mut service = start(&redis).await;
    let mut probe = redis.probe().await;
    let count = |service: &Service, line: &str| {
        service.log().lines().filter(|other| *other == line).count()
    };
    let sending = send(service.url(""));
    let stop = async |service: &mut Service| {
        // The work under an inner lock begins too.
        let holders = WAYS.iter().map(|(_, holders)| holders).sum::<usize>() + 1;
        eventually("the handlers have begun", SOON, async || {
            (count(service, "begin") >= holders).then_some(())
        })
        .await;
        let begun = Instant::now();
        (service.terminate().await, begun.elapsed())
    };
    let (served, (status, time)) = tokio::join!(sending, stop(&mut service));
    println!("the service has stopped after {time:?}, {served} of {} served", 10 * REQUESTS);
    assert!(status.success(), "{status}: {}", service.log());
    assert!(time < SOON, "{time:?}");
    let log = service.log();
    assert!(!log.contains("refused under a lock"), "{log}");
    assert!(log.contains("the leader has ended: Err(Draining)"), "{log}");
    assert_eq!(count(&service, "begin"), count(&service, "end"), "{log}");
    assert!((10..10 * REQUESTS).contains(&served), "{served} served");
    let keys = probe.keys().await;
    assert!(keys.iter().all(|key| key.contains("redlock:fencing")), "{keys:?}");
}
