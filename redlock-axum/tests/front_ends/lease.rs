//! How long a lock lasts while its handler works: the clock of the test stands still until all tasks wait.

use std::time::Duration;

use http::StatusCode;
use redlock_axum::test_util::TestLocks;
use tokio::time::sleep;
use tower::ServiceExt;

use super::{App, FrontEnd, pay};

const SECOND: Duration = Duration::from_secs(1);

on_each_front_end![
    without_a_lease_the_lock_is_held_for_as_long_as_the_handler_works,
    with_a_lease_the_lock_ends_with_it,
];

async fn without_a_lease_the_lock_is_held_for_as_long_as_the_handler_works(front_end: FrontEnd) {
    let app = app!(
        front_end,
        [],
        [],
        async fn handler() {
            sleep(40 * SECOND).await;
        }
    );
    // The lease of the manager is 30 s.
    assert_eq!(statuses_during_the_work(app).await, [StatusCode::CONFLICT; 39]);
}

async fn with_a_lease_the_lock_ends_with_it(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 30], [.expire(30 * SECOND)],
        async fn handler() {
            sleep(40 * SECOND).await;
        }
    );
    let statuses = statuses_during_the_work(app).await;
    assert_eq!(statuses[..29], [StatusCode::CONFLICT; 29]);
    // The request of the 30th second works for 40 s, and has the lock from then on.
    assert_eq!(statuses[29..].iter().filter(|status| **status == StatusCode::OK).count(), 1);
}

/// Sends a request whose handler works for 40 s, and another one in each second of the work. Returns the statuses of
/// the other requests, in order.
async fn statuses_during_the_work(app: App) -> Vec<StatusCode> {
    let locks = TestLocks::new(1);
    let router = App { locks: locks.manager(), ..app }.router();
    let send = || tokio::spawn(router.clone().oneshot(pay()));
    let work = send();
    let mut others = Vec::new();
    for _ in 1..40 {
        sleep(SECOND).await;
        others.push(send());
    }
    assert_eq!(work.await.unwrap().unwrap().status(), StatusCode::OK);
    let mut statuses = Vec::new();
    for other in others {
        statuses.push(other.await.unwrap().unwrap().status());
    }
    statuses
}
