//! The layer beside other layers, over connections, and with clients that leave at any point.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::routing::{any, post};
use redlock_axum::{
    AnswerClaim, AnswerId, AnswerRecord, Answers, AnswersFuture, ClaimResult, IdempotencyLayer,
    LockManager, MemoryAnswers, MemoryNode,
};
use redlock_tests::{Moment, drop_after, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tower::ServiceExt;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;

use super::{Counted, Unscoped, request, route, send};
use crate::SOON;

fn layer() -> Unscoped {
    IdempotencyLayer::new(&LockManager::in_memory(), MemoryAnswers::new())
}

#[tokio::test]
async fn behind_a_nested_router_the_whole_path_counts() {
    let counted = Counted::default();
    let inner = route(counted.handler(), layer());
    let app = Router::new().nest("/shop/{id}", inner);
    let to = |path: &str| {
        let mut request = request("nested", "");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    assert_eq!(send(&app, to("/shop/1/pay")).await.body, "payment 1");
    assert!(send(&app, to("/shop/1/pay")).await.is_replayed());
    send(&app, to("/shop/2/pay")).await.is(422, "key_reused");
}

/// Sends a request of a client that accepts gzip. Returns the encoding, and the answer with its bytes as they are.
async fn gzipped(app: &Router, key: &str) -> (Option<HeaderValue>, Vec<u8>, bool) {
    let mut request = request(key, "");
    request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let response = app.clone().oneshot(request).await.unwrap();
    let encoding = response.headers().get(header::CONTENT_ENCODING).cloned();
    let is_replayed = response.headers().contains_key("idempotency-replayed");
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (encoding, body.to_vec(), is_replayed)
}

#[tokio::test]
async fn a_compression_outside_compresses_the_replay_and_one_inside_is_stored() {
    let layer = layer().scope(super::customer).unwrap();
    // Longer than the shortest body that is compressed.
    let text = "payment ".repeat(100);
    let handler = || {
        any({
            let text = text.clone();
            move || async move { text }
        })
    };
    let plain = Router::new().route("/pay", handler()).layer(layer.clone());
    let outside = plain.clone().layer(CompressionLayer::new());
    let (encoding, first, is_replayed) = gzipped(&outside, "outside").await;
    assert_eq!((encoding.unwrap(), is_replayed), (HeaderValue::from_static("gzip"), false));
    assert!(first.starts_with(&[0x1f, 0x8b]) && first.len() < text.len());
    let (encoding, replay, is_replayed) = gzipped(&outside, "outside").await;
    assert_eq!((encoding.unwrap(), is_replayed), (HeaderValue::from_static("gzip"), true));
    assert_eq!(replay, first);
    // The uncompressed answer is stored, for a client that accepts no gzip.
    let replay = send(&outside, request("outside", "")).await;
    assert_eq!((replay.body, replay.headers.get("content-encoding")), (text.clone(), None));
    // A compression inside is stored with its encoding.
    let inside = Router::new().route("/pay", handler()).layer(CompressionLayer::new()).layer(layer);
    let (_, first, _) = gzipped(&inside, "inside").await;
    let (encoding, replay, is_replayed) = gzipped(&plain, "inside").await;
    assert_eq!((encoding.unwrap(), is_replayed), (HeaderValue::from_static("gzip"), true));
    assert_eq!(replay, first);
}

#[tokio::test]
async fn a_preflight_passes_by_and_a_replay_has_the_headers_of_cors() {
    let counted = Counted::default();
    for app in [
        route(counted.handler(), layer()).layer(CorsLayer::permissive()),
        Router::new()
            .route("/pay", counted.handler())
            .layer(CorsLayer::permissive())
            .layer(layer().scope(super::customer).unwrap()),
    ] {
        counted.0.store(0, std::sync::atomic::Ordering::SeqCst);
        let preflight = Request::builder()
            .method(Method::OPTIONS)
            .uri("/pay")
            .header("origin", "https://shop.example")
            .header("access-control-request-method", "POST")
            .body(Body::empty())
            .unwrap();
        let answer = send(&app, preflight).await;
        assert_eq!(answer.headers["access-control-allow-origin"], "*");
        let make = || {
            let mut request = request("cors", "");
            request
                .headers_mut()
                .insert("origin", HeaderValue::from_static("https://shop.example"));
            request
        };
        assert_eq!(send(&app, make()).await.body, "payment 1");
        assert!(send(&app, make()).await.is_replayed());
    }
}

#[tokio::test]
async fn after_a_time_limit_outside_the_repetition_gets_the_answer() {
    let (counted, gate) = (Counted::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let (runs, waits) = (counted.clone(), Arc::clone(&gate));
    let handler = any(move || async move {
        let run = runs.run();
        waits.acquire().await.unwrap().forget();
        format!("payment {run}")
    });
    let limit =
        TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(300));
    let app = route(handler, layer().wait(SOON));
    let limited = app.clone().layer(limit);
    assert_eq!(send(&limited, request("limited", "")).await.status, 504);
    gate.add_permits(1);
    let replay = send(&app, request("limited", "")).await;
    assert!(replay.is_replayed() && replay.body == "payment 1", "{replay:?}");
}

/// Serves the application over TCP.
async fn serve(app: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn open_app(counted: &Counted) -> Router {
    let layer = layer().shared_scope().unwrap();
    Router::new().route("/pay", counted.handler()).layer(layer)
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_asked_for_its_body() {
    let counted = Counted::default();
    let address = serve(open_app(&counted)).await;
    for is_replayed in [false, true] {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = "POST /pay HTTP/1.1\r\nhost: shop\r\nidempotency-key: \"expects\"\r\ncontent-length: 3\r\n\
                    expect: 100-continue\r\nconnection: close\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let mut begin = [0; 25];
        client.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(b"100").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 201") && answer.ends_with("payment 1"), "{answer}");
        assert_eq!(answer.contains("idempotency-replayed: true"), is_replayed, "{answer}");
    }
    // Without a key, the body is not asked for.
    let mut client = TcpStream::connect(address).await.unwrap();
    let head =
        "POST /pay HTTP/1.1\r\nhost: shop\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    client.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 400");
}

#[tokio::test]
async fn http_2_has_the_same_answers() {
    let counted = Counted::default();
    let address = serve(open_app(&counted)).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    for is_replayed in [false, true] {
        let request = client.post(format!("http://{address}/pay")).header("idempotency-key", "h2");
        let answer = request.body("100").send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (201, reqwest::Version::HTTP_2));
        assert_eq!(answer.headers().contains_key("idempotency-replayed"), is_replayed);
        assert_eq!(answer.text().await.unwrap(), "payment 1");
    }
}

/// Answers each operation after some polls.
#[derive(Debug, Clone, Default)]
struct Slow(MemoryAnswers);

macro_rules! slowly {
    ($operation:expr) => {
        Box::pin(async move {
            yield_now().await;
            let done = $operation.await;
            yield_now().await;
            done
        })
    };
}

impl Answers for Slow {
    fn load<'a>(&'a self, id: &'a AnswerId) -> AnswersFuture<'a, Option<AnswerRecord>> {
        slowly!(self.0.load(id))
    }

    fn claim<'a>(&'a self, id: &'a AnswerId, claim: AnswerClaim) -> AnswersFuture<'a, ClaimResult> {
        slowly!(self.0.claim(id, claim))
    }

    fn store<'a>(
        &'a self,
        id: &'a AnswerId,
        number: i64,
        answer: Bytes,
        keep: Duration,
    ) -> AnswersFuture<'a, bool> {
        slowly!(self.0.store(id, number, answer, keep))
    }

    fn forget<'a>(&'a self, id: &'a AnswerId, number: i64) -> AnswersFuture<'a, ()> {
        slowly!(self.0.forget(id, number))
    }
}

/// The request is dropped after each number of polls. The next one is answered, and no lock stays.
#[tokio::test]
async fn a_request_that_is_dropped_at_any_poll_blocks_no_other_one() {
    for with_client in [false, true] {
        for moment in [Moment::AtOnce, Moment::WhenWoken] {
            let mut is_done = false;
            for polls in 0.. {
                let node = MemoryNode::new();
                let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
                let (counted, answers) = (Counted::default(), Slow::default());
                let layer = IdempotencyLayer::new(&locks, answers.clone()).wait(SOON);
                let layer = if with_client { layer.with_client() } else { layer };
                let ended = Counted::default();
                let (runs, ends) = (counted.clone(), ended.clone());
                let handler = post(move || async move {
                    let run = runs.run();
                    yield_now().await;
                    ends.run();
                    format!("payment {run}")
                });
                let app = route(handler, layer);
                let dropped = drop_after(polls, moment, send(&app, request("dropped", ""))).await;
                is_done = dropped.is_some();
                let answer = send(&app, request("dropped", "")).await;
                assert_eq!(answer.status, 200, "{polls} polls");
                // Work that has ended is repeated only if its client has left before the answer was stored.
                let most = if with_client { 2 } else { 1 };
                assert!((1..=most).contains(&counted.runs()), "{polls} polls: {}", counted.runs());
                assert!(ended.runs() >= 1);
                eventually("the locks are released", SOON, async || node.is_empty().then_some(()))
                    .await;
                let replay = send(&app, request("dropped", "")).await;
                assert!(replay.is_replayed() && replay.body == answer.body, "{polls} polls");
                if is_done {
                    break;
                }
            }
            assert!(is_done);
        }
    }
}
