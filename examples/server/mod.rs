//! The start and the stop of all of these services: they connect to the stores of their locks, serve requests until a
//! signal, and release the locks that are still held.

#![allow(dead_code, reason = "each example uses a part")]

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use redlock_axum::{ConnectError, LockManager, LockManagerConfig};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Connects to the servers in `LOCKS_URLS`.
pub(crate) async fn connect() -> Result<LockManager, ConnectError> {
    match std::env::var("LOCKS_URLS") {
        Ok(urls) if !urls.is_empty() => {
            LockManager::connect(LockManagerConfig::split_urls(&urls)).await
        }
        _ => {
            info!("LOCKS_URLS is not set: using the in-memory node, which locks this process only");
            Ok(LockManager::in_memory())
        }
    }
}

/// Runs a service, and prints the error that ends it.
pub(crate) async fn run(service: impl Future<Output = Result<(), Box<dyn Error>>>) -> ExitCode {
    tracing_subscriber::fmt().init();
    match service.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves requests on the address in `LISTEN`, until Ctrl-C or SIGTERM. Requests that wait for a lock are answered with 503
/// then, and running requests have two seconds to finish. After that, the manager releases their locks, and they end with the process.
pub(crate) async fn serve(app: Router, locks: &LockManager) -> Result<(), Box<dyn Error>> {
    let shutdown = shutdown_signal()?;
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&listen).await?;
    info!("listening on {}", listener.local_addr()?);

    let stop = CancellationToken::new();
    // The page for operators asks for the address of the client.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    shutdown.await;
    info!("shutting down");
    locks.drain();
    stop.cancel();
    if let Ok(ended) = timeout(Duration::from_secs(2), server).await {
        ended??;
    } else {
        warn!("some requests have not finished in time");
    }
    locks.shutdown().await;
    Ok(())
}

/// Starts to catch Ctrl-C and, on Unix, SIGTERM. The returned future resolves at the first signal.
#[cfg(unix)]
pub(crate) fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
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
pub(crate) fn shutdown_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        if let Err(error) = signal::ctrl_c().await {
            warn!("Ctrl-C cannot be caught: {error}");
        }
    })
}

/// `?hold_ms=`, the time that the work of a handler takes.
#[derive(Clone, Copy, Default, Deserialize)]
pub(crate) struct Work {
    #[serde(default)]
    hold_ms: u64,
}

impl Work {
    /// Works for that time.
    pub(crate) async fn run(self) {
        sleep(Duration::from_millis(self.hold_ms)).await;
    }

    /// Works for that time, and logs the begin and the end.
    pub(crate) async fn run_logged(self, what: &str) {
        info!("{what} begins");
        self.run().await;
        info!("{what} ends");
    }
}
