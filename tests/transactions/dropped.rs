//! Transactions and guards that are dropped: what the database keeps until later.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use redlock_tests::{TicketShop, eventually};
use sqlx::postgres::{PgAdvisoryLock, PgConnection};
use sqlx::{Connection, PgPool};
use tokio_postgres::{Client, NoTls};

use crate::start;

const SOON: Duration = Duration::from_secs(60);
/// Long enough to look at the database meanwhile, on a busy machine too.
const SLEEP: &str = "select pg_sleep(4)";

async fn sleeps(admin: &Client) -> bool {
    let sleeps =
        "select from pg_stat_activity where state = 'active' and query like 'select pg_sleep%'";
    !admin.query(sleeps, &[]).await.unwrap().is_empty()
}

async fn until_asleep(admin: &Client) {
    eventually("the statement runs", SOON, async || sleeps(admin).await.then_some(())).await;
}

async fn is_row_free(admin: &Client) -> bool {
    admin.query("select from stock for update nowait", &[]).await.is_ok()
}

/// Checks that a dropped transaction keeps its row as long as its statement runs.
async fn keeps_row_while_asleep(admin: &Client) {
    assert!(!is_row_free(admin).await, "the transaction was dropped");
    assert!(sleeps(admin).await, "the statement goes on");
    eventually("the row is free", SOON, async || is_row_free(admin).await.then_some(())).await;
    assert!(!sleeps(admin).await);
}

#[tokio::test]
async fn a_dropped_transaction_of_sqlx_keeps_its_row_until_its_statement_ends() {
    let Some(shop) = start().await else { return };
    let admin = shop.server().admin().await;
    let pool = PgPool::connect(&shop.url()).await.unwrap();
    let work = tokio::spawn(async move {
        let mut transaction = pool.begin().await.unwrap();
        sqlx::query(TicketShop::WRITE).bind(0).execute(&mut *transaction).await.unwrap();
        sqlx::query(SLEEP).execute(&mut *transaction).await.unwrap();
    });
    until_asleep(&admin).await;
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    keeps_row_while_asleep(&admin).await;
}

#[tokio::test]
async fn deadpool_lends_the_connection_of_a_dropped_transaction_while_its_statement_runs() {
    let Some(shop) = start().await else { return };
    let admin = shop.server().admin().await;
    let manager = Manager::new(shop.url().parse().unwrap(), NoTls);
    let pool = Pool::builder(manager).max_size(1).build().unwrap();
    let lent = pool.clone();
    let work = tokio::spawn(async move {
        let mut connection = lent.get().await.unwrap();
        let transaction = connection.transaction().await.unwrap();
        transaction.execute(TicketShop::WRITE, &[&0]).await.unwrap();
        transaction.batch_execute(SLEEP).await.unwrap();
    });
    until_asleep(&admin).await;
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    let connection = pool.get().await.unwrap();
    assert!(sleeps(&admin).await, "the pool has lent a connection that is busy");
    connection.batch_execute("select 1").await.unwrap();
    assert!(!sleeps(&admin).await, "the next statement waits for the former one");
    assert!(is_row_free(&admin).await);
}

#[tokio::test]
async fn the_advisory_lock_of_a_dropped_guard_stays_until_the_next_statement() {
    let Some(shop) = start().await else { return };
    let url = shop.url();
    let mut kept = PgConnection::connect(&url).await.unwrap();
    let mut other = PgConnection::connect(&url).await.unwrap();
    let lock = PgAdvisoryLock::new("concert");
    drop(lock.acquire(&mut kept).await.unwrap());
    assert!(lock.try_acquire(&mut other).await.unwrap().is_right(), "it is held");
    sqlx::query("select 1").execute(&mut kept).await.unwrap();
    assert!(lock.try_acquire(&mut other).await.unwrap().is_left(), "it is free");
}
