//! Passwords, certificates, and connections that are refused.

use redlock_core::ConnectError;
use redlock_tests::{PostgresOptions, PostgresServer, eventually, skip};

use crate::{KEY, SOON, impatient, serves};

async fn start(options: PostgresOptions) -> Option<PostgresServer> {
    options.start().await.inspect_err(|why| skip(why)).ok()
}

async fn refused(url: &str) -> String {
    let error = impatient(url).connect().await.unwrap_err();
    assert!(!matches!(error, ConnectError::InvalidOption(_)), "{error}");
    error.to_string()
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
