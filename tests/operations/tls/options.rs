//! The options of TLS: an own authority, the certificate of the client, and no verification.

use redlock_core::{ConnectError, LockManager, LockManagerConfig, TlsOptions};
use redlock_tests::{Logs, RedisServer};

use super::certificates::{Authority, Files, expired};
use crate::{SOON, builder, connect};

const KEY: &str = "order:42";

async fn acquires(locks: &LockManager) {
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

async fn acquires_with(url: &str, tls: TlsOptions) {
    acquires(&builder([url]).tls(tls).connect().await.unwrap()).await;
}

#[tokio::test]
async fn an_own_authority_is_trusted_from_a_file_and_from_a_text() {
    let files = Files::new();
    let Some(server) = files.server().await else { return };
    acquires_with(&server.tls_url(), files.trust()).await;
    let pem = std::fs::read(files.path("ca.pem")).unwrap();
    acquires_with(&server.tls_url(), TlsOptions::new().ca_pem(pem)).await;
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_grants_locks() {
    let files = Files::new();
    let Some(server) = files.strict_server().await else { return };
    acquires_with(&server.tls_url(), files.identify()).await;
    let read = |name| std::fs::read(files.path(name)).unwrap();
    let texts = files.trust().client_cert_pem(read("client.pem"), read("client.key"));
    acquires_with(&server.tls_url(), texts).await;
}

#[tokio::test]
async fn a_url_has_options_of_its_own_which_win() {
    let (files, other) = (Files::new(), Files::new());
    let Some(server) = files.strict_server().await else { return };
    let (ca, cert, key) =
        (files.text("ca.pem"), files.text("client.pem"), files.text("client.key"));
    let url = format!("{}?tls_ca={ca}&tls_cert={cert}&tls_key={key}", server.tls_url());
    acquires(&connect([&url]).await).await;
    acquires_with(&url, other.identify()).await;
    let url = format!("{}?tls_ca={ca}", server.tls_url());
    acquires_with(&url, files.identify().ca_file(other.path("ca.pem"))).await;
}

#[tokio::test]
async fn a_configuration_has_the_files_of_all_nodes() {
    let files = Files::new();
    let Some(server) = files.strict_server().await else { return };
    let mut config = LockManagerConfig::new();
    (config.node_timeout, config.connect_timeout) = (Some(SOON / 4), Some(SOON));
    config.urls.push(server.tls_url().into());
    (config.tls_ca, config.tls_cert) = (Some(files.path("ca.pem")), Some(files.path("client.pem")));
    let error = config.connect().await.unwrap_err().to_string();
    assert_eq!(error, "tls_key is unset, but must be set together with tls_cert");
    config.tls_key = Some(files.path("client.key"));
    acquires(&config.connect().await.unwrap()).await;
}

#[tokio::test]
async fn without_verification_any_certificate_is_accepted_with_a_warning() {
    let logs = Logs::collect();
    let files = Files::new();
    files.sign(&Authority::new(), "server", &expired());
    let Some(server) = files.server().await else { return };
    let url = server.tls_url().replace("localhost", "127.0.0.1");
    acquires_with(&url, TlsOptions::new().danger_accept_invalid_certs(true)).await;
    acquires(&connect([format!("{url}?tls_insecure=true")]).await).await;
    assert_eq!(logs.count("WARN", "can pose as its servers"), 2);
}

/// A mistake in the configuration is an error at the start, even if a quorum of the nodes is without it.
#[tokio::test]
async fn a_file_that_cannot_be_used_is_an_error_of_connect() {
    let (files, other) = (Files::new(), Files::new());
    let server = RedisServer::start().await;
    let refused = async |tls: TlsOptions| {
        let urls = ["rediss://localhost:1".to_owned(), server.url()];
        let connecting = LockManager::builder().urls(urls).tls(tls).connect();
        let error = connecting.await.unwrap_err();
        assert!(matches!(error, ConnectError::InvalidOption(_)), "{error:?}");
        error.to_string()
    };
    let missing = files.text("missing.pem");
    let error = refused(TlsOptions::new().ca_file(&missing)).await;
    assert!(error.starts_with(&format!("cannot read the CA certificate {missing}: ")), "{error}");
    let error = refused(
        files.trust().client_cert_files(files.path("client.pem"), other.path("client.key")),
    );
    let (cert, key) = (files.text("client.pem"), other.text("client.key"));
    let words = format!("the client key {key} does not belong to the client certificate {cert}");
    assert_eq!(error.await, words);

    let url = format!("rediss://localhost:1?tls_ca={missing}");
    let error = LockManager::connect([server.url(), url]).await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidUrl { position: 2, .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("CA certificate {missing}")), "{error}");
}

/// Otherwise a forgotten letter would send the password without encryption.
#[tokio::test]
async fn options_that_no_url_uses_are_an_error_of_connect() {
    let files = Files::new();
    let builder = LockManager::builder().url("redis://localhost:1").tls(files.trust());
    let error = builder.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidOption(_)), "{error:?}");
    assert!(error.to_string().contains("no URL begins with rediss"), "{error}");
    let mut config = LockManagerConfig::new();
    config.urls.push("memory:".into());
    config.tls_ca = Some(files.path("ca.pem"));
    config.connect().await.unwrap();
}
