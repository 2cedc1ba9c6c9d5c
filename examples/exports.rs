//! At most three exports of a tenant at the same time, and a relocation that waits for all of them.
//!
//! ```sh
//! cargo run --example exports                                 # locks this process only
//! REDIS_URLS=redis://127.0.0.1 cargo run --example exports    # three exports among all copies
//! ```
//!
//! Permits need a single node, so `REDIS_URLS` must name one server. Every route takes `?hold_ms=`, the time its
//! handler works.

mod server;

use std::process::ExitCode;

use axum::Router;
use axum::extract::{Path, Query};
use axum::routing::post;
use redlock_axum::redis_lock;

use server::Work;

/// The number of exports that the database of a tenant can bear.
const EXPORTS: u32 = 3;

/// A fourth export of the tenant is refused with 409. The lease of each export is renewed, so that a copy that is
/// killed blocks its permits for three seconds at most.
#[redis_lock(key = "export:{tenant}", permits = EXPORTS, expire = 3, renew)]
async fn export(Path(tenant): Path<u64>, Query(work): Query<Work>) -> String {
    work.run_logged("export").await;
    format!("the data of tenant {tenant}\n")
}

/// The same key without permits is an exclusive lock: a relocation waits for the exports that run, and keeps out new
/// ones.
#[redis_lock(key = "export:{tenant}", expire = 3, renew, wait_time = 30)]
async fn relocate(Path(tenant): Path<u64>, Query(work): Query<Work>) -> String {
    work.run_logged("relocation").await;
    format!("tenant {tenant} has another database\n")
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let locks = server::connect().await?;
        let app = Router::new()
            .route("/tenants/{tenant}/exports", post(export))
            .route("/tenants/{tenant}/relocation", post(relocate))
            .with_state(locks.clone());
        server::serve(app, &locks).await
    })
    .await
}
