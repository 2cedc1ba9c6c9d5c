//! Layers and servers that people use instead of a lock, or around one. The page "Production" has their effects.

use std::sync::Arc;
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Router, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Notify};
use tokio::time::timeout;
use tower::limit::ConcurrencyLimitLayer;

use crate::support::{layer, memory};

const SOON: Duration = Duration::from_secs(10);

async fn send(listener: &TcpListener, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut read = String::new();
    timeout(SOON, stream.read_to_string(&mut read)).await.unwrap().unwrap();
    read
}

/// A barrier of two lets each request pass only if both are inside.
#[tokio::test]
async fn a_concurrency_limit_of_one_excludes_nobody() {
    const REQUEST: &str = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let streams = [send(&listener, REQUEST).await, send(&listener, REQUEST).await];
    let both = Arc::new(Barrier::new(2));
    let handler = async move || {
        both.wait().await;
    };
    let app = Router::new().route("/", post(handler)).layer(ConcurrencyLimitLayer::new(1));
    tokio::spawn(serve(listener, app).into_future());
    for stream in streams {
        let answer = read_to_end(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// The signal ends the server, and not the work under the lock.
#[tokio::test]
async fn a_server_that_a_select_drops_ends_idle_connections_and_no_handler() {
    let (locks, node) = memory().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let busy = send(&listener, "GET /work HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut idle = send(&listener, "GET /free HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let [entered, may_return] = [(); 2].map(|()| Arc::new(Notify::new()));
    let at_work = (Arc::clone(&entered), Arc::clone(&may_return));
    let work = get(async move || {
        at_work.0.notify_one();
        at_work.1.notified().await;
        "done"
    });
    let app = Router::new()
        .route("/work", work.route_layer(layer(&locks, "work")))
        .route("/free", get(async || "free"));
    let signal = async {
        entered.notified().await;
        let mut answer = Vec::new();
        while !answer.ends_with(b"free") {
            assert!(idle.read_buf(&mut answer).await.unwrap() > 0);
        }
    };
    tokio::select! {
        served = serve(listener, app).into_future() => panic!("{served:?}"),
        () = signal => {}
    }
    assert_eq!(read_to_end(idle).await, "");
    assert_eq!(node.len(), 1);
    may_return.notify_one();
    let answer = read_to_end(busy).await;
    assert!(answer.ends_with("done"), "{answer}");
    assert!(node.is_empty());
}
