//! Clients with small flow-control windows of HTTP/2: their bodies arrive in pieces, and they read the response in pieces.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use futures_util::stream;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use redlock_axum::{
    BodyMode, HeldLock, HoldUntil, LockLayer, LockManager, LockPolicy, OnLost, ScopeLayer,
    redis_lock,
};
use redlock_tests::{RedisServer, connect, eventually};
use tokio::net::{TcpListener, TcpStream};

use crate::{LONG, SOON};

const KEY: &str = "order:42";
/// The bytes that may be on their way in one stream.
const WINDOW: u32 = 1024;
/// The windows that a body fills.
const WINDOWS: usize = 6;
const LEASE: Duration = Duration::from_secs(1);

/// The work of the handlers, and how often it has begun.
#[derive(Debug, Clone, Default)]
struct Work {
    begun: Arc<AtomicUsize>,
    /// How often it has begun with a lost lock.
    invalid: Arc<AtomicUsize>,
}

impl Work {
    fn begin(&self, lock: &HeldLock) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.invalid.fetch_add(usize::from(!lock.is_valid()), Ordering::SeqCst);
    }

    fn begun(&self) -> usize {
        assert_eq!(self.invalid.load(Ordering::SeqCst), 0, "a handler began with a lost lock");
        self.begun.load(Ordering::SeqCst)
    }
}

fn upload() -> Vec<u8> {
    vec![b'x'; WINDOWS * WINDOW as usize]
}

async fn receive(State(work): State<Work>, lock: HeldLock, body: Bytes) -> String {
    work.begin(&lock);
    body.len().to_string()
}

#[redis_lock(key = "order:42", expire = "5m", installed)]
async fn attribute(State(work): State<Work>, lock: HeldLock, body: Bytes) -> String {
    work.begin(&lock);
    body.len().to_string()
}

/// Returns a body of several pieces, each of which fills the window of a client.
async fn send(State(work): State<Work>, lock: HeldLock) -> Body {
    work.begin(&lock);
    let piece = || Ok::<_, Infallible>(Bytes::from(vec![b'x'; WINDOW as usize]));
    Body::from_stream(stream::iter((0..WINDOWS).map(move |_| piece())))
}

fn locked(locks: &LockManager, policy: LockPolicy) -> LockLayer {
    LockLayer::new(locks, policy).unwrap()
}

/// Serves HTTP/2 with small windows for the bodies of requests.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(async move {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                builder.http2().initial_stream_window_size(WINDOW);
                builder.serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    address
}

/// A client with a connection of its own, whose windows for responses are small.
struct Client(SendRequest<Bytes>);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW);
        let (client, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(client.ready().await.unwrap())
    }

    fn post(&mut self, path: &str, has_body: bool) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::post(format!("http://localhost{path}")).body(()).unwrap();
        self.0.send_request(request, !has_body).unwrap()
    }

    /// Sends a whole request, and returns the status.
    async fn whole(&mut self, path: &str) -> StatusCode {
        let (response, mut body) = self.post(path, true);
        if !push(&mut body, &upload(), true).await {
            // The service has answered before the end of the body.
            return response.await.map_or(StatusCode::REQUEST_TIMEOUT, |answer| answer.status());
        }
        response.await.unwrap().status()
    }
}

/// Sends a part of a body as the windows allow. Returns whether the service has taken it.
async fn push(body: &mut SendStream<Bytes>, part: &[u8], is_last: bool) -> bool {
    let mut left = Bytes::copy_from_slice(part);
    while !left.is_empty() {
        body.reserve_capacity(left.len());
        let Some(Ok(capacity)) = poll_fn(|cx| body.poll_capacity(cx)).await else { return false };
        let piece = left.split_to(capacity.min(left.len()));
        if body.send_data(piece, is_last && left.is_empty()).is_err() {
            return false;
        }
    }
    true
}

/// Half of the body is more than one window: the service has read a part of it.
#[tokio::test]
async fn a_client_that_sends_its_body_in_small_windows_holds_no_lock_meanwhile() {
    let server = RedisServer::start().await;
    let (locks, mut probe, work) =
        (connect([server.url()]).await, server.probe().await, Work::default());
    let layer = locked(&locks, LockPolicy::new(KEY).expire(LONG));
    let router = Router::new()
        .route("/attribute", post(attribute))
        .route("/layer", post(receive).route_layer(layer))
        .layer(ScopeLayer::new(&locks));
    let address = serve(router.with_state(work.clone())).await;
    for (number, path) in ["/attribute", "/layer"].into_iter().enumerate() {
        let [mut slow, mut other] =
            [Client::connect(address).await, Client::connect(address).await];
        let (response, mut body) = slow.post(path, true);
        let all = upload();
        let (first, last) = all.split_at(all.len() / 2);
        assert!(push(&mut body, first, false).await, "{path}");
        assert_eq!(probe.keys().await, [""; 0], "{path}: a lock is held during an upload");
        assert_eq!(other.whole(path).await, StatusCode::OK, "{path}");
        assert_eq!(work.begun(), 2 * number + 1, "{path}");
        assert!(push(&mut body, last, true).await, "{path}");
        assert_eq!(response.await.unwrap().status(), StatusCode::OK, "{path}");
        assert_eq!(work.begun(), 2 * number + 2, "{path}");
    }
}

/// The body has one lease, also if the lock is renewed. The handler reads the whole body before its own code begins.
#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_a_streamed_body_loses_the_key() {
    let server = RedisServer::start().await;
    let streamed = || LockPolicy::new(KEY).expire(LEASE).body(BodyMode::Stream);
    for (name, policy) in [
        ("not renewed", streamed()),
        ("renewed", streamed().renew(true)),
        ("aborted", streamed().on_lost(OnLost::Abort)),
    ] {
        let (locks, mut probe, work) =
            (connect([server.url()]).await, server.probe().await, Work::default());
        let router = Router::new().route("/", post(receive).route_layer(locked(&locks, policy)));
        let address = serve(router.with_state(work.clone())).await;
        let [mut slow, mut other] =
            [Client::connect(address).await, Client::connect(address).await];
        let (response, mut body) = slow.post("/", true);
        let all = upload();
        let (first, last) = all.split_at(all.len() / 2);
        push(&mut body, first, false).await;
        eventually("another client has the key", SOON, async || {
            (other.whole("/").await == StatusCode::OK).then_some(())
        })
        .await;
        assert_eq!(work.begun(), 1, "{name}");
        push(&mut body, last, true).await;
        let status = response.await.map(|answer| answer.status());
        assert!(!status.as_ref().is_ok_and(StatusCode::is_success), "{name}: {status:?}");
        assert_eq!(work.begun(), 1, "{name}: the handler began without its lock");
        eventually("no key is left", SOON, async || probe.keys().await.is_empty().then_some(()))
            .await;
        locks.shutdown().await;
    }
}

/// The client gives the service no further window. Then the service does not even look at the body.
#[tokio::test]
async fn a_client_that_reads_no_response_loses_the_key_at_max_hold() {
    let server = RedisServer::start().await;
    let until_end = || LockPolicy::new(KEY).expire(LEASE).hold_until(HoldUntil::EndOfBody);
    let bounded = || until_end().renew(true).max_hold(2 * LEASE);
    for (name, policy, held, is_cut) in [
        ("not renewed", until_end(), LEASE, false),
        ("bounded", bounded(), 2 * LEASE, false),
        ("aborted", bounded().on_lost(OnLost::Abort), 2 * LEASE, true),
    ] {
        let (locks, mut probe, work) =
            (connect([server.url()]).await, server.probe().await, Work::default());
        let router = Router::new().route("/", post(send).route_layer(locked(&locks, policy)));
        let address = serve(router.with_state(work.clone())).await;
        let [mut slow, mut other] =
            [Client::connect(address).await, Client::connect(address).await];
        let begun = Instant::now();
        let (response, _) = slow.post("/", false);
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{name}");
        eventually("another client has the key", SOON, async || {
            let (response, _) = other.post("/", false);
            (response.await.unwrap().status() == StatusCode::OK).then_some(())
        })
        .await;
        assert_eq!(work.begun(), 2, "{name}");
        // The body holds the lock until then.
        assert!(begun.elapsed() > held * 9 / 10, "{name}: {:?}", begun.elapsed());
        let mut body = response.into_body();
        let (mut length, mut cut) = (0, false);
        while let Some(data) = body.data().await {
            let Ok(data) = data else {
                cut = true;
                break;
            };
            length += data.len();
            let _ = body.flow_control().release_capacity(data.len());
        }
        assert_eq!((cut, length == upload().len()), (is_cut, !is_cut), "{name}: {length} bytes");
        drop((slow, other));
        eventually("no key is left", SOON, async || probe.keys().await.is_empty().then_some(()))
            .await;
        locks.shutdown().await;
    }
}
