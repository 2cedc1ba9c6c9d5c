//! When `hold_until = end_of_body` ends a lock, over HTTP/1.1 and HTTP/2: the table of the page `transactions`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use futures_util::{StreamExt, stream};
use redlock_axum::{HoldUntil, LockLayer, LockManager, LockPolicy};
use redlock_tests::eventually;
use reqwest::Client;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::SOON;

/// Keeps back the last piece of a body until the test lets it go.
type Gate = Arc<Semaphore>;

/// Returns a body that sends `first` at once, and `last` when the gate lets it go.
fn pieces(gate: Gate, first: &'static [&'static str], last: &'static [&'static str]) -> Body {
    let wait = stream::once(async move { gate.acquire().await.unwrap().forget() });
    let last = wait.flat_map(move |()| stream::iter(last));
    let pieces = stream::iter(first).chain(last);
    Body::from_stream(pieces.map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes()))))
}

async fn known(State(gate): State<Gate>) -> impl IntoResponse {
    ([(header::CONTENT_LENGTH, "2")], pieces(gate, &["a"], &["b"]))
}

async fn unknown(State(gate): State<Gate>) -> Body {
    pieces(gate, &["a"], &["b"])
}

async fn no_content(State(gate): State<Gate>) -> impl IntoResponse {
    (StatusCode::NO_CONTENT, pieces(gate, &[], &[]))
}

async fn no_length(State(gate): State<Gate>) -> impl IntoResponse {
    ([(header::CONTENT_LENGTH, "0")], pieces(gate, &[], &[]))
}

#[tokio::test]
async fn the_lock_ends_with_the_handler_or_before_the_client_has_the_whole_body() {
    let (locks, gate) = (LockManager::in_memory(), Gate::new(Semaphore::new(0)));
    let policy = LockPolicy::new("a").hold_until(HoldUntil::EndOfBody);
    let app = Router::new()
        .route("/empty", post(async || {}))
        .route("/text", get(async || "text"))
        .route("/no-content", post(no_content))
        .route("/no-length", post(no_length))
        .route("/known", post(known))
        .route("/unknown", post(unknown))
        .route_layer(LockLayer::new(&locks, policy).unwrap())
        .with_state(gate.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let is_held = || !locks.snapshot().held.is_empty();

    let http1 = Client::builder().http1_only().build().unwrap();
    let http2 = Client::builder().http2_prior_knowledge().build().unwrap();
    for (client, is_http2) in [(http1, false), (http2, true)] {
        for (method, path, held_after_head, body) in [
            (Method::POST, "/empty", false, ""),
            (Method::HEAD, "/text", false, ""),
            (Method::POST, "/no-content", is_http2, ""),
            (Method::POST, "/no-length", is_http2, ""),
            (Method::POST, "/known", true, "ab"),
            (Method::POST, "/unknown", true, "ab"),
        ] {
            let case = format!("{path}, HTTP/2: {is_http2}");
            let request = client.request(method, format!("http://{address}{path}"));
            let response = request.send().await.unwrap();
            assert_eq!(is_held(), held_after_head, "{case}");
            if held_after_head {
                gate.add_permits(1);
            }
            assert_eq!(response.text().await.unwrap(), body, "{case}");
            // A client does not wait for the end of a body that it knows to be empty.
            eventually("the lock is free", SOON, async || (!is_held()).then_some(())).await;
        }
    }
}
