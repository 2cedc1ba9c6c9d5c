//! Locks around the transactions of other crates, with a real PostgreSQL. `TicketShop` decides by a barrier that a lock which ends
//! before the commit sells the ticket twice in each run.
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod axum_idempotent;
mod axum_sqlx_tx;
mod dropped;
mod own;
mod retries;
mod sessions;
mod ticks;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use redlock_tests::{TicketShop, skip};
use tower::ServiceExt;

/// Skips the test if there is no PostgreSQL.
async fn start() -> Option<TicketShop> {
    TicketShop::start().await.inspect_err(|why| skip(why)).ok()
}

async fn buy(app: &Router) -> StatusCode {
    app.clone().oneshot(Request::post("/").body(Body::empty()).unwrap()).await.unwrap().status()
}

async fn sold(shop: &TicketShop, app: &Router) -> i64 {
    shop.sold_to_two(|| buy(app)).await
}
