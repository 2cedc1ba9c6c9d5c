//! `HoldUntil`: whether the lock is released before or after the body of the response is sent.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, Method, Request, Version, header};
use http_body_util::{BodyExt, Full};
use redlock_axum::{HoldUntil, LockManager, LockPolicy, MemoryNode, OnLost};
use redlock_logs::Logs;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{eventually, layer, memory, request, send};

#[tokio::test]
async fn by_default_the_lock_is_free_while_the_body_is_sent() {
    let (locks, node) = memory().await;
    let (_frames, app) = streaming(LockPolicy::new("k"), &locks, HeaderMap::new());
    let response = send(&app, Method::GET, "/").await;
    assert_eq!(response.status(), 200);
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn the_lock_can_be_held_until_the_body_ends() {
    let (locks, node) = memory().await;
    let (frames, app) = streaming(until_end_of_body(), &locks, HeaderMap::new());
    let mut body = send(&app, Method::GET, "/").await.into_body();
    assert_eq!(node.len(), 1);

    frames.send(Ok("one")).await.unwrap();
    assert_eq!(next_data(&mut body).await, "one");
    assert_eq!(node.len(), 1);

    drop(frames);
    assert!(body.frame().await.is_none());
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn the_lock_is_released_when_the_body_fails() {
    let (locks, node) = memory().await;
    let (frames, app) = streaming(until_end_of_body(), &locks, HeaderMap::new());
    let mut body = send(&app, Method::GET, "/").await.into_body();

    frames.send(Err("cable cut")).await.unwrap();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(node.len(), 0);
    assert_eq!(error.to_string(), "cable cut");
}

#[tokio::test]
async fn the_lock_is_released_when_an_unfinished_body_is_dropped() {
    let (locks, node) = memory().await;
    let (frames, app) = streaming(until_end_of_body(), &locks, HeaderMap::new());
    let mut body = send(&app, Method::GET, "/").await.into_body();
    frames.send(Ok("one")).await.unwrap();
    assert_eq!(next_data(&mut body).await, "one");

    drop(body);
    eventually("no key is left", || node.is_empty()).await;
}

#[tokio::test]
async fn the_lock_is_held_until_the_trailers_are_sent() {
    let (locks, node) = memory().await;
    let mut trailers = HeaderMap::new();
    trailers.insert("digest", "abc".parse().unwrap());
    let (frames, app) = streaming(until_end_of_body(), &locks, trailers.clone());
    let mut body = send(&app, Method::GET, "/").await.into_body();

    frames.send(Ok("one")).await.unwrap();
    drop(frames);
    assert_eq!(next_data(&mut body).await, "one");
    assert_eq!(node.len(), 1);
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert!(body.frame().await.is_none());
    assert_eq!(node.len(), 0);
}

/// After the last byte of the response, the client may send its next request at once.
#[tokio::test]
async fn the_last_data_of_a_body_of_known_size_comes_after_the_release() {
    let (locks, node) = memory().await;
    let app = Router::new().route(
        "/",
        get(|| async { Body::new(Full::new(Bytes::from_static(b"whole"))) })
            .route_layer(layer(&locks, until_end_of_body())),
    );

    let mut body = send(&app, Method::GET, "/").await.into_body();
    assert_eq!(node.len(), 1);
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(!body.is_end_stream());
    assert_eq!(next_data(&mut body).await, "whole");
    assert_eq!(node.len(), 0);
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn a_response_without_a_body_leaves_after_the_release() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route("/empty", get(|| async {}).route_layer(layer(&locks, until_end_of_body())));

    let response = send(&app, Method::GET, "/empty").await;
    assert_eq!(node.len(), 0);
    assert!(response.body().is_end_stream());
}

/// The body of a response to HEAD is never read. A lock that is held until the end of the body would stay
/// for its whole lease.
#[tokio::test]
async fn the_response_to_head_leaves_after_the_release() {
    let (locks, node) = memory().await;
    let full =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::from("body"))));
    let service = layer(&locks, until_end_of_body()).layer(full);
    let response = service.oneshot(request(Method::HEAD, "/")).await.unwrap();
    assert_eq!(node.len(), 0);
    drop(response);
}

#[tokio::test]
async fn a_body_that_outlives_the_lease_is_sent_to_its_end_and_logged() {
    let (locks, node) = memory().await;
    let logs = Logs::collect();
    let policy = until_end_of_body().expire(Duration::from_millis(400));
    let (frames, app) = streaming(policy, &locks, HeaderMap::new());
    let mut body = send(&app, Method::GET, "/").await.into_body();

    eventually("the lease runs out", || node.is_empty()).await;
    frames.send(Ok("late")).await.unwrap();
    drop(frames);
    assert_eq!(next_data(&mut body).await, "late");
    assert!(body.frame().await.is_none());
    assert_eq!(logs.count("WARN", "the release of a lock failed"), 1);
}

#[tokio::test]
async fn with_on_lost_abort_the_body_ends_with_an_error_when_the_lock_is_lost() {
    let (locks, node) = memory().await;
    let policy = until_end_of_body().expire(Duration::from_millis(400)).on_lost(OnLost::Abort);
    let (frames, app) = streaming(policy, &locks, HeaderMap::new());
    let mut body = send(&app, Method::GET, "/").await.into_body();
    frames.send(Ok("in time")).await.unwrap();
    assert_eq!(next_data(&mut body).await, "in time");

    // No more data comes: the loss of the lock wakes the body.
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the lock was lost"), "{error}");
    assert!(frames.is_closed(), "the handler's body is dropped");
    assert!(body.frame().await.is_none());
    eventually("the lease runs out", || node.is_empty()).await;
}

#[tokio::test]
async fn a_lock_with_keep_stays_after_the_end_of_the_body() {
    let (locks, node) = memory().await;
    let policy = until_end_of_body().expire(Duration::from_secs(60)).keep(true);
    let (frames, app) = streaming(policy, &locks, HeaderMap::new());
    let mut body = send(&app, Method::GET, "/").await.into_body();
    drop(frames);
    assert!(body.frame().await.is_none());
    assert!(node.time_to_live("k").unwrap() > Duration::from_secs(50));
}

/// A body may do work when it is dropped, such as a commit. That work needs the lock.
#[tokio::test]
async fn a_body_is_dropped_before_its_lock_is_released() {
    for (end, mut frames) in [
        ("ends", vec![Ok("last")]),
        ("fails", vec![Err("cable cut")]),
        ("has no frames", vec![]),
        ("is dropped half-way", vec![Ok("one"), Ok("two")]),
    ] {
        let (locks, node) = memory().await;
        let keys = Arc::new(Mutex::new(None));
        let known_end = frames.is_empty();
        frames.reverse();
        let body = CommittingBody { frames, known_end, node: node.clone(), keys: keys.clone() };
        let body = Arc::new(Mutex::new(Some(body)));
        let handler = async move || Body::new(body.lock().unwrap().take().unwrap());
        let app =
            Router::new().route("/", get(handler).route_layer(layer(&locks, until_end_of_body())));
        let response = send(&app, Method::GET, "/").await;
        let mut body = response.into_body();
        if end == "is dropped half-way" {
            assert_eq!(next_data(&mut body).await, "one");
            drop(body);
        } else {
            let _ = body.collect().await;
        }
        assert_eq!(*keys.lock().unwrap(), Some(1), "a body that {end}");
        eventually("the lock is released", || node.is_empty()).await;
    }
}

/// A server drops such a body unread. Its work needs the lock, and its length belongs to the head of the response.
#[tokio::test]
async fn a_body_that_is_not_sent_is_dropped_before_the_release() {
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 304)] {
        let (locks, node) = memory().await;
        let keys = Arc::new(Mutex::new(None));
        let at_drop = (node.clone(), keys.clone());
        let service = service_fn(move |_: Request<Body>| {
            let (node, keys) = at_drop.clone();
            let body = CommittingBody { frames: vec![Ok("x")], known_end: false, node, keys };
            let response = Response::builder().status(status).body(Body::new(body)).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let service = layer(&locks, until_end_of_body()).layer(service);
        let response = service.oneshot(request(method.clone(), "/")).await.unwrap();
        assert_eq!(*keys.lock().unwrap(), Some(1), "{method} {status}");
        assert!(node.is_empty(), "{method} {status}");
        assert_eq!(response.body().size_hint().exact(), Some(1), "{method} {status}");
    }
}

/// HTTP/1.1 has no trailers after an announced length, and a server then drops the body with the last byte of it. Over
/// HTTP/2 the body goes on.
#[tokio::test]
async fn an_announced_length_ends_the_lock_only_over_http1() {
    let versions = [(Version::HTTP_10, true), (Version::HTTP_11, true), (Version::HTTP_2, false)];
    for (version, released) in versions {
        let (locks, node) = memory().await;
        let service = service_fn(async |_: Request<Body>| {
            let (frames, receiver) = mpsc::channel(2);
            frames.send(Ok("te")).await.unwrap();
            frames.send(Ok("xt")).await.unwrap();
            let trailers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("x"))]);
            let body = Body::new(ChannelBody { receiver, trailers: Some(trailers) });
            let response = Response::builder().header(header::CONTENT_LENGTH, 4);
            Ok::<_, Infallible>(response.body(body).unwrap())
        });
        let app = layer(&locks, until_end_of_body()).layer(service);
        let mut request = request(Method::GET, "/");
        *request.version_mut() = version;
        let mut body = app.oneshot(request).await.unwrap().into_body();
        assert_eq!(next_data(&mut body).await, "te", "{version:?}");
        assert!(!node.is_empty(), "{version:?}");
        assert_eq!(next_data(&mut body).await, "xt", "{version:?}");
        assert_eq!((node.is_empty(), body.is_end_stream()), (released, released), "{version:?}");
        body.collect().await.unwrap();
        assert!(node.is_empty(), "{version:?}");
    }
}

fn until_end_of_body() -> LockPolicy {
    LockPolicy::new("k").hold_until(HoldUntil::EndOfBody)
}

/// Returns an application whose body for `GET /` the test sends frame by frame.
fn streaming(
    policy: LockPolicy,
    locks: &LockManager,
    trailers: HeaderMap,
) -> (mpsc::Sender<Result<&'static str, &'static str>>, Router) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let handler = async move || {
        let receiver: mpsc::Receiver<_> = receiver.lock().unwrap().take().unwrap();
        Body::new(ChannelBody { receiver, trailers: (!trailers.is_empty()).then_some(trailers) })
    };
    let app = Router::new().route("/", get(handler).route_layer(layer(locks, policy)));
    (sender, app)
}

struct ChannelBody {
    receiver: mpsc::Receiver<Result<&'static str, &'static str>>,
    trailers: Option<HeaderMap>,
}

impl HttpBody for ChannelBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, &'static str>>> {
        self.receiver.poll_recv(cx).map(|frame| match frame {
            Some(frame) => Some(frame.map(|text| http_body::Frame::data(text.into()))),
            None => self.trailers.take().map(|trailers| Ok(http_body::Frame::trailers(trailers))),
        })
    }
}

/// A body that counts the keys on the node when it is dropped.
struct CommittingBody {
    /// The frames that are left, in reverse order.
    frames: Vec<Result<&'static str, &'static str>>,
    known_end: bool,
    node: MemoryNode,
    keys: Arc<Mutex<Option<usize>>>,
}

impl HttpBody for CommittingBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, &'static str>>> {
        let frame = self.frames.pop();
        Poll::Ready(frame.map(|frame| frame.map(|text| http_body::Frame::data(text.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.known_end
    }

    fn size_hint(&self) -> http_body::SizeHint {
        let left = self.frames.iter().flatten().map(|text| text.len() as u64).sum();
        if self.frames.iter().all(Result::is_ok) {
            http_body::SizeHint::with_exact(left)
        } else {
            http_body::SizeHint::default()
        }
    }
}

impl Drop for CommittingBody {
    fn drop(&mut self) {
        *self.keys.lock().unwrap() = Some(self.node.len());
    }
}

async fn next_data(body: &mut Body) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}
