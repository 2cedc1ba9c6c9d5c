//! A service whose handlers record a history, so that a test can check that no two of them run under one lock
//! at the same time.
//!
//! `POST /attribute/{id}`, `/layer/{id}` and `/waiting/{id}` lock the same key: with the attribute, with the
//! layer, and with a layer that waits. `?hold_ms=` sets the duration of the work. Environment: `REDIS_URLS`
//! (separated by commas), `LISTEN` (the address), `HISTORY` (the file), `NODE_TIMEOUT` (in seconds, by default 2).

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::routing::post;
use redlock_axum::{LockLayer, LockManager, LocksLayer, redis_lock};
use redlock_tests::History;
use serde::Deserialize;
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

impl Work {
    /// The work under the lock.
    async fn run(self, history: &History, id: u64) -> String {
        match history.enter(&format!("order:{id}")) {
            Ok(_belief) => {
                tokio::time::sleep(Duration::from_millis(self.hold_ms)).await;
                "done".to_owned()
            }
            Err(error) => error.to_string(),
        }
    }
}

#[redis_lock(key = "order:{id}", installed)]
async fn attribute(
    Path(id): Path<u64>,
    Query(work): Query<Work>,
    State(history): State<History>,
) -> String {
    work.run(&history, id).await
}

async fn layered(
    Path(id): Path<u64>,
    Query(work): Query<Work>,
    State(history): State<History>,
) -> String {
    work.run(&history, id).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let node_timeout = std::env::var("NODE_TIMEOUT").map_or(Ok(2), |seconds| seconds.parse())?;
    let locks = LockManager::builder()
        .urls(std::env::var("REDIS_URLS")?.split(','))
        .node_timeout(Duration::from_secs(node_timeout))
        .connect_timeout(Duration::from_secs(20))
        .connect()
        .await?;
    let history = History::at(std::env::var("HISTORY")?);
    let layer = LockLayer::new("order:{id:u64}");
    let waiting = layer.clone().wait_time(Duration::from_secs(30));
    let app = Router::new()
        .route("/attribute/{id}", post(attribute))
        .route("/layer/{id}", post(layered).route_layer(layer))
        .route("/waiting/{id}", post(layered).route_layer(waiting))
        .layer(LocksLayer::new(&locks))
        .with_state(history);
    let listener = TcpListener::bind(std::env::var("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
