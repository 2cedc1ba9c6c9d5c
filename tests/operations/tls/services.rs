//! A service whose servers have certificates that the system trusts or not.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use redlock_tests::{RedisServer, Sentinel, Service, eventually};

use super::certificates::Files;
use crate::SOON;

/// Starts a service with the URL of its server, whose system trusts only the authority of these files. The application
/// installs no crypto provider: the feature `tls` brings its own.
async fn start(url: &str, trusted: &Files) -> Service {
    let environment = [
        ("LOCKS_URLS", url.to_owned()),
        ("HISTORY", trusted.text("history")),
        // Replaces the system's root certificates.
        ("SSL_CERT_FILE", trusted.text("ca.pem")),
    ];
    Service::start(env!("CARGO_BIN_EXE_locked-service"), &environment).await
}

async fn is_granted(url: &str, server: &RedisServer, trusted: &Files) {
    let service = start(url, trusted).await;
    let held =
        tokio::spawn(reqwest::Client::new().post(service.url("/layer/42?hold_ms=60000")).send());
    eventually("the lock is on the server", SOON, async || {
        server.probe().await.get("order:42").await
    })
    .await;
    held.abort();
}

/// Returns the log of a service that must end because it cannot connect.
async fn refused(url: &str, trusted: &Files) -> String {
    // `Service::start` panics with the log of a service that ends before it listens.
    let service = AssertUnwindSafe(start(url, trusted)).catch_unwind().await;
    let Err(panic) = service else { panic!("the service has connected") };
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn a_server_grants_locks_if_the_system_trusts_its_certificate_and_host() {
    let (files, other) = (Files::new(), Files::new());
    let Some(server) = files.server().await else { return };
    let url = server.tls_url();
    is_granted(&url, &server, &files).await;
    for (url, trusted, words) in [
        (&url, &other, "invalid peer certificate: UnknownIssuer"),
        (&url.replace("localhost", "127.0.0.1"), &files, "certificate not valid for name"),
        // A URL that would turn the verification of certificates off.
        (&format!("{url}/#insecure"), &other, "#insecure is refused"),
    ] {
        let log = refused(url, trusted).await;
        assert!(log.contains(words), "{log}");
    }
}

/// The sentinels and the servers have certificates, and name each other by their host names.
#[tokio::test]
async fn a_sentinel_group_grants_locks_if_the_system_trusts_its_certificates() {
    let (files, other) = (Files::new(), Files::new());
    let Some(server) = files.server().await else { return };
    let url = server.tls_url();
    let (_, port) = url.rsplit_once(':').unwrap();
    let monitor = format!("sentinel monitor shop localhost {port} 1");
    let sentinel =
        Sentinel::start_tls(&monitor, &files.path("server.pem"), &files.path("server.key")).await;
    let url = format!("rediss+sentinel://localhost:{}/shop", sentinel.tls_port());
    is_granted(&url, &server, &files).await;
    let log = refused(&url, &other).await;
    assert!(log.contains("certificate"), "{log}");
}
