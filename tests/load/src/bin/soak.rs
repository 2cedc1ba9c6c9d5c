//! Runs two copies of a locked service for a long time, while their Redis servers are killed one after
//! another, and watches from outside that no two handlers work on one key at once.
//!
//! ```sh
//! cargo build --release -p redlock-load
//! target/release/soak
//! ```
//!
//! The program starts five Redis servers on free ports and two processes of `load-service`, which has
//! to lie beside it. Until the time is over
//!
//! * random servers are killed (SIGKILL) and started again at once, without their data,
//! * clients of both services contend for a few keys, some with short work, some with work that takes
//!   nearly as long as the lease of one second,
//! * other clients close their connection in the middle of a request,
//! * now and then 2,000 requests come at once.
//!
//! The handlers find overlaps by files, without the library: see [`redlock_load::Markers`]. The
//! library only says for how long a handler may rely on its lock. An overlap with a handler that was
//! held up for longer than that is counted as `beyond the lease`, and is no violation.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `--seconds` | how long it runs | 1200 |
//! | `--seed` | repeats the random choices of another run, which has printed its seed | random |
//! | `--no-guard` | the services run without `restart_guard` | with it |
//! | `--pause-ms` | the shortest and the longest pause between two kills, such as `1500-4000` | `1500-4000`, without the guard `20-80` |
//! | `--vanishing` | how many clients close their connection in the middle of a request | 10,000 in 1200 s |
//! | `--bursts` | how many bursts there are | one every 30 s |
//! | `--burst-requests` | how many requests one burst has | 2000 |
//! | `--node-timeout-ms` | how long a server may be silent | the library's 200 ms |
//!
//! The exit code is 0, or 1 for a violation, or 2 where the run could not be made. Violations are:
//!
//! * two handlers at work on one key that could both rely on their locks,
//! * a 503 while three of the five servers voted, any status but 200, 409 and 503, a connection error,
//! * more memory in the last third of the run than in the second: the medians differ by more than a
//!   tenth and 2 MiB. This is judged in runs of 300 s and more,
//! * handlers that never ended,
//! * keys that are left on the servers when all leases are over, other than the counter of the fencing
//!   tokens.
//!
//! # Which 503 are violations
//!
//! With the restart guard a restarted server votes again when it has surely been running for a lease.
//! It reports its uptime in whole seconds, so this takes up to three seconds, and up to one more until
//! the services are connected again. The default pauses leave three of the five servers
//! voting nearly all the time. When they do not, a 503 is right. The report counts these apart.
//!
//! # Without the guard
//!
//! With `--no-guard` the kills follow each other so fast that a majority forgets a lock while it is
//! held. Such a run **must** find overlaps, and end with 1: otherwise the detector is broken. Run it
//! with the guard and the same `--pause-ms` to see that the guard prevents them.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use redlock_load::{Arguments, Soak};

/// How many clients vanish in how many seconds.
const VANISHING: (u64, u64) = (10_000, 1200);
const SECONDS_PER_BURST: u64 = 30;

fn soak() -> Result<Soak, String> {
    let mut arguments = Arguments::of_process()?;
    let seconds: u64 = arguments.option("seconds")?.unwrap_or(1200);
    let seed = arguments.option("seed")?.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let guarded = !arguments.flag("no-guard")?;
    let pause: Option<String> = arguments.option("pause-ms")?;
    let default = if guarded { "1500-4000" } else { "20-80" };
    let pause = pause_of(pause.as_deref().unwrap_or(default))?;
    let vanishing = u32::try_from(seconds * VANISHING.0 / VANISHING.1).unwrap_or(u32::MAX);
    let vanishing = arguments.option("vanishing")?.unwrap_or(vanishing);
    let bursts = u32::try_from((seconds / SECONDS_PER_BURST).max(1)).unwrap_or(u32::MAX);
    let bursts = arguments.option("bursts")?.unwrap_or(bursts);
    let burst_requests = arguments.option("burst-requests")?.unwrap_or(2000);
    let node_timeout = arguments.option("node-timeout-ms")?.map(Duration::from_millis);
    arguments.finish()?;
    let time = Duration::from_secs(seconds);
    let service = service()?;
    Ok(Soak {
        service,
        time,
        seed,
        guarded,
        pause,
        vanishing,
        bursts,
        burst_requests,
        node_timeout,
    })
}

fn pause_of(text: &str) -> Result<Range<Duration>, String> {
    let range = text.split_once('-').and_then(|(shortest, longest)| {
        let [shortest, longest] = [shortest, longest].map(|text| text.parse().ok());
        Some(Duration::from_millis(shortest?)..Duration::from_millis(longest?))
    });
    let wrong = || {
        format!("--pause-ms cannot be {text:?}: give the shortest and the longest, as 1500-4000")
    };
    range.filter(|range| !range.is_empty()).ok_or_else(wrong)
}

/// The program of the service, which is built together with this one.
fn service() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let service = own.with_file_name("load-service");
    if service.exists() {
        return Ok(service);
    }
    Err(format!("{} is missing: cargo build -p redlock-load builds it too", service.display()))
}

#[tokio::main]
async fn main() -> ExitCode {
    let soak = match soak() {
        Ok(soak) => soak,
        Err(error) => {
            eprintln!("soak: {error}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", soak.seed);
    match soak.run().await {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(!report.violations().is_empty()))
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}
