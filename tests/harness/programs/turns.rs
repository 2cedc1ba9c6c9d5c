//! A process whose tasks acquire one lock again and again, for tests of fairness between processes.
//!
//! Environment: `REDIS_URLS`, `KEY`, `TASKS` (the number of tasks), `TURNS` (the acquisitions of each task),
//! `WORK_US` (how long a task holds the lock), `HISTORY`. The process prints `ready`, and begins when it
//! reads a line from standard input. It prints the waiting time of each acquisition in microseconds, one per
//! line.

use std::error::Error;
use std::io::BufRead;
use std::str::FromStr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use redlock_core::LockManager;
use redlock_tests::History;

fn variable<T: FromStr<Err: Error + 'static>>(name: &str) -> Result<T, Box<dyn Error>> {
    Ok(std::env::var(name)?.parse()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("REDIS_URLS")?;
    let key = std::env::var("KEY")?;
    let (tasks, turns): (usize, usize) = (variable("TASKS")?, variable("TURNS")?);
    let work = Duration::from_micros(variable("WORK_US")?);
    let history = History::at(std::env::var("HISTORY")?);
    // A long timeout, because a failed acquisition would distort the measurement of fairness.
    let builder = LockManager::builder().urls(urls.split(',')).node_timeout(Duration::from_secs(2));
    let locks = builder.connect().await?;
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;

    let tasks = (0..tasks).map(|_| {
        let (locks, key, history) = (locks.clone(), key.clone(), history.clone());
        tokio::spawn(async move {
            let mut waits = Vec::with_capacity(turns);
            for _ in 0..turns {
                let begun = Instant::now();
                let request = locks.lock(&key).expire(Duration::from_secs(10));
                let guard = request
                    .wait_forever()
                    .acquire()
                    .await
                    .map_err(|e| e.diagnostics().to_string())?;
                waits.push(begun.elapsed());
                let belief = history.enter(&key).map_err(|e| e.to_string())?;
                if work.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(work).await;
                }
                drop(belief);
                guard.release().await.map_err(|e| e.diagnostics().to_string())?;
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
