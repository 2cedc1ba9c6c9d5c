//! A database with one ticket, and two customers who want it at the same time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redlock_axum::LockManager;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::eventually::eventually;
use crate::postgres::PostgresServer;

const SOON: Duration = Duration::from_secs(60);

const TABLES: &str = "
    create table stock (sku text primary key, tickets int not null check (tickets >= 0));
    insert into stock values ('concert', 1);
    create table sale (customer text not null);
    create table late_check (id int, constraint no_twin unique (id) deferrable initially deferred);
    grant all on all tables in schema public to app";

/// A shop that reads the number of tickets, and writes the number that is left. Clones share it.
///
/// The first sale is not committed before the other customer has read, or waits: for the lock, or for a row. So a lock that
/// ends before the commit sells the ticket twice in each run, and not by chance.
#[derive(Debug, Clone)]
pub struct TicketShop(Arc<Shop>);

#[derive(Debug)]
struct Shop {
    server: PostgresServer,
    locks: LockManager,
    reads: AtomicUsize,
    /// Whether a commit also waits for the end of its lease.
    outlasts_lease: AtomicBool,
}

impl TicketShop {
    /// Reads the number of tickets. Call [`has_read`](Self::has_read) afterwards.
    pub const READ: &str = "select tickets from stock where sku = 'concert'";
    /// Writes the number of tickets.
    pub const WRITE: &str = "update stock set tickets = $1 where sku = 'concert'";
    /// Records a sale.
    pub const SELL: &str = "insert into sale values ('a customer')";
    /// Lets the commit of its transaction fail.
    pub const FAIL_AT_COMMIT: &str = "insert into late_check values (1), (1)";

    /// Starts a server with the tables.
    ///
    /// # Errors
    ///
    /// PostgreSQL, or the user to run it as, does not exist on this machine. The error is the reason.
    pub async fn start() -> Result<Self, String> {
        let server = PostgresServer::start().await?;
        server.admin().await.batch_execute(TABLES).await.expect("the tables");
        let (locks, reads) = (LockManager::in_memory(), AtomicUsize::new(0));
        Ok(Self(Arc::new(Shop { server, locks, reads, outlasts_lease: AtomicBool::new(false) })))
    }

    /// Returns the manager of the locks, in memory.
    pub fn locks(&self) -> &LockManager {
        &self.0.locks
    }

    /// Returns the server.
    pub fn server(&self) -> &PostgresServer {
        &self.0.server
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        format!("postgres://app@127.0.0.1:{}/postgres", self.0.server.port())
    }

    /// Records that a customer has read the number of tickets.
    pub fn has_read(&self) {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many customers have read the number of tickets.
    pub fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }

    /// Lets commits also wait for the end of their leases: another customer who waits for the lock does not suffice.
    pub fn outlast_lease(&self) {
        self.0.outlasts_lease.store(true, Ordering::SeqCst);
    }

    /// Waits until the other customer has read, or waits.
    pub async fn before_commit(&self) {
        let admin = self.0.server.admin().await;
        let deadline = Instant::now() + SOON;
        // Not by `eventually`: handlers await this future, and the compiler does not see that an async closure is `Send`.
        while self.reads() < 2 && !self.waits_for_lock() && !waits_for_row(&admin).await {
            assert!(Instant::now() < deadline, "the other customer has neither read, nor waits");
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn waits_for_lock(&self) -> bool {
        let outlasts_lease = self.0.outlasts_lease.load(Ordering::SeqCst);
        !outlasts_lease && !self.0.locks.snapshot().waiting.is_empty()
    }

    /// Puts one ticket into the stock, and forgets the sales.
    pub async fn restock(&self) {
        self.0.reads.store(0, Ordering::SeqCst);
        let admin = self.0.server.admin().await;
        let restock = "update stock set tickets = 1; truncate sale";
        admin.batch_execute(restock).await.expect("a full stock");
    }

    /// Returns how many tickets were sold when two customers want the only one.
    pub async fn sold_to_two<F: Future>(&self, buy: impl Fn() -> F) -> i64 {
        self.restock().await;
        tokio::join!(buy(), buy());
        self.sold().await
    }

    /// Returns how many tickets were sold.
    pub async fn sold(&self) -> i64 {
        let admin = self.0.server.admin().await;
        let row = admin.query_one("select count(*) from sale", &[]).await;
        row.expect("the number of sales").get(0)
    }

    /// Waits until no request holds a lock.
    pub async fn until_free(&self) {
        eventually("the locks are free", SOON, async || {
            self.0.locks.snapshot().held.is_empty().then_some(())
        })
        .await;
    }
}

async fn waits_for_row(admin: &Client) -> bool {
    let waits = "select from pg_stat_activity where wait_event_type = 'Lock'";
    !admin.query(waits, &[]).await.expect("the connections").is_empty()
}
