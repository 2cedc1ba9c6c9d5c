//! An order of a whole cart: a request locks all of its articles at once, or none.
//!
//! ```sh
//! cargo run --example cart                                   # an in-memory node
//! REDIS_URLS=redis://127.0.0.1 cargo run --example cart      # one Redis
//! ```
//!
//! `POST /orders?hold_ms=` with a list of articles works for that time. Another order that has one of the
//! articles waits for up to half a second, and is then answered with 409. An order of other articles is not
//! delayed. `POST /articles/{sku}/count` locks one article.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{Path, Query};
use axum::routing::post;
use axum::{Json, Router};
use redlock_axum::{HeldLock, LockKey, LockManager, LockManagerConfig, redis_lock};
use serde::Deserialize;
use tokio::net::TcpListener;
use tracing::info;

#[derive(Deserialize)]
struct Item {
    sku: String,
    count: u32,
}

/// One key for each article, with the same template as in `count`. An article that the cart has twice counts
/// once, and the order of the articles does not matter.
#[redis_lock(keys("sku:{:lower}", cart.iter().map(|item| &item.sku)), wait_time = "500ms")]
async fn order(lock: HeldLock, Query(work): Query<Work>, Json(cart): Json<Vec<Item>>) -> String {
    let keys: Vec<_> = lock.keys().iter().map(LockKey::as_str).collect();
    info!("the order has locked {}", keys.join(", "));
    tokio::time::sleep(Duration::from_millis(work.hold_ms)).await;
    let count: u32 = cart.iter().map(|item| item.count).sum();
    format!("{count} articles are ordered\n")
}

/// Counts one article in the store. No order with this article is taken meanwhile.
#[redis_lock(key = "sku:{sku:lower}")]
async fn count(Path(sku): Path<String>, Query(work): Query<Work>) -> String {
    tokio::time::sleep(Duration::from_millis(work.hold_ms)).await;
    format!("{sku} is counted\n")
}

/// `?hold_ms=`
#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let locks = match std::env::var("REDIS_URLS") {
        Ok(urls) => LockManager::connect(LockManagerConfig::split_urls(&urls)).await?,
        Err(_) => LockManager::in_memory(),
    };
    let app = Router::new()
        .route("/orders", post(order))
        .route("/articles/{sku}/count", post(count))
        .with_state(locks.clone());

    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&listen).await?;
    info!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
        .await?;
    locks.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().init();
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
