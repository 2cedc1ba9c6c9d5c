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

mod server;

use std::process::ExitCode;

use axum::extract::{Path, Query};
use axum::routing::post;
use axum::{Json, Router};
use redlock_axum::{HeldLock, LockKey, redis_lock};
use serde::Deserialize;
use tracing::info;

use server::Work;

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
    work.run().await;
    let count: u32 = cart.iter().map(|item| item.count).sum();
    format!("{count} articles are ordered\n")
}

/// Counts one article in the store. No order with this article is taken meanwhile.
#[redis_lock(key = "sku:{sku:lower}")]
async fn count(Path(sku): Path<String>, Query(work): Query<Work>) -> String {
    work.run().await;
    format!("{sku} is counted\n")
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let locks = server::connect().await?;
        let app = Router::new()
            .route("/orders", post(order))
            .route("/articles/{sku}/count", post(count))
            .with_state(locks.clone());
        server::serve(app, &locks).await
    })
    .await
}
