//! However a request ends, its lock does not stay: neither under the attribute, nor under the
//! layer, nor under a policy.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use redlock_axum::{LockLayer, LockManager, LockPolicies, LockPolicy, redis_lock};
use redlock_tests::{Nodes, Servers, eventually};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

/// Longer than any test: what is gone before was released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";
const FRONTS: [&str; 3] = ["/attribute/42", "/layer/42", "/policy/42"];

#[derive(Debug, Clone, Default)]
struct Inside {
    entered: Arc<Notify>,
    entries: Arc<AtomicUsize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Success,
    Error,
    Panic,
    Never,
}

struct Failed;

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        StatusCode::IM_A_TEAPOT.into_response()
    }
}

impl Inside {
    async fn work(&self, end: End) -> Result<&'static str, Failed> {
        self.entries.fetch_add(1, Ordering::SeqCst);
        self.entered.notify_one();
        tokio::task::yield_now().await;
        match end {
            End::Success => Ok("done"),
            End::Error => Err(Failed),
            End::Panic => panic!("on purpose"),
            End::Never => std::future::pending().await,
        }
    }
}

#[redis_lock(key = "order:{id}", expire = "5m")]
async fn attribute(
    Path(id): Path<u64>,
    State(inside): State<Inside>,
    Json(end): Json<End>,
) -> Result<&'static str, Failed> {
    inside.work(end).await
}

async fn plain(State(inside): State<Inside>, Json(end): Json<End>) -> Result<&'static str, Failed> {
    inside.work(end).await
}

struct Service {
    nodes: Nodes,
    locks: LockManager,
    inside: Inside,
    router: Router,
}

impl Service {
    async fn start() -> Self {
        let nodes = Nodes::redis(5).await;
        let locks = nodes.manager().await;
        let inside = Inside::default();
        let layer = LockLayer::new("order:{id:u64}").expire(LONG);
        let policy = LockPolicy::new("/policy/{id}", "order:{id:u64}").expire(LONG);
        let router = Router::new()
            .route("/attribute/{id}", post(attribute))
            .route("/layer/{id}", post(plain).route_layer(layer))
            .route("/policy/{id}", post(plain))
            .layer(LockPolicies::new([policy]).unwrap())
            .layer(Extension(locks.clone()))
            .with_state(inside.clone());
        Self { nodes, locks, inside, router }
    }

    async fn send(&self, front: &str, body: &'static str) -> StatusCode {
        self.router.clone().oneshot(request(front, body)).await.unwrap().status()
    }

    fn entries(&self) -> usize {
        self.inside.entries.load(Ordering::SeqCst)
    }

    /// The end of each test: nothing is left, and the next caller gets the lock.
    async fn is_clean(&self, front: &str) {
        self.nodes.become_empty().await;
        let guard = self.locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        guard.release().await.unwrap();
        self.nodes.become_empty().await;
        assert_eq!(self.send(front, r#""success""#).await, StatusCode::OK, "{front}");
        self.nodes.become_empty().await;
    }
}

fn request(front: &str, body: &'static str) -> Request<Body> {
    Request::post(front)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .unwrap()
}

#[tokio::test]
async fn after_success() {
    let service = Service::start().await;
    for front in FRONTS {
        assert_eq!(service.send(front, r#""success""#).await, StatusCode::OK);
        service.is_clean(front).await;
    }
}

/// Released before the response leaves, so that the client's next request does not meet its own
/// lock.
#[tokio::test]
async fn requests_one_after_another_do_not_meet_their_own_lock() {
    let service = Service::start().await;
    for _ in 0..50 {
        for front in FRONTS {
            assert_eq!(service.send(front, r#""success""#).await, StatusCode::OK, "{front}");
        }
    }
}

#[tokio::test]
async fn after_a_refusal() {
    let service = Service::start().await;
    for front in FRONTS {
        let before = service.entries();
        let guard = service.locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        assert_eq!(service.send(front, r#""success""#).await, StatusCode::CONFLICT);
        assert_eq!(service.entries(), before, "{front} ran without its lock");
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        service.is_clean(front).await;
    }
}

#[tokio::test]
async fn after_an_error_in_the_handler() {
    let service = Service::start().await;
    for front in FRONTS {
        assert_eq!(service.send(front, r#""error""#).await, StatusCode::IM_A_TEAPOT);
        service.is_clean(front).await;
    }
}

#[tokio::test]
async fn after_a_panic_in_the_handler() {
    let service = Service::start().await;
    let router = service.router.clone().layer(CatchPanicLayer::new());
    for front in FRONTS {
        let response = router.clone().oneshot(request(front, r#""panic""#)).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        service.is_clean(front).await;
    }
}

#[tokio::test]
async fn after_the_timeout_of_a_layer_around_it() {
    let service = Service::start().await;
    let timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, SOON / 50);
    let router = service.router.clone().layer(timeout);
    for front in FRONTS {
        let before = service.entries();
        let response = router.clone().oneshot(request(front, r#""never""#)).await.unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(service.entries(), before + 1);
        service.is_clean(front).await;
    }
}

#[tokio::test]
async fn after_an_extractors_rejection() {
    let service = Service::start().await;
    for front in FRONTS {
        let before = service.entries();
        assert_eq!(service.send(front, "no json").await, StatusCode::BAD_REQUEST);
        assert_eq!(service.entries(), before);
        service.is_clean(front).await;
    }
}

/// Extract first, lock second: with the attribute, a wrong request takes no lock.
#[tokio::test]
async fn an_extractors_rejection_under_the_attribute_takes_no_lock() {
    let service = Service::start().await;
    let guard = service.locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(service.send("/attribute/42", "no json").await, StatusCode::BAD_REQUEST);
    assert_eq!(service.send("/layer/42", "no json").await, StatusCode::CONFLICT);
    drop(guard);
}

/// Over a real connection, with the lock seen on the servers in between.
#[tokio::test]
async fn after_a_client_that_goes_away_and_after_a_panic_that_nobody_catches() {
    let service = Service::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, service.router.clone()).into_future());
    let client = reqwest::Client::new();
    let post = |front: &str, body: &'static str| {
        let json = (header::CONTENT_TYPE.as_str(), "application/json");
        client.post(format!("http://{address}{front}")).header(json.0, json.1).body(body).send()
    };

    for front in FRONTS {
        let held = {
            let mut gone = Box::pin(post(front, r#""never""#));
            tokio::select! {
                response = &mut gone => panic!("{response:?}"),
                () = service.inside.entered.notified() => {}
            }
            service.nodes.all_hold(KEY).await;
            // The client is still there: another one is refused.
            post(front, r#""success""#).await.unwrap().status()
        };
        assert_eq!(held, StatusCode::CONFLICT);
        service.is_clean(front).await;

        post(front, r#""panic""#).await.unwrap_err();
        service.is_clean(front).await;
        // Forget that it was entered.
        service.inside.entered.notify_one();
        service.inside.entered.notified().await;
    }
}

/// How a handler's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Returned,
    Dropped,
}

/// What a handler that does not read its body does.
#[derive(Debug, Clone)]
struct Unread {
    entered: Arc<Notify>,
    may_return: Arc<Notify>,
    ended: mpsc::UnboundedSender<Ended>,
}

/// Tells how a run ends, when it does.
struct Run(mpsc::UnboundedSender<Ended>, Ended);

impl Drop for Run {
    fn drop(&mut self) {
        // The test may be over.
        let _ = self.0.send(self.1);
    }
}

impl Unread {
    async fn work(&self) -> &'static str {
        let mut run = Run(self.ended.clone(), Ended::Dropped);
        self.entered.notify_one();
        self.may_return.notified().await;
        run.1 = Ended::Returned;
        "done"
    }
}

#[redis_lock(key = "order:{id}", expire = "5m")]
async fn unread_attribute(Path(id): Path<u64>, State(unread): State<Unread>) -> &'static str {
    unread.work().await
}

async fn unread_plain(State(unread): State<Unread>) -> &'static str {
    unread.work().await
}

/// With a body that nobody reads, more than fits into the sockets, the server does not look at the
/// connection until the handler has returned: it runs to its end under its lock, which then goes.
/// With a small one the client's going away is noticed at once.
#[tokio::test]
async fn after_a_client_that_goes_away_while_its_body_is_unread() {
    const LARGE: usize = 64 << 20;
    let nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let unread = Unread { entered: Arc::default(), may_return: Arc::default(), ended };
    let layer = LockLayer::new("order:{id:u64}").expire(LONG);
    let policy = LockPolicy::new("/policy/{id}", "order:{id:u64}").expire(LONG);
    let router = Router::new()
        .route("/attribute/{id}", post(unread_attribute))
        .route("/layer/{id}", post(unread_plain).route_layer(layer))
        .route("/policy/{id}", post(unread_plain))
        .layer(LockPolicies::new([policy]).unwrap())
        .layer(Extension(locks.clone()))
        .with_state(unread.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());

    let enter = async |path: String, length: usize| {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let body = vec![b'x'; length];
        tokio::select! {
            biased;
            () = unread.entered.notified() => {}
            () = async {
                client.write_all(&body).await.unwrap();
                assert!(length < LARGE, "somebody has read it all");
                std::future::pending::<()>().await;
            } => {}
        }
        client
    };
    let mut ended = async || tokio::time::timeout(SOON, ends.recv()).await.unwrap().unwrap();

    for front in FRONTS {
        let large = enter(front.to_owned(), LARGE).await;
        nodes.all_hold(KEY).await;
        drop(large);
        let small = enter(front.replace("42", "43"), 16).await;
        nodes.all_hold("order:43").await;
        drop(small);
        assert_eq!(ended().await, Ended::Dropped, "{front}: the second one, by then");
        let error = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
        assert!(error.is_contended(), "{front}: {error}");
        eventually("the small one's lock is gone", SOON, async || {
            (nodes.locks().await == nodes.count()).then_some(())
        })
        .await;
        unread.may_return.notify_one();
        assert_eq!(ended().await, Ended::Returned, "{front}");
        nodes.become_empty().await;
    }
}

/// More at once than the nodes answer in time: some attempts are given up, and commands queue. None
/// may be overtaken by the release that follows it.
#[tokio::test(flavor = "multi_thread")]
async fn an_overload_leaves_no_key() {
    let servers = Servers::start(3).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(2);
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut granted = 0_u32;
                while std::time::Instant::now() < end {
                    let key = format!("caller:{caller}:{granted}");
                    let request = locks.lock(key).expire(Duration::from_secs(300));
                    if let Ok(guard) = request.try_acquire().await {
                        granted += 1;
                        let _ = guard.release().await;
                    }
                }
                granted
            })
        })
        .collect();
    let mut granted = 0;
    for caller in callers {
        granted += caller.await.unwrap();
    }
    assert!(granted > 100, "{granted}");
    locks.shutdown().await;
    assert_eq!(servers.keys().await, [""; 0]);
}
