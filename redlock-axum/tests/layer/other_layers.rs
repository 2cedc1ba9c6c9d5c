//! Layers and servers that people use instead of a lock, or around one. The page "Production" has their effects.

use std::sync::Arc;
use std::time::Duration;

use axum::routing::{MethodRouter, get, post};
use axum::{Router, serve};
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Notify};
use tokio::time::timeout;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, ServiceExt};

use crate::support::{layer, memory, request};

const SOON: Duration = Duration::from_secs(120);

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

/// A handler in which two requests meet. The first one waits inside for the second one.
#[derive(Clone)]
struct Meeting {
    both: Arc<Barrier>,
    have_met: Arc<Notify>,
}

impl Meeting {
    fn new() -> Self {
        Self { both: Arc::new(Barrier::new(2)), have_met: Arc::default() }
    }

    fn handler<S: Clone + Send + Sync + 'static>(&self) -> MethodRouter<S> {
        let Self { both, have_met } = self.clone();
        post(async move || {
            both.wait().await;
            have_met.notify_one();
        })
    }

    /// Returns whether the requests meet. They certainly do if this is expected, and otherwise they do not for a while.
    async fn takes_place(&self, expected: bool) -> bool {
        let limit = if expected { SOON } else { Duration::from_millis(300) };
        timeout(limit, self.have_met.notified()).await.is_ok()
    }
}

/// A limit of one excludes other requests only as one service for all of them.
#[tokio::test]
async fn a_concurrency_limit_of_one_excludes_nobody_in_a_router_without_a_state() {
    let limit = || ConcurrencyLimitLayer::new(1);
    let route = |meeting: &Meeting| Router::new().route("/a", meeting.handler()).layer(limit());
    let [plain, with_state, router, service] = [(); 4].map(|()| Meeting::new());
    let stateful = Router::new().route("/a", with_state.handler()).layer(limit()).with_state(7);
    let nested_router = Router::new().nest_service("/n", route(&router));
    let limited = limit().layer(service.handler::<()>());
    let nested_service = Router::new().nest_service("/n", limited);
    for (kind, meeting, path, app, meet) in [
        ("a router without a state", &plain, "/a", route(&plain), true),
        ("a router with a state", &with_state, "/a", stateful, false),
        ("nest_service of a router", &router, "/n/a", nested_router, true),
        ("nest_service of another service", &service, "/n/a", nested_service, false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let request = format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let _streams = [send(&listener, &request).await, send(&listener, &request).await];
        tokio::spawn(serve(listener, app).into_future());
        assert_eq!(meeting.takes_place(meet).await, meet, "{kind}");
    }
}

/// `axum::serve` makes the services of a router for each connection, and a router that is nested as a service makes its own for
/// each request.
#[tokio::test]
async fn a_concurrency_limit_of_one_excludes_requests_of_one_connection_but_not_in_a_nested_router()
{
    for (path, meet) in [("/a", false), ("/n/a", true)] {
        let meeting = Meeting::new();
        let limit = ConcurrencyLimitLayer::new(1);
        let route = Router::new().route("/a", meeting.handler()).layer(limit);
        let app = if meet { Router::new().nest_service("/n", route) } else { route };
        let of_connection: Router = app.with_state(());
        let requests = [(); 2]
            .map(|()| tokio::spawn(of_connection.clone().oneshot(request(Method::POST, path))));
        assert_eq!(meeting.takes_place(meet).await, meet, "{path}");
        for request in requests {
            request.abort();
        }
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
