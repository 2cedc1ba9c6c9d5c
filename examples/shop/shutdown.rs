//! The signals that end the service.

use std::io;

/// Starts to catch Ctrl-C and, on Unix, SIGTERM. The returned future resolves at the first signal.
#[cfg(unix)]
pub(crate) fn signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

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
pub(crate) fn signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
}
