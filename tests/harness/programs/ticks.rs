//! A process that starts a job at each tick of the wall clock, as other processes do at the same moment.
//!
//! Environment: `LOCKS_URLS`, `TICKS` (their number), `INTERVAL` (milliseconds from one to the next), `JOB` (`plain`, `fenced`,
//! `set` for a lock of two keys, `ring` for two of three keys, which the number of the process in `COPY` chooses, or
//! `redisson`). The process prints `ready`, and reads the time of the first tick from standard
//! input, in milliseconds since 1970. It prints a line for each tick: its number, and the outcome (`ran`, `held`, `split` or
//! `failed`).

use std::error::Error;
use std::io::BufRead;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_core::{Dialect, LockError, LockGuard, LockManager};
use redlock_tests::builder;

/// No tick has the key of another one.
const LEASE: Duration = Duration::from_secs(600);

fn variable<T: FromStr<Err: Error + 'static>>(name: &str) -> Result<T, Box<dyn Error>> {
    Ok(std::env::var(name)?.parse()?)
}

async fn until(tick: Duration) -> Result<(), Box<dyn Error>> {
    loop {
        let left = tick.saturating_sub(SystemTime::now().duration_since(UNIX_EPOCH)?);
        if left.is_zero() {
            return Ok(());
        }
        tokio::time::sleep(left).await;
    }
}

async fn acquire(
    locks: &LockManager,
    job: &str,
    copy: u32,
    tick: u32,
) -> Result<LockGuard, LockError> {
    let key = format!("{job}:{tick}");
    let request = match job {
        "set" => locks.lock_all([key.clone(), format!("{key}:report")]),
        // Any two of these sets have a key in common.
        "ring" => locks.lock_all([copy, copy + 1].map(|one| format!("{key}:{}", one % 3))),
        _ => locks.lock(key),
    };
    request.expire(LEASE).fenced(job == "fenced").keep(true).try_acquire().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("LOCKS_URLS")?;
    let (ticks, interval): (u32, u64) = (variable("TICKS")?, variable("INTERVAL")?);
    let (job, copy): (String, u32) = (variable("JOB")?, variable("COPY")?);
    let dialect = if job == "redisson" { Dialect::Redisson } else { Dialect::Plain };
    let locks = builder(urls.split(',')).dialect(dialect).connect().await?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let first = Duration::from_millis(line.trim().parse()?);
    for tick in 0..ticks {
        until(first + Duration::from_millis(interval) * tick).await?;
        let outcome = match acquire(&locks, &job, copy, tick).await {
            Ok(_guard) => "ran",
            Err(error) if error.is_contended() => "held",
            Err(error) if error.is_split() => "split",
            Err(_) => "failed",
        };
        println!("{tick} {outcome}");
    }
    // A frozen server executes the clean-up of the last attempt later.
    locks.shutdown().await;
    Ok(())
}
