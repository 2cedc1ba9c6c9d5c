//! Locks for routes, read from a configuration file. The handlers contain no code for locks.
//!
//! ```sh
//! cargo run --example policies                          # reads examples/policies.toml
//! POLICIES=/etc/shop.toml REDIS_URLS=redis://127.0.0.1 cargo run --example policies
//! ```
//!
//! The file says which routes are locked, by which key and how. See `policies.toml` beside this
//! file. Every route takes `?hold_ms=`, the time its handler works.

mod server;

use std::error::Error;
use std::process::ExitCode;

use axum::Router;
use axum::extract::{Path, Query};
use axum::routing::{get, post};
use redlock_axum::{LockLayer, LockManager, LockPolicy, SetupError};
use serde::Deserialize;

use server::Work;

const PAY: &str = "/orders/{id}/pay";
const STOCK: &str = "/stock/{sku}";
const REPORT: &str = "/reports/{name}";

/// The configuration of the service. A real one has more fields than this.
#[derive(Deserialize)]
struct Config {
    locks: Vec<LockPolicy>,
}

impl Config {
    fn read(path: &str) -> Result<Self, Box<dyn Error>> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(toml::from_str(&text).map_err(|error| format!("{path}: {error}"))?)
    }

    /// Returns the layer with the policies.
    fn layer(self, locks: &LockManager) -> Result<LockLayer, SetupError> {
        let layer = LockLayer::table(locks, self.locks)?;
        // A policy for a route that does not exist would lock nothing, so it is an error too.
        layer.check_routes([PAY, STOCK, REPORT])?;
        Ok(layer)
    }
}

async fn pay(Path(id): Path<u64>, Query(work): Query<Work>) -> String {
    work.run_logged("pay").await;
    format!("order {id} is paid\n")
}

async fn show_stock(Path(sku): Path<String>) -> String {
    format!("some {sku}s are left\n")
}

async fn change_stock(Path(sku): Path<String>, Query(work): Query<Work>) -> String {
    work.run_logged("change stock").await;
    format!("the stock of {sku} is changed\n")
}

async fn report(Path(name): Path<String>, Query(work): Query<Work>) -> String {
    work.run_logged("report").await;
    format!("the {name} report is sent\n")
}

fn app(policies: LockLayer) -> Router {
    Router::new()
        .route(PAY, post(pay))
        .route(STOCK, get(show_stock).put(change_stock).delete(change_stock))
        .route(REPORT, post(report))
        .layer(policies)
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let path = std::env::var("POLICIES");
        let path = path.unwrap_or_else(|_| "examples/policies.toml".to_owned());
        let config = Config::read(&path)?;
        let locks = server::connect().await?;
        let layer = config.layer(&locks).map_err(|error| format!("{path}: {error}"))?;
        server::serve(app(layer), &locks).await
    })
    .await
}
