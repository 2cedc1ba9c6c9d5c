//! A page for operators beside a locked handler: the holder of `order:42`, and the suspects of this process.
//!
//! ```sh
//! LOCKS_URLS=redis://127.0.0.1 cargo run --example board    # and open http://127.0.0.1:3000/ops/locks
//! ```
//!
//! Only browsers on this machine reach the page. A service with a login serves it by `behind`.

mod server;

use std::process::ExitCode;

use axum::Router;
use axum::extract::{Path, Query};
use axum::routing::post;
use redlock_axum::{LockManager, board, redis_lock};

use server::Work;

#[redis_lock(key = "order:{id}", renew)]
async fn pay(Path(id): Path<u64>, Query(work): Query<Work>) -> String {
    work.run_logged("pay").await;
    format!("order {id} is paid\n")
}

fn app(locks: &LockManager) -> Router {
    let board = board(locks).may_break(|_| true).local_only();
    let app = Router::new().route("/orders/{id}/pay", post(pay));
    app.nest_service("/ops/locks", board).with_state(locks.clone())
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let locks = server::connect().await?;
        server::serve(app(&locks), &locks).await
    })
    .await
}
