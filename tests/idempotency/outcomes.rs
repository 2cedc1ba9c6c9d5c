//! Rows of the table of answers: which outcomes of a request are stored.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, post};
use http_body::Frame;
use redlock_axum::{
    AnswerClaim, AnswerId, ClaimResult, Fingerprint, Idempotency, Unfinished, redis_lock,
};

use super::{Counted, Stage, decided, request, route, send};

pub(crate) async fn a_temporary_answer_is_not_stored(stage: &Stage) {
    let copy = stage.copy().await;
    for status in [401, 403, 408, 409, 425, 429, 500, 503] {
        let counted = Counted::default();
        let handler = |counted: Counted| {
            any(move || async move {
                if counted.run() == 1 {
                    (StatusCode::from_u16(status).unwrap(), "later").into_response()
                } else {
                    "paid".into_response()
                }
            })
        };
        let key = format!("status-{status}");
        let app = copy.app(handler(counted.clone()));
        // With a refusal of the layer itself, the handler has not run.
        while counted.runs() == 0 {
            send(&app, request(&key, "")).await;
        }
        assert_eq!(decided(&app, || request(&key, "")).await.body, "paid", "{status}");
        assert_eq!(counted.runs(), 2, "{status}");
        assert!(send(&app, request(&key, "")).await.is_replayed(), "{status}");
        // The application decides otherwise.
        let counted = Counted::default();
        let key = format!("stored-{status}");
        let store_all = |_: &Parts, by_default: bool| {
            assert!(!by_default);
            true
        };
        let app = route(handler(counted.clone()), copy.layer().store_if(store_all));
        while counted.runs() == 0 {
            send(&app, request(&key, "")).await;
        }
        let replay = send(&app, request(&key, "")).await;
        assert_eq!((replay.status, replay.is_replayed()), (status, true));
    }
    let counted = Counted::default();
    let app = route(
        counted.handler(),
        copy.layer().store_if(|parts, by_default| {
            assert!(by_default);
            parts.status != StatusCode::CREATED
        }),
    );
    for run in 1..=2 {
        let answer = decided(&app, || request("never", "")).await;
        assert_eq!(answer.body, format!("payment {run}"));
    }
}

pub(crate) async fn a_panic_is_not_stored(stage: &Stage) {
    let (copy, counted) = (stage.copy().await, Counted::default());
    let handler = {
        let counted = counted.clone();
        any(move || async move {
            assert!(counted.run() > 1, "the first run");
            "paid"
        })
    };
    for with_client in [false, true] {
        let layer = copy.layer().unfinished(Unfinished::Refuse);
        let app = route(handler.clone(), if with_client { layer.with_client() } else { layer });
        let key = format!("panic-{with_client}");
        let runs = counted.runs();
        counted.0.store(0, std::sync::atomic::Ordering::SeqCst);
        while counted.runs() == 0 {
            let app = app.clone();
            let key = key.clone();
            let sent = tokio::spawn(async move { send(&app, request(&key, "")).await.status });
            if counted.runs() > runs {
                assert!(sent.await.unwrap_err().is_panic());
            } else {
                let _ = sent.await;
            }
        }
        assert_eq!(decided(&app, || request(&key, "")).await.body, "paid");
    }
}

pub(crate) async fn a_refusal_by_a_nested_lock_is_not_stored(stage: &Stage) {
    #[redis_lock(key = "nested")]
    async fn pay() -> &'static str {
        "paid"
    }
    let copy = stage.copy().await;
    let handler: MethodRouter = any(pay).with_state(copy.locks.clone());
    let app = copy.app(handler);
    let guard = copy.locks.lock("nested").acquire().await.unwrap();
    let refused = decided(&app, || request("nested", "")).await;
    refused.is(409, "contended");
    guard.release().await.unwrap();
    assert_eq!(decided(&app, || request("nested", "")).await.body, "paid");
    assert!(send(&app, request("nested", "")).await.is_replayed());
}

pub(crate) async fn an_unfinished_request_runs_again_or_is_refused(stage: &Stage) {
    let (copy, counted) = (stage.copy().await, Counted::default());
    // The fingerprint of the request, as a handler sees it.
    let seen = Arc::new(std::sync::Mutex::new(None));
    let writer = Arc::clone(&seen);
    let app = copy.app(post(move |idempotency: Idempotency| async move {
        *writer.lock().unwrap() = Some(idempotency.fingerprint());
    }));
    decided(&app, || request("seen", "1")).await;
    let fingerprint: Fingerprint = seen.lock().unwrap().unwrap();
    let keep = Duration::from_secs(300);
    let killed = |key: &'static str, number| {
        let answers = Arc::clone(&copy.answers);
        async move {
            let claim = AnswerClaim::new(number, fingerprint, keep);
            let claimed = answers.claim(&AnswerId::new("7", key), claim).await.unwrap();
            assert_eq!(claimed, ClaimResult::Claimed);
        }
    };
    for (number, key) in [(1, "run-again"), (1, "refused"), ((1 << 53) - 1, "late")] {
        killed(key, number).await;
    }
    let refusing = route(counted.handler(), copy.layer().unfinished(Unfinished::Refuse));
    decided(&refusing, || request("refused", "1")).await.is(409, "outcome_unknown");
    assert_eq!(counted.runs(), 0);
    let app = copy.app(counted.handler());
    send(&app, request("run-again", "2")).await.is(422, "key_reused");
    assert_eq!(decided(&app, || request("run-again", "1")).await.body, "payment 1");
    assert!(send(&app, request("run-again", "1")).await.is_replayed());
    assert_eq!(decided(&app, || request("refused", "1")).await.body, "payment 2");
    // The claim of a later holder.
    let refused = decided(&app, || request("late", "1")).await;
    refused.is(409, "in_flight");
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(counted.runs(), 2);
}

type MakeResponse = Box<dyn Fn() -> Response + Send + Sync>;

/// A body of one frame, with trailers.
#[derive(Default)]
struct WithTrailers(usize);

impl HttpBody for WithTrailers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0 += 1;
        Poll::Ready(match self.0 {
            1 => Some(Ok(Frame::data(Bytes::from_static(b"1234")))),
            2 => Some(Ok(Frame::trailers(HeaderMap::new()))),
            _ => None,
        })
    }
}

pub(crate) async fn an_answer_that_is_not_kept_is_sent_once(stage: &Stage) {
    let copy = stage.copy().await;
    let long = || Response::new(Body::from("12345"));
    let chunks = |chunks: Vec<Result<&'static str, std::io::Error>>| {
        Response::new(Body::from_stream(futures_util::stream::iter(chunks)))
    };
    let events = || {
        let mut response = Response::new(Body::from("data"));
        let value = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, value);
        response
    };
    let cases: [(&str, MakeResponse, Option<&str>); 5] = [
        ("long", Box::new(long), Some("12345")),
        ("chunks", Box::new(move || chunks(vec![Ok("123"), Ok("45")])), Some("12345")),
        ("events", Box::new(events), Some("data")),
        ("trailers", Box::new(|| Response::new(Body::new(WithTrailers::default()))), Some("1234")),
        ("cut", Box::new(move || chunks(vec![Ok("1"), Err(std::io::Error::other("cut"))])), None),
    ];
    for (key, make, body) in cases {
        let (counted, make) = (Counted::default(), Arc::new(make));
        let runs = counted.clone();
        let handler = any(move || async move {
            runs.run();
            make()
        });
        let app = route(handler, copy.layer().answer_limit(4));
        if let Some(body) = body {
            assert_eq!(decided(&app, || request(key, "")).await.body, body, "{key}");
        } else {
            while counted.runs() == 0 {
                let app = app.clone();
                let _ = tokio::spawn(async move { send(&app, request(key, "")).await }).await;
            }
        }
        send(&app, request(key, "")).await.is(409, "answer_not_kept");
        assert_eq!(counted.runs(), 1, "{key}");
    }
    // At the limit, an answer is kept.
    let counted = Counted::default();
    let app = route(counted.handler(), copy.layer().answer_limit("payment 1".len()));
    decided(&app, || request("limit", "")).await;
    assert!(send(&app, request("limit", "")).await.is_replayed());
}
