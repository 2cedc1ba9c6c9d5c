//! A service whose servers have certificates that the system trusts or not.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;

use futures_util::FutureExt;
use redlock_tests::{RedisServer, Sentinel, Service, skip};
use tempfile::TempDir;

/// A certificate for `localhost`, and its key.
struct Identity {
    _dir: TempDir,
    certificate: PathBuf,
    key: PathBuf,
}

impl Identity {
    fn new() -> Self {
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("certificate.pem"), dir.path().join("key.pem"));
        std::fs::write(&certificate, signed.cert.pem()).unwrap();
        std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
        Self { _dir: dir, certificate, key }
    }

    /// Starts a server with this certificate. Without TLS in the server under test, skips the test and
    /// returns `None`.
    async fn server(&self) -> Option<RedisServer> {
        if let Err(why) = RedisServer::check_tls() {
            skip(&why);
            return None;
        }
        Some(RedisServer::options().tls(&self.certificate, &self.key).start().await)
    }
}

/// The application installs no crypto provider: the feature `tls` brings its own.
#[tokio::test]
async fn a_server_with_a_trusted_certificate_grants_locks() {
    let identity = Identity::new();
    let Some(server) = identity.server().await else { return };
    let environment = [
        ("REDIS_URLS", server.tls_url()),
        // Replaces the system's root certificates.
        ("SSL_CERT_FILE", identity.certificate.display().to_string()),
    ];
    let service = Service::start(env!("CARGO_BIN_EXE_index"), &environment).await;
    let held = tokio::spawn(reqwest::get(service.url("/index?hold_ms=60000")));
    redlock_tests::eventually("the lock is on the server", SOON, async || {
        server.probe().await.get("redis_lock").await
    })
    .await;
    let refused = reqwest::get(service.url("/index")).await.unwrap();
    assert_eq!(refused.status(), 409);
    held.abort();
}

/// The sentinels and the servers have certificates.
#[tokio::test]
async fn a_sentinel_group_with_trusted_certificates_grants_locks() {
    let (identity, other) = (Identity::new(), Identity::new());
    let Some(server) = identity.server().await else { return };
    let url = server.tls_url();
    let (_, port) = url.rsplit_once(':').unwrap();
    let monitor = format!("sentinel monitor shop localhost {port} 1");
    let sentinel = Sentinel::start_tls(&monitor, &identity.certificate, &identity.key).await;
    let url = format!("rediss+sentinel://localhost:{}/shop", sentinel.tls_port());
    let environment = [
        ("REDIS_URLS", url.clone()),
        ("SSL_CERT_FILE", identity.certificate.display().to_string()),
    ];
    let service = Service::start(env!("CARGO_BIN_EXE_index"), &environment).await;
    let held = tokio::spawn(reqwest::get(service.url("/index?hold_ms=60000")));
    redlock_tests::eventually("the lock is on the server", SOON, async || {
        server.probe().await.get("redis_lock").await
    })
    .await;
    held.abort();
    let log = refused(&url, &other).await;
    assert!(log.contains("certificate"), "{log}");
}

const SOON: std::time::Duration = std::time::Duration::from_secs(10);

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_refused() {
    let (identity, other) = (Identity::new(), Identity::new());
    let Some(server) = identity.server().await else { return };
    let log = refused(&server.tls_url(), &other).await;
    assert!(log.contains("certificate"), "{log}");
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_for_another_host_is_refused() {
    let identity = Identity::new();
    let Some(server) = identity.server().await else { return };
    let url = server.tls_url().replace("localhost", "127.0.0.1");
    let log = refused(&url, &identity).await;
    assert!(log.contains("certificate not valid for name"), "{log}");
}

/// A URL that would turn the verification of certificates off.
#[tokio::test]
async fn an_insecure_url_is_refused() {
    let identity = Identity::new();
    let Some(server) = identity.server().await else { return };
    let log = refused(&format!("{}/#insecure", server.tls_url()), &Identity::new()).await;
    assert!(log.contains("#insecure is refused"), "{log}");
}

/// Starts a service with the URL of its server, which trusts only one certificate. Returns the log of the service,
/// which must end because it cannot connect.
async fn refused(url: &str, trusted: &Identity) -> String {
    let environment = [
        ("REDIS_URLS", url.to_owned()),
        ("SSL_CERT_FILE", trusted.certificate.display().to_string()),
    ];
    // `Service::start` panics with the log of a service that ends before it listens.
    let service = Service::start(env!("CARGO_BIN_EXE_index"), &environment);
    let service = AssertUnwindSafe(service).catch_unwind().await;
    let Err(panic) = service else { panic!("the service has connected") };
    *panic.downcast::<String>().unwrap()
}
