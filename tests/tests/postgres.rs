//! The statement by which a database refuses a holder that comes late.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use redlock_tests::{Peer, Postgres, RedisServer, Service, eventually};

const SOON: Duration = Duration::from_secs(20);

async fn deposit(service: &str, amount: u32, hold_ms: u32) -> (u16, String) {
    let url = format!("{service}?amount={amount}&hold_ms={hold_ms}");
    let response = reqwest::Client::new().post(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Kleppmann's example with real processes: one reads, is stopped past its lease, and writes after
/// another has written.
#[tokio::test]
async fn a_holder_that_slept_past_its_lease_cannot_overwrite_its_successor() {
    let postgres = match Postgres::start().await {
        Ok(postgres) => postgres,
        Err(why) => return Peer::skip(&why),
    };
    let redis = RedisServer::start().await;
    let environment = [("REDIS_URLS", redis.url()), ("DATABASE_URL", postgres.url())];
    let program = env!("CARGO_BIN_EXE_fencing");
    let sleeper = Service::start(program, &environment).await;
    let other = Service::start(program, &environment).await;
    let path = "/accounts/1/deposit";
    assert_eq!(deposit(&other.url(path), 100, 0).await, (200, "account 1 has 100\n".into()));

    let url = sleeper.url(path);
    let late = tokio::spawn(async move { deposit(&url, 5, 500).await });
    eventually("it has read the balance", SOON, async || {
        sleeper.log().contains("account 1 has 100").then_some(())
    })
    .await;
    sleeper.freeze();
    let url = other.url(path);
    let second = eventually("the lease is over", SOON, async || {
        let (status, body) = deposit(&url, 7, 0).await;
        (status == 200).then_some(body)
    })
    .await;
    assert_eq!(second, "account 1 has 107\n");
    sleeper.thaw();
    assert_eq!(late.await.unwrap(), (409, "somebody else was faster\n".into()));
    assert_eq!(deposit(&sleeper.url(path), 1, 0).await, (200, "account 1 has 108\n".into()));
}
