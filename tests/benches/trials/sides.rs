//! The libraries, each in a process that [`Holder`](crate::holder::Holder) starts.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redlock_core::{LockGuard, LockManager};
use sqlx::PgPool;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard};
use sqlx::{Postgres, pool::PoolConnection};
use tokio::io::{AsyncBufReadExt, BufReader};

/// The lease of every lock.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The time after which an attempt is abandoned, shorter than the way of its reply.
const PATIENCE: Duration = Duration::from_millis(50);

/// One way to lock.
trait Side {
    type Held;

    /// Makes one attempt.
    async fn try_lock(&self, name: &str) -> Option<Self::Held>;

    /// Returns a future that is ready when the library says that the lock is lost. It says nothing by default.
    fn lost(&self, _: &Self::Held) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }
}

/// This library.
impl Side for LockManager {
    type Held = LockGuard;

    async fn try_lock(&self, name: &str) -> Option<LockGuard> {
        self.lock(name).expire(LEASE).renew(true).try_acquire().await.ok()
    }

    fn lost(&self, guard: &LockGuard) -> impl Future<Output = ()> + Send + 'static {
        let lost = guard.lost();
        async { drop(lost.await) }
    }
}

impl Side for rslock::LockManager {
    type Held = rslock::Lock;

    async fn try_lock(&self, name: &str) -> Option<rslock::Lock> {
        self.lock(name.as_bytes(), LEASE).await.ok()
    }
}

/// What many services write by hand.
struct ByHand(MultiplexedConnection);

impl Side for ByHand {
    type Held = u128;

    async fn try_lock(&self, name: &str) -> Option<u128> {
        let token = rand::random::<u128>();
        let mut set = redis::cmd("SET");
        set.arg(name).arg(token.to_string()).arg("NX").arg("PX").arg(LEASE.as_millis().to_string());
        let reply: Option<String> = set.query_async(&mut self.0.clone()).await.ok()?;
        reply.map(|_| token)
    }
}

/// An advisory lock of a session. It has no lease.
struct Advisory(PgPool);

impl Side for Advisory {
    type Held = PgAdvisoryLockGuard<'static, PoolConnection<Postgres>>;

    async fn try_lock(&self, name: &str) -> Option<Self::Held> {
        let connection = self.0.acquire().await.ok()?;
        // The guard borrows its lock.
        let lock: &'static PgAdvisoryLock = Box::leak(Box::new(PgAdvisoryLock::new(name)));
        lock.try_acquire(connection).await.ok()?.left()
    }
}

/// Serves the orders of a trial.
pub(crate) async fn serve(side: &str, url: &str) {
    match side {
        "ours" => orders(LockManager::connect([url]).await.expect("a manager")).await,
        "rslock" => orders(rslock::LockManager::new(vec![url])).await,
        "by-hand" => {
            let client = redis::Client::open(url).expect("a URL");
            orders(ByHand(client.get_multiplexed_async_connection().await.expect("a connection")))
                .await;
        }
        "advisory" => orders(Advisory(PgPool::connect(url).await.expect("a pool"))).await,
        _ => panic!("there is no side {side}"),
    }
}

async fn orders<S: Side>(side: S) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    // A library may end a lock that is dropped.
    let mut held = Vec::new();
    while let Some(line) = lines.next_line().await.expect("a line") {
        match line.split_once(' ') {
            Some(("try", name)) => match side.try_lock(name).await {
                Some(lock) => {
                    held.push(lock);
                    println!("held");
                }
                None => println!("refused"),
            },
            Some(("abandon", name)) => {
                let attempt = tokio::time::timeout(PATIENCE, side.try_lock(name)).await;
                assert!(attempt.is_err(), "the reply came too early");
                println!("abandoned");
            }
            _ => {
                let lost = side.lost(held.last().expect("a lock"));
                tokio::spawn(async {
                    lost.await;
                    println!("lost");
                });
                println!("watching");
            }
        }
    }
}
