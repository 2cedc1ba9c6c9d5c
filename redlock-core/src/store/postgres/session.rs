//! Executes statements over a client of tokio-postgres.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::TryStreamExt;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Error, Row};

use super::error;
use super::socket::ServerSocket;
use super::sql::Statement;
use crate::error::NodeError;
use crate::lock::{HolderId, OwnerLabel};

/// A connection of tokio-postgres over a socket of this node.
pub(super) type ServerConnection = tokio_postgres::Connection<ServerSocket, NoTlsStream>;

/// The work of a request.
pub(super) enum Work {
    /// A statement.
    Statement(Statement, Vec<SqlValue>),
    /// A command without parameters.
    Command(String),
}

/// A parameter of a statement. `Debug` does not show it, because tokio-postgres logs parameters (secrets stay in).
pub(super) enum SqlValue {
    Text(Box<str>),
    Texts(Vec<Box<str>>),
    Number(i64),
    Null,
}

/// The answer to a statement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Answer {
    pub(super) rows: usize,
    /// The number in the first row.
    pub(super) number: Option<i64>,
    /// The rest of another holder's lease in the first row.
    pub(super) rest: Option<Duration>,
    /// That holder.
    pub(super) holder: Option<HolderId>,
    /// The label of its owner.
    pub(super) label: Option<OwnerLabel>,
    /// Since when it has the lock, in seconds since 1970. Only the answer to [`Statement::Holder`] has it.
    pub(super) since: Option<u32>,
    /// The number of the session that has granted the lock or read the time.
    pub(super) session: Option<i64>,
}

impl Answer {
    /// Returns the number as a time since 1970.
    pub(super) fn time(&self) -> Duration {
        Duration::from_micros(self.number.unwrap_or_default().unsigned_abs())
    }
}

/// Executes work over a client.
pub(super) struct Session {
    pub(super) client: Client,
    /// The prepared statements; none behind a pooler, which may send a statement to a session that has not prepared it.
    pub(super) prepared: Vec<tokio_postgres::Statement>,
    /// The schema of the table.
    pub(super) schema: String,
}

impl Session {
    pub(super) fn is_pooled(&self) -> bool {
        self.prepared.is_empty()
    }

    /// Executes work. The first poll sends it.
    pub(super) async fn execute(&self, work: Work) -> Result<Answer, Error> {
        let (statement, values) = match work {
            Work::Command(command) => {
                return self.client.batch_execute(&command).await.map(|()| Answer::default());
            }
            Work::Statement(statement, values) => (statement, values),
        };
        let rows = if let Some(prepared) = self.prepared.get(statement as usize) {
            self.client.query_raw(prepared, values).await?
        } else {
            let typed = values.into_iter().zip(statement.types().iter().cloned());
            self.client.query_typed_raw(&statement.sql(&self.schema), typed).await?
        };
        let rows: Vec<Row> = rows.try_collect().await?;
        let Some(first) = rows.first() else { return Ok(Answer::default()) };
        let rest: Option<i64> = first.try_get(1)?;
        let rest = rest.map(|micros| Duration::from_micros(micros.max(0).unsigned_abs()));
        // Not all statements have these columns.
        let text = |column: &str| first.try_get::<_, Option<&str>>(column).unwrap_or_default();
        let since: Option<i64> = first.try_get("since").unwrap_or_default();
        Ok(Answer {
            rows: rows.len(),
            number: first.try_get(0)?,
            rest,
            holder: text("holder").and_then(|id| id.parse().ok()),
            label: text("label").and_then(OwnerLabel::read),
            since: since.and_then(|seconds| seconds.try_into().ok()),
            session: first.try_get("session").unwrap_or_default(),
        })
    }
}

/// Drives a connection until the work over it is done.
pub(super) async fn driven<T>(
    connection: &mut ServerConnection,
    work: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            match connection.poll_message(cx) {
                // A warning here concerns no lock.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(error::of_connect(&error)));
                }
                Poll::Ready(None) => {
                    return Poll::Ready(Err(NodeError::NotConnected(
                        "the server has closed the connection".into(),
                    )));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

impl ToSql for SqlValue {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Text(text) => text.as_ref().to_sql(kind, out),
            Self::Texts(texts) => texts.to_sql(kind, out),
            Self::Number(number) => number.to_sql(kind, out),
            Self::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::TEXT, Type::TEXT_ARRAY, Type::INT8].contains(kind)
    }

    to_sql_checked!();
}

impl fmt::Debug for SqlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tokio-postgres logs the parameters of each statement at the level debug.
    #[test]
    fn debug_shows_no_value() {
        let token = "0123456789abcdef0123456789abcdef";
        for value in
            [SqlValue::Text(token.into()), SqlValue::Texts(vec![token.into()]), SqlValue::Number(7)]
        {
            assert_eq!(format!("{value:?}"), "(..)");
        }
    }
}
