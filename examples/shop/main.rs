//! A flash sale: a small service in the style that the documentation recommends.
//!
//! ```sh
//! cargo run --example shop                                   # locks this process only
//! LOCKS_URLS=redis://127.0.0.1 cargo run --example shop      # one sale among all copies
//! cargo test --test shop
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `main.rs` | start and shutdown |
//! | `config.rs` | the lock manager from environment variables, the policies from `policies.toml` |
//! | `shop.rs` | the state, and methods that lock: `manager = self.locks`, `skip`, `keep` |
//! | `routes.rs` | handlers: some are locked by the attribute, some by a policy |
//! | `monitoring.rs` | the metrics, for Prometheus |
//! | `error.rs` | the service's own error, which is also the response to a refused lock |
//! | `stock.rs` | stands in for the database |
//! | `tests.rs` | tests without a server |

mod config;
mod error;
mod monitoring;
mod routes;
mod shop;
mod shutdown;
mod stock;

use std::error::Error;
use std::process::ExitCode;

use tokio::net::TcpListener;
use tracing::info;

use crate::shop::Shop;
use crate::stock::Stock;

async fn serve() -> Result<(), Box<dyn Error>> {
    let signal = shutdown::signal()?;
    let policies = config::read_policies()?;
    let metrics = monitoring::install()?;
    let locks = config::connect().await?;
    let shop = Shop { locks: locks.clone(), stock: Stock::new() };
    let app = routes::app(shop.clone(), policies)?.merge(metrics);

    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&listen).await?;
    info!("listening on {}", listener.local_addr()?);
    let nightly = tokio::spawn(shop.restock_every_night());
    let draining = locks.clone();
    let told_to_end = async move {
        signal.await;
        // Answers the requests that wait for a lock. Otherwise the server would wait for them.
        draining.drain();
    };
    axum::serve(listener, app).with_graceful_shutdown(told_to_end).await?;
    nightly.abort();
    // Releases the locks that are still held. Otherwise they would stay until their leases end.
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
