//! A handler whose lock is also the lock of a Java service, which uses the `RLock` of Redisson.
//!
//! ```sh
//! LOCKS_URLS=redis://127.0.0.1 cargo run --example redisson
//! ```
//!
//! `POST /accounts/42/withdraw?hold_ms=` works for that time. The Java service locks the same
//! account by the same name, on the same Redis:
//!
//! ```java
//! RLock lock = redisson.getLock("account:42");
//! if (lock.tryLock()) {
//!     try {
//!         // ...
//!     } finally {
//!         lock.unlock();
//!     }
//! }
//! ```
//!
//! While one of the two has the lock, the other is refused. A waiter of either side is notified when
//! the other side releases the lock.

mod server;

use std::process::ExitCode;

use axum::Router;
use axum::extract::{Path, Query};
use axum::routing::post;
use redlock_axum::redis_lock;
use tracing::info;

use server::Work;

/// `dialect = redisson` for this lock. If a Java service uses all locks of a service, set the
/// dialect once instead: `LockManager::builder().dialect(Dialect::Redisson)`.
///
/// A lease of 30 seconds is Redisson's default. Redisson renews it while the lock is held, and so
/// does this lock: remove `renew` if the work has a bound.
#[redis_lock(key = "account:{id}", expire = 30, renew, dialect = redisson)]
async fn withdraw(Path(id): Path<u64>, Query(work): Query<Work>) -> String {
    info!("withdrawal from account {id} begins");
    work.run().await;
    format!("withdrawn from account {id}\n")
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        std::env::var("LOCKS_URLS").map_err(|_| {
            "LOCKS_URLS is not set; set it to the Redis of the Java service, such as redis://127.0.0.1"
        })?;
        let locks = server::connect().await?;
        let app = Router::new().route("/accounts/{id}/withdraw", post(withdraw));
        server::serve(app.with_state(locks.clone()), &locks).await
    })
    .await
}
