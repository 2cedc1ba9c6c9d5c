//! Many locks at once.

use futures_util::future::join_all;

use super::{Cause, LONG, SOON, reset, start, tracked};

/// Each manager has hints for its own locks, and all of them at once.
#[tokio::test]
async fn ten_thousand_locks_that_are_flushed_at_once_are_lost() {
    const COUNT: usize = 10_000;
    let (servers, locks) = start(1).await;
    let acquire = (0..COUNT).map(|number| {
        let request = locks.lock(format!("order:{number}")).expire(LONG);
        async move { request.try_acquire().await.unwrap() }
    });
    let guards = join_all(acquire).await;
    reset(&servers).await;
    let lost: Vec<_> = guards.iter().map(|guard| guard.lost()).collect();
    tracked(&servers, COUNT as u64).await;
    Cause::Flushed.happen(&servers).await;
    tokio::time::timeout(6 * SOON, join_all(lost)).await.expect("all locks are lost");
}
