//! Rows of the table of answers: requests that come while the first one runs, or whose client leaves.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use axum::routing::{MethodRouter, any};
use tokio::sync::{Notify, Semaphore};

use super::{Answer, Copy, Counted, SOON, Stage, decided, request, route, send};

/// A handler that says when it has begun, and waits for a permit.
fn slow(counted: &Counted) -> (MethodRouter, Arc<Notify>, Arc<Semaphore>) {
    let (begun, permits) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (counted, begins, waits) = (counted.clone(), Arc::clone(&begun), Arc::clone(&permits));
    let handler = any(move || async move {
        let run = counted.run();
        begins.notify_one();
        waits.acquire().await.unwrap().forget();
        format!("payment {run}")
    });
    (handler, begun, permits)
}

/// Sends a request until its handler has begun.
async fn begin(
    app: &Router,
    make: impl Fn() -> Request<Body> + Send + 'static,
    begun: &Notify,
) -> tokio::task::JoinHandle<Answer> {
    let app = app.clone();
    let sent = tokio::spawn(async move { decided(&app, make).await });
    begun.notified().await;
    sent
}

pub(crate) async fn a_repetition_is_refused_or_waits_while_the_first_request_runs(stage: &Stage) {
    let counted = Counted::default();
    let (handler, begun, permits) = slow(&counted);
    let (first, second) = (stage.copy().await, stage.copy().await);
    let app = first.app(handler.clone());
    let sent = begin(&app, || request("slow", ""), &begun).await;
    for copy in [&first, &second] {
        let refused = decided(&copy.app(handler.clone()), || request("slow", "")).await;
        refused.is(409, "in_flight");
        let seconds: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=5).contains(&seconds), "{seconds}");
    }
    let wait = |copy: &Copy| {
        let app = route(handler.clone(), copy.layer().wait(Duration::from_secs(60)));
        tokio::spawn(async move { decided(&app, || request("slow", "")).await })
    };
    let waiting = [wait(&first), wait(&second)];
    let app = route(handler.clone(), first.layer().wait(Duration::from_millis(100)));
    decided(&app, || request("slow", "")).await.is(409, "in_flight");
    permits.add_permits(1);
    let answer = sent.await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "payment 1"));
    for waited in waiting {
        let waited = waited.await.unwrap();
        assert!(waited.is_replayed() && waited.body == "payment 1", "{waited:?}");
    }
    assert_eq!(counted.runs(), 1);
}

pub(crate) async fn another_request_with_the_same_key_is_refused(stage: &Stage) {
    let counted = Counted::default();
    let (handler, begun, permits) = slow(&counted);
    let copy = stage.copy().await;
    let app = copy.app(handler);
    let sent = begin(&app, || request("reused", "100"), &begun).await;
    send(&app, request("reused", "200")).await.is(422, "key_reused");
    permits.add_permits(1);
    assert_eq!(sent.await.unwrap().status, 200);
    send(&app, request("reused", "200")).await.is(422, "key_reused");
    let mut other = request("reused", "100");
    *other.uri_mut() = "/pay?twice".parse().unwrap();
    send(&app, other).await.is(422, "key_reused");
    let mut other = request("reused", "100");
    *other.method_mut() = Method::PUT;
    send(&app, other).await.is(422, "key_reused");
    assert!(send(&app, request("reused", "100")).await.is_replayed());
    assert_eq!(counted.runs(), 1);
}

pub(crate) async fn a_client_that_leaves_changes_nothing(stage: &Stage) {
    let copy = stage.copy().await;
    let counted = Counted::default();
    let (handler, begun, permits) = slow(&counted);
    let app = copy.app(handler.clone());
    let sent = begin(&app, || request("leaves", ""), &begun).await;
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    permits.add_permits(1);
    let app = route(handler.clone(), copy.layer().wait(Duration::from_secs(60)));
    let replay = decided(&app, || request("leaves", "")).await;
    assert!(replay.is_replayed() && replay.body == "payment 1", "{replay:?}");
    assert_eq!(counted.runs(), 1);
    // With the client, the handler is dropped, and the next one runs it.
    let app = route(handler, copy.layer().with_client());
    let sent = begin(&app, || request("with-client", ""), &begun).await;
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    permits.add_permits(1);
    let answer = until_free(&app, || request("with-client", "")).await;
    assert_eq!(answer.body, "payment 3");
}

/// Sends a request until the lock of an abandoned one is released in the background.
async fn until_free(app: &Router, make: impl Fn() -> Request<Body>) -> Answer {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let answer = decided(app, &make).await;
        if answer.status != 409 || tokio::time::Instant::now() > deadline {
            return answer;
        }
    }
}
