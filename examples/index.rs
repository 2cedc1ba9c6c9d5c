//! An axum service whose handlers never run twice at once for the same resource, however many
//! copies of the service run.
//!
//! ```sh
//! cargo run --example index                                             # an in-memory node
//! LOCKS_URLS=redis://127.0.0.1 cargo run --example index                # one Redis
//! LOCKS_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 ...     # Redlock
//! LOCKS_URLS='rediss://app:secret@10.0.0.1?tls_ca=/etc/redis/ca.pem' .. # TLS, with an own authority
//! LOCKS_URLS=unix:///run/redis/redis.sock ...                           # a unix socket
//! LOCKS_URLS=redis+sentinel://s1,s2,s3/shop ...                         # the master of a Sentinel group
//! LOCKS_URLS=redis-cluster://10.0.0.1,10.0.0.2 ...                      # a Redis Cluster
//! LOCKS_URLS='postgres://app@10.0.0.1/shop?schema=locks' ...            # a PostgreSQL database
//! LOCKS_URLS='zookeeper://10.0.0.1/locks?acl=open' ...                  # a ZooKeeper ensemble
//! ```
//!
//! Every route takes `?hold_ms=`, the time its handler works. To see a lock at work, send the same
//! request from two shells: the second one is answered with 409. `server/mod.rs` has the start and the end of the
//! service.

mod server;

use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{FromRef, Path, Query, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use redlock_axum::{
    LockError, LockLayer, LockManager, LockPolicy, LockRejection, SetupError, redis_lock,
};
use serde::Serialize;

use server::Work;

/// The attribute: one caller at a time, on all copies of the service. The lock ends after five seconds at the latest, as
/// that of the Spring controller does. Without a `wait_time`, a second caller is refused at once.
#[redis_lock(key = "redis_lock", expire = 5)]
async fn index(Query(work): Query<Work>) -> &'static str {
    work.run_logged("index").await;
    "index\n"
}

/// The attribute with a key from the path: one payment at a time for each order. The lease of ten seconds is renewed.
#[redis_lock(key = "order:{id}", expire = 10, renew)]
async fn pay(Path(id): Path<u64>, Query(work): Query<Work>) -> Json<Receipt> {
    work.run_logged("pay").await;
    Json(Receipt { order: id, paid: true })
}

/// Contains no code for locks: the layer on its route takes the lock.
async fn claim(Path(code): Path<String>, Query(work): Query<Work>) -> String {
    work.run_logged("claim").await;
    format!("{code} is yours\n")
}

/// Is locked by the table of policies, and calls a method that takes a second lock.
async fn reserve(
    State(shop): State<Shop>,
    Path(sku): Path<String>,
    Query(work): Query<Work>,
) -> Result<String, ShopError> {
    shop.reserve(&sku, work).await
}

/// The business logic of the service, without HTTP.
#[derive(Clone, FromRef)]
struct Shop {
    locks: LockManager,
}

impl Shop {
    /// Any async function or method can be locked. Other callers of this method, for instance a
    /// nightly job, wait for the same lock, here for up to a second.
    #[redis_lock(key("stock:{}", sku), wait_time = 1, manager = self.locks)]
    async fn reserve(&self, sku: &str, work: Work) -> Result<String, ShopError> {
        work.run_logged("reserve").await;
        Ok(format!("one {sku} is reserved\n"))
    }
}

/// The application's own error type. A `LockError` is converted to it.
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

fn app(locks: LockManager) -> Result<Router, SetupError> {
    let lease = Duration::from_secs(10);
    // `{code:lower}`: SUMMER and summer are the same coupon, so they have the same lock.
    let one_claim = LockLayer::new(&locks, LockPolicy::new("coupon:{code:lower}").expire(lease))?;

    // The key differs from the key of `Shop::reserve`: a request that holds a key cannot lock it
    // again.
    let policy = LockPolicy::new("reserve:{sku}").route("/stock/{sku}/reserve");
    let table = LockLayer::table(&locks, [policy.methods([Method::POST]).expire(lease)])?;

    Ok(Router::new()
        .route("/index", get(index))
        .route("/orders/{id}/pay", post(pay))
        .route("/coupons/{code}/claim", post(claim).route_layer(one_claim))
        .route("/stock/{sku}/reserve", post(reserve))
        .layer(table)
        // The attribute takes the manager from the state.
        .with_state(Shop { locks }))
}

#[derive(Serialize)]
struct Receipt {
    order: u64,
    paid: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let locks = server::connect().await?;
        server::serve(app(locks.clone())?, &locks).await
    })
    .await
}
