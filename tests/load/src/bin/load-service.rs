//! A service with locked routes, whose handlers find out by themselves when two of them work on one
//! key at once: the service of the bursts and of the soak.
//!
//! | route | lock |
//! |---|---|
//! | `POST /try/{id}` | `try-{id}`, one attempt |
//! | `POST /wait/{id}` | `wait-{id}`, waits up to ten seconds |
//! | `POST /fenced/{id}` | `fenced-{id}`, the same, with a fencing token |
//!
//! Each handler works for `?hold_ms=` milliseconds, by default for none.
//!
//! | environment | meaning | default |
//! |---|---|---|
//! | `LISTEN` | where the service listens | |
//! | `REDIS_URLS` | the Redis servers, separated by commas | |
//! | `MARKERS` | the directory of the [`Markers`], the same for all copies of the service | |
//! | `LEASE_MS` | the lease of all locks | 5000 |
//! | `RESTART_GUARD` | `true`: servers that were restarted do not vote for a lease | `false` |
//! | `NODE_TIMEOUT_MS` | how long the servers have to answer | the library's |
//!
//! SIGTERM ends the service as a well-behaved one ends: running requests may finish, and then what is
//! still held is released.

use std::error::Error;
use std::path::Path as FilePath;
use std::str::FromStr;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlock_axum::{HeldLock, LockLayer, LockManager, LocksLayer};
use redlock_load::{Markers, raise_limit};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const WAIT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

async fn work(
    route: MatchedPath,
    Path(id): Path<u64>,
    Query(Work { hold_ms }): Query<Work>,
    State(markers): State<Markers>,
    lock: HeldLock,
) -> Result<&'static str, (StatusCode, String)> {
    let route = route.as_str().split('/').nth(1).unwrap_or_default();
    let inside = markers
        .enter(&format!("{route}-{id}"), || lock.remaining())
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    if hold_ms > 0 {
        sleep(Duration::from_millis(hold_ms)).await;
    }
    drop(inside);
    Ok("done\n")
}

fn variable<T: FromStr<Err: Error + 'static>>(name: &str) -> Result<Option<T>, Box<dyn Error>> {
    Ok(std::env::var(name).ok().map(|value| value.parse()).transpose()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    raise_limit(0)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let lease = Duration::from_millis(variable("LEASE_MS")?.unwrap_or(5000));
    let mut builder =
        LockManager::builder().urls(std::env::var("REDIS_URLS")?.split(',')).expire(lease);
    if variable("RESTART_GUARD")?.unwrap_or(false) {
        builder = builder.restart_guard(lease);
    }
    if let Some(millis) = variable("NODE_TIMEOUT_MS")? {
        builder = builder.node_timeout(Duration::from_millis(millis));
    }
    let locks = builder.connect().await?;
    let markers = Markers::in_directory(FilePath::new(&std::env::var("MARKERS")?))?;

    let locked = |layer: LockLayer| post(work).route_layer(layer.expire(lease));
    let app = Router::new()
        .route("/try/{id}", locked(LockLayer::new("try-{id:u64}")))
        .route("/wait/{id}", locked(LockLayer::new("wait-{id:u64}").wait_time(WAIT)))
        .route(
            "/fenced/{id}",
            locked(LockLayer::new("fenced-{id:u64}").fenced(true).wait_time(WAIT)),
        )
        .layer(LocksLayer::new(&locks))
        .with_state(markers);
    let listener = TcpListener::bind(std::env::var("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);

    let stop = CancellationToken::new();
    let server = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    terminate.recv().await;
    stop.cancel();
    // Requests that take longer lose their locks to the shutdown.
    if let Ok(ended) = timeout(Duration::from_secs(2), server).await {
        ended??;
    }
    locks.shutdown().await;
    Ok(())
}
