//! Passwords, certificates, and connections that are refused.

use redlock_core::ConnectError;
use redlock_tests::{PostgresOptions, PostgresServer, eventually, skip};
use tempfile::TempDir;

use crate::{KEY, SOON, impatient, serves};

const PASSWORD: &str = "Tq42%/@pgpassword";

/// Returns the options of a server that requires TLS and a password, and the folder with its certificate.
fn protected() -> (PostgresOptions, TempDir) {
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let [path, key] = ["certificate", "key"].map(|name| dir.path().join(name));
    std::fs::write(&path, certificate.cert.pem()).unwrap();
    std::fs::write(&key, certificate.signing_key.serialize_pem()).unwrap();
    (PostgresServer::options().tls(&path, &key).password(PASSWORD), dir)
}

async fn start(options: PostgresOptions) -> Option<PostgresServer> {
    options.start().await.inspect_err(|why| skip(why)).ok()
}

async fn refused(url: &str) -> String {
    let error = impatient(url).connect().await.unwrap_err();
    assert!(!matches!(error, ConnectError::InvalidOption(_)), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_server_with_tls_and_a_password_is_used_and_its_certificate_is_verified() {
    let (options, dir) = protected();
    let Some(server) = start(options).await else { return };
    let authority = format!("tls_ca={}", dir.path().join("certificate").display());
    let url = format!("{}&sslmode=require", server.url());
    let manager = impatient(&format!("{url}&{authority}")).connect().await.unwrap();
    serves(&manager, KEY).await;
    // Another connection, whose server ends the first one.
    server.terminate_backends("app").await;
    serves(&manager, KEY).await;
    let unknown = refused(&url).await;
    assert!(unknown.contains("certificate"), "{unknown}");
    let plain = refused(&server.url()).await;
    assert!(plain.contains("no encryption"), "{plain}");
    let other_name =
        format!("{}&sslmode=require&{authority}", server.url_at("localhost", server.port()));
    let other_name = refused(&other_name).await;
    assert!(other_name.contains("not valid for name"), "{other_name}");
    let insecure = impatient(&format!("{url}&tls_insecure=true")).connect().await.unwrap();
    serves(&insecure, KEY).await;
}

#[tokio::test]
async fn a_server_without_tls_or_with_another_password_is_refused() {
    let Some(server) = start(PostgresServer::options().password(PASSWORD)).await else { return };
    let no_tls = refused(&format!("{}&sslmode=require", server.url())).await;
    assert!(no_tls.contains("write sslmode=disable"), "{no_tls}");
    let wrong = format!("postgres://app:wrong@127.0.0.1:{}/postgres?schema=locks", server.port());
    let wrong = refused(&wrong).await;
    assert!(wrong.contains("password authentication failed"), "{wrong}");
    let missing = format!("postgres://app@127.0.0.1:{}/postgres?schema=locks", server.port());
    let missing = refused(&missing).await;
    assert!(missing.contains("password"), "{missing}");
}

/// A process accepts the connection, and says nothing.
#[tokio::test]
async fn a_server_that_says_nothing_at_the_login_is_not_connected() {
    let Some(mut server) = start(PostgresServer::options()).await else { return };
    server.freeze();
    let silent = refused(&server.url()).await;
    assert!(silent.contains("no connection within"), "{silent}");
    server.thaw();
    eventually("the server answers", SOON, async || impatient(&server.url()).connect().await.ok())
        .await;
}

/// A name of a schema may contain anything.
#[tokio::test]
async fn a_schema_may_have_quotes_and_spaces() {
    let schema = "my locks' {table}";
    let Some(server) = start(PostgresServer::options().schema(schema)).await else { return };
    let manager = impatient(&server.url()).connect().await.unwrap();
    serves(&manager, KEY).await;
}
