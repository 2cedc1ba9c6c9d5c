//! The SQL statement by which a database refuses a late holder.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use redlock_tests::{Postgres, RedisServer, Service, eventually, skip};
use tokio::task::JoinHandle;

const DEPOSIT: &str = "/accounts/1/deposit";
const SOON: Duration = Duration::from_secs(20);

async fn deposit(service: &str, amount: u32, hold_ms: u32) -> (u16, String) {
    let url = format!("{service}?amount={amount}&hold_ms={hold_ms}");
    let response = reqwest::Client::new().post(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Two services that share a database and a Redis server.
struct World {
    sleeper: Service,
    other: Service,
    _postgres: Postgres,
    _redis: RedisServer,
}

impl World {
    /// Starts everything. Returns the reason if PostgreSQL is missing.
    async fn start() -> Result<Self, String> {
        let postgres = Postgres::start().await?;
        let redis = RedisServer::start().await;
        let environment = [("REDIS_URLS", redis.url()), ("DATABASE_URL", postgres.url())];
        let program = env!("CARGO_BIN_EXE_fencing");
        let sleeper = Service::start(program, &environment).await;
        let other = Service::start(program, &environment).await;
        Ok(Self { sleeper, other, _postgres: postgres, _redis: redis })
    }

    /// Begins a deposit at `sleeper`, and freezes that process when it has read the balance.
    async fn sleep_in_a_deposit(&self, amount: u32) -> JoinHandle<(u16, String)> {
        let url = self.sleeper.url(DEPOSIT);
        let late = tokio::spawn(async move { deposit(&url, amount, 500).await });
        eventually("the sleeper has read the balance", SOON, async || {
            self.sleeper.log().contains("account 1 has 100").then_some(())
        })
        .await;
        self.sleeper.freeze();
        late
    }
}

/// Kleppmann's example with real processes: a holder reads, is stopped past its lease, and writes after its
/// successor has written.
#[tokio::test]
async fn a_holder_that_slept_past_its_lease_cannot_overwrite_its_successor() {
    let world = match World::start().await {
        Ok(world) => world,
        Err(why) => return skip(&why),
    };
    let url = world.other.url(DEPOSIT);
    assert_eq!(deposit(&url, 100, 0).await, (200, "account 1 has 100\n".into()));
    let late = world.sleep_in_a_deposit(5).await;
    let second = eventually("the lease is over", SOON, async || {
        let (status, body) = deposit(&url, 7, 0).await;
        (status == 200).then_some(body)
    })
    .await;
    assert_eq!(second, "account 1 has 107\n");
    world.sleeper.thaw();
    assert_eq!(late.await.unwrap(), (409, "somebody else was faster\n".into()));
    let url = world.sleeper.url(DEPOSIT);
    assert_eq!(deposit(&url, 1, 0).await, (200, "account 1 has 108\n".into()));
}

/// Kleppmann's example again, but the late holder continues when its successor has read and not yet written.
/// If only the writing transaction checked the number, the check would be too late for one of the two.
#[tokio::test]
async fn a_holder_that_slept_past_its_lease_cannot_write_after_its_successor_has_read() {
    let world = match World::start().await {
        Ok(world) => world,
        Err(why) => return skip(&why),
    };
    let url = world.other.url(DEPOSIT);
    assert_eq!(deposit(&url, 100, 0).await, (200, "account 1 has 100\n".into()));
    let late = world.sleep_in_a_deposit(5).await;
    let read = world.other.log().matches("account 1 has 100").count();
    let second = eventually("the lease is over", SOON, async || {
        let (status, body) = deposit(&url, 7, 800).await;
        (status == 200).then_some(body)
    });
    let wake_up = async {
        eventually("the other has read the balance", SOON, async || {
            (world.other.log().matches("account 1 has 100").count() > read).then_some(())
        })
        .await;
        world.sleeper.thaw();
        late.await.unwrap()
    };
    let (second, late) = tokio::join!(second, wake_up);
    assert_eq!(late, (409, "somebody else was faster\n".into()));
    assert_eq!(second, "account 1 has 107\n");
}
