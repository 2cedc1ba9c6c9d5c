//! Passwords, certificates, and connections that are refused.

use redlock_core::{ConnectError, NodeError};
use redlock_tests::{Logs, PostgresOptions, PostgresServer, eventually, skip};

use crate::{KEY, SOON, failure, impatient, serves};

async fn start(options: PostgresOptions) -> Option<PostgresServer> {
    options.start().await.inspect_err(|why| skip(why)).ok()
}

async fn refused(url: &str) -> String {
    let error = impatient(url).connect().await.unwrap_err();
    assert!(!matches!(error, ConnectError::InvalidOption(_)), "{error}");
    error.to_string()
}

/// The server was reached, so that nobody has to ask whether it runs.
#[tokio::test]
async fn a_missing_password_is_an_error_of_the_credentials() {
    let Some(server) = start(PostgresServer::options().password("swordfish")).await else { return };
    let error = refused(&server.url().replace(":swordfish@", "@")).await;
    assert!(error.contains("password missing"), "{error}");
    assert!(!error.contains("is PostgreSQL running"), "{error}");
}

/// The server was reached, and answers again when connections have ended.
#[tokio::test]
async fn a_server_with_too_many_connections_is_not_asked_whether_it_runs() {
    let Some(server) = start(PostgresServer::options()).await else { return };
    let admin = server.admin().await;
    admin.batch_execute("alter role app connection limit 0").await.unwrap();
    let error = refused(&server.url()).await;
    assert!(error.contains("too many connections for role"), "{error}");
    assert!(!error.contains("is PostgreSQL running"), "{error}");
    admin.batch_execute("alter role app connection limit -1").await.unwrap();
    let manager = impatient(&server.url()).connect().await.unwrap();
    serves(&manager, KEY).await;
    // A running manager connects again by itself, too.
    admin.batch_execute("alter role app connection limit 0").await.unwrap();
    server.terminate_backends("app").await;
    eventually("the cause is in the error", SOON, async || {
        let error = manager.lock(KEY).try_acquire().await.err()?;
        error.diagnostics().to_string().contains("too many connections").then_some(())
    })
    .await;
    admin.batch_execute("alter role app connection limit -1").await.unwrap();
    serves(&manager, KEY).await;
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

/// A right that is missing is named by `connect`. If it is revoked later, the operations that need it are not permitted.
#[tokio::test]
async fn each_right_on_the_table_is_needed() {
    let Some(server) = start(PostgresServer::options()).await else { return };
    let (manager, admin) =
        (impatient(&server.url()).connect().await.unwrap(), server.admin().await);
    for right in ["select", "insert", "update", "delete"] {
        let change = format!("revoke {right} on locks.redlock_lease from app");
        admin.batch_execute(&change).await.unwrap();
        let error = refused(&server.url()).await;
        assert!(error.contains(&format!("grant {right} on \"locks\".redlock_lease to")), "{error}");
        match manager.lock(KEY).try_acquire().await {
            // Only the clean-up deletes rows.
            Ok(_) => assert_eq!(right, "delete"),
            Err(error) => {
                assert!(
                    matches!(failure(&error), NodeError::NotPermitted(_)),
                    "{right}: {error:?}"
                );
            }
        }
        let grant = format!("grant {right} on locks.redlock_lease to app");
        admin.batch_execute(&grant).await.unwrap();
        serves(&manager, KEY).await;
    }
    let page = include_str!("../../redlock-axum/docs/postgres.md");
    let listed = "grant select, insert, update, delete on \"locks\".redlock_lease to app;";
    assert!(page.contains(listed));
}

/// Nobody waits for the release, so only the log can say why the lock stays.
#[tokio::test]
async fn a_release_that_is_refused_after_a_drop_is_a_warning_and_is_repeated() {
    let Some(server) = start(PostgresServer::options()).await else { return };
    let (manager, admin) =
        (impatient(&server.url()).connect().await.unwrap(), server.admin().await);
    let logs = Logs::collect();
    let guard = manager.lock(KEY).expire(crate::LONG).try_acquire().await.unwrap();
    admin.batch_execute("revoke update on locks.redlock_lease from app").await.unwrap();
    drop(guard);
    let warning = eventually("the log names the refusal", SOON, async || {
        let lines = logs.lines();
        lines.into_iter().find(|line| line.contains("a node has refused to release a lock"))
    })
    .await;
    for words in ["WARN", KEY, "permission denied", &server.port().to_string()] {
        assert!(warning.contains(words), "{words}: {warning}");
    }
    admin.batch_execute("grant update on locks.redlock_lease to app").await.unwrap();
    crate::no_lock_is_left(&server).await;
}

/// Waiters poll instead.
#[tokio::test]
async fn a_role_that_may_not_notify_is_named() {
    let Some(server) = start(PostgresServer::options()).await else { return };
    let admin = server.admin().await;
    let revoke = "revoke execute on function pg_notify(text, text) from public";
    admin.batch_execute(revoke).await.unwrap();
    let logs = Logs::collect();
    let manager = impatient(&server.url()).connect().await.unwrap();
    eventually("the log names the function", SOON, async || {
        let words = "reason=not permitted: permission denied for function pg_notify";
        (logs.count("WARN", "releases are not notified") > 0 && logs.count("WARN", words) > 0)
            .then_some(())
    })
    .await;
    serves(&manager, KEY).await;
}
