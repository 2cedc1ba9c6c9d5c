//! Functions and responses that wait for their release, which a slow node confirms late. These tests need a
//! server, because a node in memory confirms at once.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::StreamExt;
use futures_util::stream::{once, pending};
use redlock_axum::{
    CommitUnderLock, HoldUntil, LockError, LockLayer, LockManager, LockPolicy, redis_lock,
};
use redlock_tests::{Direction, Proxy, RedisServer, Traffic, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;
use tower::layer::util::Identity;

/// The lease, which is longer than any test holds back a command.
const LONG: Duration = Duration::from_secs(60);

struct Network {
    server: RedisServer,
    proxy: Proxy,
    locks: LockManager,
}

impl Network {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        let proxy = Proxy::to(&server).await;
        let locks = connect([proxy.url()]).await;
        Self { server, proxy, locks }
    }

    /// Sets the traffic to the server: `Traffic::Hold` holds commands back, `Traffic::Pass` delivers them.
    fn set(&self, traffic: Traffic) {
        self.proxy.set(Direction::ToServer, traffic);
    }

    async fn keys(&self) -> Vec<String> {
        self.server.probe().await.keys().await
    }

    /// Runs `work` while its release is held back, and checks that it ends only after the release.
    async fn await_release<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut work).await;
        assert_eq!(self.keys().await, ["a"]);
        assert!(early.is_err(), "the work ended before the server released the lock");
        self.set(Traffic::Pass);
        let result = work.await;
        assert_eq!(self.keys().await, Vec::<String>::new());
        result
    }
}

#[tokio::test]
async fn a_function_waits_for_the_release_of_its_lock() {
    #[redis_lock(key = "a", expire = 60, manager = network.locks)]
    async fn work(network: &Network) -> Result<&'static str, LockError> {
        network.set(Traffic::Hold);
        Ok("done")
    }

    let network = Network::start().await;
    assert_eq!(network.await_release(work(&network)).await.unwrap(), "done");
}

#[tokio::test]
async fn a_response_waits_for_the_release_of_its_lock() {
    #[redis_lock(key = "a", expire = 60)]
    async fn by_attribute(Extension(network): Extension<Arc<Network>>) {
        network.set(Traffic::Hold);
    }
    async fn by_layer(Extension(network): Extension<Arc<Network>>) {
        network.set(Traffic::Hold);
    }

    let network = Arc::new(Network::start().await);
    let layer = LockLayer::new(&network.locks, LockPolicy::new("a").expire(LONG)).unwrap();
    let app = Router::new()
        .route("/attribute", get(by_attribute))
        .route("/commit", get(by_attribute).layer(CommitUnderLock::new(Identity::new())))
        .route("/layer", get(by_layer).route_layer(layer))
        .layer(Extension(Arc::clone(&network)))
        .with_state(network.locks.clone());
    for path in ["/attribute", "/commit", "/layer"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = network.await_release(app.clone().oneshot(request)).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
    }
}

/// The locks are on two servers, and only the second release is held back.
#[tokio::test]
async fn a_response_waits_for_the_release_of_each_lock_in_commit_under_lock() {
    #[redis_lock(key = "a", expire = 60)]
    async fn by_attribute(Extension(slow): Extension<Arc<Network>>) {
        slow.set(Traffic::Hold);
    }

    let (fast, slow) = (Network::start().await, Arc::new(Network::start().await));
    let layer = LockLayer::new(&slow.locks, LockPolicy::new("a").expire(LONG)).unwrap();
    let handler = get(by_attribute)
        .layer::<_, Infallible>(layer)
        .layer(CommitUnderLock::new(Identity::new()));
    let app = Router::new()
        .route("/", handler)
        .layer(Extension(Arc::clone(&slow)))
        .with_state(fast.locks.clone());
    let request = Request::get("/").body(Body::empty()).unwrap();
    let response = slow.await_release(app.oneshot(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(fast.keys().await, Vec::<String>::new());
}

/// A client that has the last byte may send its next request, and must find the lock free.
#[tokio::test]
async fn the_last_chunk_of_a_body_waits_for_the_release() {
    let network = Network::start().await;
    let policy = LockPolicy::new("a").expire(LONG).hold_until(HoldUntil::EndOfBody);
    let layer = LockLayer::new(&network.locks, policy).unwrap();
    let app = Router::new().route("/", get(async || "whole").route_layer(layer));
    let request = Request::get("/").body(Body::empty()).unwrap();
    let mut body = app.oneshot(request).await.unwrap().into_body();
    assert_eq!(network.keys().await, ["a"]);
    network.set(Traffic::Hold);
    for _ in 0..3 {
        let poll = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
        assert!(poll.is_pending(), "{poll:?}");
        // A server that takes the body for ended would not send the last chunk.
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(5));
    }
    let mut next = async || {
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        (frame, body.is_end_stream(), body.size_hint().exact())
    };
    let (frame, ended, left) = network.await_release(next()).await;
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "whole");
    assert_eq!((ended, left), (true, Some(0)));
}

/// A body of one piece that does not announce its end. An end that is asked for never comes.
fn piece() -> Body {
    let piece = once(async { Ok::<_, Infallible>("text") });
    Body::from_stream(piece.chain(pending()))
}

/// hyper does not read the body of some responses, and stops at the announced length of others. A client that has the
/// whole response must find the lock free all the same.
#[tokio::test]
async fn a_server_sends_the_end_of_each_kind_of_response_after_the_release() {
    async fn respond(
        Path(kind): Path<String>,
        Extension(network): Extension<Arc<Network>>,
    ) -> Response {
        network.set(Traffic::Hold);
        match &*kind {
            "204" => (StatusCode::NO_CONTENT, piece()).into_response(),
            "304" => (StatusCode::NOT_MODIFIED, Body::from("text")).into_response(),
            "length" => ([(CONTENT_LENGTH, "4")], piece()).into_response(),
            "no-length" => ([(CONTENT_LENGTH, "0")], piece()).into_response(),
            "head" => piece().into_response(),
            _ => "text".into_response(),
        }
    }
    #[redis_lock(key = "a", expire = 60, hold_until = end_of_body)]
    async fn by_attribute(kind: Path<String>, network: Extension<Arc<Network>>) -> Response {
        respond(kind, network).await
    }

    let network = Arc::new(Network::start().await);
    let policy = LockPolicy::new("a").expire(LONG).hold_until(HoldUntil::EndOfBody);
    let layer = LockLayer::new(&network.locks, policy).unwrap();
    let app = Router::new()
        .route("/attribute/{kind}", get(by_attribute))
        .route("/layer/{kind}", get(respond).route_layer(layer))
        .layer(Extension(Arc::clone(&network)))
        .with_state(network.locks.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());

    for front in ["attribute", "layer"] {
        for (method, kind, end) in [
            ("GET", "204", "\r\n\r\n"),
            ("GET", "304", "\r\n\r\n"),
            ("GET", "length", "\r\n\r\ntext"),
            ("GET", "no-length", "\r\n\r\n"),
            ("HEAD", "head", "\r\n\r\n"),
            ("GET", "whole", "\r\n\r\ntext"),
        ] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let request = format!("{method} /{front}/{kind} HTTP/1.1\r\nhost: a\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let response = async {
                let mut read = Vec::new();
                while !read.ends_with(end.as_bytes()) {
                    assert!(client.read_buf(&mut read).await.unwrap() > 0, "{front} {kind}");
                }
            };
            println!("{front} {kind}");
            network.await_release(response).await;
        }
    }
}
