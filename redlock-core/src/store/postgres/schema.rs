//! The table of the locks: its definition, and the checks before its first use.

use std::time::Duration;

use tokio_postgres::Row;

use super::sql::{create_table, quoted, table};
use crate::error::{NodeError, legible};

/// Returns the statements that create the table of the locks in a schema, for the migrations of a service.
///
/// The table has the name `redlock_lease`. A node with the URL `postgres://..?schema={schema}` uses it; without the parameter the schema
/// is `public`. The lock manager itself creates nothing.
///
/// The owner of the table needs nothing more. Another role needs the rights that the comments at the end of the text grant.
///
/// # Examples
///
/// ```
/// let sql = redlock_core::postgres_schema("locks");
/// assert!(sql.starts_with("create schema if not exists \"locks\";\ncreate table"));
/// ```
pub fn postgres_schema(schema: &str) -> String {
    let (schema, table, create) = (quoted(schema), table(schema), create_table(schema));
    format!(
        "create schema if not exists {schema};\n\
         {create}\
         -- The rights of a role that does not own the table:\n\
         -- grant usage on schema {schema} to ROLE;\n\
         -- grant select, insert, update, delete on {table} to ROLE;\n"
    )
}

/// A process of the server behind a connection, its start in microseconds since 1970, and its role.
pub(super) type Backend = (i32, i64, u32);

/// The answers of a server before its first use.
#[derive(Debug)]
pub(super) struct Findings {
    /// The database, which may have other names in a pooler.
    pub(super) database: String,
    /// The ID of the server and its replicas, and the timeline: the number of promotions in the past of this server, and one.
    pub(super) server: (i64, i32),
    /// The least time since the last of these promotions, if it is known.
    pub(super) promoted_ago: Option<Duration>,
    /// The time since the start of the server, or since it has recovered from the death of one of its processes.
    pub(super) uptime: Duration,
    /// The process of the server behind the connection.
    pub(super) backend: Backend,
    /// The number of the session: of the process and the start of its server.
    pub(super) session: i64,
    pub(super) version: String,
    /// Whether a crash of the server may undo the last grants.
    pub(super) may_forget: bool,
    /// Whether an operation may wait for a row without a time limit.
    pub(super) may_block: bool,
}

impl Findings {
    /// Checks the answer to [`FINDINGS`](super::sql::FINDINGS). An error names what is wrong, and the statement that repairs it.
    pub(super) fn read(row: &Row, schema: &str) -> Result<Self, NodeError> {
        let wrong = |reason: String| Err(NodeError::NotSetUp(reason.into()));
        let text = |column: &str| {
            row.try_get::<_, Option<&str>>(column).ok().flatten().unwrap_or_default()
        };
        let number =
            |column: &str| row.try_get::<_, i64>(column).map_err(|_| NodeError::UnexpectedReply);
        let table = table(schema);
        if row.try_get("is_replica").unwrap_or(true) {
            // A failover may make it the primary server.
            let reason = "the server is a replica (it is in recovery); the URL must lead to the primary server";
            return Err(NodeError::Server(reason.into()));
        }
        if text("server_encoding") != "UTF8" {
            return wrong(format!(
                "the encoding of the database is {}, but must be UTF8: create database .. encoding 'UTF8' template template0",
                text("server_encoding")
            ));
        }
        for setting in ["fsync", "full_page_writes"] {
            if text(setting) != "on" {
                return wrong(format!(
                    "{setting} is {}, so that a crash of the server may forget locks: alter system set {setting} = on; select pg_reload_conf()",
                    text(setting)
                ));
            }
        }
        for (setting, value) in [
            ("default_transaction_isolation", "read committed"),
            ("default_transaction_read_only", "off"),
        ] {
            if text(setting) != value {
                return wrong(format!(
                    "{setting} is {}, but must be {value}: alter role .. set {setting} = '{value}'",
                    text(setting)
                ));
            }
        }
        if text("client_min_messages") == "error" {
            return wrong("client_min_messages is error, which hides the warning that a standby lacks a grant: alter role .. set client_min_messages = warning".to_owned());
        }
        let missing = |right: &str, on: &str| {
            let message =
                format!("the right is missing: grant {right} on {on} to the role of the URL");
            Err(NodeError::NotPermitted(message.into()))
        };
        if row.try_get("may_use").unwrap_or(None) == Some(false) {
            return missing("usage", &format!("schema {}", quoted(schema)));
        }
        if !row.try_get("has_table").unwrap_or(false) {
            return wrong(missing_table(schema));
        }
        let columns = row.try_get::<_, Vec<&str>>("columns").unwrap_or_default();
        if let Err(reason) = check_columns(&table, &columns) {
            return wrong(reason);
        }
        if !text("needy").is_empty() {
            return wrong(needs_value(&table, text("needy")));
        }
        if !row.try_get("is_unique").unwrap_or(false) {
            return wrong(format!(
                "the column name of the table {table} is not unique: alter table {table} add unique (name)"
            ));
        }
        if !row.try_get("is_logged").unwrap_or(false) {
            return wrong(format!(
                "the table {table} is unlogged, so that a crash of the server forgets all locks: alter table {table} set logged"
            ));
        }
        if !text("missing").is_empty() {
            return missing(text("missing"), &table);
        }
        Ok(Self {
            database: text("database").to_owned(),
            server: (
                number("system")?,
                row.try_get("timeline").map_err(|_| NodeError::UnexpectedReply)?,
            ),
            promoted_ago: row.try_get("promoted_ago").ok().flatten().map(micros),
            uptime: micros(number("uptime")?),
            backend: (
                row.try_get("pid").map_err(|_| NodeError::UnexpectedReply)?,
                number("backend_start")?,
                row.try_get("role").map_err(|_| NodeError::UnexpectedReply)?,
            ),
            session: number("session")?,
            version: legible(text("version")),
            may_forget: text("synchronous_commit") == "off",
            may_block: text("lock_timeout") == "0",
        })
    }
}

/// The columns of the table: the name, the type as the server reports it, and the statements that add the column. Those of the
/// first four end all locks, because the values that they add mean that no lock is held.
const COLUMNS: [(&str, &str, &str); 6] = [
    (
        "name",
        "text collate \"C\"",
        "delete from {table}; alter table {table} add column name text collate \"C\" primary key",
    ),
    ("token", "text", "alter table {table} add column token text not null default ''"),
    (
        "expires",
        "timestamp with time zone",
        "alter table {table} add column expires timestamptz not null default now()",
    ),
    ("number", "bigint", "alter table {table} add column number bigint not null default 0"),
    ("label", "text", ADD_OWNER),
    ("since", "timestamp with time zone", ADD_OWNER),
];
/// Adds the columns about the owner of a lock. Present holders have no label.
const ADD_OWNER: &str = "alter table {table} add column if not exists label text, add column if not exists since timestamptz";

/// Returns the message about a column that needs a value, which a lock does not have, or not always.
fn needs_value(table: &str, column: &str) -> String {
    let what = if matches!(column, "label" | "since") {
        format!(
            "the column {column} of the table {table} must allow null, for locks without a label"
        )
    } else {
        format!(
            "the table {table} has a further column {column} that is not null and has no default"
        )
    };
    format!("{what}: alter table {table} alter column {column} drop not null")
}

/// Returns the message about a missing table, with all statements that an administrator runs.
fn missing_table(schema: &str) -> String {
    let statements = postgres_schema(schema)
        .replace("\n-- The rights of a role that does not own the table:", "");
    let statements: Vec<_> =
        statements.lines().map(|line| line.trim_start_matches("-- ").trim()).collect();
    let table = table(schema);
    format!(
        "the table {table} does not exist; an administrator of the database creates it, with the role of the URL as ROLE: {}",
        statements.join(" ")
    )
}

/// Returns what precedes a statement that ends locks.
fn when_unused(ends_locks: bool) -> &'static str {
    if ends_locks {
        "; this ends all locks, so stop the services that lock there, and wait until their longest lease is over; then run"
    } else {
        ""
    }
}

/// Compares the columns of the table, each with its type, with those of a lock. The error names the difference, and the
/// statement that repairs it.
fn check_columns(table: &str, columns: &[&str]) -> Result<(), String> {
    for (name, wanted, add) in COLUMNS {
        let kind = columns.iter().find_map(|column| column.strip_prefix(name)?.strip_prefix(' '));
        let Some(kind) = kind else {
            let add = add.replace("{table}", table);
            let when = when_unused(!matches!(name, "label" | "since"));
            return Err(format!("the table {table} has no column {name}{when}: {add}"));
        };
        if kind != wanted {
            // The conversion of a time may depend on the time zone of the session.
            let when = when_unused(name == "expires");
            return Err(format!(
                "the column {name} of the table {table} is {kind}, but must be {wanted}{when}: \
                 alter table {table} alter column {name} type {wanted}"
            ));
        }
    }
    Ok(())
}

/// Returns a time of so many microseconds. A clock that was stepped may report a negative one.
fn micros(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schema may have any name. Its quotes must not end the statement.
    #[test]
    fn the_name_of_a_schema_is_quoted() {
        let sql = postgres_schema("my\"locks");
        assert!(sql.contains("create schema if not exists \"my\"\"locks\";\n"), "{sql}");
        assert!(
            sql.contains(
                "grant select, insert, update, delete on \"my\"\"locks\".redlock_lease to"
            ),
            "{sql}"
        );
    }
}
