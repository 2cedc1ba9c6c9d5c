//! A request may become fenced before, between and after its options.

use std::time::Duration;

use futures_util::FutureExt;
use redlock_core::{Dialect, LockManager, LockOptions, LockRequest};

const MINUTE: Duration = Duration::from_secs(60);
const OPTIONS: LockOptions = LockOptions::new().expire(MINUTE).dialect(Dialect::Redisson);

/// Each of these requests has the same options, so that their `Debug` texts are equal, too.
fn in_every_order(locks: &LockManager) -> [LockRequest; 5] {
    let request = || locks.lock("a");
    [
        request().expire(MINUTE).dialect(Dialect::Redisson).fenced(true),
        request().expire(MINUTE).fenced(true).dialect(Dialect::Redisson),
        request().fenced(true).expire(MINUTE).dialect(Dialect::Redisson),
        request().options(OPTIONS).fenced(true),
        request().options(OPTIONS.fenced(true)),
    ]
}

#[tokio::test]
async fn options_replace_all_options_that_were_set_before() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("a").fenced(true).wait_forever().options(OPTIONS).acquire().await;
    assert_eq!(guard.unwrap().fencing_token(), None);
}

#[tokio::test]
async fn options_take_effect_before_and_after_fenced() {
    let locks = LockManager::in_memory();
    let shown = format!("{:?}", in_every_order(&locks)[0]);
    assert!(shown.contains("Redisson") && shown.contains("fenced: Some(true)"), "{shown}");
    for (index, request) in in_every_order(&locks).into_iter().enumerate() {
        assert_eq!(format!("{request:?}"), shown);
        let guard = request.clone().try_acquire().await.unwrap();
        assert!(guard.fencing_token().unwrap().number() > 0);
        // The manager's lease is 30 s.
        assert!(guard.remaining() > MINUTE / 2, "request {index}: {:?}", guard.remaining());
        assert!(request.try_acquire().await.unwrap_err().is_contended());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiting_time_takes_effect_after_fenced() {
    let locks = LockManager::in_memory();
    let first = locks.lock("a").try_acquire().await.unwrap();
    let waiter = locks.lock("a").fenced(true).wait_forever().acquire();
    tokio::pin!(waiter);
    assert!(waiter.as_mut().now_or_never().is_none(), "it made one attempt only");
    first.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}
