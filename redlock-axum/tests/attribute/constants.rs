//! Times and counts that are constants of the application.

use std::time::Duration;

use axum::Router;
use axum::routing::get as on_get;
use redlock_axum::{HeldLock, LockError, LockManager, MemoryNode, redis_lock};

use crate::support::{get, memory};

const LEASE: Duration = Duration::from_millis(30_500);
const MINUTES: u8 = 2;
/// The name that the generated code could have, too.
const OPTIONS: i64 = 40;
const TWO: i16 = 2;
const TEXT: &str = "1m 10s";

#[redis_lock(key = "k", expire = LEASE)]
async fn duration(lock: HeldLock) -> String {
    remaining(&lock)
}

#[redis_lock(key = "k", expire = MINUTES, time_unit = "minutes")]
async fn number(lock: HeldLock) -> String {
    remaining(&lock)
}

#[redis_lock(key = "k", expire = OPTIONS, min_hold = Duration::from_secs(0))]
async fn seconds(lock: HeldLock) -> String {
    remaining(&lock)
}

#[redis_lock(key = "k", expire = LEASE.saturating_mul(2), wait_time = "1m 30s", renew)]
async fn product(lock: HeldLock) -> String {
    remaining(&lock)
}

#[redis_lock(key = "k", expire = "1m 30s", wait_time = "5")]
async fn compound(lock: HeldLock) -> String {
    remaining(&lock)
}

#[redis_lock(key = "k", expire = TEXT)]
async fn text(lock: HeldLock) -> String {
    remaining(&lock)
}

/// Returns the rest of the lease in seconds, rounded up.
fn remaining(lock: &HeldLock) -> String {
    lock.remaining().as_secs_f64().ceil().to_string()
}

/// The clock is paused, so that the rest of each lease is the same on a busy machine.
#[tokio::test(start_paused = true)]
async fn a_time_may_be_a_constant() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route("/duration", on_get(duration))
        .route("/number", on_get(number))
        .route("/seconds", on_get(seconds))
        .route("/product", on_get(product))
        .route("/compound", on_get(compound))
        .route("/text", on_get(text))
        .with_state(locks);
    // 1 % and 2 ms of the lease are the margin for clock drift.
    for (path, seconds) in [
        ("/duration", "31"),
        ("/number", "119"),
        ("/seconds", "40"),
        ("/product", "61"),
        ("/compound", "90"),
        ("/text", "70"),
    ] {
        assert_eq!(get(&app, path).await.body, seconds, "{path}");
    }
    assert!(node.is_empty());
}

struct Shop<const SECONDS: u64> {
    locks: LockManager,
    node: MemoryNode,
}

impl<const SECONDS: u64> Shop<SECONDS> {
    const LEASE: Duration = Duration::from_secs(SECONDS);

    #[redis_lock(key = "k", expire = Self::LEASE, manager = self.locks)]
    async fn lease(&self) -> Result<Duration, LockError> {
        Ok(self.node.time_to_live("k").unwrap_or_default())
    }
}

#[tokio::test]
async fn a_time_may_be_a_constant_of_the_type() {
    let (locks, node) = memory().await;
    let (short, long) =
        (Shop::<20> { locks: locks.clone(), node: node.clone() }, Shop::<3000> { locks, node });
    let (short, long) = (short.lease().await.unwrap(), long.lease().await.unwrap());
    assert!(short <= Duration::from_secs(20) && short > Duration::from_secs(10), "{short:?}");
    assert!(long <= Duration::from_secs(3000) && long > Duration::from_secs(2990), "{long:?}");
}

/// A service whose type has the number of its exports.
struct Exports<const COUNT: usize>(LockManager);

impl<const COUNT: usize> Exports<COUNT> {
    const PERMITS: usize = COUNT;

    #[redis_lock(key = "k", permits = Self::PERMITS, manager = self.0)]
    async fn export(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[redis_lock(key = "k", permits = TWO, manager = locks)]
async fn export(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

trait Limit {
    const PERMITS: u32;
}

impl Limit for Shop<0> {
    const PERMITS: u32 = 2;
}

#[redis_lock(key = "k", permits = COUNT, manager = locks)]
async fn export_of_count<const COUNT: u8>(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "k", permits = T::PERMITS, manager = locks)]
async fn export_of_type<T: Limit>(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn a_count_may_be_a_generic_parameter() {
    let (locks, _node) = memory().await;
    let other = || locks.lock("k").permits(1000).try_acquire();
    let _one = other().await.unwrap();
    export_of_count::<2>(&locks).await.unwrap();
    export_of_type::<Shop<0>>(&locks).await.unwrap();
    let _two = other().await.unwrap();
    assert!(export_of_count::<2>(&locks).await.unwrap_err().is_contended());
    assert!(export_of_type::<Shop<0>>(&locks).await.unwrap_err().is_contended());
    export_of_count::<3>(&locks).await.unwrap();
}

#[tokio::test]
async fn a_count_may_be_a_constant() {
    let (locks, _node) = memory().await;
    let other = || locks.lock("k").permits(1000).try_acquire();
    let _one = other().await.unwrap();
    export(&locks).await.unwrap();
    Exports::<2>(locks.clone()).export().await.unwrap();
    let _two = other().await.unwrap();
    assert!(export(&locks).await.unwrap_err().is_contended());
    assert!(Exports::<2>(locks.clone()).export().await.unwrap_err().is_contended());
    Exports::<3>(locks.clone()).export().await.unwrap();
}
