//! Locks that stay on the node after their handler: `min_hold` and `keep`.

use std::future::pending;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::http::StatusCode;
use tokio::time::timeout;

use super::renewal::until_renewed;
use super::{FrontEnd, MINUTE, SHORT};
use crate::support::eventually;

on_each_front_end![
    min_hold_keeps_the_key_after_the_handler_ends,
    min_hold_of_zero_has_no_effect,
    keep_holds_the_lock_for_its_lease_however_the_handler_ends,
    a_waiter_with_keep_gets_a_whole_lease,
    a_kept_lock_of_a_dropped_request_stays_for_its_renewed_lease,
];

async fn min_hold_keeps_the_key_after_the_handler_ends(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 60, min_hold = 30], [.expire(MINUTE).min_hold(MINUTE / 2)],
        async fn handler() {}
    );
    assert_eq!(app.post().await.status, 200);
    let left = app.time_to_live().unwrap();
    assert!((MINUTE / 3..=MINUTE / 2).contains(&left), "{left:?}");
    assert_eq!(app.post().await.status, 409);
}

async fn min_hold_of_zero_has_no_effect(front_end: FrontEnd) {
    let app = app!(
        front_end, [min_hold = 0], [.min_hold(Duration::ZERO)],
        async fn handler() {}
    );
    assert_eq!(app.post().await.status, 200);
    assert!(app.node.is_empty());
}

/// A client that disconnects and retries does not get a second turn, either.
async fn keep_holds_the_lock_for_its_lease_however_the_handler_ends(front_end: FrontEnd) {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum End {
        Success,
        Error,
        Panic,
        Dropped,
    }

    for end in [End::Success, End::Error, End::Panic, End::Dropped] {
        let app = app!(
            front_end, [expire = 60, keep], [.expire(MINUTE).keep(true)],
            async fn handler(Extension(end): Extension<End>) -> Result<(), StatusCode> {
                match end {
                    End::Success => Ok(()),
                    End::Error => Err(StatusCode::IM_A_TEAPOT),
                    End::Panic => panic!("the panic of this test"),
                    End::Dropped => pending().await,
                }
            }
        );
        let app = app.with(end);
        let first = app.clone();
        let mut first = tokio::spawn(async move { first.post().await.status.as_u16() });
        match end {
            End::Success => assert_eq!(first.await.unwrap(), 200),
            End::Error => assert_eq!(first.await.unwrap(), 418),
            End::Panic => assert!(first.await.unwrap_err().is_panic()),
            End::Dropped => {
                assert!(timeout(SHORT / 5, &mut first).await.is_err());
                first.abort();
                assert!(first.await.unwrap_err().is_cancelled());
            }
        }
        assert_eq!(app.post().await.status, 409, "{end:?}");
        // `shutdown` waits for a release in the background.
        app.locks.shutdown().await;
        let left = app.time_to_live().unwrap();
        assert!(left > MINUTE * 5 / 6, "{end:?}: {left:?}");
    }
}

/// A lock that is handed over in the process has only a part of its lease left, so a request with
/// `keep` acquires the lock anew.
async fn a_waiter_with_keep_gets_a_whole_lease(front_end: FrontEnd) {
    let app = app!(
        front_end,
        [expire = 60, wait_time = 60, keep],
        [.expire(MINUTE).wait_time(MINUTE).keep(true)],
        async fn handler() {}
    );
    let guard = app.locks.lock(super::KEY).expire(MINUTE * 5 / 6).try_acquire().await.unwrap();
    let (waited, released) = tokio::join!(app.post(), guard.release());
    released.unwrap();
    assert_eq!(waited.status, 200);
    let left = app.time_to_live().unwrap();
    assert!(left > MINUTE * 11 / 12, "{left:?}");
}

/// The client disconnects after a renewal. `min_hold` would keep the lock for no longer than the
/// first lease.
async fn a_kept_lock_of_a_dropped_request_stays_for_its_renewed_lease(front_end: FrontEnd) {
    let lease = MINUTE / 20;
    let app = app!(
        front_end, [expire = 3, renew, keep], [.expire(lease).renew(true).keep(true)],
        async fn handler() {
            pending::<()>().await;
        }
    );
    let begun = Instant::now();
    let request = app.clone();
    let request = tokio::spawn(async move { request.post().await.status });
    eventually("the request has the lock", || app.node.len() == 1).await;
    until_renewed(&app.node).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    app.locks.shutdown().await;
    let left = app.time_to_live().expect("the lock was released");
    // The renewal has begun the lease anew, after at least three tenths of it.
    let elapsed = begun.elapsed();
    assert!(left + elapsed > lease * 7 / 6, "{left:?} after {elapsed:?}");
}
