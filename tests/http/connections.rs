//! Requests that share a connection of HTTP/2, and uploads that are refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::routing::{get, post};
use redlock_axum::{
    BodyMode, LockGuard, LockLayer, LockManager, LockPolicy, ScopeLayer, redis_lock,
};
use redlock_tests::{Nodes, RedisServer, builder, connect, eventually};
use reqwest::{Client, RequestBuilder, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{LONG, SOON};

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    address
}

fn over_http1() -> Client {
    Client::builder().http1_only().build().unwrap()
}

fn over_http2() -> Client {
    Client::builder().http2_prior_knowledge().build().unwrap()
}

#[redis_lock(key = "a", installed)]
async fn without_body() {}

#[redis_lock(key = "a", installed)]
async fn with_body(_body: Bytes) {}

/// A server that closes a connection in the middle of an upload takes the answer away from its client. The client has
/// threads of its own, so that it is in the middle of its upload.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_refused_upload_has_its_answer() {
    let server = RedisServer::start().await;
    let locks = connect([server.url()]).await;
    let layer = |policy: LockPolicy| LockLayer::new(&locks, policy).unwrap();
    let work = post(async |_: Bytes| {});
    let app = Router::new()
        .route("/attribute", post(without_body))
        .route("/attribute-with-body", post(with_body))
        .route("/layer", work.clone().route_layer(layer(LockPolicy::new("a"))))
        .route("/stream", work.route_layer(layer(LockPolicy::new("a").body(BodyMode::Stream))))
        .layer(DefaultBodyLimit::disable())
        .layer(ScopeLayer::new(&locks));
    let address = serve(app).await;
    let _held = locks.lock("a").expire(LONG).try_acquire().await.unwrap();
    for client in [over_http1(), over_http2()] {
        let longest = if Nodes::all_kinds() { 64_000_000 } else { 8_000_000 };
        for (length, attempts) in [(100_000, 4), (2_000_000, 3), (longest, 1)] {
            let body = Bytes::from(vec![b'x'; length]);
            for path in ["/attribute", "/attribute-with-body", "/layer", "/stream"] {
                for attempt in 0..attempts {
                    let url = format!("http://{address}{path}");
                    let answer = client.post(url).body(body.clone()).send().await;
                    let answer = answer.unwrap_or_else(|error| {
                        panic!("{path}, {length} bytes, attempt {attempt}: {error:?}")
                    });
                    assert_eq!(answer.status(), StatusCode::CONFLICT, "{path}, {length} bytes");
                }
            }
        }
    }
}

/// Returns a service whose requests to `/wait` wait for a held lock, and the number of requests that have reached it.
async fn waiting(locks: &LockManager) -> (SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let count = move |request: Request, next: Next| {
        counted.fetch_add(1, Ordering::SeqCst);
        next.run(request)
    };
    let layer = LockLayer::new(locks, LockPolicy::new("a").wait_forever()).unwrap();
    let router = Router::new()
        .route("/wait", get(async || {}).route_layer(layer))
        .route("/free", get(async || Body::empty()))
        .layer(from_fn(count));
    (serve(router).await, requests)
}

/// The number of streams that hyper 1.12 allows on a connection.
const STREAMS: usize = 200;

/// Requests that share one connection of HTTP/2, and wait for a lock that the test holds.
struct OneConnection {
    held: LockGuard,
    /// A request to `/free` over the same connection.
    free: RequestBuilder,
    waiters: Vec<JoinHandle<reqwest::Result<Response>>>,
}

impl OneConnection {
    async fn begin(locks: &LockManager, address: SocketAddr, count: usize) -> Self {
        let held = locks.lock("a").expire(LONG).try_acquire().await.unwrap();
        let client = over_http2();
        // The connection is open, and the settings of the server are known.
        let free = client.get(format!("http://{address}/free"));
        free.try_clone().unwrap().send().await.unwrap();
        let wait = client.get(format!("http://{address}/wait"));
        let waiters = (0..count).map(|_| tokio::spawn(wait.try_clone().unwrap().send())).collect();
        Self { held, free, waiters }
    }
}

/// A browser, or a gateway that sends the requests of many clients over one connection, gets no answer to any request.
#[tokio::test]
async fn waiters_that_take_all_streams_of_an_http2_connection_starve_it() {
    let server = RedisServer::start().await;
    let locks = connect([server.url()]).await;
    let (address, requests) = waiting(&locks).await;
    let OneConnection { held, free, waiters } =
        OneConnection::begin(&locks, address, STREAMS).await;
    let all = async || (requests.load(Ordering::SeqCst) == STREAMS + 1).then_some(());
    eventually("all streams wait", SOON, all).await;
    let mut starved = tokio::spawn(free.send());
    timeout(Duration::from_millis(300), &mut starved).await.unwrap_err();
    assert_eq!(requests.load(Ordering::SeqCst), STREAMS + 1);
    // Another connection is not affected.
    let other = over_http2().get(format!("http://{address}/free")).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
    held.release().await.unwrap();
    assert_eq!(timeout(SOON, starved).await.unwrap().unwrap().unwrap().status(), StatusCode::OK);
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

/// Further requests are refused at once, and give their streams back.
#[tokio::test]
async fn fewer_waiters_than_streams_leave_a_connection_usable() {
    let server = RedisServer::start().await;
    let locks = builder([server.url()]).max_waiters(STREAMS / 2).connect().await.unwrap();
    let (address, _requests) = waiting(&locks).await;
    let OneConnection { held, free, waiters } =
        OneConnection::begin(&locks, address, 2 * STREAMS).await;
    let refused = async || {
        let answered = waiters.iter().filter(|waiter| waiter.is_finished()).count();
        (answered == 2 * STREAMS - STREAMS / 2).then_some(())
    };
    eventually("the other requests are refused", SOON, refused).await;
    assert_eq!(timeout(SOON, free.send()).await.unwrap().unwrap().status(), StatusCode::OK);
    held.release().await.unwrap();
    let mut statuses = Vec::new();
    for waiter in waiters {
        statuses.push(waiter.await.unwrap().unwrap().status());
    }
    let granted = statuses.iter().filter(|status| **status == StatusCode::OK).count();
    assert_eq!(granted, STREAMS / 2);
    assert!(statuses.iter().all(|status| matches!(status.as_u16(), 200 | 503)), "{statuses:?}");
}
