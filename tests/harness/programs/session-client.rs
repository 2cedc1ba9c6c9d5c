//! A process that acquires locks as a test orders, and records a history, for tests that stop and kill processes.
//!
//! Environment: `LOCKS_URLS`, `HISTORY`. The process prints `ready`, and ends when standard input ends. Each line is an
//! order:
//!
//! * `acquire KEY LEASE_MS WAIT_MS` prints `acquired`, or `refused` with the reason;
//! * `release` prints `released`, or the reason of the failure;
//! * `contend KEY LEASE_MS SEED` starts a caller that acquires and releases the lock again and again.

use std::error::Error;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{FencingToken, LockGuard, LockManager};
use redlock_tests::{Belief, History, builder};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::time::sleep;

/// How often a caller checks its guard.
const LOOK: Duration = Duration::from_millis(2);

struct Client {
    locks: LockManager,
    history: History,
}

impl Client {
    async fn acquire(
        &self,
        key: &str,
        lease: Duration,
        wait: Duration,
    ) -> Result<(LockGuard, Belief), String> {
        let attempt = self.history.ask(key, wait).map_err(|error| error.to_string())?;
        let request = self.locks.lock(key).fenced(true).expire(lease).wait_time(wait);
        match request.acquire().await {
            Ok(guard) => {
                let number = guard.fencing_token().map(FencingToken::number);
                let belief = attempt.granted(number, || guard.remaining());
                Ok((guard, belief))
            }
            Err(error) => {
                let reason = error.diagnostics().to_string();
                attempt.refused(&reason);
                Err(reason)
            }
        }
    }

    /// Acquires a lock with leases of any length, holds it for a part of the lease, perhaps extends it, and releases it in
    /// every way.
    async fn contend(self, key: String, longest: Duration, seed: u64) {
        let mut choices = StdRng::seed_from_u64(seed);
        loop {
            let lease = longest.mul_f64(choices.random_range(0.1..=1.0));
            let wait = if choices.random() { longest } else { Duration::ZERO };
            let Ok((guard, mut belief)) = self.acquire(&key, lease, wait).await else {
                sleep(Duration::from_millis(choices.random_range(0..20))).await;
                continue;
            };
            let mut looks = choices.random_range(0..100);
            while looks > 0 && !belief.look(|| guard.remaining()).is_zero() {
                sleep(LOOK).await;
                if choices.random_range(0..50) == 0 {
                    let _ = guard.extend(lease).await;
                }
                looks -= 1;
            }
            drop(belief);
            match choices.random_range(0..4) {
                0 => drop(guard),
                1 => drop(tokio::time::timeout(LOOK, guard.release()).await),
                _ => drop(guard.release().await),
            }
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("LOCKS_URLS")?;
    let history = History::at(std::env::var("HISTORY")?);
    // A connection may have to wait for an election.
    let builder = builder(urls.split(' ')).node_timeout(Duration::from_secs(1));
    let locks = builder.outage_grace(Duration::from_secs(60)).connect().await?;
    let client = || Client { locks: locks.clone(), history: history.clone() };
    let millis = |text: &str| text.parse().map(Duration::from_millis);
    let mut held = None;
    println!("ready");
    let mut orders = BufReader::new(stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        match order.split(' ').collect::<Vec<_>>()[..] {
            ["acquire", key, lease, wait] => {
                match client().acquire(key, millis(lease)?, millis(wait)?).await {
                    Ok(guard) => {
                        held = Some(guard);
                        println!("acquired");
                    }
                    Err(reason) => println!("refused {reason}"),
                }
            }
            ["release"] => {
                let (guard, belief) = held.take().ok_or("no lock is held")?;
                drop(belief);
                match guard.release().await {
                    Ok(()) => println!("released"),
                    Err(error) => println!("{}", error.diagnostics()),
                }
            }
            ["contend", key, lease, seed] => {
                let caller = client().contend(key.to_owned(), millis(lease)?, seed.parse()?);
                tokio::spawn(caller);
            }
            _ => return Err(format!("unknown order: {order}").into()),
        }
    }
    Ok(())
}
