//! Locks with a fencing token.

use redlock_axum::FencedLock;
use redlock_logs::Logs;

use super::FrontEnd;
use crate::support::until_logged;

on_each_front_end![
    a_fenced_lock_has_a_greater_number_each_time,
    a_lock_without_a_number_is_not_extracted_as_a_fenced_lock,
];

async fn a_fenced_lock_has_a_greater_number_each_time(front_end: FrontEnd) {
    let app = app!(
        front_end, [fenced], [.fenced(true)],
        async fn handler(lock: FencedLock, perhaps: Option<FencedLock>) -> String {
            assert!(lock.is_valid());
            assert_eq!(perhaps.unwrap().fencing_token(), lock.fencing_token());
            lock.fencing_token().number().to_string()
        }
    );
    let mut numbers = Vec::new();
    for _ in 0..3 {
        numbers.push(app.post().await.body.parse::<i64>().unwrap());
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert!(numbers[0] > 0);
    assert!(app.node.is_empty());
}

/// A handler that requires a fencing token does not run without one.
async fn a_lock_without_a_number_is_not_extracted_as_a_fenced_lock(front_end: FrontEnd) {
    let required = app!(front_end, [], [], async fn handler(_lock: FencedLock) {});
    let logs = Logs::collect();
    until_logged(&logs, "ERROR", "add `fenced`", async || {
        assert_eq!(required.post().await.status, 500);
    })
    .await;
    assert_eq!(logs.count("ERROR", "or `.fenced(true)` to"), 1);
    let optional = app!(
        front_end,
        [],
        [],
        async fn handler(lock: Option<FencedLock>) -> String {
            lock.is_some().to_string()
        }
    );
    assert_eq!(optional.post().await.body, "false");
}
