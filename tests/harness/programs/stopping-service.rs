//! A service that stops at SIGTERM as the page `production.md` says, while its handlers hold locks or wait for them.
//!
//! `POST /{way}/{id}?hold_ms=` locks `{way}:{id}` in this way, and works for so long under the lock. A request waits for its
//! lock without a limit. The ways `nested` and `by_hand` acquire a second lock under the first one. A task of the service
//! leads. Environment: `LOCKS_URLS` (separated by commas) and `LISTEN` (the address).

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlock_axum::{LockLayer, LockManager, LockPolicy, LockRejection, redis_lock};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Deserialize)]
struct Work {
    hold_ms: u64,
}

/// Works for so long, and logs the begin and the end.
async fn work(Query(Work { hold_ms }): Query<Work>) -> &'static str {
    println!("begin");
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    println!("end");
    "done"
}

#[redis_lock(key = "attribute:{id}", wait_time = "forever")]
async fn attribute(Path(id): Path<u64>, query: Query<Work>) -> &'static str {
    work(query).await
}

#[redis_lock(key = "fair:{id}", wait_time = "forever", fair)]
async fn fair(Path(id): Path<u64>, query: Query<Work>) -> &'static str {
    work(query).await
}

#[redis_lock(key = "fenced:{id}", wait_time = "forever", fenced)]
async fn fenced(Path(id): Path<u64>, query: Query<Work>) -> &'static str {
    work(query).await
}

#[redis_lock(key = "permits:{id}", wait_time = "forever", permits = 2)]
async fn permits(Path(id): Path<u64>, query: Query<Work>) -> &'static str {
    work(query).await
}

#[redis_lock(keys("cart:{}", [*id, 1000]), wait_time = "forever")]
async fn cart(Path(id): Path<u64>, query: Query<Work>) -> &'static str {
    work(query).await
}

#[redis_lock(key = "detached:{id}", wait_time = "forever", detached)]
async fn detached(Path(id): Path<u64>, query: Query<Work>) -> &'static str {
    work(query).await
}

async fn inner(
    locks: &LockManager,
    id: u64,
    query: Query<Work>,
) -> Result<&'static str, StatusCode> {
    let inner = locks.lock(format!("inner:{}", id % 2)).wait_forever().acquire().await;
    let inner = inner.map_err(|error| {
        println!("refused under a lock: {error}");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    let done = work(query).await;
    inner.release().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(done)
}

#[redis_lock(key = "nested:{id}", wait_time = "forever")]
async fn nested(
    Path(id): Path<u64>,
    State(locks): State<LockManager>,
    query: Query<Work>,
) -> Result<&'static str, StatusCode> {
    println!("begin");
    let done = inner(&locks, id, query).await;
    println!("end");
    done
}

/// Without a scope, the holder is known by its task.
async fn by_hand(
    Path(id): Path<u64>,
    State(locks): State<LockManager>,
    query: Query<Work>,
) -> Result<Result<&'static str, StatusCode>, LockRejection> {
    let outer = locks.lock(format!("by_hand:{id}")).wait_forever().acquire().await?;
    println!("begin");
    let done = inner(&locks, id, query).await;
    println!("end");
    drop(outer);
    Ok(done)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    let mut terminate = signal(SignalKind::terminate())?;
    let urls = std::env::var("LOCKS_URLS")?;
    let locks = LockManager::builder()
        .urls(urls.split(','))
        .node_timeout(Duration::from_secs(5))
        .connect()
        .await?;
    let lead = locks.lead("leader");
    tokio::spawn(async move {
        let ended = lead.run(async |_| std::future::pending::<()>().await).await;
        println!("the leader has ended: {ended:?}");
    });

    let policy = |key: &str| LockPolicy::new(key).wait_forever();
    let layered = post(work).route_layer(LockLayer::new(&locks, policy("layer:{id:u64}"))?);
    let sharing = policy("shared:{id:u64}").shared(true);
    let shared = post(work).route_layer(LockLayer::new(&locks, sharing)?);
    let app = Router::new()
        .route("/attribute/{id}", post(attribute))
        .route("/fair/{id}", post(fair))
        .route("/fenced/{id}", post(fenced))
        .route("/permits/{id}", post(permits))
        .route("/cart/{id}", post(cart))
        .route("/detached/{id}", post(detached))
        .route("/nested/{id}", post(nested))
        .route("/by_hand/{id}", post(by_hand))
        .route("/layer/{id}", layered)
        .route("/shared/{id}", shared)
        .with_state(locks.clone());
    let draining = locks.clone();
    let stop = async move {
        terminate.recv().await;
        draining.drain();
    };
    let listener = TcpListener::bind(std::env::var("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    locks.shutdown().await;
    Ok(())
}
