//! The example `renewal`: a job that takes longer than its lease, and the ways in which it is stopped.

use std::time::Duration;

use redlock_tests::{RedisServer, Service, eventually};

use crate::walkthrough::Walkthrough;
use crate::{FIRST, OTHER};

const SOON: Duration = Duration::from_secs(30);
const STOPPED: &str = "settlement: stopped, because its lock is lost";

async fn copy(redis: &RedisServer) -> Service {
    let environment = [("REDIS_URLS", redis.url())];
    Service::start(env!("CARGO_BIN_EXE_renewal"), &environment).await
}

/// Asks a copy to begin a settlement, and returns the status.
async fn begin(service: &Service, steps: u32) -> u16 {
    let url = service.url(&format!("/settlements?steps={steps}"));
    reqwest::Client::new().post(url).send().await.unwrap().status().as_u16()
}

async fn until_logged(service: &Service, text: &str) {
    eventually(text, SOON, async || service.log().contains(text).then_some(())).await;
}

/// Asks a copy until it has begun a settlement.
async fn until_begun(service: &Service) {
    eventually("the lock is free", SOON, async || (begin(service, 1).await == 202).then_some(()))
        .await;
}

#[tokio::test]
async fn a_settlement_is_locked_for_longer_than_its_lease_as_the_readme_says() {
    let program = env!("CARGO_BIN_EXE_renewal");
    let mut walkthrough = Walkthrough::run("renewal", program).await.unwrap();
    // Twice the lease.
    until_logged(walkthrough.service(), "settlement: step 7 of 8").await;
    assert_eq!(begin(walkthrough.service_at(OTHER), 1).await, 409);
    for line in ["settlement: step 8 of 8", "settlement: done"] {
        walkthrough.promises(line);
        until_logged(walkthrough.service(), line).await;
    }
    walkthrough.promises(STOPPED);
    assert!(!walkthrough.service().log().contains(STOPPED));
    until_begun(walkthrough.service_at(OTHER)).await;
    walkthrough.stop(FIRST).await;
    walkthrough.stop(OTHER).await;
}

#[tokio::test]
async fn a_settlement_that_hangs_is_stopped_after_its_longest_time() {
    let redis = RedisServer::start().await;
    let service = copy(&redis).await;
    assert_eq!(begin(&service, 60).await, 202);
    until_logged(&service, STOPPED).await;
    // The steps of a busy machine take longer.
    assert!(!service.log().contains("step 17 of 60"), "{}", service.log());
    until_begun(&service).await;
}

#[tokio::test]
async fn a_settlement_of_a_process_that_slept_past_its_lease_is_stopped() {
    let redis = RedisServer::start().await;
    let (sleeper, other) = (copy(&redis).await, copy(&redis).await);
    assert_eq!(begin(&sleeper, 8).await, 202);
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
    assert_eq!(begin(&killed, 60).await, 202);
    until_logged(&killed, "settlement: step 2 of 60").await;
    assert_eq!(begin(&other, 1).await, 409);
    killed.kill();
    until_begun(&other).await;
}

#[tokio::test]
async fn ctrl_c_stops_a_settlement_and_releases_its_lock() {
    let redis = RedisServer::start().await;
    let mut service = copy(&redis).await;
    assert_eq!(begin(&service, 8).await, 202);
    until_logged(&service, "settlement: step 2 of 8").await;
    assert!(service.interrupt().await.success(), "{}", service.log());
    assert!(service.log().contains(STOPPED), "{}", service.log());
    assert_eq!(redis.probe().await.keys().await, [""; 0], "the lock was not released");
}
