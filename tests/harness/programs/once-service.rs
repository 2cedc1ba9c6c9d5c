//! A service whose payments have idempotency keys.
//!
//! * `POST /plain?hold_ms=` inserts a row, works for so long, and answers.
//! * `POST /exact?hold_ms=` does the same in a transaction, in which it also stores its answer.
//!
//! Environment: `LOCKS_URLS` (separated by commas), `ANSWERS_URL` and `DATABASE` (a PostgreSQL server, as a URL and as a connection
//! string), and `LISTEN` (the address). The table is `payment (key text)`.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlock_axum::{Idempotency, IdempotencyLayer, LockManager, PostgresAnswers, StoredAnswer};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_postgres::{Client, NoTls};

/// Renewed while a copy lives, and short, because the next copy waits for its end.
const LEASE: Duration = Duration::from_millis(1500);
const INSERT: &str = "insert into payment values ($1)";
const STORE: &str = "update locks.redlock_answer set answer = $4 \
                     where scope = $1 and key = $2 and number = $3 and answer is null";

#[derive(Deserialize)]
struct Work {
    hold_ms: u64,
}

type Failure = (StatusCode, String);

fn failed(error: impl Error) -> Failure {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

async fn connect(database: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn plain(
    State(database): State<String>,
    Query(Work { hold_ms }): Query<Work>,
    idempotency: Idempotency,
) -> Result<(StatusCode, &'static str), Failure> {
    let client = connect(&database).await?;
    client.execute(INSERT, &[&idempotency.key()]).await.map_err(failed)?;
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    Ok((StatusCode::CREATED, "paid"))
}

async fn exact(
    State(database): State<String>,
    Query(Work { hold_ms }): Query<Work>,
    idempotency: Idempotency,
) -> Result<StoredAnswer, Failure> {
    let row = idempotency.row();
    let mut client = connect(&database).await?;
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.execute(INSERT, &[&row.key]).await.map_err(failed)?;
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    let answer = StoredAnswer::new(StatusCode::CREATED, "paid");
    let bytes = &answer.to_bytes()[..];
    let stored = transaction.execute(STORE, &[&row.scope, &row.key, &row.number, &bytes]).await;
    if stored.map_err(failed)? == 0 {
        // Another request has claimed the key. Dropping the transaction rolls it back.
        return Err((StatusCode::CONFLICT, "another request has claimed the key".to_owned()));
    }
    transaction.commit().await.map_err(failed)?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    redlock_logs::watch();
    redlock_tests::end_with_parent();
    let locks = LockManager::builder()
        .urls(std::env::var("LOCKS_URLS")?.split(','))
        .expire(LEASE)
        .node_timeout(LEASE / 4)
        .connect()
        .await?;
    let answers = || async {
        PostgresAnswers::connect(&std::env::var("ANSWERS_URL").unwrap_or_default()).await
    };
    let layer = IdempotencyLayer::new(&locks, answers().await?).shared_scope()?;
    let exactly =
        IdempotencyLayer::new(&locks, answers().await?).stored_by_handler().shared_scope()?;
    let app = Router::new()
        .route("/plain", post(plain).layer(layer))
        .route("/exact", post(exact).layer(exactly))
        .with_state(std::env::var("DATABASE")?);
    let listener = TcpListener::bind(std::env::var("LISTEN")?).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
