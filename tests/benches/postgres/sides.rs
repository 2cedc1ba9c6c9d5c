//! The sides of the comparison: acquire and release by this library, by bare statements, and by other crates.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;
use futures_util::future::{BoxFuture, FutureExt, join};
use redlock_core::LockManager;
use sqlx::PgPool;
use tokio_postgres::{Client, NoTls, Statement};

/// The lease of every lock.
pub const LEASE: Duration = Duration::from_secs(30);
/// The lease in microseconds.
const MICROS: i64 = 30_000_000;

/// One way to acquire and release a lock.
pub trait Side: Send + Sync {
    /// Acquires and releases a lock that nobody holds. Panics if that fails.
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()>;
}

/// This library.
impl Side for LockManager {
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let lock = self.lock(key).fenced(true).expire(LEASE);
            let guard = lock.try_acquire().await.expect("a free lock");
            guard.release().await.expect("a release");
        }
        .boxed()
    }
}

const ACQUIRE: &str = "\
with granted as (insert into locks.redlock_lease as l (name, token, expires, number)
  select $1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond',
    (extract(epoch from clock_timestamp()) * 1000000)::bigint
  where not exists (select from locks.redlock_lease h
    where h.name = $1 and h.token <> '' and h.expires > clock_timestamp())
  on conflict (name) do update set token = excluded.token,
    number = greatest(l.number + 1, excluded.number),
    expires = clock_timestamp() + $3::bigint * interval '1 microsecond'
  where l.token = '' or l.expires <= clock_timestamp() returning number)
select number, null::bigint from granted union all
select null, (extract(epoch from h.expires - clock_timestamp()) * 1000000)::bigint
  from locks.redlock_lease h
  where h.name = $1 and h.token <> '' and h.expires > clock_timestamp()
    and not exists (select from granted)";
const RELEASE: &str = "\
update locks.redlock_lease set token = '', expires = clock_timestamp()
  where name = $1 and token = $2 and expires > clock_timestamp()";

fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Connects a client of tokio-postgres.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// The two statements of a lock, prepared, on one connection. The release notifies nobody.
pub struct Bare {
    client: Client,
    acquire: Statement,
    release: Statement,
    notify: Statement,
    /// The statement `select 1`.
    select: Statement,
}

impl Bare {
    pub async fn connect(url: &str) -> Self {
        let client = connect(url).await;
        let prepare = async |sql| client.prepare(sql).await.expect("a statement");
        let (acquire, release) = (prepare(ACQUIRE).await, prepare(RELEASE).await);
        let notify = prepare("select pg_notify($1, '')").await;
        let select = prepare("select 1").await;
        Self { client, acquire, release, notify, select }
    }

    /// Acquires a lock that nobody holds, and returns its token.
    pub async fn acquire(&self, name: &str) -> String {
        let token = token();
        let granted = self.client.query(&self.acquire, &[&name, &token, &MICROS]).await;
        let number: Option<i64> = granted.expect("a reply")[0].get(0);
        assert!(number.is_some());
        token
    }

    pub async fn release(&self, name: &str, token: &str) {
        let released = self.client.execute(&self.release, &[&name, &token]).await;
        assert_eq!(released.expect("a reply"), 1);
    }

    /// Makes one round trip.
    pub async fn select(&self) {
        self.client.query_one(&self.select, &[]).await.expect("a reply");
    }
}

impl Side for Bare {
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let name = format!("bare:{key}");
            let token = self.acquire(&name).await;
            self.release(&name, &token).await;
        }
        .boxed()
    }
}

/// As [`Bare`], and each release notifies a channel, as this library does.
pub struct Notifying(pub Bare);

impl Side for Notifying {
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let name = format!("notifying:{key}");
            let token = self.0.acquire(&name).await;
            let notify = async { self.0.client.query_one(&self.0.notify, &[&name]).await };
            let (_, notified) = join(self.0.release(&name, &token), notify).await;
            notified.expect("a notification");
        }
        .boxed()
    }
}

/// The two statements over a pool of 16 connections. A caller takes a connection for each of them.
pub struct Deadpool(Pool);

impl Deadpool {
    pub fn new(url: &str) -> Self {
        let manager = Manager::new(url.parse().expect("a URL"), NoTls);
        Self(Pool::builder(manager).max_size(16).build().expect("a pool"))
    }
}

impl Side for Deadpool {
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let (name, token) = (format!("deadpool:{key}"), token());
            {
                let client = self.0.get().await.expect("a connection");
                let acquire = client.prepare_cached(ACQUIRE).await.expect("a statement");
                let granted = client.query(&acquire, &[&name, &token, &MICROS]).await;
                let number: Option<i64> = granted.expect("a reply")[0].get(0);
                assert!(number.is_some());
            }
            let client = self.0.get().await.expect("a connection");
            let release = client.prepare_cached(RELEASE).await.expect("a statement");
            let released = client.execute(&release, &[&name, &token]).await;
            assert_eq!(released.expect("a reply"), 1);
        }
        .boxed()
    }
}

/// The table of ShedLock.
pub const SHEDLOCK: &str = "create table locks.shedlock (name varchar(64) primary key, \
    lock_until timestamp not null, locked_at timestamp not null, locked_by varchar(255) not null); \
    grant select, insert, update on locks.shedlock to app";

/// The statements of ShedLock's provider for JDBC, with the time of the database: an insertion, which fails if there is a
/// row; an update of a row whose lock is over; and an update that ends the lock. A process inserts a name only once.
pub struct ShedLock {
    client: Client,
    insert: Statement,
    update: Statement,
    unlock: Statement,
    /// Whether the insertion is sent.
    is_first: bool,
}

impl ShedLock {
    pub async fn connect(url: &str, is_first: bool) -> Self {
        const INSERT: &str = "insert into locks.shedlock (name, lock_until, locked_at, locked_by) \
            values ($1, timezone('utc', current_timestamp) + interval '30 seconds', \
              timezone('utc', current_timestamp), $2) on conflict do nothing";
        const UPDATE: &str = "update locks.shedlock set \
            lock_until = timezone('utc', current_timestamp) + interval '30 seconds', \
            locked_at = timezone('utc', current_timestamp), locked_by = $2 \
            where name = $1 and lock_until <= timezone('utc', current_timestamp)";
        const UNLOCK: &str = "update locks.shedlock set \
            lock_until = timezone('utc', current_timestamp) \
            where name = $1 and locked_by = $2";
        let client = connect(url).await;
        let prepare = async |sql| client.prepare(sql).await.expect("a statement");
        let (insert, update) = (prepare(INSERT).await, prepare(UPDATE).await);
        let unlock = prepare(UNLOCK).await;
        let side = Self { client, insert, update, unlock, is_first };
        let key = if is_first { "shedlock-3:0" } else { "shedlock-2:0" };
        side.client.execute(&side.insert, &[&key, &"host"]).await.expect("a row");
        side.client.execute(&side.unlock, &[&key, &"host"]).await.expect("a free lock");
        side
    }
}

impl Side for ShedLock {
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let name = format!("shedlock-{}:{key}", if self.is_first { 3 } else { 2 });
            if self.is_first {
                let inserted = self.client.execute(&self.insert, &[&name, &"host"]).await;
                assert_eq!(inserted.expect("a reply"), 0);
            }
            for statement in [&self.update, &self.unlock] {
                let updated = self.client.execute(statement, &[&name, &"host"]).await;
                assert_eq!(updated.expect("a reply"), 1);
            }
        }
        .boxed()
    }
}

/// An advisory lock by sqlx: no lease, no number, and nothing is written.
pub struct Advisory(PgPool);

impl Advisory {
    pub async fn connect(url: &str) -> Self {
        Self(PgPool::connect(url).await.expect("a connection"))
    }
}

impl Side for Advisory {
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let mut connection = self.0.acquire().await.expect("a connection");
            for function in ["pg_try_advisory_lock", "pg_advisory_unlock"] {
                let sql = format!("select {function}(hashtextextended($1, 0))");
                let done: bool = sqlx::query_scalar(&sql)
                    .bind(key)
                    .fetch_one(&mut *connection)
                    .await
                    .expect("a reply");
                assert!(done);
            }
        }
        .boxed()
    }
}

/// The crate distributed-lock: an advisory lock in a transaction.
impl Side for PostgresLockProvider {
    fn pair<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let lock = self.create_lock(&format!("distributed-lock:{key}"));
            let handle = lock.try_acquire().await.expect("a reply").expect("a free lock");
            handle.release().await.expect("a release");
        }
        .boxed()
    }
}
