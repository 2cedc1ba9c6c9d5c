//! Uploads over connections of HTTP/1.1.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get as on_get, post as on_post};
use http::StatusCode;
use redlock_axum::{LockManager, MemoryNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::order;
use crate::support::{eventually, hold, layer, memory};

async fn serve(locks: &LockManager) -> SocketAddr {
    let app = Router::new()
        .route("/", on_post(|body: Bytes| async move { format!("{body:?}") }))
        .route("/socket", on_get(|| async { StatusCode::SWITCHING_PROTOCOLS }))
        .route_layer(layer(locks, order()));
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
