//! The ticks of apalis-cron, which each copy of a service pipes into a queue that all copies share.

use std::time::{Duration, SystemTime};

use apalis_core::backend::ext::BackendExt;
use apalis_core::error::BoxDynError;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_cron::timezone::Utc;
use apalis_cron::{CronScheduler, Schedule, Tick};
use apalis_postgres::{Config, PostgresStorage};
use redlock_axum::LockManager;
use redlock_tests::{TicketShop, eventually};
use sqlx::{Connection, PgConnection, PgPool};

use crate::start;

const SOON: Duration = Duration::from_secs(120);
/// The time until the tick. A scheduler fails if it begins later.
const UNTIL_TICK: u64 = 15;
/// The queue, the work, and the recorded ticks.
const TABLES: &str = "create table report (at bigint); \
    create table tick (job text, at bigint, primary key (job, at)); alter role app superuser";

/// One tick, for every copy the same.
struct Once(Option<u64>);

impl Schedule<Utc> for Once {
    fn next_tick(&mut self, _: &Utc) -> Option<Tick> {
        self.0.take().map(Tick::new)
    }
}

#[derive(Clone)]
struct App {
    locks: LockManager,
    pool: PgPool,
}

async fn report(connection: &mut PgConnection, at: i64) -> sqlx::Result<()> {
    sqlx::query("insert into report values ($1)").bind(at).execute(connection).await.map(drop)
}

fn seconds(tick: &Tick) -> i64 {
    tick.get_timestamp().try_into().unwrap()
}

async fn without_lock(tick: Tick, app: App) -> Result<(), BoxDynError> {
    Ok(report(&mut *app.pool.acquire().await?, seconds(&tick)).await?)
}

async fn only_locked(tick: Tick, app: App) -> Result<(), BoxDynError> {
    let guard = app.locks.lock("report").wait_time(SOON).acquire().await?;
    let mut transaction = app.pool.begin().await?;
    report(&mut transaction, seconds(&tick)).await?;
    transaction.commit().await?;
    Ok(guard.release().await?)
}

/// The form of the page.
async fn recorded(tick: Tick, app: App) -> Result<(), BoxDynError> {
    let at = seconds(&tick);
    let guard = app.locks.lock("report").wait_time(SOON).acquire().await?;
    let mut transaction = app.pool.begin().await?;
    let record = "insert into tick (job, at) values ('report', $1) on conflict do nothing";
    let is_new = sqlx::query(record).bind(at).execute(&mut *transaction).await?.rows_affected() > 0;
    if is_new {
        report(&mut transaction, at).await?;
    }
    transaction.commit().await?;
    Ok(guard.release().await?)
}

/// Returns how many reports two copies write for one tick.
async fn reports<F>(work: fn(Tick, App) -> F) -> Option<i64>
where
    F: Future<Output = Result<(), BoxDynError>> + Send + 'static,
{
    let shop = start().await?;
    shop.server().admin().await.batch_execute(TABLES).await.unwrap();
    let mut connection = PgConnection::connect(&shop.url()).await.unwrap();
    PostgresStorage::setup(&PgPool::connect(&shop.url()).await.unwrap()).await.unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let copies = [copy(&shop, "a", now, work).await, copy(&shop, "b", now, work).await];
    let done = "select count(*) from apalis.jobs where status = 'Done'";
    eventually("each copy has executed a tick", SOON, async || {
        let done: i64 = sqlx::query_scalar(done).fetch_one(&mut connection).await.unwrap();
        (done == 2).then_some(())
    })
    .await;
    for copy in copies {
        copy.abort();
    }
    let reports = "select count(*) from report";
    Some(sqlx::query_scalar(reports).fetch_one(&mut connection).await.unwrap())
}

/// Starts a copy of the service.
async fn copy<F>(
    shop: &TicketShop,
    name: &str,
    now: u64,
    work: fn(Tick, App) -> F,
) -> tokio::task::JoinHandle<()>
where
    F: Future<Output = Result<(), BoxDynError>> + Send + 'static,
{
    let pool = PgPool::connect(&shop.url()).await.unwrap();
    let queue = PostgresStorage::new(&pool).with_config(Config::default().queue("report"));
    let app = App { locks: shop.locks().clone(), pool };
    let worker = WorkerBuilder::new(name)
        .backend(CronScheduler::new(Once(Some(now + UNTIL_TICK))).pipe_to(queue))
        .build(move |tick: Tick| work(tick, app.clone()));
    tokio::spawn(async move { worker.run().await.unwrap() })
}

#[tokio::test]
async fn each_copy_executes_each_tick_also_under_a_lock() {
    let (free, locked) = tokio::join!(reports(without_lock), reports(only_locked));
    assert!([free, locked].iter().all(|reports| reports.is_none_or(|reports| reports == 2)));
}

#[tokio::test]
async fn a_tick_that_is_recorded_under_the_lock_has_one_effect() {
    assert!(reports(recorded).await.is_none_or(|reports| reports == 1));
}
