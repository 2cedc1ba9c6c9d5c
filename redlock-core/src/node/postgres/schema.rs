//! The table of the locks: its definition, the statements over it, and the checks before its first use.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::NodeError;

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
    let (schema, table) = (quoted(schema), table(schema));
    format!(
        "create schema if not exists {schema};\n\
         {}\n\
         -- The rights of a role that does not own the table:\n\
         -- grant usage on schema {schema} to ROLE;\n\
         -- grant select, insert, update, delete on {table} to ROLE;\n",
        create_table(&table)
    )
}

/// Half of each page stays free, so that an update finds its place beside the former row and needs no work on the index.
fn create_table(table: &str) -> String {
    format!(
        "create table if not exists {table} (\n  \
           name text collate \"C\" primary key,\n  \
           token text not null,\n  \
           expires timestamptz not null,\n  \
           number bigint not null\n\
         ) with (fillfactor = 50);"
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn table(schema: &str) -> String {
    format!("{}.redlock_lease", quoted(schema))
}

/// A statement over the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statement {
    Acquire,
    Extend,
    Confirm,
    Release,
    /// A release with `min_hold`.
    Shorten,
    Notify,
    CleanUp,
    Time,
}

impl Statement {
    pub(super) const ALL: [Self; 8] = [
        Self::Acquire,
        Self::Extend,
        Self::Confirm,
        Self::Release,
        Self::Shorten,
        Self::Notify,
        Self::CleanUp,
        Self::Time,
    ];

    /// The types of the parameters: the name and the token of a lock, and a time in microseconds or a number; or a channel.
    pub(super) const fn types(self) -> &'static [Type] {
        match self {
            Self::Acquire | Self::Extend | Self::Confirm | Self::Shorten => {
                &[Type::TEXT, Type::TEXT, Type::INT8]
            }
            Self::Release => &[Type::TEXT, Type::TEXT],
            Self::Notify => &[Type::TEXT],
            Self::CleanUp | Self::Time => &[],
        }
    }

    /// Returns the statement. Its rows have the columns `number` and `rest`: a row with a number means yes, a row without
    /// means that another token holds the lock, for the rest in microseconds. No row means no.
    pub(super) fn sql(self, schema: &str) -> String {
        /// The rows of the lock that the token holds.
        const OWN: &str = "where name = $1 and token = $2 and expires > clock_timestamp() returning number, null::bigint as rest";
        /// A crash of the server may undo a statement with this, which delays no caller.
        const NO_WAIT: &str = "set_config('synchronous_commit', 'off', true)";
        let table = table(schema);
        match self {
            // The first condition keeps a refusal from locking the row, and from waiting for the disk. Only the second one
            // is safe: it is checked again on the latest version of the row. A caller that has lost a race there gets no
            // row, because the outer query sees the former version. An empty token means that the lock is free.
            Self::Acquire => format!(
                "with granted as ( \
                   insert into {table} as l (name, token, expires, number) \
                   select $1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond', \
                     (extract(epoch from clock_timestamp()) * 1000000)::bigint \
                   where not exists (select from {table} h where h.name = $1 and h.token not in ('', $2) \
                     and h.expires > clock_timestamp()) \
                   on conflict (name) do update set token = excluded.token, number = greatest(l.number + 1, excluded.number), \
                     expires = clock_timestamp() + $3::bigint * interval '1 microsecond' \
                   where l.token in ('', $2) or l.expires <= clock_timestamp() \
                   returning number) \
                 select number, null::bigint as rest from granted union all \
                 select null, (extract(epoch from h.expires - clock_timestamp()) * 1000000)::bigint from {table} h \
                 where h.name = $1 and h.token not in ('', $2) and h.expires > clock_timestamp() \
                   and not exists (select from granted)"
            ),
            Self::Extend => format!(
                "update {table} set expires = greatest(expires, clock_timestamp() + $3::bigint * interval '1 microsecond') {OWN}"
            ),
            Self::Confirm => format!("update {table} set number = greatest(number, $3) {OWN}"),
            // The row stays, so that its number grows. Its time stays, so that the clean-up is late.
            Self::Release => {
                format!("update {table} set token = '', expires = clock_timestamp() {OWN}, {NO_WAIT}")
            }
            Self::Shorten => format!(
                "update {table} set expires = least(expires, clock_timestamp() + $3::bigint * interval '1 microsecond') {OWN}"
            ),
            // A transaction of its own: a notification holds a lock of all databases until its commit.
            Self::Notify => format!("select null::bigint as number, null::bigint as rest, {NO_WAIT}, pg_notify($1, '')"),
            // A later clock could repeat the number of a row that is deleted earlier.
            Self::CleanUp => format!(
                "delete from {table} where name in (select name from {table} \
                   where expires < clock_timestamp() - interval '1 day' \
                     and number < (extract(epoch from clock_timestamp()) * 1000000)::bigint \
                   limit 1000 for update skip locked) \
                 returning number, null::bigint as rest, {NO_WAIT}"
            ),
            Self::Time => "select (extract(epoch from clock_timestamp()) * 1000000)::bigint as number, null::bigint as rest".to_owned(),
        }
    }
}

/// The answers of a server before its first use.
#[derive(Debug)]
pub(super) struct Findings {
    /// The ID of the server and its replicas.
    pub(super) system: i64,
    /// The number of promotions that this server has in its past, and one.
    pub(super) timeline: i32,
    /// The least time since the last of these promotions, if it is known.
    pub(super) promoted_ago: Option<Duration>,
    /// The time since the start of the server.
    pub(super) uptime: Duration,
    /// The process of the server behind the connection, and the time of its start in microseconds since 1970.
    pub(super) backend: (i32, i64),
    /// Whether a crash of the server may undo the last grants.
    pub(super) may_forget: bool,
}

/// Asks for the findings, and for what [`Findings::read`] checks. `pg_control_checkpoint` has the timeline of the last
/// checkpoint: if that is the present one, the promotion was before it.
pub(super) fn findings_query(schema: &str) -> String {
    format!(
        "select pg_is_in_recovery() as is_replica, current_setting('server_encoding') as server_encoding, current_setting('fsync') as fsync, \
           current_setting('full_page_writes') as full_page_writes, current_setting('synchronous_commit') as synchronous_commit, \
           current_setting('transaction_isolation') as isolation, current_setting('lock_timeout') as lock_timeout, \
           has_schema_privilege(n.oid, 'usage') as may_use, \
           (select string_agg(attname || ' ' || format_type(atttypid, atttypmod) || case attname when 'name' then \
              (select ' ' || collname from pg_collation where oid = attcollation) else '' end, ', ' order by attname) \
            from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped) as columns, \
           exists (select from pg_index join pg_attribute on attrelid = indrelid and attnum = indkey[0] \
             where indrelid = c.oid and indisunique and indpred is null and indnkeyatts = 1 and attname = 'name') as is_unique, \
           (select string_agg(p, ', ') from unnest('{{select,insert,update,delete}}'::text[]) p \
             where not has_table_privilege(c.oid, p)) as missing, \
           (select system_identifier from pg_control_system()) as system, \
           timeline, \
           (select (extract(epoch from clock_timestamp() - checkpoint_time) * 1000000)::bigint \
             from pg_control_checkpoint() where timeline_id = wanted.timeline) as promoted_ago, \
           (extract(epoch from clock_timestamp() - pg_postmaster_start_time()) * 1000000)::bigint as uptime, \
           pg_backend_pid() as pid, \
           (select (extract(epoch from backend_start) * 1000000)::bigint from pg_stat_activity where pid = pg_backend_pid()) as backend_start \
         from (select '{}' as schema, case when pg_is_in_recovery() then 0 \
             else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline) as wanted \
           left join pg_namespace n on n.nspname = schema \
           left join pg_class c on c.relnamespace = n.oid and c.relname = 'redlock_lease' and c.relkind in ('r', 'p')",
        schema.replace('\'', "''")
    )
}

impl Findings {
    /// Checks the answer to [`findings_query`]. An error names what is wrong, and the statement that repairs it.
    pub(super) fn read(row: &Row, schema: &str) -> Result<Self, NodeError> {
        let wrong = |reason: String| Err(NodeError::Server(reason.into()));
        let text = |column: &str| {
            row.try_get::<_, Option<&str>>(column).ok().flatten().unwrap_or_default()
        };
        let number =
            |column: &str| row.try_get::<_, i64>(column).map_err(|_| NodeError::UnexpectedReply);
        let table = table(schema);
        if row.try_get("is_replica").unwrap_or(true) {
            return wrong("the server is a replica (it is in recovery); the URL must lead to the primary server".to_owned());
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
        if text("isolation") != "read committed" {
            return wrong(format!(
                "the isolation of transactions is {}, but must be read committed: alter role .. set default_transaction_isolation = 'read committed'",
                text("isolation")
            ));
        }
        if text("lock_timeout") == "0" {
            tracing::warn!(
                "a lock on a row of {table} blocks the other locks of its connection without a time limit: alter role .. set lock_timeout = '500ms'"
            );
        }
        let missing = |right: &str, on: &str| {
            let message =
                format!("the right is missing: grant {right} on {on} to the role of the URL");
            Err(NodeError::NotPermitted(message.into()))
        };
        if row.try_get("may_use").unwrap_or(None) == Some(false) {
            return missing("usage", &format!("schema {}", quoted(schema)));
        }
        let repair = || {
            format!(
                "{} (redlock_core::postgres_schema has all statements)",
                create_table(&table).replace('\n', "")
            )
        };
        match text("columns") {
            "" => return wrong(format!("the table {table} does not exist: {}", repair())),
            "expires timestamp with time zone, name text C, number bigint, token text" => {}
            columns => {
                return wrong(format!(
                    "the table {table} has other columns ({columns}): drop table {table}; {}",
                    repair()
                ));
            }
        }
        if !row.try_get("is_unique").unwrap_or(false) {
            return wrong(format!(
                "the table {table} has no primary key: alter table {table} add primary key (name)"
            ));
        }
        if !text("missing").is_empty() {
            return missing(text("missing"), &table);
        }
        Ok(Self {
            system: number("system")?,
            timeline: row.try_get("timeline").map_err(|_| NodeError::UnexpectedReply)?,
            promoted_ago: row.try_get("promoted_ago").ok().flatten().map(micros),
            uptime: micros(number("uptime")?),
            backend: (
                row.try_get("pid").map_err(|_| NodeError::UnexpectedReply)?,
                number("backend_start")?,
            ),
            may_forget: text("synchronous_commit") == "off",
        })
    }
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
        assert!(findings_query("it's").contains("select 'it''s' as schema"));
    }

    /// A statement is found in the list of the prepared statements by its number.
    #[test]
    fn the_list_of_statements_is_in_their_order() {
        for (index, statement) in Statement::ALL.into_iter().enumerate() {
            assert_eq!(statement as usize, index, "{statement:?}");
        }
    }
}
