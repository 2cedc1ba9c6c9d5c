//! Transactions that the handler begins and commits itself, under the lock of its attribute.

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::post;
use diesel::sql_types::Integer;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use redlock_axum::{LockManager, redis_lock};
use redlock_tests::TicketShop;
use sea_orm::{
    ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement, TransactionTrait,
};
use sqlx::PgPool;

use crate::{buy, sold, start};

#[derive(Clone)]
struct App {
    shop: TicketShop,
    sqlx: PgPool,
    sea_orm: DatabaseConnection,
}

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.shop.locks().clone()
    }
}

impl App {
    async fn start() -> Option<Self> {
        let shop = start().await?;
        let sqlx = PgPool::connect(&shop.url()).await.unwrap();
        let sea_orm = Database::connect(shop.url()).await.unwrap();
        Some(Self { shop, sqlx, sea_orm })
    }
}

#[redis_lock(key = "concert", wait_time = "1m")]
async fn by_sqlx(State(app): State<App>) -> StatusCode {
    let mut transaction = app.sqlx.begin().await.unwrap();
    let tickets: i32 =
        sqlx::query_scalar(TicketShop::READ).fetch_one(&mut *transaction).await.unwrap();
    app.shop.has_read();
    if tickets == 0 {
        return StatusCode::GONE;
    }
    sqlx::query(TicketShop::WRITE).bind(tickets - 1).execute(&mut *transaction).await.unwrap();
    sqlx::query(TicketShop::SELL).execute(&mut *transaction).await.unwrap();
    app.shop.before_commit().await;
    transaction.commit().await.unwrap();
    StatusCode::OK
}

#[redis_lock(key = "concert", wait_time = "1m")]
async fn by_sea_orm(State(app): State<App>) -> StatusCode {
    let transaction = app.sea_orm.begin().await.unwrap();
    let read = Statement::from_string(DbBackend::Postgres, TicketShop::READ);
    let row = transaction.query_one_raw(read).await.unwrap().unwrap();
    let tickets: i32 = row.try_get_by_index(0).unwrap();
    app.shop.has_read();
    if tickets == 0 {
        return StatusCode::GONE;
    }
    let left = [(tickets - 1).into()];
    let write = Statement::from_sql_and_values(DbBackend::Postgres, TicketShop::WRITE, left);
    transaction.execute_raw(write).await.unwrap();
    transaction.execute_unprepared(TicketShop::SELL).await.unwrap();
    app.shop.before_commit().await;
    transaction.commit().await.unwrap();
    StatusCode::OK
}

#[derive(diesel::QueryableByName)]
struct Stock {
    #[diesel(sql_type = Integer)]
    tickets: i32,
}

#[redis_lock(key = "concert", wait_time = "1m")]
async fn by_diesel(State(app): State<App>) -> StatusCode {
    let mut connection = AsyncPgConnection::establish(&app.shop.url()).await.unwrap();
    let sell = async |connection: &mut AsyncPgConnection| {
        let Stock { tickets } = diesel::sql_query(TicketShop::READ).get_result(connection).await?;
        app.shop.has_read();
        if tickets == 0 {
            return Ok(StatusCode::GONE);
        }
        let write = diesel::sql_query(TicketShop::WRITE).bind::<Integer, _>(tickets - 1);
        write.execute(connection).await?;
        diesel::sql_query(TicketShop::SELL).execute(connection).await?;
        app.shop.before_commit().await;
        Ok::<_, diesel::result::Error>(StatusCode::OK)
    };
    connection.transaction(sell).await.unwrap()
}

#[tokio::test]
async fn a_commit_in_the_handler_sells_a_ticket_once() {
    let Some(app) = App::start().await else { return };
    for (form, handler) in
        [("sqlx", post(by_sqlx)), ("SeaORM", post(by_sea_orm)), ("diesel-async", post(by_diesel))]
    {
        let router = Router::new().route("/", handler).with_state(app.clone());
        assert_eq!(sold(&app.shop, &router).await, 1, "{form}");
    }
}

/// PostgreSQL answers `ROLLBACK` to the commit.
#[tokio::test]
async fn a_commit_of_sqlx_after_a_failed_statement_succeeds_without_a_row() {
    let Some(app) = App::start().await else { return };
    let mut transaction = app.sqlx.begin().await.unwrap();
    sqlx::query(TicketShop::SELL).execute(&mut *transaction).await.unwrap();
    sqlx::query("select 1 / 0").execute(&mut *transaction).await.unwrap_err();
    transaction.commit().await.unwrap();
    assert_eq!(app.shop.sold().await, 0);
    let router = Router::new().route("/", post(by_sqlx)).with_state(app.clone());
    app.shop.has_read();
    assert_eq!(buy(&router).await, 200);
    assert_eq!(app.shop.sold().await, 1);
}
