//! TLS and passwords of PostgreSQL servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::{
    ConnectError, Credentials, LockManager, LockManagerBuilder, NodeError, TlsOptions, Vote,
};
use redlock_tests::{PostgresOptions, PostgresServer, eventually, skip};

use super::Files;
use super::credentials::{NEW, OLD};
use crate::{LONG, SOON, builder};

const KEY: &str = "order:42";

/// Starts a server; skips the test if there is no PostgreSQL.
async fn start(options: PostgresOptions) -> Option<PostgresServer> {
    options.start().await.inspect_err(|why| skip(why)).ok()
}

fn over_tls(files: &Files) -> PostgresOptions {
    PostgresServer::options().tls(&files.path("server.pem"), &files.path("server.key"))
}

/// Returns the URL with the name in the certificate.
fn url(server: &PostgresServer, parameters: &str) -> String {
    format!("{}{parameters}", server.url_at("localhost", server.port()))
}

async fn serves(builder: LockManagerBuilder) -> LockManager {
    let locks = builder.connect().await.unwrap();
    locks.lock(KEY).expire(LONG).try_acquire().await.unwrap().release().await.unwrap();
    locks
}

/// Returns why the node has no vote.
async fn refused(builder: LockManagerBuilder) -> NodeError {
    let error = builder.connect().await.unwrap_err();
    assert!(![OLD, NEW].iter().any(|password| format!("{error} {error:?}").contains(password)));
    let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
    match votes.iter().next() {
        Some((_, Some(Vote::Failed(reason)))) => reason.clone(),
        _ => panic!("{votes}"),
    }
}

#[tokio::test]
async fn a_certificate_is_verified() {
    let files = Files::new();
    let Some(server) = start(over_tls(&files)).await else { return };
    let ca = format!("&sslmode=require&tls_ca={}", files.text("ca.pem"));
    serves(builder([url(&server, &ca)])).await;
    // The options of all nodes complete those of the URL.
    serves(builder([url(&server, "&sslmode=verify-full")]).tls(files.trust())).await;
    let insecure = "&sslmode=require&tls_insecure=true";
    serves(builder([url(&server, insecure)])).await;

    let others = Files::new();
    let reason = refused(builder([url(&server, "&sslmode=require")]).tls(others.trust())).await;
    assert!(
        matches!(&reason, NodeError::Tls(words) if words.contains("UnknownIssuer")),
        "{reason}"
    );
    let by_address = format!("{}{ca}", server.url());
    let reason = refused(builder([by_address])).await;
    assert!(
        matches!(&reason, NodeError::Tls(words) if words.contains("not valid for name")),
        "{reason}"
    );
}

/// Neither side falls back to a connection that is not encrypted.
#[tokio::test]
async fn a_server_and_a_url_that_disagree_about_tls_name_the_remedy() {
    let files = Files::new();
    let Some(encrypted) = start(over_tls(&files)).await else { return };
    let Some(plain) = start(PostgresServer::options()).await else { return };
    let reason = refused(builder([url(&encrypted, "")])).await.to_string();
    assert!(reason.contains("no encryption"), "{reason}");
    let reason = refused(builder([url(&plain, "&sslmode=require")]).tls(files.trust())).await;
    assert!(
        matches!(&reason, NodeError::Tls(words) if words.contains("sslmode=disable")),
        "{reason}"
    );
    let unused = builder([url(&plain, "")]).tls(TlsOptions::new()).connect().await.unwrap_err();
    assert!(unused.to_string().contains("sslmode=require"), "{unused}");
}

/// A password is read for each connection, so that a new one needs no restart.
#[tokio::test]
async fn a_held_lock_survives_a_new_password_from_a_file_or_a_function() {
    let Some(server) = start(PostgresServer::options().password(OLD)).await else { return };
    let without = format!("postgres://app@127.0.0.1:{}/postgres?schema=locks", server.port());
    let reason = refused(
        builder([&without]).credentials(async |_| Ok::<_, std::io::Error>(Credentials::new(NEW))),
    )
    .await;
    assert!(matches!(reason, NodeError::Credentials(_)), "{reason}");

    let file = tempfile::NamedTempFile::new().unwrap();
    let current = Arc::new(Mutex::new(OLD));
    let nodes = Arc::new(Mutex::new(Vec::new()));
    let function = {
        let (current, nodes) = (Arc::clone(&current), Arc::clone(&nodes));
        move |node: Arc<str>| {
            nodes.lock().unwrap().push(node);
            let password = *current.lock().unwrap();
            std::future::ready(Ok::<_, std::io::Error>(Credentials::new(password)))
        }
    };
    std::fs::write(file.path(), OLD).unwrap();
    let from_file = format!("{without}&password_file={}", file.path().display());
    let patient = |url: &str| builder([url]).outage_grace(Duration::from_secs(60));
    let managers =
        [serves(patient(&from_file)).await, serves(patient(&without).credentials(function)).await];
    for (index, locks) in managers.iter().enumerate() {
        let key = index.to_string();
        // The round before may have ended these connections.
        let guard = eventually("the lock is acquired", SOON, async || {
            locks.lock(&key).expire(LONG).try_acquire().await.ok()
        })
        .await;
        for password in [NEW, OLD] {
            std::fs::write(file.path(), password).unwrap();
            *current.lock().unwrap() = password;
            server.set_password(password);
            assert!(server.terminate_backends("app").await > 0);
            eventually("the lease is extended over a new connection", SOON, async || {
                guard.extend(LONG).await.ok()
            })
            .await;
        }
        guard.release().await.unwrap();
    }
    let name = managers[1].nodes().next().unwrap().to_owned();
    assert!(nodes.lock().unwrap().iter().all(|node| **node == *name));
}
