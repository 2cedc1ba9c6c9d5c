//! Answers in PostgreSQL: a row for each key.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use redlock_core::__private::tokio_postgres::error::SqlState;
use redlock_core::__private::tokio_postgres::types::{ToSql, Type};
use redlock_core::__private::tokio_postgres::{Error, Row};
use redlock_core::__private::{PostgresClient, statement_error};
use redlock_core::NodeError;
use tokio::time::{Instant, timeout};

use super::super::answers::{
    AnswerClaim, AnswerId, AnswerRecord, Answers, AnswersError, AnswersFuture, ClaimResult,
};
use super::super::fingerprint::Fingerprint;

/// The longest time of a statement.
const LONGEST_STATEMENT: Duration = Duration::from_secs(2);
/// The time between two clean-ups of a process.
const CLEAN_UP_PAUSE: Duration = Duration::from_secs(60);

const TABLE: &str = "{schema}.redlock_answer";
const LOAD: &str = "select number, fingerprint, answer from {table} \
    where scope = $1 and key = $2 and expires > clock_timestamp()";
const CLAIM: &str = "insert into {table} as record (scope, key, number, fingerprint, answer, expires) \
    values ($1, $2, $3, $4, null, clock_timestamp() + $5 * interval '1 millisecond') \
    on conflict (scope, key) do update set number = excluded.number, fingerprint = excluded.fingerprint, answer = null, \
    expires = excluded.expires \
    where record.expires <= clock_timestamp() or (record.answer is null and $6 and record.number < excluded.number \
    and record.fingerprint = excluded.fingerprint) returning 1";
const STORE: &str = "update {table} set answer = $4, expires = clock_timestamp() + $5 * interval '1 millisecond' \
    where scope = $1 and key = $2 and number = $3 and expires > clock_timestamp() returning 1";
const FORGET: &str =
    "delete from {table} where scope = $1 and key = $2 and number = $3 and answer is null";
/// A row that another transaction has locked is left for the next time.
const CLEAN_UP: &str = "delete from {table} where (scope, key) in (select scope, key from {table} \
    where expires <= clock_timestamp() limit 1000 for update skip locked)";

/// Returns the statements that create the table of the answers in a schema, for the migrations of a service.
///
/// The table has the name `redlock_answer`. [`PostgresAnswers`] creates nothing itself. Its role needs the rights that the comments
/// at the end of the text grant.
///
/// # Examples
///
/// ```
/// let sql = redlock_axum::postgres_answers_schema("shop");
/// assert!(sql.contains("create table if not exists \"shop\".redlock_answer"));
/// ```
pub fn postgres_answers_schema(schema: &str) -> String {
    let schema = format!("\"{}\"", schema.replace('"', "\"\""));
    include_str!("answer.sql").replace("{schema}", &schema)
}

/// Answers in a PostgreSQL database, in the table of [`postgres_answers_schema`].
///
/// A crash of the server forgets no answer, and a handler can store its answer in the transaction of its work, see
/// [`stored_by_handler`](crate::IdempotencyLayer::stored_by_handler). Every role with the right to read the table sees the answers. The store removes
/// rows whose time is over, up to 1000 each minute and process.
///
/// The store has two connections, and connects again after a break. A request that meets a break is answered with 503.
///
/// # Examples
///
/// ```no_run
/// use redlock_axum::{IdempotencyLayer, LockManager, PostgresAnswers};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "postgres://app@10.0.0.1/shop?schema=shop";
/// let locks = LockManager::connect([url]).await?;
/// let once = IdempotencyLayer::new(&locks, PostgresAnswers::connect(url).await?).shared_scope()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PostgresAnswers {
    /// For statements that wait for no row.
    reader: PostgresClient,
    writer: PostgresClient,
    next_clean_up: Mutex<Instant>,
}

impl PostgresAnswers {
    /// Connects to the database of a URL, which is that of a [node](crate::guide::postgres). Checks that the table exists.
    ///
    /// # Errors
    ///
    /// Returns an [`AnswersError`] for a mistake in the URL, for a server that cannot be reached or refuses the login, and for a table
    /// that is missing or cannot be read. The message contains no password.
    pub async fn connect(url: &str) -> Result<Self, AnswersError> {
        let client = || {
            PostgresClient::new(url).map_err(|reason| {
                AnswersError::new(format!("the URL of the answers cannot be used: {reason}"))
            })
        };
        let next_clean_up = Mutex::new(Instant::now() + CLEAN_UP_PAUSE);
        let store = Self { reader: client()?, writer: client()?, next_clean_up };
        let hint = |error| {
            AnswersError::new(format!(
                "{error}; redlock_axum::postgres_answers_schema has the statements that create the table"
            ))
        };
        store
            .row(&store.reader, LOAD, &[(&"", Type::TEXT), (&"", Type::TEXT)])
            .await
            .map_err(hint)?;
        Ok(store)
    }

    fn failed(&self, error: &NodeError) -> AnswersError {
        AnswersError::new(format!("{}: {error}", self.reader.name()))
    }

    /// Executes a statement. The inner error is the server's.
    async fn execute(
        &self,
        client: &PostgresClient,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Result<Vec<Row>, Error>, AnswersError> {
        let sql = sql.replace("{table}", TABLE).replace("{schema}", &client.schema());
        let connection = client.client().await.map_err(|error| self.failed(&error))?;
        let rows = timeout(LONGEST_STATEMENT, connection.query_typed(&sql, values)).await;
        rows.map_err(|_| {
            client.give_up(&connection);
            self.failed(&NodeError::NoReply(LONGEST_STATEMENT))
        })
    }

    /// Executes a statement, and returns its first row.
    async fn row(
        &self,
        client: &PostgresClient,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Option<Row>, AnswersError> {
        let rows = self.execute(client, sql, values).await?;
        let rows = rows.map_err(|error| self.failed(&statement_error(&error)))?;
        Ok(rows.into_iter().next())
    }

    async fn load(&self, id: &AnswerId) -> Result<Option<AnswerRecord>, AnswersError> {
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&id.scope(), Type::TEXT), (&id.key(), Type::TEXT)];
        let Some(row) = self.row(&self.reader, LOAD, &values).await? else { return Ok(None) };
        let foreign =
            |_| AnswersError::new("the table redlock_answer has a column of another type");
        let fingerprint: &[u8] = row.try_get(1).map_err(foreign)?;
        let fingerprint = <[u8; 32]>::try_from(fingerprint);
        let fingerprint = fingerprint.map_err(|_| {
            AnswersError::new("a fingerprint in the table redlock_answer has not 32 bytes")
        })?;
        let answer: Option<Vec<u8>> = row.try_get(2).map_err(foreign)?;
        let number = row.try_get(0).map_err(foreign)?;
        Ok(Some(AnswerRecord::new(number, Fingerprint::from(fingerprint), answer.map(Bytes::from))))
    }

    async fn claim(&self, id: &AnswerId, claim: AnswerClaim) -> Result<ClaimResult, AnswersError> {
        self.clean_up().await;
        let (fingerprint, keep) = (&claim.fingerprint.as_bytes()[..], millis(claim.keep));
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&id.scope(), Type::TEXT),
            (&id.key(), Type::TEXT),
            (&claim.number, Type::INT8),
            (&fingerprint, Type::BYTEA),
            (&keep, Type::FLOAT8),
            (&claim.replaces_unfinished, Type::BOOL),
        ];
        match self.execute(&self.writer, CLAIM, &values).await? {
            Ok(rows) if !rows.is_empty() => Ok(ClaimResult::Claimed),
            Ok(_) => Ok(match self.load(id).await? {
                Some(record) => ClaimResult::Found(record),
                // Its time is over since the statement.
                None => ClaimResult::Busy,
            }),
            // The transaction of a handler has the row. Its lock is lost.
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                Ok(ClaimResult::Busy)
            }
            Err(error) => Err(self.failed(&statement_error(&error))),
        }
    }

    /// Removes rows whose time is over, if the last time was long ago. An error is no error of the caller.
    async fn clean_up(&self) {
        let now = Instant::now();
        let is_due = self.next_clean_up.lock().is_ok_and(|mut next| {
            let is_due = *next <= now;
            if is_due {
                *next = now + CLEAN_UP_PAUSE;
            }
            is_due
        });
        if is_due && let Err(error) = self.row(&self.writer, CLEAN_UP, &[]).await {
            tracing::warn!(%error, "cannot remove answers whose time is over");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a year has fewer milliseconds than 2^53")]
fn millis(keep: Duration) -> f64 {
    keep.as_millis() as f64
}

impl Answers for PostgresAnswers {
    fn load<'a>(&'a self, id: &'a AnswerId) -> AnswersFuture<'a, Option<AnswerRecord>> {
        Box::pin(self.load(id))
    }

    fn claim<'a>(&'a self, id: &'a AnswerId, claim: AnswerClaim) -> AnswersFuture<'a, ClaimResult> {
        Box::pin(self.claim(id, claim))
    }

    fn store<'a>(
        &'a self,
        id: &'a AnswerId,
        number: i64,
        answer: Bytes,
        keep: Duration,
    ) -> AnswersFuture<'a, bool> {
        Box::pin(async move {
            let (answer, keep) = (&answer[..], millis(keep));
            let values: [(&(dyn ToSql + Sync), Type); 5] = [
                (&id.scope(), Type::TEXT),
                (&id.key(), Type::TEXT),
                (&number, Type::INT8),
                (&answer, Type::BYTEA),
                (&keep, Type::FLOAT8),
            ];
            Ok(self.row(&self.writer, STORE, &values).await?.is_some())
        })
    }

    fn forget<'a>(&'a self, id: &'a AnswerId, number: i64) -> AnswersFuture<'a, ()> {
        Box::pin(async move {
            let values: [(&(dyn ToSql + Sync), Type); 3] =
                [(&id.scope(), Type::TEXT), (&id.key(), Type::TEXT), (&number, Type::INT8)];
            self.row(&self.writer, FORGET, &values).await.map(drop)
        })
    }
}
