//! The example `leader`: copies of a service, of which one leads, while leaders are stopped, killed, frozen and cut off.

use std::time::{Duration, Instant};

use redlock_tests::{
    PostgresServer, Proxy, RedisServer, Service, Traffic, Welcome, eventually, skip,
};

use super::OTHER;
use super::walkthrough::Walkthrough;
use crate::{SOON, start, until_logged};

/// The lease of the example.
const LEASE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn the_next_copy_leads_when_the_leader_is_stopped_as_the_readme_says() {
    let mut walkthrough = match Walkthrough::run("leader").await {
        Ok(walkthrough) => walkthrough,
        Err(why) => return skip(&why),
    };
    until_logged(walkthrough.service(), "leader: a step").await;
    let status = walkthrough.service().interrupt().await;
    assert!(status.success(), "{status}");
    let log = walkthrough.service().log();
    assert!(log.contains("this copy does not lead any more: Err(Draining)"), "{log}");
    until_logged(walkthrough.service_at(OTHER), "leader: a step").await;
    let status = walkthrough.service_at(OTHER).interrupt().await;
    assert!(status.success(), "{status}");
}

/// The fault that hits the leader.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Killed,
    Frozen,
    CutOff,
}

/// A copy of the service, and the proxy between it and the server of its locks.
struct Copy {
    service: Service,
    proxy: Proxy,
}

struct Fleet {
    copies: Vec<Copy>,
    postgres: PostgresServer,
    redis: RedisServer,
}

impl Fleet {
    async fn start(count: usize) -> Result<Self, String> {
        let (postgres, redis) = (PostgresServer::start().await?, RedisServer::start().await);
        let mut all = Self { copies: Vec::new(), postgres, redis };
        for _ in 0..count {
            all.add().await;
        }
        Ok(all)
    }

    async fn add(&mut self) {
        let proxy = Proxy::to(&self.redis).await;
        let environment =
            [("LOCKS_URLS", proxy.url()), ("DATABASE_URL", self.postgres.admin_url())];
        self.copies.push(Copy { service: start("leader", &environment).await, proxy });
    }

    /// Returns the number of the latest leader that has taken a step, and how many steps there are.
    async fn latest(&self) -> Option<(i64, i64)> {
        let query = "select number, id from step order by id desc limit 1";
        let row = self.postgres.admin().await.query_opt(query, &[]).await.ok()??;
        Some((row.get(0), row.get(1)))
    }

    /// Waits until a leader has taken a step that is later than that of the number `before`. Returns its number.
    async fn next_leader(&self, before: i64) -> i64 {
        eventually("the next copy leads", SOON, async || {
            let (number, _) = self.latest().await?;
            (number > before).then_some(number)
        })
        .await
    }

    /// Returns the place of the copy that leads. A copy that was frozen believes for a moment that it still leads.
    async fn leader(&self) -> usize {
        eventually("one copy leads", SOON, async || {
            let mut leaders = Vec::new();
            for (place, copy) in self.copies.iter().enumerate() {
                let answer = reqwest::get(copy.service.url("/leader")).await.ok()?;
                if answer.text().await.ok()?.starts_with("this copy leads") {
                    leaders.push(place);
                }
            }
            Some(leaders).filter(|leaders| leaders.len() == 1).map(|leaders| leaders[0])
        })
        .await
    }

    /// Hits the leader with a fault, and undoes it when the next copy leads. Returns how long nobody led.
    async fn hit_leader(&mut self, fault: Fault, before: i64) -> (i64, Duration) {
        let place = self.leader().await;
        let begun = Instant::now();
        let number = match fault {
            Fault::Killed => {
                self.copies.remove(place).service.kill();
                self.next_leader(before).await
            }
            Fault::Frozen => {
                self.copies[place].service.freeze();
                let number = self.next_leader(before).await;
                self.copies[place].service.thaw();
                number
            }
            Fault::CutOff => {
                let proxy = &self.copies[place].proxy;
                proxy.welcome(Welcome::Silence);
                proxy.set_both(Traffic::Hold);
                let number = self.next_leader(before).await;
                let proxy = &self.copies[place].proxy;
                proxy.welcome(Welcome::Forward);
                proxy.reset();
                proxy.set_both(Traffic::Pass);
                number
            }
        };
        let time = begun.elapsed();
        if matches!(fault, Fault::Killed) {
            self.add().await;
        }
        (number, time)
    }

    /// No step of a leader is later than a step of its successor.
    async fn check_steps(&self) {
        let steps = "select number, holder from step order by id";
        let rows = self.postgres.admin().await.query(steps, &[]).await.unwrap();
        let tokens: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(tokens.is_sorted(), "a late step was accepted: {tokens:?}");
    }
}

/// Hits the leader with these faults, one after another. Returns how long nobody led each time.
async fn rounds(faults: impl IntoIterator<Item = Fault>) -> Result<Vec<Duration>, String> {
    let mut fleet = Fleet::start(3).await?;
    let (mut number, mut times) = (fleet.next_leader(0).await, Vec::new());
    for fault in faults {
        let (next, time) = fleet.hit_leader(fault, number).await;
        println!("{fault:?}: nobody led for {time:?}");
        number = next;
        times.push(time);
    }
    fleet.check_steps().await;
    Ok(times)
}

#[tokio::test]
async fn the_next_copy_leads_after_a_fault_and_no_late_step_is_accepted() {
    if let Err(why) = rounds([Fault::Frozen, Fault::CutOff]).await {
        skip(&why);
    }
}

mod thorough {
    use super::*;

    #[tokio::test]
    async fn the_next_copy_leads_within_the_lease_and_a_second() {
        let faults = [Fault::Killed, Fault::Frozen, Fault::CutOff].into_iter().cycle().take(20);
        match rounds(faults).await {
            Err(why) => skip(&why),
            Ok(mut times) => {
                times.sort_unstable();
                // A busy machine delays single rounds.
                let median = times[times.len() / 2];
                assert!(median < LEASE + Duration::from_secs(1), "{times:?}");
            }
        }
    }
}
