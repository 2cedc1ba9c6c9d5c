//! A service with locked handlers, and its tests, which need no Redis and no real time.
//!
//! ```sh
//! cargo test --test testing       # the tests in tests.rs
//! cargo run --example testing     # the service under test, with locks in memory
//! ```
//!
//! The tests need the feature `test-util` of `redlock-axum`, among the `dev-dependencies`.

#[path = "../server/mod.rs"]
mod server;
mod shop;

use std::process::ExitCode;

use redlock_axum::LockManager;

#[tokio::main]
async fn main() -> ExitCode {
    let locks = LockManager::in_memory();
    server::run(server::serve(shop::app(locks.clone()), &locks)).await
}
