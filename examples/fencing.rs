//! A database that rejects the write of a holder that slept past its lease.
//!
//! ```sh
//! DATABASE_URL='host=127.0.0.1 user=postgres' LOCKS_URLS=redis://127.0.0.1 \
//!     cargo run --example fencing
//! ```
//!
//! A deposit reads the balance, works for `?hold_ms=`, and writes the sum. Of two deposits at the
//! same time one would be lost, so the handler locks the account, with a lease of one second. If
//! the handler works for longer, another request may hold the lock by then, and the late handler
//! must not write. A look at the clock does not help a process that is paused between the look and
//! the write. The database rejects the late write by the fencing token: each holder stores its
//! token before it reads, so that no earlier holder can write after that, and presents it again
//! when it writes.

mod server;

use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redlock_axum::{FencedLock, FencingToken, LockManager, redis_lock};
use serde::Deserialize;
use tokio_postgres::{Client, GenericClient, NoTls};
use tracing::info;

const TABLES: &str = "
    create table if not exists account (id bigint primary key, balance bigint not null);
    create table if not exists fence (
        key text primary key, number bigint not null, holder bigint not null
    )";

/// Stores the fencing token. Changes no row if a later holder has stored its token. In a
/// transaction it also locks the row until the end, so that no other holder can write in between.
const FENCE: &str = "
    insert into fence as f (key, number, holder) values ($1, $2, $3)
    on conflict (key) do update set number = excluded.number, holder = excluded.holder
    where (f.number, f.holder) <= (excluded.number, excluded.holder)";

#[redis_lock(key = "account:{id}", expire = 1, fenced)]
async fn deposit(
    Path(id): Path<i64>,
    Query(Deposit { amount, hold_ms }): Query<Deposit>,
    State(database): State<Database>,
    lock: FencedLock,
) -> Result<String, DepositError> {
    let mut client = database.connect().await?;
    let key = format!("account:{id}");
    if !is_last(&client, &key, lock.fencing_token()).await? {
        return Err(DepositError::Late);
    }
    let row = client.query_opt("select balance from account where id = $1", &[&id]).await?;
    let before: i64 = row.map_or(0, |row| row.get(0));
    info!("account {id} has {before}");
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    let after = before + amount;

    let transaction = client.transaction().await?;
    if !is_last(&transaction, &key, lock.fencing_token()).await? {
        return Err(DepositError::Late);
    }
    let write = "insert into account (id, balance) values ($1, $2)
        on conflict (id) do update set balance = excluded.balance";
    transaction.execute(write, &[&id, &after]).await?;
    transaction.commit().await?;
    Ok(format!("account {id} has {after}\n"))
}

/// Returns whether no later holder has stored its token. Call it before the first read that the
/// write depends on, and first in the transaction that writes.
async fn is_last(
    client: &impl GenericClient,
    key: &str,
    token: FencingToken,
) -> Result<bool, tokio_postgres::Error> {
    let rows = client.execute(FENCE, &[&key, &token.number(), &token.holder()]).await?;
    Ok(rows == 1)
}

#[derive(Deserialize)]
struct Deposit {
    amount: i64,
    #[serde(default)]
    hold_ms: u64,
}

/// The reasons why a deposit fails: a later holder has locked the account since, or the database
/// has failed.
enum DepositError {
    Late,
    Database(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for DepositError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl IntoResponse for DepositError {
    fn into_response(self) -> Response {
        match self {
            Self::Late => (StatusCode::CONFLICT, "somebody else was faster\n").into_response(),
            Self::Database(error) => {
                tracing::error!(%error, "the database failed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[derive(Clone, FromRef)]
struct Bank {
    locks: LockManager,
    database: Database,
}

#[derive(Clone)]
struct Database {
    url: String,
}

impl Database {
    /// Opens a connection. A real service would use a pool.
    async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let url = std::env::var("DATABASE_URL").map_err(|_| {
            "DATABASE_URL is not set; set it to your PostgreSQL server, such as 'host=127.0.0.1 user=postgres'"
        })?;
        let database = Database { url };
        database.connect().await?.batch_execute(TABLES).await?;
        let locks = server::connect().await?;
        let app = Router::new()
            .route("/accounts/{id}/deposit", post(deposit))
            .with_state(Bank { locks: locks.clone(), database });
        server::serve(app, &locks).await
    })
    .await
}
