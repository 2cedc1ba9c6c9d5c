//! A catalogue that many requests read at the same time, and that one request changes alone.
//!
//! ```sh
//! cargo run --example catalogue                               # locks this process only
//! REDIS_URLS=redis://127.0.0.1 cargo run --example catalogue  # one lock for all copies
//! ```
//!
//! A change is made in two steps, with a pause between them (`?hold_ms=`). No reader sees a catalogue between the
//! steps: `GET` shares the lock with other readers, and `PUT` has it alone. Both wait for each other for up to five
//! seconds.

mod server;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Query, State};
use axum::http::Method;
use axum::routing::{get, post};
use redlock_axum::{
    HoldError, LockLayer, LockManager, LockPolicy, LockRejection, LocksLayer, SetupError,
};
use serde::Deserialize;
use tokio::sync::Mutex;
use tracing::{info, warn};

use server::Work;

const KEY: &str = "catalogue";
const WAIT: Duration = Duration::from_secs(5);

/// A reader. The layer takes the lock, and shares it among the readers.
async fn list(State(catalogue): State<Catalogue>, Query(work): Query<Work>) -> String {
    info!("read begins");
    work.run().await;
    let articles = catalogue.articles().await;
    info!("read ends");
    articles + "\n"
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
/// but others may read it. The layers have no such lock, so the handler acquires it.
async fn import(
    State(locks): State<LockManager>,
    State(catalogue): State<Catalogue>,
    Query(work): Query<Work>,
) -> Result<String, LockRejection> {
    let writer = locks.lock(KEY).wait_time(WAIT).acquire().await?;
    info!("import begins");
    catalogue.change("umbrella", Work::default()).await;
    // If the change of the mode is not confirmed, the lock may still be exclusive, and the check goes on under it.
    if let Err(HoldError::Lost { .. }) = writer.downgrade().await {
        return Ok("the import is not checked\n".to_owned());
    }
    work.run().await; // the check
    info!("import ends");
    if let Err(error) = writer.release().await {
        warn!("{}", error.diagnostics());
    }
    Ok("the import is checked\n".to_owned())
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

#[derive(Clone, FromRef)]
struct Shop {
    locks: LockManager,
    catalogue: Catalogue,
}

fn app(locks: &LockManager, catalogue: Catalogue) -> Result<Router, SetupError> {
    let policy = LockPolicy::new(KEY).shared_on([Method::GET, Method::HEAD]).wait_time(WAIT);
    let lock = LockLayer::new(locks, policy)?;
    Ok(Router::new()
        .route("/catalogue", get(list).put(add).route_layer(lock))
        .route("/catalogue/import", post(import))
        .layer(LocksLayer::new(locks))
        .with_state(Shop { locks: locks.clone(), catalogue }))
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let locks = server::connect().await?;
        let catalogue = Catalogue::default();
        for article in ["coat", "hat"] {
            catalogue.change(article, Work::default()).await;
        }
        server::serve(app(&locks, catalogue)?, &locks).await
    })
    .await
}

/// `?add=`
#[derive(Deserialize)]
struct Article {
    add: String,
}
