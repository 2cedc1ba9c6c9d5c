//! Sends many requests at once to a service that runs already, and counts the answers.
//!
//! ```sh
//! burst http://127.0.0.1:3000 --requests 10000 --in-flight 10000 --keys distinct --pid 4711
//! ```
//!
//! The program opens all connections first, and then sends one request over each of them at once.
//! It prints how often each status occurred, the connection errors, how long the burst took, the
//! latencies, and with `--pid` the memory of the service.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `--requests` | how many requests are sent | 10000 |
//! | `--in-flight` | how many of them are under way at a time, each over a connection of its own | as `--requests` |
//! | `--keys` | `distinct`: each request has a number of its own; `one`: all have the same; or so many numbers | `distinct` |
//! | `--path` | the path, in which `{n}` becomes the number | `/orders/{n}/pay?hold_ms=0` |
//! | `--allow` | the statuses that do not fail the run, separated by commas | `200`, with shared keys `200,409` |
//! | `--patience` | how many seconds one request may take | 60 |
//! | `--pid` | the process id of the service, whose limit of open files is raised and whose memory is printed | |
//! | `--throttle` | leaves the service of `--pid` a fifth of a core during the burst, by `quota`, `signals` or `any` of them | not throttled; without a value: `any` |
//!
//! The exit code is 0, or 1 for a status outside of `--allow` or a connection error, or 2 where the
//! burst could not be made.
//!
//! The program and the service need a descriptor for each connection. The program raises its own limit
//! of open files, and with `--pid` that of the service, up to their hard limits.
//!
//! The service under test is the example `index`:
//!
//! ```sh
//! REDIS_URLS=redis://127.0.0.1:7001 cargo run --release --example index
//! ```

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use redlock_load::{
    Arguments, Burst, Keys, Memory, Throttle, ThrottleBy, raise_limit, raise_limit_of, resolve,
};

/// Open files of either process besides the connections.
const OTHER_FILES: usize = 100;

struct Options {
    burst: Burst,
    allowed: Vec<u16>,
    service: Option<i32>,
    throttle: Option<ThrottleBy>,
}

async fn options() -> Result<Options, String> {
    let mut arguments = Arguments::of_process()?;
    let url = arguments.positional("the base URL")?;
    let requests = arguments.option("requests")?.unwrap_or(10_000);
    let in_flight = arguments.option("in-flight")?.unwrap_or(requests);
    let keys = arguments.option("keys")?.unwrap_or(Keys::Distinct);
    let path = arguments.option("path")?.unwrap_or_else(|| "/orders/{n}/pay?hold_ms=0".to_owned());
    let allowed: Option<String> = arguments.option("allow")?;
    let default = if keys == Keys::Distinct { "200" } else { "200,409" };
    let allowed = allowed.as_deref().unwrap_or(default).split(',').map(str::parse);
    let allowed = allowed.collect::<Result<_, _>>().map_err(|_| "--allow: a status is a number")?;
    let patience = Duration::from_secs(arguments.option("patience")?.unwrap_or(60));
    let service: Option<i32> = arguments.option("pid")?;
    let throttle = arguments.option_or("throttle", ThrottleBy::Any)?;
    arguments.finish()?;
    if throttle.is_some() && service.is_none() {
        return Err("--throttle needs --pid, the process id of the service".to_owned());
    }
    let address = resolve(&url).await.map_err(|error| error.to_string())?;
    let services = vec![address];
    let burst = Burst { services, requests, in_flight, keys, path, patience };
    Ok(Options { burst, allowed, service, throttle })
}

/// Returns whether all answers were as they should be.
async fn run(options: Options) -> io::Result<bool> {
    let Options { burst, allowed, service, throttle } = options;
    let files = burst.in_flight.min(burst.requests) + OTHER_FILES;
    raise_limit(files)?;
    if let Some(service) = service {
        raise_limit_of(service, files)?;
    }
    let before = service.and_then(Memory::of);
    let open = burst.open().await?;
    let throttle = match (service, throttle) {
        (Some(service), Some(by)) => Some(Throttle::process(service, by)?),
        _ => None,
    };
    let outcome = open.send().await;
    if let Some(throttle) = throttle {
        println!("throttled by       {}", throttle.means());
    }
    println!("{}", outcome.answers);
    println!("connect retries    {}", outcome.retries);
    println!("wall time          {:.2?}", outcome.wall);
    if let (Some(before), Some(after)) = (before, service.and_then(Memory::of)) {
        println!("service before     {before}");
        println!("service after      {after}");
    }
    let outside = outcome.answers.outside(&allowed);
    if !outside.is_empty() {
        println!("NOT ALLOWED        {outside:?} (status: how often)");
    }
    Ok(outside.is_empty() && outcome.answers.connection_errors() == 0)
}

#[tokio::main]
async fn main() -> ExitCode {
    let ran = match options().await {
        Ok(options) => run(options).await.map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("burst: {error}");
            ExitCode::from(2)
        }
    }
}
