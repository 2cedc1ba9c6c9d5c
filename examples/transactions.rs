//! A middleware that commits after the handler, and a lock that outlasts the commit.
//!
//! ```sh
//! DATABASE_URL='host=127.0.0.1 user=postgres' LOCKS_URLS=redis://127.0.0.1 \
//!     cargo run --example transactions
//! ```
//!
//! A sale reads how many tickets are left, works for `?hold_ms=`, and writes one less. The
//! middleware begins a transaction for each request, and commits it when the handler has succeeded.
//! The lock of the attribute would end with the handler, before the commit, and the next customer
//! could buy the same ticket. So the middleware is wrapped by `CommitUnderLock`.
//!
//! The handler is `detached`: a customer who leaves has the ticket, because the middleware goes on
//! to the commit, too.

mod server;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, FromRef, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redlock_axum::{CommitUnderLock, LockManager, LockRejection, redis_lock};
use serde::Deserialize;
use tokio_postgres::{Client, NoTls};
use tracing::info;

const TABLE: &str = "
    create table if not exists concert (name text primary key, tickets int not null);
    insert into concert values ('opera', 1) on conflict (name) do update set tickets = 1";

/// The transaction of a request.
#[derive(Clone)]
struct Transaction(Arc<Client>);

#[redis_lock(key = "concert:{concert}", wait_time = 20, detached)]
async fn buy(
    Path(concert): Path<String>,
    Query(Work { hold_ms }): Query<Work>,
    Extension(Transaction(client)): Extension<Transaction>,
) -> Result<&'static str, ShopError> {
    let read = "select tickets from concert where name = $1";
    let row = client.query_opt(read, &[&concert]).await?;
    let tickets: i32 = row.map_or(0, |row| row.get(0));
    info!("{tickets} tickets are left for {concert}");
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    if tickets == 0 {
        return Err(ShopError::SoldOut);
    }
    let write = "update concert set tickets = $2 where name = $1";
    client.execute(write, &[&concert, &(tickets - 1)]).await?;
    Ok("here is your ticket\n")
}

/// Begins a transaction, and commits it if the handler has succeeded. Otherwise the end of the
/// connection rolls it back. A real service would use a pool.
async fn transaction(
    State(database): State<Database>,
    mut request: Request,
    next: Next,
) -> Result<Response, ShopError> {
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("begin").await?;
    let client = Arc::new(client);
    request.extensions_mut().insert(Transaction(client.clone()));
    let response = next.run(request).await;
    if response.status().is_success() {
        client.batch_execute("commit").await?;
    }
    Ok(response)
}

#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

/// The reasons why a sale fails.
enum ShopError {
    SoldOut,
    Refused(LockRejection),
    Database(tokio_postgres::Error),
}

impl From<LockRejection> for ShopError {
    fn from(rejection: LockRejection) -> Self {
        Self::Refused(rejection)
    }
}

impl From<tokio_postgres::Error> for ShopError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        match self {
            Self::SoldOut => (StatusCode::GONE, "sold out\n").into_response(),
            Self::Refused(rejection) => rejection.into_response(),
            Self::Database(error) => {
                tracing::error!(%error, "the database failed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[derive(Clone, FromRef)]
struct Shop {
    locks: LockManager,
    database: Database,
}

#[derive(Clone)]
struct Database {
    url: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let url = std::env::var("DATABASE_URL").map_err(|_| {
            "DATABASE_URL is not set; set it to your PostgreSQL server, such as 'host=127.0.0.1 user=postgres'"
        })?;
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(TABLE).await?;
        let locks = server::connect().await?;
        let shop = Shop { locks: locks.clone(), database: Database { url } };
        let app = Router::new()
            .route("/concerts/{concert}/tickets", post(buy))
            .layer(CommitUnderLock::new(from_fn_with_state(shop.clone(), transaction)))
            .with_state(shop);
        server::serve(app, &locks).await
    })
    .await
}
