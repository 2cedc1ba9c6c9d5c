//! A lock never outlives its handler: however the handler ends.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::get as on_get;
use redlock_axum::{LockError, LockManager, MemoryNode, redis_lock};
use redlock_logs::Logs;
use tower::ServiceExt;

use crate::support::{app, eventually, get, held_by_another, locks};

#[tokio::test]
async fn an_error_of_the_handler_releases() {
    #[redis_lock(key = "a")]
    async fn failing() -> Result<(), StatusCode> {
        Err(StatusCode::IM_A_TEAPOT)
    }

    let (locks, node) = locks().await;
    let answer = get(&app(Router::new().route("/", on_get(failing)), &locks), "/").await;
    assert_eq!(answer.status, StatusCode::IM_A_TEAPOT);
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_panic_of_the_handler_releases() {
    #[redis_lock(key = "a")]
    async fn panicking(State(node): State<MemoryNode>) {
        assert!(node.is_empty(), "the panic of this test");
    }

    let (locks, node) = locks().await;
    let router = Router::new().route("/", on_get(panicking)).with_state(node.clone());
    let app = app(router, &locks);
    let task = tokio::spawn(async move { get(&app, "/").await.status });
    assert!(task.await.unwrap_err().is_panic());
    eventually("the lock is free", || node.is_empty()).await;
}

/// A client that goes away drops the handler at whatever it awaits.
#[tokio::test]
async fn a_handler_that_is_dropped_anywhere_releases() {
    #[redis_lock(key = "a")]
    async fn stepping() -> &'static str {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        "done"
    }

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(stepping)), &locks);
    let mut finished = false;
    for polls in 0_usize.. {
        let request = Request::get("/").body(Body::empty()).unwrap();
        let mut response = Box::pin(app.clone().oneshot(request));
        let mut was_held = false;
        for _ in 0..polls {
            let ready = poll_fn(|context| Poll::Ready(response.as_mut().poll(context))).await;
            was_held |= !node.is_empty();
            if ready.is_ready() {
                finished = true;
                break;
            }
        }
        assert!(polls == 0 || was_held, "dropped after {polls} polls, none of which held the lock");
        drop(response);
        eventually("the lock is free", || node.is_empty()).await;
        if finished {
            assert!(polls >= 5, "finished after {polls} polls");
            break;
        }
    }
}

#[tokio::test]
async fn a_release_that_fails_is_logged_and_does_not_change_the_answer() {
    #[redis_lock(key = "a", expire = "10ms")]
    async fn too_slow(State(node): State<MemoryNode>) -> &'static str {
        eventually("the lease has run out", || node.is_empty()).await;
        // The next holder's lock is not the late one's to remove.
        std::mem::forget(held_by_another(&node, "a").await);
        "done"
    }

    let logs = Logs::collect();
    let (locks, node) = locks().await;
    let router = Router::new().route("/", on_get(too_slow)).with_state(node.clone());
    let answer = get(&app(router, &locks), "/").await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "done"));
    assert!(node.time_to_live("a").unwrap() > Duration::from_secs(20));
    let text = logs.lines().join("\n");
    let warning = text.lines().find(|line| line.contains("was not released in order")).unwrap();
    assert!(warning.contains("WARN"), "{warning}");
    assert!(warning.contains("the lock a had already expired"), "{warning}");
}

#[tokio::test]
async fn a_function_releases_before_it_returns() {
    #[redis_lock(key = "a", manager = locks)]
    async fn count(locks: &LockManager, node: &MemoryNode) -> Result<usize, LockError> {
        Ok(node.len())
    }

    #[redis_lock(key = "a", manager = locks)]
    async fn pending(locks: &LockManager) -> Result<(), LockError> {
        std::future::pending().await
    }

    let (locks, node) = locks().await;
    assert_eq!(count(&locks, &node).await.unwrap(), 1);
    assert!(node.is_empty());

    let mut dropped = Box::pin(pending(&locks));
    let poll = poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context))).await;
    assert!(poll.is_pending());
    assert_eq!(node.len(), 1);
    drop(dropped);
    eventually("the lock is free", || node.is_empty()).await;
}
