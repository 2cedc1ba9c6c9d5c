//! A service whose handlers record a history, so that a test can check that no two of them run under one lock
//! at the same time.
//!
//! `POST /attribute/{id}`, `/layer/{id}`, `/waiting/{id}` and `/fenced/{id}` lock the same key: with the attribute,
//! with the layer, with a layer that waits, and with one that waits and gives out fencing tokens. `?hold_ms=` sets
//! the duration of the work. `POST /blocking/{id}` locks `blocking:{id}`, and renews the lock. Its handler blocks its thread for
//! this duration. The service prints warnings. Environment: `LOCKS_URLS` (separated by commas), `LISTEN` (the address), `HISTORY` (the
//! file), and, if they are set, `NODE_TIMEOUT_MS`, `LEASE_MS` for the layers and `RESTART_GUARD_MS`.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::routing::post;
use redlock_axum::{HeldLock, LockLayer, LockManager, LockPolicy, ScopeLayer, redis_lock};
use redlock_tests::History;
use serde::Deserialize;
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

/// The longest wait for a lock.
const WAIT: Duration = Duration::from_secs(30);
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The work under the lock. The handler relies on the lock until its lease ends.
async fn work(history: &History, lock: &HeldLock, id: u64, hold_ms: u64) -> String {
    match history.ask(&format!("order:{id}"), WAIT) {
        Ok(attempt) => {
            let _belief = attempt.granted(None, || lock.remaining());
            tokio::time::sleep(Duration::from_millis(hold_ms)).await;
            "done".to_owned()
        }
        Err(error) => error.to_string(),
    }
}

/// Work that blocks its thread. It does not await anything.
async fn blocking(Query(Work { hold_ms }): Query<Work>) -> &'static str {
    std::thread::sleep(Duration::from_millis(hold_ms));
    "done"
}

/// Reads a duration; `None` if the variable is not set.
fn duration(variable: &str) -> Result<Option<Duration>, Box<dyn Error>> {
    let millis = std::env::var(variable).ok().map(|millis| millis.parse()).transpose()?;
    Ok(millis.map(Duration::from_millis))
}

#[redis_lock(key = "order:{id}", installed)]
async fn attribute(
    Path(id): Path<u64>,
    Query(Work { hold_ms }): Query<Work>,
    State(history): State<History>,
    lock: HeldLock,
) -> String {
    work(&history, &lock, id, hold_ms).await
}

async fn layered(
    Path(id): Path<u64>,
    Query(Work { hold_ms }): Query<Work>,
    State(history): State<History>,
    lock: HeldLock,
) -> String {
    work(&history, &lock, id, hold_ms).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch_and_print();
    let mut policy = LockPolicy::new("order:{id:u64}");
    let mut renewed = LockPolicy::new("blocking:{id:u64}");
    // With hundreds of requests at once on few cores, a slow reply is not a failure, nor is a slow connection.
    let mut builder =
        LockManager::builder().node_timeout(NODE_TIMEOUT).connect_timeout(CONNECT_TIMEOUT);
    if let Some(timeout) = duration("NODE_TIMEOUT_MS")? {
        builder = builder.node_timeout(timeout);
    }
    if let Some(lease) = duration("LEASE_MS")? {
        policy = policy.expire(lease);
        renewed = renewed.expire(lease).renew(true);
        builder = builder.expire(lease).node_timeout(NODE_TIMEOUT.min(lease / 2));
    }
    if let Some(longest_lease) = duration("RESTART_GUARD_MS")? {
        builder = builder.restart_guard(longest_lease);
    }
    let urls = std::env::var("LOCKS_URLS")?;
    let locks = builder.urls(urls.split(',')).connect().await?;
    let history = History::at(std::env::var("HISTORY")?);
    let waiting = policy.clone().wait_time(WAIT);
    let fenced = waiting.clone().fenced(true);
    let layer = |policy| LockLayer::new(&locks, policy);
    let app = Router::new()
        .route("/attribute/{id}", post(attribute))
        .route("/layer/{id}", post(layered).route_layer(layer(policy)?))
        .route("/waiting/{id}", post(layered).route_layer(layer(waiting)?))
        .route("/fenced/{id}", post(layered).route_layer(layer(fenced)?))
        .route("/blocking/{id}", post(blocking).route_layer(layer(renewed)?))
        .layer(ScopeLayer::new(&locks))
        .with_state(history);
    let listener = TcpListener::bind(std::env::var("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
