//! Refused requests, and answers that are not stored: what their clients get, and what operators see.

use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use redlock_axum::{
    AnswerClaim, AnswerId, Answers, ClaimResult, Idempotency, IdempotencyLayer,
    IdempotencyRejection, IdempotencyRejectionKind, LockManager, MemoryAnswers, Unfinished,
};
use redlock_tests::Logs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use super::played::{Operation, Play, Played};
use super::{Counted, request, route, send};

/// The events of a refusal.
const REFUSED: &str = "a request with an idempotency key was refused";

/// A connection that is closed while its client sends would lose the response.
#[tokio::test]
async fn a_client_that_is_still_sending_gets_its_refusal() {
    const LENGTH: usize = 8 << 20;
    let layer = IdempotencyLayer::new(&LockManager::in_memory(), MemoryAnswers::new());
    let layer = layer.body_limit(16).shared_scope().unwrap();
    let app = Router::new().route("/pay", Counted::default().handler()).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    for (header, status) in [("idempotency-key: a\r\n", "413"), ("", "400")] {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /pay HTTP/1.1\r\nhost: shop\r\n{header}content-length: {LENGTH}\r\nconnection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; LENGTH]).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

/// For layers outside, and for the application.
#[tokio::test]
async fn the_response_to_a_refused_request_has_its_rejection() {
    let layer = || IdempotencyLayer::new(&LockManager::in_memory(), MemoryAnswers::new());
    let own = layer().on_reject(|rejection| (StatusCode::IM_A_TEAPOT, rejection.headers()));
    for (layer, status) in [(layer(), 400), (own, 418)] {
        let app = route(Counted::default().handler(), layer);
        let response = app.oneshot(request("a b", "")).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        let rejection = response.extensions().get::<IdempotencyRejection>().unwrap();
        assert_eq!(rejection.kind(), IdempotencyRejectionKind::InvalidKey);
    }
}

#[tokio::test]
async fn a_refusal_is_logged_once_with_its_route() {
    let logs = Logs::collect();
    let (locks, store) = (LockManager::in_memory(), Played::default());
    let layer = || IdempotencyLayer::new(&locks, store.clone());
    let the_line = |level: &str| {
        assert_eq!(logs.count(level, REFUSED), 1, "{level} {:?}", logs.lines());
        let refused = |line: &String| line.contains(level) && line.contains(REFUSED);
        logs.lines().into_iter().find(refused).unwrap()
    };
    // A client's mistake. The response of the application contains that of the library.
    let app = route(Counted::default().handler(), layer().on_reject(|rejection| rejection));
    send(&app, request("a b", "")).await.is(400, "invalid_key");
    let line = the_line("DEBUG");
    assert!(line.contains("/pay"), "{line}");
    // A failure, behind the reading of the body.
    store.plan(Operation::Load, Play::Fail);
    send(&app, request("a", "")).await.is(503, "unavailable");
    let line = the_line("WARN");
    assert!(line.contains("/pay") && line.contains("as the test says"), "{line}");
    // A mistake of the application.
    let app = Router::new()
        .route("/pay", Counted::default().handler())
        .layer(layer().scope(|_| None).unwrap());
    send(&app, request("a", "")).await.is(500, "misconfigured");
    let line = the_line("ERROR");
    assert!(line.contains("/pay") && line.contains("scope function"), "{line}");
}

/// The handler may have run twice, so an operator has to look.
#[tokio::test]
async fn an_answer_that_comes_after_the_next_claim_is_logged() {
    let logs = Logs::collect();
    let (locks, answers) = (LockManager::in_memory(), MemoryAnswers::new());
    let store = answers.clone();
    let handler = post(async move |idempotency: Idempotency| {
        let row = idempotency.row();
        let (id, keep) = (AnswerId::new(row.scope, row.key), Duration::from_secs(300));
        let later = AnswerClaim::new(row.number + 1, idempotency.fingerprint(), keep);
        assert_eq!(answers.claim(&id, later).await.unwrap(), ClaimResult::Claimed);
        HeaderMap::new()
    });
    let app = route(handler, IdempotencyLayer::new(&locks, store));
    assert_eq!(send(&app, request("late", "")).await.status, 200);
    assert_eq!(logs.count("WARN", "an answer was not stored"), 1, "{:?}", logs.lines());
}

/// Otherwise the next request would be refused, because its claim looks unfinished.
#[tokio::test]
async fn an_answer_that_is_not_stored_leaves_no_claim() {
    let (store, counted) = (MemoryAnswers::new(), Counted::default());
    let runs = counted.clone();
    let handler = post(async move || {
        runs.run();
        StatusCode::BAD_GATEWAY
    });
    let layer = IdempotencyLayer::new(&LockManager::in_memory(), store.clone());
    let app = route(handler, layer.unfinished(Unfinished::Refuse));
    for run in 1..=2 {
        assert_eq!(send(&app, request("temporary", "")).await.status, 502);
        assert_eq!((counted.runs(), store.is_empty()), (run, true));
    }
}
