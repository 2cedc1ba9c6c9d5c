//! At most three exports of a tenant at the same time, and a relocation that waits for all of them.
//!
//! ```sh
//! cargo run --example exports                                 # locks this process only
//! REDIS_URLS=redis://127.0.0.1 cargo run --example exports    # three exports among all copies
//! ```
//!
//! Permits need a single node, so `REDIS_URLS` must name one server. Every route takes `?hold_ms=`, the time its
//! handler works.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query};
use axum::routing::post;
use redlock_axum::{LockManager, LockManagerConfig, redis_lock};
use serde::Deserialize;
use tokio::net::TcpListener;
use tracing::info;

/// The number of exports that the database of a tenant can bear.
const EXPORTS: u32 = 3;

/// A fourth export of the tenant is refused with 409. The lease of each export is renewed, so that a copy that is
/// killed blocks its permits for three seconds at most.
#[redis_lock(key = "export:{tenant}", permits = EXPORTS, expire = 3, renew)]
async fn export(Path(tenant): Path<u64>, Query(work): Query<Work>) -> String {
    work.run("export").await;
    format!("the data of tenant {tenant}\n")
}

/// The same key without permits is an exclusive lock: a relocation waits for the exports that run, and keeps out new
/// ones.
#[redis_lock(key = "export:{tenant}", expire = 3, renew, wait_time = 30)]
async fn relocate(Path(tenant): Path<u64>, Query(work): Query<Work>) -> String {
    work.run("relocation").await;
    format!("tenant {tenant} has another database\n")
}

fn app(locks: LockManager) -> Router {
    Router::new()
        .route("/tenants/{tenant}/exports", post(export))
        .route("/tenants/{tenant}/relocation", post(relocate))
        .with_state(locks)
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let locks = match std::env::var("REDIS_URLS") {
        Ok(urls) => LockManager::connect(LockManagerConfig::split_urls(&urls)).await?,
        Err(_) => LockManager::in_memory(),
    };
    let app = app(locks.clone());

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

/// `?hold_ms=`
#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

impl Work {
    async fn run(self, what: &str) {
        info!("{what} begins");
        tokio::time::sleep(Duration::from_millis(self.hold_ms)).await;
        info!("{what} ends");
    }
}
