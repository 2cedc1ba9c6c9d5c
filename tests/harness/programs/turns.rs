//! A process whose tasks acquire random sets of keys again and again, for tests of fairness between callers.
//!
//! Environment: `LOCKS_URLS`, `SEED`, `TASKS` (the number of tasks), `TURNS` (the acquisitions of each task),
//! `KEYS` (the number of keys), `SIZE` (the keys of each set), `HISTORY`. The process prints `ready`, and begins
//! when it reads a line from standard input. It ends after the last turn.

use std::error::Error;
use std::io::BufRead;
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::try_join_all;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use redlock_core::{LockGuard, LockManager};
use redlock_tests::{History, builder};

const LEASE: Duration = Duration::from_secs(30);

fn variable<T: FromStr<Err: Error + 'static>>(name: &str) -> Result<T, Box<dyn Error>> {
    Ok(std::env::var(name)?.parse()?)
}

async fn acquire(locks: &LockManager, set: &[String]) -> Result<LockGuard, String> {
    let acquired = locks.lock_all(set).expire(LEASE).wait_forever().acquire();
    acquired.await.map_err(|error| error.diagnostics().to_string())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("LOCKS_URLS")?;
    let (tasks, turns): (u64, usize) = (variable("TASKS")?, variable("TURNS")?);
    let (keys, size): (u32, usize) = (variable("KEYS")?, variable("SIZE")?);
    let mut choices = StdRng::seed_from_u64(variable("SEED")?);
    let history = History::at(std::env::var("HISTORY")?);
    // A long timeout, because a failed acquisition would end the process.
    let locks = builder(urls.split(',')).node_timeout(LEASE / 2).connect().await?;
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;

    let tasks = (0..tasks).map(|_| {
        let (locks, history) = (locks.clone(), history.clone());
        let mut choices = StdRng::seed_from_u64(choices.random());
        tokio::spawn(async move {
            for _ in 0..turns {
                let set = (0..keys).sample(&mut choices, size);
                let set: Vec<_> = set.into_iter().map(|key| format!("key:{key}")).collect();
                let attempts: Result<Vec<_>, _> =
                    set.iter().map(|key| history.ask(key, LEASE)).collect();
                let attempts = attempts.map_err(|error| error.to_string())?;
                let guard = acquire(&locks, &set).await?;
                let granted = attempts.into_iter().map(|at| at.granted(None, || guard.remaining()));
                let beliefs: Vec<_> = granted.collect();
                tokio::task::yield_now().await;
                drop(beliefs);
                guard.release().await.map_err(|error| error.diagnostics().to_string())?;
            }
            Ok::<_, String>(())
        })
    });
    for ended in try_join_all(tasks).await? {
        ended?;
    }
    locks.shutdown().await;
    Ok(())
}
