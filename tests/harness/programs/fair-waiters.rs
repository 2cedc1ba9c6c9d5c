//! A process whose callers wait for one lock with `.fair(true)`, for tests of the order between processes.
//!
//! Environment: `LOCKS_URLS`, `KEY`, and `HOLD_MS`, the time for which each caller holds the lock. The process prints
//! `ready`. For each number that it reads from standard input, it starts a caller. After its release, the caller prints
//! its number, and the times at which it had got and released the lock, in nanoseconds of the monotonic clock. The
//! process ends when standard input has ended and all callers are done.

use std::error::Error;
use std::io::BufRead;
use std::time::Duration;

use redlock_tests::{builder, monotonic_nanos};
use tokio::sync::mpsc;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let urls = std::env::var("LOCKS_URLS")?;
    let key = std::env::var("KEY")?;
    let hold = Duration::from_millis(std::env::var("HOLD_MS")?.parse()?);
    // The shutdown waits for a killed server for as long as `connect` does.
    let builder = builder(urls.split(',')).connect_timeout(Duration::from_secs(5));
    let locks = builder.connect().await?;
    let (sender, mut numbers) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines();
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    println!("ready");
    let mut callers = Vec::new();
    while let Some(number) = numbers.recv().await {
        let request = locks.lock(&key).expire(Duration::from_secs(10)).fair(true).wait_forever();
        callers.push(tokio::spawn(async move {
            let guard = request.acquire().await.map_err(|error| error.diagnostics().to_string())?;
            let begun = monotonic_nanos();
            tokio::time::sleep(hold).await;
            let ended = monotonic_nanos();
            // A lock whose release is not confirmed counts as released: its lease runs out.
            let released = guard.release().await;
            println!("{number} {begun} {ended}");
            released.map_err(|error| error.diagnostics().to_string())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    locks.shutdown().await;
    Ok(())
}
