//! The page of the feature `board` in a browser: Debian's chromium, by its driver.
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod addresses;
mod breaks;
mod browser;
mod layout;
mod proxy;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

/// A deadline for a condition, which only a fault reaches.
const SOON: Duration = Duration::from_secs(60);

/// Serves a router on a free port of this machine. Returns the address.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}
