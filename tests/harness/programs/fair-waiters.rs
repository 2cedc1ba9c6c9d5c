//! A process whose callers wait for one lock with `.fair()`, for tests of the order between processes.
//!
//! Environment: `REDIS_URLS`, `KEY`, `HOLD_MS` (how long each caller holds the lock), `HISTORY`. The process prints
//! `ready`. For each number that it reads from standard input, it starts a caller, and prints `entered <number>` when
//! the caller waits. A caller prints `held <number>` when it has the lock, and `released <number>` afterwards. The
//! process ends with standard input, after its last caller.

use std::error::Error;
use std::io::BufRead;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use redlock_core::LockManager;
use redlock_tests::History;
use tokio::sync::mpsc;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("REDIS_URLS")?;
    let key = std::env::var("KEY")?;
    let hold = Duration::from_millis(std::env::var("HOLD_MS")?.parse()?);
    let history = History::at(std::env::var("HISTORY")?);
    let locks = LockManager::builder().urls(urls.split(',')).connect().await?;
    let (sender, mut numbers) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    println!("ready");
    let mut callers = Vec::new();
    while let Some(number) = numbers.recv().await {
        let (locks, key, history) = (locks.clone(), key.clone(), history.clone());
        let caller = async move {
            let request = locks.lock(&key).expire(Duration::from_secs(10)).fair().wait_forever();
            let mut acquiring = Box::pin(request.acquire());
            // The first poll sends the ticket.
            let at_once = (&mut acquiring).now_or_never();
            println!("entered {number}");
            let guard = match at_once {
                Some(acquired) => acquired,
                None => acquiring.await,
            };
            let guard = guard.map_err(|error| error.diagnostics().to_string())?;
            let belief = history.enter(&key).map_err(|error| error.to_string())?;
            println!("held {number}");
            tokio::time::sleep(hold).await;
            drop(belief);
            guard.release().await.map_err(|error| error.diagnostics().to_string())?;
            println!("released {number}");
            Ok::<_, String>(())
        };
        callers.push(async { tokio::spawn(caller).await.map_err(|error| error.to_string())? }.boxed());
        // Starts the caller.
        let last = callers.len() - 1;
        assert!(callers[last].as_mut().now_or_never().is_none(), "a spawned task has no result yet");
    }
    try_join_all(callers).await?;
    locks.shutdown().await;
    Ok(())
}
