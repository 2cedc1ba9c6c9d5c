//! A process that holds a lock and prints its state, for tests that stop the process.
//!
//! Environment: `LOCKS_URLS`, `KEY`, `EXPIRE_MS`. The process prints `held` and waits for a line on standard
//! input. Then it prints whether the lock is valid, `lost` when the guard reports the loss, and the result of
//! the release.

use std::error::Error;
use std::time::Duration;

use redlock_core::ReleaseError;
use redlock_tests::{builder, held_briefly};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("LOCKS_URLS")?;
    let expire = Duration::from_millis(std::env::var("EXPIRE_MS")?.parse()?);
    let locks = builder(urls.split(',')).node_timeout(expire).connect().await?;
    let key = std::env::var("KEY")?;
    let acquire = || locks.lock(&key).expire(expire).renew(true).try_acquire();
    let guard = held_briefly(acquire).await;
    println!("held");
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    println!("valid: {}", guard.is_valid());
    guard.lost().await;
    println!("lost");
    match guard.release().await {
        Ok(()) => println!("released"),
        Err(ReleaseError::Lost(_)) => println!("lost"),
        Err(error) => println!("{}", error.diagnostics()),
    }
    locks.shutdown().await;
    Ok(())
}
