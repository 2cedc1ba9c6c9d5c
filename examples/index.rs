//! An axum service whose handlers never run twice at once for the same thing, on however many
//! copies of it.
//!
//! ```sh
//! cargo run --example index                                             # an in-memory node
//! REDIS_URLS=redis://127.0.0.1 cargo run --example index                # one Redis
//! REDIS_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 ...     # Redlock
//! ```
//!
//! Every route takes `?hold_ms=`, how long its handler works, so that a lock can be seen by hand:
//! send the same request from two shells, and the second one is answered with 409.

use std::error::Error;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use redlock_axum::{
    ConnectError, LockError, LockLayer, LockManager, LockPolicies, LockPolicy, LockRejection,
    PolicyError, redis_lock,
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The attribute: one caller at a time, on all copies of the service. `expire = 5` (seconds) and no
/// waiting are the defaults.
#[redis_lock(key = "redis_lock")]
async fn index(Query(work): Query<Work>) -> &'static str {
    work.run("index").await;
    "index\n"
}

/// The attribute with a key from the path: one payment at a time for each order.
#[redis_lock(key = "order:{id}", expire = 10)]
async fn pay(Path(id): Path<u64>, Query(work): Query<Work>) -> Json<Receipt> {
    work.run("pay").await;
    Json(Receipt { order: id, paid: true })
}

/// Knows nothing of locks: the layer on its route does it.
async fn claim(Path(code): Path<String>, Query(work): Query<Work>) -> String {
    work.run("claim").await;
    format!("{code} is yours\n")
}

/// Is locked by the table of policies, and calls a method that takes a lock of its own.
async fn reserve(
    State(shop): State<Shop>,
    Path(sku): Path<String>,
    Query(work): Query<Work>,
) -> Result<String, ShopError> {
    shop.reserve(&sku, work).await
}

/// What the service does, apart from HTTP.
#[derive(Clone)]
struct Shop {
    locks: LockManager,
}

impl Shop {
    /// Any async function or method can be locked. Who else calls this one, a nightly job for
    /// instance, waits for the same lock; here for up to a second.
    #[redis_lock(key("stock:{}", sku), wait_time = 1, manager = self.locks)]
    async fn reserve(&self, sku: &str, work: Work) -> Result<String, ShopError> {
        work.run("reserve").await;
        Ok(format!("one {sku} is reserved\n"))
    }
}

/// A refused lock becomes an error of the application's own.
enum ShopError {
    Lock(LockError),
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        match self {
            Self::Lock(error) => LockRejection::from(error).into_response(),
        }
    }
}

fn app(locks: LockManager) -> Result<Router, PolicyError> {
    // `{code:lower}`: SUMMER and summer are the same coupon, so they have the same lock.
    let one_claim = LockLayer::new("coupon:{code:lower}").expire(Duration::from_secs(10));

    // Not the key of `Shop::reserve`: a request that holds a lock does not wait for itself.
    let policies = LockPolicies::new([LockPolicy::new("/stock/{sku}/reserve", "reserve:{sku}")
        .methods([Method::POST])
        .expire(Duration::from_secs(10))])?;

    Ok(Router::new()
        .route("/index", get(index))
        .route("/orders/{id}/pay", post(pay))
        .route("/coupons/{code}/claim", post(claim).route_layer(one_claim))
        .route("/stock/{sku}/reserve", post(reserve))
        .layer(policies)
        .with_state(Shop { locks: locks.clone() })
        // The one line that gives the attribute, the layer and the policies their manager.
        .layer(Extension(locks)))
}

async fn connect() -> Result<LockManager, ConnectError> {
    match std::env::var("REDIS_URLS") {
        Ok(urls) if !urls.is_empty() => LockManager::connect(urls.split(',').map(str::trim)).await,
        _ => {
            info!("REDIS_URLS is not set: using the in-memory node, which locks this process only");
            Ok(LockManager::in_memory())
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let shutdown = shutdown_signal()?;
    let locks = connect().await?;
    let app = app(locks.clone())?;

    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&listen).await?;
    info!("listening on {}", listener.local_addr()?);

    // Requests that are under way may finish. Those that take too long lose their lock to
    // `shutdown`, and end with the process right after.
    let stop = CancellationToken::new();
    let server = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    shutdown.await;
    info!("shutting down");
    stop.cancel();
    if let Ok(ended) = timeout(Duration::from_secs(2), server).await {
        ended??;
    } else {
        warn!("some requests were still under way");
    }
    locks.shutdown().await;
    Ok(())
}

/// Catches Ctrl-C, and SIGTERM where there is such a thing, from now on; resolves when one comes.
#[cfg(unix)]
fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    use signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        if let Err(error) = signal::ctrl_c().await {
            warn!("Ctrl-C cannot be caught: {error}");
        }
    })
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
        sleep(Duration::from_millis(self.hold_ms)).await;
        info!("{what} ends");
    }
}

#[derive(Serialize)]
struct Receipt {
    order: u64,
    paid: bool,
}
