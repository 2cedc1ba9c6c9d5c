//! Readers and writers, permits, and several keys: a catalogue, exports of tenants, and orders of whole carts.
//!
//! ```sh
//! cargo run --example modes                                   # locks this process only
//! LOCKS_URLS=redis://127.0.0.1 cargo run --example modes      # one lock for all copies
//! ```
//!
//! Permits need a single node, so `LOCKS_URLS` must name one server. The articles of the catalogue are in the memory of each
//! copy, and stand in for a database. Every route takes `?hold_ms=`, the time its handler works.

mod server;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, Path, Query, State};
use axum::http::Method;
use axum::routing::{get, post};
use axum::{Json, Router};
use redlock_axum::{
    HeldLock, HoldError, LockKey, LockLayer, LockManager, LockPolicy, LockRejection, SetupError,
    redis_lock,
};
use serde::Deserialize;
use tokio::sync::Mutex;
use tracing::{info, warn};

use server::Work;

const CATALOGUE: &str = "catalogue";
const WAIT: Duration = Duration::from_secs(5);

/// A reader. The layer takes the lock, and shares it among the readers.
async fn list(State(catalogue): State<Catalogue>, Query(work): Query<Work>) -> String {
    work.run_logged("read").await;
    catalogue.articles().await + "\n"
}

/// A writer. The layer takes the lock exclusively.
async fn add(
    State(catalogue): State<Catalogue>,
    Query(Article { add }): Query<Article>,
    Query(work): Query<Work>,
) -> String {
    info!("change begins");
    catalogue.change(&add, work).await;
    info!("change ends");
    format!("{add} is added\n")
}

/// Imports an article as a writer, and then becomes a reader to check it. Nobody changes the catalogue during the check,
/// but others may read it. A layer has no such lock, so the handler acquires it.
async fn import(
    State(locks): State<LockManager>,
    State(catalogue): State<Catalogue>,
    Query(work): Query<Work>,
) -> Result<String, LockRejection> {
    let writer = locks.lock(CATALOGUE).wait_time(WAIT).acquire().await?;
    info!("import begins");
    catalogue.change("umbrella", Work::default()).await;
    // If the change of the mode is not confirmed, the lock may still be exclusive, and the check goes on under it.
    if let Err(HoldError::Lost(_)) = writer.downgrade().await {
        return Ok("the import is not checked\n".to_owned());
    }
    work.run().await; // the check
    info!("import ends");
    if let Err(error) = writer.release().await {
        warn!("{}", error.diagnostics());
    }
    Ok("the import is checked\n".to_owned())
}

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

fn app(locks: &LockManager, catalogue: Catalogue) -> Result<Router, SetupError> {
    let policy = LockPolicy::new(CATALOGUE).shared_on([Method::GET, Method::HEAD]).wait_time(WAIT);
    let lock = LockLayer::new(locks, policy)?;
    Ok(Router::new()
        .route("/catalogue", get(list).put(add).route_layer(lock))
        .route("/catalogue/import", post(import))
        .route("/tenants/{tenant}/exports", post(export))
        .route("/tenants/{tenant}/relocation", post(relocate))
        .route("/orders", post(order))
        .route("/articles/{sku}/count", post(count))
        .with_state(Shop { locks: locks.clone(), catalogue }))
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let locks = server::connect().await?;
    let catalogue = Catalogue::default();
    for article in ["coat", "hat"] {
        catalogue.change(article, Work::default()).await;
    }
    server::serve(app(&locks, catalogue)?, &locks).await
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(serve()).await
}

#[derive(Clone, FromRef)]
struct Shop {
    locks: LockManager,
    catalogue: Catalogue,
}

/// Stands for a database, in which a change takes several statements.
#[derive(Clone, Default)]
struct Catalogue(Arc<Mutex<Vec<String>>>);

impl Catalogue {
    async fn articles(&self) -> String {
        self.0.lock().await.join(", ")
    }

    /// Adds an article, and sorts the articles later.
    async fn change(&self, article: &str, pause: Work) {
        self.0.lock().await.push(article.to_owned());
        pause.run().await;
        self.0.lock().await.sort();
    }
}

/// `?add=`
#[derive(Deserialize)]
struct Article {
    add: String,
}

#[derive(Deserialize)]
struct Item {
    sku: String,
    count: u32,
}
