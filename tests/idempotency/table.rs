//! Every row of the table of answers, over each store.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::routing::{any, post};
use redlock_axum::{AnswerId, Idempotency, StoredAnswer};
use redlock_tests::{Nodes, on_each_kind_of_nodes};

use super::in_flight::{
    a_client_that_leaves_changes_nothing,
    a_repetition_is_refused_or_waits_while_the_first_request_runs,
    another_request_with_the_same_key_is_refused,
};
use super::outcomes::{
    a_panic_is_not_stored, a_refusal_by_a_nested_lock_is_not_stored,
    a_temporary_answer_is_not_stored, an_answer_that_is_not_kept_is_sent_once,
    an_unfinished_request_runs_again_or_is_refused,
};
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
    // A key that cannot be used is a mistake also where a key is optional.
    let optional = route(counted.handler(), copy.layer().optional());
    send(&optional, request("a b", "")).await.is(400, "invalid_key");
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
    // The layer sends the answer that the handler has stored itself. The bytes of an answer need no transaction here.
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
