//! Kills servers and starts them again without their data.

use std::ops::Range;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_tests::Servers;
use tokio::time::{sleep, sleep_until};

use super::LEASE;
use super::absences::Absences;

/// A killed server stays down for less than this, and then for as long as it needs to start.
const LONGEST_DOWN: Duration = Duration::from_millis(100);
/// A manager connects to a server again within this time after its start.
const RECONNECT: Duration = Duration::from_secs(1);
/// A server reports its uptime in whole seconds, so that it votes up to two seconds later than it could.
const UPTIME_ROUNDING: Duration = Duration::from_secs(2);

/// How long after its start a server votes at the latest.
pub(super) fn votes_again_after(guarded: bool) -> Duration {
    if guarded { RECONNECT + UPTIME_ROUNDING + LEASE } else { RECONNECT }
}

/// Kills of random servers.
pub(super) struct Kills {
    /// The pause between the start of one server and the end of the next.
    pub(super) pause: Range<Duration>,
    pub(super) guarded: bool,
}

/// The kills of a run.
#[derive(Debug, Default)]
pub(super) struct Killed {
    pub(super) count: usize,
    /// The longest time between the end of a server and its first answer after it.
    pub(super) longest_restart: Duration,
}

impl Kills {
    /// Kills servers until `end`. When it returns, all servers are up.
    pub(super) async fn go_on(
        self,
        servers: &mut Servers,
        absences: &mut Absences,
        seed: u64,
        end: Instant,
    ) -> Killed {
        let mut random = StdRng::seed_from_u64(seed);
        let mut killed = Killed::default();
        loop {
            let pause = random.random_range(self.pause.clone());
            let index = random.random_range(0..servers.len());
            let down = random.random_range(Duration::ZERO..LONGEST_DOWN);
            if Instant::now() + pause >= end {
                sleep_until(end.into()).await;
                return killed;
            }
            sleep(pause).await;
            let server = &mut servers[index];
            let from = Instant::now();
            server.kill();
            sleep(down).await;
            server.restart().await;
            absences.add(index, from, Instant::now() + votes_again_after(self.guarded));
            killed.count += 1;
            killed.longest_restart = killed.longest_restart.max(from.elapsed());
        }
    }
}
