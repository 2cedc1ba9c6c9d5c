//! A process whose tasks acquire random sets of keys again and again, for tests of locks of several keys.
//!
//! Environment: `REDIS_URLS`, `SEED`, `TASKS` (the number of tasks), `TURNS` (the acquisitions of each task),
//! `KEYS` (the number of keys), `SIZE` (the keys of each set), `HISTORY`. The process prints `ready`, and begins
//! when it reads a line from standard input. It prints the waiting time of each acquisition in microseconds,
//! one per line.

use std::error::Error;
use std::io::BufRead;
use std::str::FromStr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use redlock_core::LockManager;
use redlock_tests::History;

fn variable<T: FromStr<Err: Error + 'static>>(name: &str) -> Result<T, Box<dyn Error>> {
    Ok(std::env::var(name)?.parse()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("REDIS_URLS")?;
    let (tasks, turns): (u64, usize) = (variable("TASKS")?, variable("TURNS")?);
    let (keys, size): (u32, usize) = (variable("KEYS")?, variable("SIZE")?);
    let mut choices = StdRng::seed_from_u64(variable("SEED")?);
    let history = History::at(std::env::var("HISTORY")?);
    // A long timeout, because a failed acquisition would end the process.
    let builder = LockManager::builder().urls(urls.split(',')).node_timeout(Duration::from_secs(2));
    let locks = builder.connect().await?;
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;

    let tasks = (0..tasks).map(|_| {
        let (locks, history) = (locks.clone(), history.clone());
        let mut choices = StdRng::seed_from_u64(choices.random());
        tokio::spawn(async move {
            let mut waits = Vec::with_capacity(turns);
            for _ in 0..turns {
                let set = (0..keys).sample(&mut choices, size);
                let set: Vec<_> = set.into_iter().map(|key| format!("key:{key}")).collect();
                let begun = Instant::now();
                let request = locks.lock_all(&set).expire(Duration::from_secs(10)).wait_forever();
                let guard =
                    request.acquire().await.map_err(|error| error.diagnostics().to_string())?;
                waits.push(begun.elapsed());
                let beliefs: Result<Vec<_>, _> = set.iter().map(|key| history.enter(key)).collect();
                let beliefs = beliefs.map_err(|error| error.to_string())?;
                tokio::task::yield_now().await;
                drop(beliefs);
                guard.release().await.map_err(|error| error.diagnostics().to_string())?;
            }
            Ok::<_, String>(waits)
        })
    });
    for waits in try_join_all(tasks).await? {
        for wait in waits? {
            println!("{}", wait.as_micros());
        }
    }
    locks.shutdown().await;
    Ok(())
}
