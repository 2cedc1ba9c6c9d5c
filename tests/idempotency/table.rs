//! Every row of the table of answers, over each store.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use redlock_axum::{
    AnswerClaim, AnswerId, ClaimResult, Fingerprint, Idempotency, LockManager, StoredAnswer,
    Unfinished, redis_lock,
};
use redlock_tests::{Nodes, on_each_kind_of_nodes};
use tokio::sync::{Notify, Semaphore};

use super::{Counted, Stage, by, decided, request, route, send};

async fn every_row(nodes: Nodes) {
    let stage = Stage::new(nodes);
    macro_rules! rows {
        ($($row:ident)+) => {
            $(println!(stringify!($row));
            Box::pin($row(&stage)).await;)+
        };
    }
    rows! {
        a_request_without_a_key_is_refused_or_passes
        a_malformed_key_is_refused
        a_repetition_gets_the_stored_answer
        the_answer_has_chosen_headers_only
        a_repetition_is_refused_or_waits_while_the_first_request_runs
        another_request_with_the_same_key_is_refused
        a_temporary_answer_is_not_stored
        a_panic_is_not_stored
        a_refusal_by_a_nested_lock_is_not_stored
        an_unfinished_request_runs_again_or_is_refused
        a_long_body_is_refused
        an_answer_that_is_not_kept_is_sent_once
        a_stranger_sees_nothing
        a_client_that_leaves_changes_nothing
        a_handler_knows_its_key
    }
    stage.nodes.become_empty().await;
}

on_each_kind_of_nodes! {
    [
        memory: Nodes::memory(1),
        redis: Nodes::redis(1).await,
        redis_x5: Nodes::redis(5).await,
        postgres: Nodes::postgres(1, 0).await,
    ]
    run_nodes [every_row,]
}

async fn run_nodes(nodes: Nodes, behaviour: impl AsyncFn(Nodes)) {
    behaviour(nodes).await;
}

fn without_key() -> Request<Body> {
    let mut request = request("x", "");
    request.headers_mut().remove("idempotency-key");
    request
}

async fn a_request_without_a_key_is_refused_or_passes(stage: &Stage) {
    let (copy, counted) = (stage.copy().await, Counted::default());
    send(&copy.app(counted.handler()), without_key()).await.is(400, "missing_key");
    assert_eq!(counted.runs(), 0);
    let optional = route(counted.handler(), copy.layer().optional());
    for run in 1..=2 {
        let answer = send(&optional, without_key()).await;
        assert_eq!((answer.status, answer.body), (201, format!("payment {run}")));
    }
    // GET, HEAD and OPTIONS pass by, with and without a key.
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        let mut request = request("passes", "");
        *request.method_mut() = method;
        assert_eq!(send(&copy.app(counted.handler()), request).await.status, 201);
    }
    assert_eq!(counted.runs(), 5);
    let app = route(counted.handler(), copy.layer().methods([Method::GET]));
    for _ in 0..2 {
        let get = || {
            let mut request = request("get", "");
            *request.method_mut() = Method::GET;
            request
        };
        assert_eq!(decided(&app, get).await.body, "payment 6");
    }
}

async fn a_malformed_key_is_refused(stage: &Stage) {
    let (copy, counted) = (stage.copy().await, Counted::default());
    let app = copy.app(counted.handler());
    for key in ["", "\"\"", "a b", "\"a", "a,b"] {
        send(&app, request(key, "")).await.is(400, "invalid_key");
    }
    let mut twice = request("a", "");
    twice.headers_mut().append("idempotency-key", HeaderValue::from_static("a"));
    send(&app, twice).await.is(400, "invalid_key");
    let mut long = request("a", "");
    let value = HeaderValue::from_bytes(&[b'k'; 256]).unwrap();
    long.headers_mut().insert("idempotency-key", value);
    send(&app, long).await.is(400, "invalid_key");
    assert_eq!(counted.runs(), 0);
}

async fn a_repetition_gets_the_stored_answer(stage: &Stage) {
    let (first, second, counted) = (stage.copy().await, stage.copy().await, Counted::default());
    let (first, second) = (first.app(counted.handler()), second.app(counted.handler()));
    let make = || request("\"again\"", "100");
    let answer = decided(&first, make).await;
    assert_eq!((answer.status, answer.body.as_str()), (201, "payment 1"));
    assert!(!answer.is_replayed());
    for app in [&first, &second] {
        // The same key without quotes.
        for key in ["\"again\"", "again"] {
            let replay = send(app, request(key, "100")).await;
            assert_eq!((replay.status, replay.body.as_str()), (201, "payment 1"), "{replay:?}");
            assert!(replay.is_replayed());
        }
    }
    assert_eq!(counted.runs(), 1);
    assert_eq!(decided(&second, || request("other", "100")).await.body, "payment 2");
}

async fn the_answer_has_chosen_headers_only(stage: &Stage) {
    let copy = stage.copy().await;
    let handler = any(|| async {
        let headers = [
            (header::CONTENT_TYPE, "application/json"),
            (header::LOCATION, "/payments/1"),
            (header::ETAG, "\"1\""),
            (header::SET_COOKIE, "session=1"),
            (header::DATE, "Sat, 28 Nov 2026 00:00:00 GMT"),
            (header::SERVER, "shop"),
            (header::LINK, "</x>"),
        ];
        (StatusCode::ACCEPTED, headers, "{}\u{0}é")
    });
    let app = route(handler, copy.layer().store_header(header::LINK));
    let first = decided(&app, || request("headers", "")).await;
    assert_eq!(first.headers["set-cookie"], "session=1");
    let replay = send(&app, request("headers", "")).await;
    assert_eq!((replay.status, replay.body.as_str()), (202, "{}\u{0}é"));
    let names: std::collections::BTreeSet<_> =
        replay.headers.keys().map(|name| name.as_str().to_owned()).collect();
    let expected = ["content-type", "etag", "idempotency-replayed", "link", "location"];
    let kept: Vec<_> = names.iter().filter(|name| *name != "content-length").collect();
    assert_eq!(kept, expected);
    assert_eq!(replay.headers["location"], "/payments/1");
}

/// A handler that says when it has begun, and waits for a permit.
fn slow(counted: &Counted) -> (axum::routing::MethodRouter, Arc<Notify>, Arc<Semaphore>) {
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
    app: &axum::Router,
    make: impl Fn() -> Request<Body> + Send + 'static,
    begun: &Notify,
) -> tokio::task::JoinHandle<super::Answer> {
    let app = app.clone();
    let sent = tokio::spawn(async move { decided(&app, make).await });
    begun.notified().await;
    sent
}

async fn a_repetition_is_refused_or_waits_while_the_first_request_runs(stage: &Stage) {
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
    let wait = |copy: &super::Copy| {
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

async fn another_request_with_the_same_key_is_refused(stage: &Stage) {
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

async fn a_temporary_answer_is_not_stored(stage: &Stage) {
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
        let app = route(handler(counted.clone()), copy.layer().store_if(|_, _| true));
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

async fn a_panic_is_not_stored(stage: &Stage) {
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

async fn a_refusal_by_a_nested_lock_is_not_stored(stage: &Stage) {
    #[redis_lock(key = "nested")]
    async fn pay() -> &'static str {
        "paid"
    }
    let copy = stage.copy().await;
    let handler: axum::routing::MethodRouter = any(pay).with_state(copy.locks.clone());
    let app = copy.app(handler);
    let guard = copy.locks.lock("nested").acquire().await.unwrap();
    let refused = decided(&app, || request("nested", "")).await;
    refused.is(409, "contended");
    guard.release().await.unwrap();
    assert_eq!(decided(&app, || request("nested", "")).await.body, "paid");
    assert!(send(&app, request("nested", "")).await.is_replayed());
}

async fn an_unfinished_request_runs_again_or_is_refused(stage: &Stage) {
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
    decided(&app, || request("late", "1")).await.is(409, "in_flight");
    assert_eq!(counted.runs(), 2);
}

async fn a_long_body_is_refused(stage: &Stage) {
    let (copy, counted) = (stage.copy().await, Counted::default());
    let app = route(counted.handler(), copy.layer().body_limit(3));
    send(&app, request("long-body", "four")).await.is(413, "body_too_large");
    assert_eq!(counted.runs(), 0);
    let mut broken = request("broken", "");
    let error = futures_util::stream::once(async { Err::<&str, _>(std::io::Error::other("cut")) });
    *broken.body_mut() = Body::from_stream(error);
    send(&app, broken).await.is(400, "body_unreadable");
    assert_eq!(decided(&app, || request("long-body", "123")).await.status, 201);
    assert_eq!(counted.runs(), 1);
}

type MakeResponse = Box<dyn Fn() -> Response + Send + Sync>;

async fn an_answer_that_is_not_kept_is_sent_once(stage: &Stage) {
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
    let cases: [(&str, MakeResponse, Option<&str>); 4] = [
        ("long", Box::new(long), Some("12345")),
        ("chunks", Box::new(move || chunks(vec![Ok("123"), Ok("45")])), Some("12345")),
        ("events", Box::new(events), Some("data")),
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

async fn a_stranger_sees_nothing(stage: &Stage) {
    let (copy, counted) = (stage.copy().await, Counted::default());
    let app = copy.app(counted.handler());
    assert_eq!(decided(&app, || request("private", "")).await.body, "payment 1");
    for (run, stranger) in (2..).zip(["8", "7 ", "%37", "7:private"]) {
        let answer = decided(&app, || by(request("private", ""), stranger)).await;
        assert_eq!(
            (answer.body, answer.headers.get("idempotency-replayed")),
            (format!("payment {run}"), None)
        );
    }
    let mut nobody = request("private", "");
    nobody.extensions_mut().clear();
    send(&app, nobody).await.is(500, "misconfigured");
    send(&app, by(request("private", ""), "")).await.is(500, "misconfigured");
    // The keys of a shared scope are no keys of a customer.
    let shared = copy.layer().shared_scope().unwrap();
    let shared = axum::Router::new().route("/pay", counted.handler()).layer(shared);
    assert_eq!(decided(&shared, || request("private", "")).await.body, "payment 6");
    assert_eq!(decided(&shared, || by(request("private", ""), "9")).await.body, "payment 6");
}

async fn a_client_that_leaves_changes_nothing(stage: &Stage) {
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
async fn until_free(app: &axum::Router, make: impl Fn() -> Request<Body>) -> super::Answer {
    let deadline = tokio::time::Instant::now() + crate::SOON;
    loop {
        let answer = decided(app, &make).await;
        if answer.status != 409 || tokio::time::Instant::now() > deadline {
            return answer;
        }
    }
}

async fn a_handler_knows_its_key(stage: &Stage) {
    let copy = stage.copy().await;
    let app = copy.app(post(async |idempotency: Idempotency| {
        let row = idempotency.row();
        assert!(row.number > 0);
        assert_eq!(row.key, idempotency.key());
        format!("{} {}", row.scope, row.key)
    }));
    assert_eq!(decided(&app, || request("\"my \\\"key\\\"\"", "")).await.body, "7 my \"key\"");
    // Without the layer, an optional one is none, and another one is a mistake.
    let optional = any(async |idempotency: Option<Idempotency>| idempotency.is_some().to_string());
    let app = axum::Router::new().route("/pay", optional);
    assert_eq!(send(&app, request("x", "")).await.body, "false");
    let app = axum::Router::new().route("/pay", any(async |_: Idempotency| {}));
    send(&app, request("x", "")).await.is(500, "misconfigured");
    // What the handler has stored itself is sent. The bytes of an answer need no transaction here.
    let answers = Arc::clone(&copy.answers);
    let handler = post(move |idempotency: Idempotency| async move {
        let row = idempotency.row();
        let answer = StoredAnswer::new(StatusCode::CREATED, "stored by the handler");
        let id = AnswerId::new(row.scope, row.key);
        let keep = Duration::from_secs(300);
        assert!(answers.store(&id, row.number, answer.to_bytes(), keep).await.unwrap());
        // A response that would not be stored.
        StatusCode::INTERNAL_SERVER_ERROR
    });
    let app = route(handler, copy.layer().stored_by_handler());
    for is_replayed in [false, true] {
        let answer = decided(&app, || request("by-handler", "")).await;
        assert_eq!((answer.status, answer.body.as_str()), (201, "stored by the handler"));
        assert_eq!(answer.is_replayed(), is_replayed);
    }
    let counted = Counted::default();
    let app = route(counted.handler(), copy.layer().stored_by_handler());
    for _ in 0..2 {
        assert_eq!(decided(&app, || request("by-layer", "")).await.body, "payment 1");
    }
}

/// The locks of the layer need numbers that grow.
#[tokio::test]
async fn a_layer_whose_options_are_wrong_is_not_made() {
    let locks = LockManager::in_memory();
    let layer = || redlock_axum::IdempotencyLayer::new(&locks, redlock_axum::MemoryAnswers::new());
    for (made, words) in [
        (
            layer().keep(Duration::from_millis(999)).shared_scope(),
            "keep is 999ms, but must be from 1 s",
        ),
        (layer().keep(Duration::from_secs(367 * 86_400)).shared_scope(), "366 days"),
        (layer().body_limit(0).shared_scope(), "body_limit is 0"),
        (layer().body_limit(usize::MAX).shared_scope(), "body_buffers"),
        (layer().answer_limit((64 << 20) + 1).shared_scope(), "answer_limit"),
        (layer().store_header(header::SET_COOKIE).shared_scope(), "store_header is set-cookie"),
        (layer().store_header(header::TRANSFER_ENCODING).shared_scope(), "store_header"),
        (layer().methods([]).shared_scope(), "methods"),
        (layer().wait(Duration::MAX).shared_scope(), "wait_time"),
    ] {
        let error = made.map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(layer().keep(Duration::from_secs(1)).answer_limit(0).shared_scope().is_ok());
    let unready = layer().scope(|_| None).unwrap();
    assert!(format!("{unready:?}").contains("MemoryAnswers"));
}
