//! A process that holds a lock and says what becomes of it, for tests that stop it.
//!
//! Environment: `REDIS_URLS`, `KEY`, `EXPIRE_MS`. Prints `held`; when a line comes in, whether the
//! lock is valid at the first look, then `lost` as soon as it is, then how the release went.

use std::error::Error;
use std::time::Duration;

use redlock_core::{LockManager, ReleaseError};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("REDIS_URLS")?;
    let expire = Duration::from_millis(std::env::var("EXPIRE_MS")?.parse()?);
    let locks = LockManager::connect(urls.split(',')).await?;
    let guard = locks.lock(std::env::var("KEY")?).expire(expire).renew(true).try_acquire().await?;
    println!("held");
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    println!("valid: {}", guard.is_valid());
    guard.lost().await;
    println!("lost");
    match guard.release().await {
        Ok(()) => println!("released"),
        Err(ReleaseError::Expired { .. }) => println!("expired"),
        Err(error) => println!("{error}"),
    }
    locks.shutdown().await;
    Ok(())
}
