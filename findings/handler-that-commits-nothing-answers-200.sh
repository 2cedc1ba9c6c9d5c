#!/usr/bin/env bash
# A commit that reports success may have written nothing.
#
# One would expect: a handler whose transaction is not committed gets an error. `commit()` fails if a statement of the
# transaction has failed, and the layer of axum-sqlx-tx answers 500 if it cannot commit.
#
# What happens (axum-sqlx-tx 0.11.0, sqlx 0.9.0, PostgreSQL 15 and others):
# - A statement fails, and the handler ignores the error. PostgreSQL answers ROLLBACK to the COMMIT, and `commit()` of sqlx
#   returns Ok. No row was written.
# - The handler moves its `Tx` into a task. The layer finds its slot in use, commits nothing, and sends the 200 of the
#   handler. The end of the task rolls back.
#
# Why it matters: the client takes 200 as a payment that is recorded. No lock helps. A handler passes on each error of a
# statement, and commits itself before it gives work to a task.
#
# Needs cargo and PostgreSQL.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/rust.sh"
. "$(dirname "$0")/postgres.sh"

crates 'axum = "=0.8.9"' 'axum-sqlx-tx = "=0.11.0"' 'tower = { version = "=0.5.3", features = ["util"] }' \
    'sqlx = { version = "=0.9.0", default-features = false, features = ["postgres", "runtime-tokio"] }' \
    'tokio = { version = "1", features = ["full"] }'
run_rust <<'RUST'
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

type Tx = axum_sqlx_tx::Tx<Postgres>;

const INSERT: &str = "insert into sale values ('a customer')";

async fn in_task(mut tx: Tx) -> &'static str {
    sqlx::query(INSERT).execute(&mut tx).await.unwrap();
    tokio::spawn(async move {
        sleep(Duration::from_millis(200)).await;
        drop(tx);
    });
    "paid"
}

async fn sales(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from sale").fetch_one(pool).await.unwrap()
}

/// A server that was just started may refuse connections.
async fn connect(url: &str) -> PgPool {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match PgPoolOptions::new().connect(url).await {
            Ok(pool) => return pool,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::main]
async fn main() {
    let pool = connect(&std::env::var("DATABASE_URL").unwrap()).await;
    sqlx::query("create table sale (customer text)").execute(&pool).await.unwrap();

    let mut transaction = pool.begin().await.unwrap();
    sqlx::query(INSERT).execute(&mut *transaction).await.unwrap();
    sqlx::query("select 1 / 0").execute(&mut *transaction).await.unwrap_err();
    transaction.commit().await.unwrap();
    assert_eq!(sales(&pool).await, 0);
    println!("seen: commit() of sqlx returns Ok after a failed statement, and no row is there");

    let (state, layer) = Tx::setup(pool.clone());
    let app: Router = Router::new().route("/", post(in_task)).with_state(state).layer(layer);
    let request = Request::post("/").body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), 200);
    let deadline = Instant::now() + Duration::from_secs(30);
    let open = "select count(*) from pg_stat_activity where state like 'idle in%'";
    while sqlx::query_scalar::<_, i64>(open).fetch_one(&pool).await.unwrap() > 0 {
        assert!(Instant::now() < deadline, "the transaction stays open");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(sales(&pool).await, 0);
    println!("seen: axum-sqlx-tx answers 200 for a transaction in a task, and no row is there");
}
RUST
