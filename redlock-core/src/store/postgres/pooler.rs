//! Recognises a pooler in transaction mode, which gives each transaction another session of the server.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use super::error;
use super::schema::Findings;
use super::session::{ServerConnection, Session, Work, driven};
use super::sql::Statement;
use crate::error::NodeError;

/// Checks that a connection has a session of its own. `other` connects once more, and returns the session of that connection.
///
/// A pooler may have no session left for it within `limit`, which shows nothing. Each grant is checked again, so such a
/// connection is refused later.
///
/// # Errors
///
/// The transactions of the connection run in different sessions.
pub(super) async fn check(
    session: &Session,
    connection: &mut ServerConnection,
    findings: &Findings,
    limit: Duration,
    other: impl Future<Output = Result<Option<i64>, NodeError>>,
) -> Result<(), NodeError> {
    // PgBouncer says it since 1.26.
    match connection.parameter("pgbouncer.pool_mode") {
        Some("session") => return Ok(()),
        Some(_) => return Err(error::no_session()),
        None => {}
    }
    if startup_process(&session.client).await == Some(findings.backend.0) {
        return Ok(());
    }
    // A pooler mostly gives the session that was used last to the next transaction, whichever client sends it.
    let Ok(Ok(other)) = timeout(limit, other).await else { return Ok(()) };
    let own = driven(connection, current(session)).await?;
    if own != Some(findings.session) || own == other { Err(error::no_session()) } else { Ok(()) }
}

/// Returns the number of the session that executes the next statement.
pub(super) async fn current(session: &Session) -> Result<Option<i64>, NodeError> {
    let answer = session.execute(Work::Statement(Statement::Time, Vec::new())).await;
    answer.map(|answer| answer.session).map_err(|error| error::of_connect(&error))
}

/// Returns the process that has begun the connection. A pooler begins it itself, and invents a number. Only a request to cancel
/// a statement shows the number: it follows the length and the code of the request.
async fn startup_process(client: &Client) -> Option<i32> {
    let (mut ours, theirs) = tokio::io::duplex(64);
    client.cancel_token().cancel_query_raw(theirs, NoTls).await.ok()?;
    ours.read_i64().await.ok()?;
    ours.read_i32().await.ok()
}
