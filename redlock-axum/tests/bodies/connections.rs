//! Uploads over connections of HTTP/1.1.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request};
use axum::middleware::{Next, from_fn};
use axum::routing::{get as on_get, post as on_post};
use axum::{Extension, Router};
use http::StatusCode;
use http_body_util::Limited;
use redlock_axum::{BodyMode, LockManager, MemoryNode, redis_lock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::order;
use crate::support::{answer, app, eventually, held_by_another, hold, layer, memory};

async fn serve(locks: &LockManager) -> SocketAddr {
    let app = Router::new()
        .route("/", on_post(|body: Bytes| async move { format!("{body:?}") }))
        .route("/socket", on_get(|| async { StatusCode::SWITCHING_PROTOCOLS }))
        .route_layer(layer(locks, order()));
    listen(app).await
}

async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn send(address: SocketAddr, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream
}

/// Reads until the text has come. Returns all that was read.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut all, mut piece) = (String::new(), [0; 1000]);
    while !all.contains(text) {
        let read = timeout(Duration::from_secs(10), stream.read(&mut piece)).await.unwrap();
        let length = read.unwrap();
        assert!(length > 0, "the connection ended: {all}");
        all.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    all
}

const EXPECT: &str =
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";

/// The server asks for a body that it is going to read.
#[tokio::test]
async fn a_client_that_expects_100_sends_no_body_if_it_is_refused() {
    let (locks, node) = memory().await;
    let address = serve(&locks).await;
    let guard = hold(&locks, "order").await;
    let refused = read_until(&mut send(address, EXPECT).await, "detail").await;
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    drop(guard);
    eventually("the lock is free", || node.is_empty()).await;
    let mut stream = send(address, EXPECT).await;
    let first = read_until(&mut stream, "100 Continue").await;
    assert!(node.is_empty(), "{first}");
    stream.write_all(b"body").await.unwrap();
    read_until(&mut stream, "b\"body\"").await;
}

#[tokio::test]
async fn a_chunked_upload_holds_no_lock_until_its_end() {
    let (locks, node) = memory().await;
    let address = serve(&locks).await;
    let head =
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n";
    let mut stream = send(address, head).await;
    read_until(&mut stream, "100 Continue").await;
    stream.write_all(b"3\r\none\r\n").await.unwrap();
    assert!(node.is_empty());
    stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n").await.unwrap();
    read_until(&mut stream, "b\"onetwo\"").await;
}

/// The space of its body is free again, and the next request is served.
#[tokio::test]
async fn a_client_that_disconnects_during_its_upload_leaves_nothing_behind() {
    let node = MemoryNode::new();
    let locks = LockManager::builder().memory_node(&node).body_buffers(4).connect().await.unwrap();
    let address = serve(&locks).await;
    let head = EXPECT.replace("content-length: 4", "transfer-encoding: chunked");
    for _ in 0..3 {
        let mut stream = send(address, &head).await;
        read_until(&mut stream, "100 Continue").await;
        stream.write_all(b"4\r\nbody\r\n").await.unwrap();
        drop(stream);
    }
    let served = async || {
        let request =
            "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody";
        let mut stream = send(address, request).await;
        read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200")
    };
    let begun = std::time::Instant::now();
    while !served().await {
        assert!(begun.elapsed() < Duration::from_secs(10), "the space is still taken");
    }
    assert!(node.is_empty());
}

/// Such a request has no body, and its connection stays open.
#[tokio::test]
async fn an_upgrade_does_not_wait_for_a_body() {
    let (locks, _node) = memory().await;
    let address = serve(&locks).await;
    let head =
        "GET /socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let answer = read_until(&mut send(address, head).await, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
}

#[redis_lock(key = "order")]
async fn without_body() {}

/// The client sends its whole body before it reads, as many libraries do. Its next request uses the same connection.
#[tokio::test]
async fn a_refused_client_may_send_its_upload_to_the_end() {
    const LENGTH: usize = 16 << 20;
    let (locks, _node) = memory().await;
    let work = || on_post(|_: Body| async {});
    let limited = order().body_limit(LENGTH);
    let router = Router::new()
        .route("/attribute", on_post(without_body))
        .route("/buffered", work().route_layer(layer(&locks, limited)))
        .route("/limited", work().route_layer(layer(&locks, "stock")))
        .route("/streamed", work().route_layer(layer(&locks, order().body(BodyMode::Stream))))
        .route("/key", work().route_layer(layer(&locks, "order:{query(id)}")))
        .route("/free", on_get(|| async {}));
    let address = listen(app(router, &locks)).await;
    let _held = hold(&locks, "order").await;
    let body = vec![b'x'; LENGTH];
    for (path, status) in [
        ("/attribute", "409"),
        ("/buffered", "409"),
        ("/limited", "413"),
        ("/streamed", "409"),
        ("/key", "400"),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {LENGTH}\r\n\r\n");
        let mut stream = send(address, &head).await;
        // The answer has left before the body arrives.
        let answer = read_until(&mut stream, "}").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        stream.write_all(&body).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        stream.write_all(b"GET /free HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let next = read_until(&mut stream, "\r\n\r\n").await;
        assert!(next.starts_with("HTTP/1.1 200"), "{path}: {next}");
    }
}

/// The headers and the body that a client sends before it leaves.
const UNREAD: [(&str, [&str; 2]); 4] = [
    ("a whole body", ["content-length: 2\r\n\r\n", "{}"]),
    ("a part of its body", ["content-length: 3\r\n\r\n", "{}"]),
    ("chunks", ["transfer-encoding: chunked\r\n\r\n", "2\r\n{}\r\n0\r\n\r\n"]),
    ("a body that it was asked for", ["content-length: 2\r\nexpect: 100-continue\r\n\r\n", "{}"]),
];

/// Reports its drop.
struct InFlight(mpsc::UnboundedSender<()>);

impl Drop for InFlight {
    fn drop(&mut self) {
        // The test may be over.
        let _ = self.0.send(());
    }
}

/// Reports the start of the work and its end.
#[derive(Clone)]
struct Work {
    begun: mpsc::UnboundedSender<()>,
    ended: mpsc::UnboundedSender<()>,
}

impl Work {
    async fn run(&self) {
        let _ended = InFlight(self.ended.clone());
        self.begun.send(()).unwrap();
        std::future::pending::<()>().await;
    }
}

#[redis_lock(key = "order", wait_time = "forever")]
async fn pay(Path(_id): Path<u64>, Extension(work): Extension<Work>) {
    work.run().await;
}

#[redis_lock(key = "order", wait_time = "forever", detached)]
async fn pay_detached(Extension(work): Extension<Work>) {
    work.run().await;
}

#[redis_lock(key = "order", wait_time = "forever")]
async fn pay_nothing() {}

/// Returns the address of a service, the starts and ends of requests and the starts and ends of works.
async fn serve_unread(locks: &LockManager) -> (SocketAddr, [mpsc::UnboundedReceiver<()>; 4]) {
    let [(request, requests), (end, ends), (begun, begins), (ended, work_ends)] =
        std::array::from_fn(|_| mpsc::unbounded_channel());
    let observe = move |received: Request, next: Next| {
        let in_flight = InFlight(end.clone());
        request.send(()).unwrap();
        async move {
            let _in_flight = in_flight;
            next.run(received).await
        }
    };
    let by_layer = on_post(async |Extension(work): Extension<Work>, _: Bytes| work.run().await)
        .route_layer(layer(locks, order().wait_forever()));
    let router = Router::new()
        .route("/pay/{id}", on_post(pay))
        .route("/detached", on_post(pay_detached))
        .route("/nothing", on_post(pay_nothing))
        .route("/layer", by_layer)
        .layer(Extension(Work { begun, ended }))
        .layer(from_fn(observe));
    (listen(app(router, locks)).await, [requests, ends, begins, work_ends])
}

async fn received(events: &mut mpsc::UnboundedReceiver<()>, event: &str) {
    let received = timeout(Duration::from_secs(10), events.recv()).await;
    received.unwrap_or_else(|_| panic!("not within ten seconds: {event}")).unwrap();
}

/// Nobody reads the body of such a handler, but only a server that reads it notices the end of its connection.
#[tokio::test]
async fn a_client_with_an_unread_body_that_leaves_ends_the_wait_for_the_lock() {
    let (locks, node) = memory().await;
    let (address, [mut requests, mut ends, mut begins, _]) = serve_unread(&locks).await;
    let held = held_by_another(&node, "order").await;
    for path in ["/pay/1", "/detached", "/nothing", "/layer"] {
        for (sent, [headers, body]) in UNREAD {
            let begin = format!("POST {path} HTTP/1.1\r\nhost: a\r\n{headers}");
            let mut stream = send(address, &begin).await;
            received(&mut requests, "the start of the request").await;
            if sent == "a body that it was asked for" {
                read_until(&mut stream, "100 Continue").await;
            }
            stream.write_all(body.as_bytes()).await.unwrap();
            drop(stream);
            received(&mut ends, &format!("{path}, {sent}")).await;
        }
    }
    held.release().await.unwrap();
    begins.try_recv().unwrap_err();
    eventually("the lock is free", || node.is_empty()).await;
}

#[tokio::test]
async fn a_client_with_an_unread_body_that_leaves_ends_the_work() {
    let (locks, node) = memory().await;
    let (address, [_requests, mut ends, mut begins, mut work_ends]) = serve_unread(&locks).await;
    for (sent, [headers, body]) in UNREAD {
        let head = format!("POST /pay/1 HTTP/1.1\r\nhost: a\r\n{headers}");
        let mut stream = send(address, &head).await;
        received(&mut begins, "the start of the work").await;
        stream.write_all(body.as_bytes()).await.unwrap();
        drop(stream);
        received(&mut work_ends, sent).await;
        received(&mut ends, sent).await;
        eventually("the lock is free", || node.is_empty()).await;
    }
}

/// hyper does not look at a connection for its end before it has answered the request of whose successor it has bytes.
/// So the work of the first request begins although its client has left.
#[tokio::test]
async fn a_second_request_on_the_connection_hides_that_the_client_leaves() {
    for path in ["/pay/1", "/layer"] {
        let (locks, node) = memory().await;
        let (address, [mut requests, mut ends, mut begins, _work_ends]) =
            serve_unread(&locks).await;
        let held = held_by_another(&node, "order").await;
        let one = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{{}}");
        drop(send(address, &one.repeat(2)).await);
        received(&mut requests, "the start of the first request").await;
        // The server notices a later client that leaves.
        drop(send(address, &one).await);
        received(&mut requests, "the start of the other request").await;
        received(&mut ends, "the end of the other request").await;
        ends.try_recv().unwrap_err();
        held.release().await.unwrap();
        received(&mut begins, "the start of the work").await;
    }
}

/// The limit of a middleware is for handlers that read the body.
#[tokio::test]
async fn an_unread_body_that_is_too_long_does_not_stop_its_handler() {
    #[redis_lock(key = "order")]
    async fn handler() -> &'static str {
        yield_now().await;
        "done"
    }

    let (locks, _node) = memory().await;
    let app = app(Router::new().route("/", on_post(handler)), &locks);
    let body = Body::new(Limited::new(Body::from("longer than three"), 3));
    let answer = answer(&app, Request::post("/").body(body).unwrap()).await;
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, "done"));
}
