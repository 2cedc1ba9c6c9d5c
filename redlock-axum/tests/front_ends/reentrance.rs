//! A request that acquires a lock which it already holds.

use axum::extract::State;
use axum::{Extension, Router};
use redlock_axum::{HeldLock, LockError, LockManager, LockPolicy, LockRejection, MemoryNode};
use redlock_logs::Logs;
use tokio::time::timeout;

use super::{FrontEnd, HOUR, KEY, MINUTE};
use crate::support::{layer, table};

on_each_front_end![
    a_second_lock_of_the_same_key_fails_at_once_and_the_log_names_the_remedy,
    a_reentrant_lock_is_shared_with_the_outer_lock,
    a_handler_that_acquires_its_own_lock_again_is_refused_at_once_or_shares_it,
    two_requests_on_one_connection_do_not_share_a_reentrant_lock,
];

type Around = fn(Router<LockManager>, &LockManager) -> Router<LockManager>;

/// Ways to put a second lock with the same key around the application.
const AROUND: [Around; 2] = [
    |router, locks| router.layer(layer(locks, outer())),
    |router, locks| router.layer(table(locks, [outer().route("/")])),
];

fn outer() -> LockPolicy {
    LockPolicy::new(KEY).expire(MINUTE)
}

/// The request does not wait for itself, and the log does not blame another holder.
async fn a_second_lock_of_the_same_key_fails_at_once_and_the_log_names_the_remedy(
    front_end: FrontEnd,
) {
    for around in AROUND {
        let app = app!(
            front_end, [wait_time = "1h"], [.wait_time(HOUR)],
            async fn handler() {
                unreachable!("the body ran although the request held its lock already");
            }
        );
        let app = app.around(around);
        let logs = Logs::collect();
        let answer = app.post().await;
        assert_eq!(answer.status, 500);
        assert!(!answer.body.contains("reentrant"), "{}", answer.body);
        let held = format!("the lock is already held by the same request; lock {KEY}");
        for text in [&*held, "`reentrant`", "another key"] {
            assert_eq!(logs.count("ERROR", text), 1, "{text}");
        }
        assert!(app.node.is_empty());
    }
}

async fn a_reentrant_lock_is_shared_with_the_outer_lock(front_end: FrontEnd) {
    for around in AROUND {
        let app = app!(
            front_end, [expire = 1, reentrant], [.expire(MINUTE / 60).reentrant(true)],
            async fn handler(lock: HeldLock, Extension(node): Extension<MemoryNode>) -> String {
                assert!(lock.is_valid());
                assert!(node.time_to_live(KEY).unwrap() > MINUTE * 5 / 6, "the lease was shortened");
                node.len().to_string()
            }
        );
        let app = app.around(around);
        let answer = app.post().await;
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, "1"));
        assert!(app.node.is_empty());
    }
}

async fn a_handler_that_acquires_its_own_lock_again_is_refused_at_once_or_shares_it(
    front_end: FrontEnd,
) {
    let app = app!(
        front_end,
        [],
        [],
        async fn handler(State(locks): State<LockManager>) -> Result<(), LockRejection> {
            let again = timeout(MINUTE / 6, locks.lock(KEY).wait_time(HOUR).acquire()).await;
            let refused = again.unwrap().unwrap_err();
            assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
            locks.lock(KEY).reentrant(true).try_acquire().await?.release().await.unwrap();
            Ok(())
        }
    );
    assert_eq!(app.post().await.status, 200);
    assert!(app.node.is_empty());
}

/// Two requests are two callers, even if one task serves both.
async fn two_requests_on_one_connection_do_not_share_a_reentrant_lock(front_end: FrontEnd) {
    let app = app!(
        front_end, [reentrant], [.reentrant(true)],
        async fn handler() {
            tokio::task::yield_now().await;
        }
    );
    let (one, other) = tokio::join!(app.post(), app.post());
    assert_eq!((one.status.as_u16(), other.status.as_u16()), (200, 409));
}
