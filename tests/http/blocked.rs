//! Handlers that block all threads of a service for longer than the lease of their locks.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_tests::{RedisServer, Service, eventually};
use reqwest::Client;

use crate::SOON;

const LEASE: Duration = Duration::from_secs(1);
const BLOCKED: Duration = Duration::from_millis(2500);

/// The requests are repeated, because a thread that is free meanwhile renews the lock in time.
#[tokio::test]
async fn the_warning_of_a_loss_names_how_late_the_process_was() {
    let server = RedisServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let environment = [
        ("LOCKS_URLS", server.url()),
        ("HISTORY", dir.path().join("history").display().to_string()),
        ("LEASE_MS", LEASE.as_millis().to_string()),
        ("TOKIO_WORKER_THREADS", "2".to_owned()),
    ];
    let service = Service::start(env!("CARGO_BIN_EXE_locked-service"), &environment).await;
    let (begun, client) = (Instant::now(), Client::builder().timeout(SOON).build().unwrap());
    let warning =
        eventually("a lock is lost, because both threads are blocked", 2 * SOON, async || {
            let block = |id: u32| {
                let url = format!("/blocking/{id}?hold_ms={}", BLOCKED.as_millis());
                client.post(service.url(&url)).send()
            };
            for response in join_all((1..=2).map(block)).await {
                assert_eq!(response.unwrap().status(), 200);
            }
            service
                .log()
                .lines()
                .find(|line| line.contains("the renewal was due"))
                .map(str::to_owned)
        })
        .await;
    assert!(warning.trim_start().starts_with("WARN") && warning.contains("blocking:"), "{warning}");
    let (_, rest) = warning.split_once("the renewal was due ").unwrap();
    let (late, rest) = rest.split_once("s before it ran").unwrap();
    let late = Duration::from_secs_f64(late.parse().unwrap());
    // A renewal is due after a third of the lease at the latest.
    assert!((LEASE / 2..begun.elapsed()).contains(&late), "{warning}");
    assert!(rest.contains("the process was late: code that blocks its threads"), "{warning}");
    let mut probe = server.probe().await;
    eventually("no key is left", SOON, async || probe.keys().await.is_empty().then_some(())).await;
}
