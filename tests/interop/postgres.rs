//! The SQL statement by which a database refuses a late holder.

use redlock_tests::{PostgresServer, RedisServer, Service, eventually, example, skip};

use crate::SOON;

/// Sends a deposit until the servers have decided about its lock.
async fn deposit(service: &str, amount: u32, hold_ms: u32) -> (u16, String) {
    let url = format!("{service}/accounts/1/deposit?amount={amount}&hold_ms={hold_ms}");
    loop {
        let response = reqwest::Client::new().post(&url).send().await.unwrap();
        let status = response.status().as_u16();
        if status != 503 {
            return (status, response.text().await.unwrap());
        }
    }
}

/// Kleppmann's example with real processes: a holder reads, is stopped past its lease, and writes two seconds after its
/// begin. Its successor has the lock by then, and writes after `hold_ms`.
async fn a_holder_that_slept_past_its_lease_is_refused(hold_ms: u32) {
    let program = example("fencing");
    let postgres = match PostgresServer::start().await {
        Ok(postgres) => postgres,
        Err(why) => return skip(&why),
    };
    let redis = RedisServer::start().await;
    let environment = [("LOCKS_URLS", redis.url()), ("DATABASE_URL", postgres.admin_url())];
    let start = || Service::start(&program, &environment);
    let (sleeper, other) = (start().await, start().await);
    let (sleeper_url, url) = (sleeper.url(""), other.url(""));
    let reads = |service: &Service| service.log().matches("account 1 has 100").count();

    assert_eq!(deposit(&url, 100, 0).await, (200, "account 1 has 100\n".into()));
    let late = tokio::spawn({
        let url = sleeper_url.clone();
        async move { deposit(&url, 5, 2000).await }
    });
    eventually("the sleeper has read the balance", SOON, async || {
        (reads(&sleeper) > 0).then_some(())
    })
    .await;
    sleeper.freeze();
    let before = reads(&other);
    let second = eventually("the lease is over", SOON, async || {
        Some(deposit(&url, 7, hold_ms).await).filter(|(status, _)| *status == 200)
    });
    let wake_up = async {
        eventually("the other has read the balance", SOON, async || {
            (reads(&other) > before).then_some(())
        })
        .await;
        sleeper.thaw();
        late.await.unwrap()
    };
    let (second, late) = tokio::join!(second, wake_up);
    assert_eq!(late, (409, "somebody else was faster\n".into()));
    assert_eq!(second, (200, "account 1 has 107\n".into()));
    assert_eq!(deposit(&sleeper_url, 1, 0).await, (200, "account 1 has 108\n".into()));
}

#[tokio::test]
async fn a_holder_that_slept_past_its_lease_cannot_overwrite_its_successor() {
    a_holder_that_slept_past_its_lease_is_refused(0).await;
}

/// If only the writing transaction checked the number, the check would be too late for one of the two.
#[tokio::test]
async fn a_holder_that_slept_past_its_lease_cannot_write_after_its_successor_has_read() {
    a_holder_that_slept_past_its_lease_is_refused(4000).await;
}
