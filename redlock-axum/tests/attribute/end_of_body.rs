//! `hold_until = end_of_body`: the lock of a handler whose response is a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::routing::get as on_get;
use http_body::Frame;
use http_body_util::BodyExt;
use redlock_axum::{HeldLock, LockManager, MemoryNode, ScopeLayer, redis_lock};
use tokio::time::timeout;

use crate::support::{eventually, get, memory, request, send};

/// A body with the pieces that are left, in reverse order. It ends, or waits for ever.
struct Pieces {
    left: Vec<&'static str>,
    ends: bool,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.left.pop() {
            None if !self.ends => Poll::Pending,
            piece => Poll::Ready(piece.map(|piece| Ok(Frame::data(piece.into())))),
        }
    }
}

fn pieces() -> Body {
    Body::new(Pieces { left: vec!["two", "one"], ends: true })
}

#[redis_lock(key = "export", hold_until = end_of_body, installed)]
async fn export(State(node): State<MemoryNode>, lock: HeldLock) -> Body {
    assert!(lock.is_valid() && node.len() == 1);
    pieces()
}

#[redis_lock(key = "export", installed)]
async fn until_response() -> Body {
    pieces()
}

#[redis_lock(key = "export", hold_until = end_of_body, installed)]
async fn empty() -> StatusCode {
    StatusCode::NO_CONTENT
}

#[redis_lock(key = "export", expire = "400ms", hold_until = end_of_body, on_lost = abort, installed)]
async fn lost() -> Body {
    Body::new(Pieces { left: vec!["one"], ends: false })
}

fn routes(locks: &LockManager, node: MemoryNode) -> Router {
    Router::new()
        .route("/export", on_get(export))
        .route("/until-response", on_get(until_response))
        .route("/empty", on_get(empty))
        .route("/lost", on_get(lost))
        .with_state(node)
        .layer(ScopeLayer::new(locks))
}

#[tokio::test]
async fn the_lock_of_a_handler_is_held_until_its_body_has_ended() {
    let (locks, node) = memory().await;
    let app = routes(&locks, node.clone());
    let mut body = send(&app, Method::GET, "/export").await.into_body();
    assert_eq!(node.len(), 1);
    assert_eq!(get(&app, "/export").await.status, StatusCode::CONFLICT);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), Bytes::from("one"));
    assert_eq!(node.len(), 1);
    assert_eq!(body.collect().await.unwrap().to_bytes(), Bytes::from("two"));
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn a_body_that_the_client_abandons_releases_the_lock() {
    let (locks, node) = memory().await;
    let app = routes(&locks, node.clone());
    let response = send(&app, Method::GET, "/export").await;
    assert_eq!(node.len(), 1);
    drop(response);
    eventually("no key is left", || node.is_empty()).await;
}

#[tokio::test]
async fn a_response_without_a_body_has_no_lock() {
    let (locks, node) = memory().await;
    let app = routes(&locks, node.clone());
    for (method, path) in
        [(Method::GET, "/until-response"), (Method::GET, "/empty"), (Method::HEAD, "/export")]
    {
        let response = send(&app, method.clone(), path).await;
        assert!(response.status().is_success(), "{method} {path}");
        assert_eq!(node.len(), 0, "{method} {path}");
    }
}

/// A router drops the body of a response to HEAD, which would release the lock in the background.
#[tokio::test]
async fn the_lock_of_a_response_to_head_is_released_before_the_response() {
    #[redis_lock(key = "export", hold_until = end_of_body)]
    async fn stream() -> Body {
        pieces()
    }

    let (locks, node) = memory().await;
    for (method, keys) in [(Method::HEAD, 0), (Method::GET, 1)] {
        let response = Handler::call(stream, request(method, "/"), locks.clone()).await;
        assert_eq!(node.len(), keys);
        drop(response);
    }
}

#[tokio::test]
async fn a_body_whose_lock_is_lost_ends_with_an_error() {
    let (locks, node) = memory().await;
    let app = routes(&locks, node);
    let body = send(&app, Method::GET, "/lost").await.into_body();
    let error = timeout(Duration::from_secs(10), body.collect()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the lock was lost"), "{error}");
}
