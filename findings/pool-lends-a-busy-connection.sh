#!/usr/bin/env bash
# A pool lends a connection whose last statement still runs.
#
# One would expect: a connection is back in its pool when it is idle. A request that was cancelled in the middle of a
# statement costs the other requests nothing, because the pool closes its connection, or waits for it.
#
# What happens (deadpool-postgres 0.14.2, tokio-postgres 0.7, PostgreSQL 15.18):
# - The future of a request is dropped, with its transaction, while `pg_sleep(4)` runs. deadpool lends the connection to the
#   next request at once. The first statement of that request waits for the rest of the four seconds.
# - `RecyclingMethod::Verified` sends a statement before it lends the connection, so `get()` waits instead.
# - Until then, the rows of the dropped transaction stay locked.
#
# Why it matters: a client that gives up makes a stranger slow, and the rows that a lock protected are locked in the database
# after the lock has ended. Set `statement_timeout`; a request whose client leaves should go on (`detached`).
#
# Needs cargo and PostgreSQL.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/rust.sh"
. "$(dirname "$0")/postgres.sh"

crates 'deadpool-postgres = "=0.14.2"' 'tokio = { version = "1", features = ["full"] }' 'tokio-postgres = "0.7"'
run_rust <<'RUST'
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Config, NoTls};

const SLEEP: &str = "select pg_sleep(4)";

/// A server that was just started may refuse connections.
async fn connect(config: &Config) -> Client {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match config.connect(NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return client;
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn sleeps(admin: &Client) -> bool {
    let sql = "select from pg_stat_activity where state = 'active' and query = $1";
    !admin.query(sql, &[&SLEEP]).await.unwrap().is_empty()
}

async fn is_row_free(admin: &Client) -> bool {
    admin.query("select from stock for update nowait", &[]).await.is_ok()
}

#[tokio::main]
async fn main() {
    let config: Config = std::env::var("DATABASE_URL").unwrap().parse().unwrap();
    let admin = connect(&config).await;
    admin.batch_execute("create table stock (tickets int); insert into stock values (1)").await.unwrap();
    for recycling_method in [RecyclingMethod::Fast, RecyclingMethod::Verified] {
        let is_fast = matches!(recycling_method, RecyclingMethod::Fast);
        let manager = Manager::from_config(config.clone(), NoTls, ManagerConfig { recycling_method });
        let pool = Pool::builder(manager).max_size(1).build().unwrap();
        let lent = pool.clone();
        let request = tokio::spawn(async move {
            let mut connection = lent.get().await.unwrap();
            let transaction = connection.transaction().await.unwrap();
            transaction.execute("update stock set tickets = 0", &[]).await.unwrap();
            transaction.batch_execute(SLEEP).await.unwrap();
        });
        while !sleeps(&admin).await {
            sleep(Duration::from_millis(20)).await;
        }
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        assert!(!is_row_free(&admin).await && sleeps(&admin).await);
        let connection = pool.get().await.unwrap();
        assert_eq!(sleeps(&admin).await, is_fast);
        connection.batch_execute("select 1").await.unwrap();
        assert!(!sleeps(&admin).await && is_row_free(&admin).await);
        if is_fast {
            println!("seen: get() returns while the statement of the dropped transaction runs, and its row is locked");
            println!("seen: the next statement waits for the end of that one");
        } else {
            println!("seen: with `Verified`, get() waits for the end of that statement");
        }
    }
}
RUST
