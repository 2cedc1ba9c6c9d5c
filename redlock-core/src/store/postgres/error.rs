//! Converts the errors of a server.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::{NodeError, legible};

/// The remedy for the errors of a pooler in transaction mode.
const POOLER: &str = "a pooler in transaction mode is between this service and the server: add pooler=transaction to the URL";
/// The remedies for a pooler that refuses the settings of the node. Its mode is not known yet.
const REFUSED_OPTIONS: &str = "a pooler is between this service and the server: in session mode, write \
    ignore_startup_parameters = options into the configuration of the pooler; in transaction mode, add pooler=transaction to the URL";

/// The remedy for a URL with another database than that of the table.
const NO_DATABASE: &str = "name the database with the table of the locks at the end of the URL, such as postgres://..:5432/shop";
/// The remedy for a full queue of notifications.
const FULL_QUEUE: &str = "a session that listens has not ended its transaction: end the session that the log of the server names, \
    then run select pg_notification_queue_usage(), without which the queue stays full";

/// Returns the error of a connection whose transactions run in different sessions of the server.
pub(super) fn no_session() -> NodeError {
    NodeError::Server(
        format!(
            "the transactions of a connection run in different sessions of the server; {POOLER}"
        )
        .into(),
    )
}

/// Returns the error of a connection that is inside of a transaction, so that the server commits no grant.
pub(super) fn open_transaction() -> NodeError {
    NodeError::Server(
        "a transaction of the connection does not end, so that no lock would be committed: a pooler between this service and the \
         server has begun it; Pgpool-II needs backend_clustering_mode = 'streaming_replication'"
            .into(),
    )
}

/// Returns the message of the server, or the words of the client. The details of a server may contain the values of a row, and
/// with them a token (secrets stay in).
pub(super) fn message(error: &Error) -> String {
    let cause = std::error::Error::source(error);
    let words = match (error.as_db_error(), cause) {
        (Some(reason), _) => reason.message().to_owned(),
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    };
    legible(&words)
}

/// Converts the error of an operation. The server has not executed a statement that ends with an error of the severity `ERROR`.
pub(super) fn of_operation(error: &Error) -> NodeError {
    // The session goes on after an error of this severity.
    let is_error = |reason: &&DbError| reason.parsed_severity() == Some(Severity::Error);
    let Some(reason) = error.as_db_error().filter(is_error) else {
        return NodeError::ConnectionBroke(message(error).into());
    };
    of_server(reason, message(error))
}

/// Converts the error of an attempt to connect.
pub(super) fn of_connect(error: &Error) -> NodeError {
    match error.as_db_error() {
        // The server runs, although it may have too many connections, start or stop.
        Some(reason) => of_server(reason, message(error)),
        // The client has no password, or does not know the method.
        None if ["invalid configuration", "authentication error"]
            .contains(&&*error.to_string()) =>
        {
            NodeError::Credentials(message(error).into())
        }
        _ => NodeError::NotConnected(message(error).into()),
    }
}

fn of_server(reason: &DbError, message: String) -> NodeError {
    use SqlState as S;
    let code = reason.code();
    if *code == S::INSUFFICIENT_PRIVILEGE {
        NodeError::NotPermitted(message.into())
    } else if [S::INVALID_PASSWORD, S::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
        NodeError::Credentials(message.into())
    } else if *code == S::INVALID_CATALOG_NAME {
        NodeError::NotSetUp(format!("{message}; {NO_DATABASE}").into())
    } else if [S::DUPLICATE_PSTATEMENT, S::INVALID_SQL_STATEMENT_NAME].contains(code) {
        NodeError::Server(format!("{message}; {POOLER}").into())
    } else if *code == S::PROGRAM_LIMIT_EXCEEDED && reason.routine() == Some("PreCommit_Notify") {
        NodeError::Server(format!("{message}; {FULL_QUEUE}").into())
    } else if message.contains("unsupported startup parameter") {
        NodeError::Server(format!("{message}; {REFUSED_OPTIONS}").into())
    } else {
        NodeError::Server(message.into())
    }
}

/// Returns why no statement of the session can succeed any more, although the session goes on: the next connection checks
/// the server and the table.
pub(super) fn outdated(error: &Error) -> Option<&'static str> {
    use SqlState as S;
    let reason = error.as_db_error()?;
    let code = reason.code();
    if *code == S::READ_ONLY_SQL_TRANSACTION {
        Some("the server is a replica now")
    } else if [S::UNDEFINED_TABLE, S::UNDEFINED_COLUMN, S::DATATYPE_MISMATCH].contains(code)
        // A further column needs a value; there is no unique index.
        || [S::NOT_NULL_VIOLATION, S::INVALID_COLUMN_REFERENCE].contains(code)
        // The type of a column was changed. The prepared statements never succeed again.
        || reason.routine() == Some("RevalidateCachedQuery")
    {
        Some("the table was changed")
    } else {
        None
    }
}
