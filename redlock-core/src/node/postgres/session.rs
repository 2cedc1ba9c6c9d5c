//! Executes statements over a client of tokio-postgres.

use std::fmt;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::TryStreamExt;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Error, Row};

use super::sql::Statement;
use crate::lock::HolderId;

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
}

/// The answer to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Answer {
    pub(super) rows: usize,
    /// The number in the first row.
    pub(super) number: Option<i64>,
    /// The rest of another holder's lease in the first row.
    pub(super) rest: Option<Duration>,
    /// That holder.
    pub(super) holder: Option<HolderId>,
}

impl Answer {
    /// Returns the number as a time since 1970.
    pub(super) fn time(self) -> Duration {
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
        // Only an acquisition has this column.
        let holder: Option<&str> = first.try_get("holder").unwrap_or_default();
        let holder = holder.and_then(|holder| holder.parse().ok());
        Ok(Answer { rows: rows.len(), number: first.try_get(0)?, rest, holder })
    }
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
