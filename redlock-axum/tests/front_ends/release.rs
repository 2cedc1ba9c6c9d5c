//! A lock is released however its handler ends.

use std::pin::pin;
use std::task::{Context, Waker};

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use redlock_axum::{LockManager, MemoryNode};
use redlock_logs::Logs;

use super::{FrontEnd, KEY, LEASE, MINUTE};
use crate::support::{eventually, hold};

on_each_front_end![
    an_error_of_the_handler_releases_the_lock,
    a_panic_of_the_handler_releases_the_lock,
    a_request_dropped_at_any_point_leaves_nothing_behind,
    a_handler_that_outlives_its_lease_keeps_its_response_and_leaves_the_next_lock_alone,
];

async fn an_error_of_the_handler_releases_the_lock(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 60], [.expire(MINUTE)],
        async fn handler() -> Result<(), StatusCode> {
            Err(StatusCode::IM_A_TEAPOT)
        }
    );
    assert_eq!(app.post().await.status, 418);
    assert!(app.node.is_empty());
}

async fn a_panic_of_the_handler_releases_the_lock(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 60], [.expire(MINUTE)],
        async fn handler(Extension(node): Extension<MemoryNode>) {
            tokio::task::yield_now().await;
            panic!("{} key is held", node.len());
        }
    );
    let node = app.node.clone();
    let panic = tokio::spawn(async move { app.post().await }).await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "1 key is held");
    eventually("no key is left", || node.is_empty()).await;
}

/// A request is dropped when its client disconnects or a timeout around the lock fires (an
/// abandoned attempt leaves nothing behind). rslock leaves the key.
async fn a_request_dropped_at_any_point_leaves_nothing_behind(front_end: FrontEnd) {
    let app = app!(
        front_end, [expire = 60], [.expire(MINUTE)],
        async fn handler() {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        }
    );
    let mut dropped_with_a_key = 0;
    for polls in 0.. {
        assert!(polls < 1000, "the request never finishes");
        let mut finished = false;
        {
            let mut request = pin!(app.post());
            for _ in 0..polls {
                let poll = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                finished = poll.is_ready();
                if finished {
                    break;
                }
                tokio::task::yield_now().await;
            }
            dropped_with_a_key += usize::from(app.node.len() == 1);
        }
        eventually("no key is left", || app.node.is_empty()).await;
        hold(&app.locks, KEY).await.release().await.unwrap();
        if finished {
            break;
        }
    }
    assert!(dropped_with_a_key >= 3, "the test never dropped a request that held its lock");
}

/// Only the owner releases. In lock4j, a late holder deletes the next holder's lock.
async fn a_handler_that_outlives_its_lease_keeps_its_response_and_leaves_the_next_lock_alone(
    front_end: FrontEnd,
) {
    let app = app!(
        front_end, [expire = "400ms"], [.expire(LEASE)],
        async fn handler(
            State(locks): State<LockManager>,
            Extension(node): Extension<MemoryNode>,
        ) -> &'static str {
            eventually("the lease runs out", || node.is_empty()).await;
            // The next holder keeps the lock after this handler ends.
            std::mem::forget(hold(&locks, KEY).await);
            "done"
        }
    );
    let logs = Logs::collect();
    let answer = app.post().await;
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, "done"));
    assert!(app.time_to_live().unwrap() > MINUTE / 2);
    assert_eq!(logs.count("WARN", "the release of a lock failed"), 1);
    assert_eq!(
        logs.count(
            "WARN",
            &format!("the lock was lost before it was released: its lease ended; lock {KEY}")
        ),
        1
    );
}
