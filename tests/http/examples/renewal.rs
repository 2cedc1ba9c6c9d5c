//! The example `renewal`: a job that takes longer than its lease, and the ways in which it is stopped.

use redlock_tests::{RedisServer, Service, eventually};
use reqwest::StatusCode;

use super::OTHER;
use super::walkthrough::Walkthrough;
use crate::{SOON, post, start, until_logged};

const STOPPED: &str = "settlement: stopped, because its lock is lost";

async fn copy(redis: &RedisServer) -> Service {
    start("renewal", &[("LOCKS_URLS", redis.url())]).await
}

/// Asks a copy to begin a settlement, and returns whether it has begun. Otherwise its lock was refused.
async fn begins(service: &Service, steps: u32) -> bool {
    let response = post(service.url(&format!("/settlements?steps={steps}"))).await;
    let begins = response.status() == StatusCode::ACCEPTED;
    assert!(begins || response.status() == StatusCode::CONFLICT, "{response:?}");
    begins
}

/// Asks a copy until it has begun a settlement.
async fn until_begun(service: &Service) {
    eventually("the lock is free", SOON, async || begins(service, 1).await.then_some(())).await;
}

#[tokio::test]
async fn a_settlement_is_locked_for_longer_than_its_lease_as_the_readme_says() {
    let mut walkthrough = Walkthrough::run("renewal").await.unwrap();
    // Twice the lease.
    until_logged(walkthrough.service(), "settlement: step 7 of 8").await;
    assert!(!begins(walkthrough.service_at(OTHER), 1).await);
    for line in ["settlement: step 8 of 8", "settlement: done"] {
        walkthrough.promises(line);
        until_logged(walkthrough.service(), line).await;
    }
    walkthrough.promises(STOPPED);
    assert!(!walkthrough.service().log().contains(STOPPED));
    until_begun(walkthrough.service_at(OTHER)).await;
    walkthrough.stop().await;
}

#[tokio::test]
async fn a_settlement_that_hangs_is_stopped_after_its_longest_time() {
    let redis = RedisServer::start().await;
    let service = copy(&redis).await;
    assert!(begins(&service, 60).await);
    until_logged(&service, STOPPED).await;
    // The steps of a busy machine take longer.
    assert!(!service.log().contains("step 17 of 60"), "{}", service.log());
    until_begun(&service).await;
}

#[tokio::test]
async fn a_settlement_of_a_process_that_slept_past_its_lease_is_stopped() {
    let redis = RedisServer::start().await;
    let (sleeper, other) = (copy(&redis).await, copy(&redis).await);
    assert!(begins(&sleeper, 8).await);
    until_logged(&sleeper, "settlement: step 2 of 8").await;
    sleeper.freeze();
    until_begun(&other).await;
    let steps = sleeper.log().matches("settlement: step").count();
    sleeper.thaw();
    until_logged(&sleeper, STOPPED).await;
    assert_eq!(sleeper.log().matches("settlement: step").count(), steps, "{}", sleeper.log());
}

#[tokio::test]
async fn a_settlement_of_a_process_that_was_killed_is_free_when_its_lease_is_over() {
    let redis = RedisServer::start().await;
    let (killed, other) = (copy(&redis).await, copy(&redis).await);
    assert!(begins(&killed, 60).await);
    until_logged(&killed, "settlement: step 2 of 60").await;
    assert!(!begins(&other, 1).await);
    killed.kill();
    until_begun(&other).await;
}

#[tokio::test]
async fn ctrl_c_stops_a_settlement_and_releases_its_lock() {
    let redis = RedisServer::start().await;
    let mut service = copy(&redis).await;
    assert!(begins(&service, 8).await);
    until_logged(&service, "settlement: step 2 of 8").await;
    assert!(service.interrupt().await.success(), "{}", service.log());
    assert!(service.log().contains(STOPPED), "{}", service.log());
    assert_eq!(redis.probe().await.keys().await, [""; 0], "the lock was not released");
}
