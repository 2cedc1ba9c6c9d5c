//! The extractors of locked handlers, their return types, and their responses without the lock.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get as on_get, post as on_post};
use axum::{Json, Router, debug_handler};
use redlock_axum::{HeldLock, LockError, LockManager, MemoryNode, redis_lock};
use redlock_logs::Logs;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::support::{app, get, installed, memory, post_json, until_logged};

/// The clock is paused, so that the rest of each lease is the same on a busy machine.
#[tokio::test(start_paused = true)]
async fn the_attribute_sets_the_lease() {
    #[redis_lock(key = "a", expire = 90, installed)]
    async fn seconds(State(node): State<MemoryNode>) -> String {
        node.time_to_live("a").unwrap().as_secs_f64().ceil().to_string()
    }

    #[redis_lock(key = "a", expire = "2m", installed)]
    async fn text(State(node): State<MemoryNode>) -> String {
        node.time_to_live("a").unwrap().as_secs_f64().ceil().to_string()
    }

    let (locks, node) = memory().await;
    let router = Router::new().route("/seconds", on_get(seconds)).route("/text", on_get(text));
    let app = installed(router.with_state(node), &locks);
    assert_eq!(get(&app, "/seconds").await.body, "90");
    assert_eq!(get(&app, "/text").await.body, "120");
}

/// The manager is shut down, so every acquisition fails with 503.
#[tokio::test]
async fn a_request_that_an_extractor_rejects_takes_no_lock() {
    #[redis_lock(key = "order:{id}")]
    async fn pay(Path(id): Path<u64>, Json(_body): Json<Pay>) {}

    let (locks, _) = memory().await;
    locks.shutdown().await;
    let app = app(Router::new().route("/{id}", on_post(pay)), &locks);
    assert_eq!(post_json(&app, "/x", "{}").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(post_json(&app, "/1", "{}").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        post_json(&app, "/1", r#"{"amount":1,"to":"a"}"#).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[derive(Deserialize)]
struct Pay {
    amount: u32,
    to: String,
}

#[tokio::test]
async fn patterns_are_bound_in_the_body_and_in_the_key() {
    #[redis_lock(key = "{shop}:{id}:{amount}:{name}", installed)]
    async fn pay(
        Path((mut id, shop)): Path<(u64, String)>,
        State(node): State<MemoryNode>,
        Json(Pay { amount, to: mut name }): Json<Pay>,
    ) -> String {
        assert!(node.time_to_live("north:7:3:ann").is_some());
        id += 1;
        name.push('!');
        format!("{shop} {id} {amount} {name}")
    }

    let (locks, node) = memory().await;
    let router = Router::new().route("/{id}/{shop}", on_post(pay)).with_state(node);
    let answer =
        post_json(&installed(router, &locks), "/7/north", r#"{"amount":3,"to":"ann"}"#).await;
    assert_eq!(answer.body, "north 8 3 ann!");
}

#[tokio::test]
async fn a_parameter_that_only_the_key_uses_needs_no_underscore() {
    // `deny(warnings)` is on, and `id` causes no warning.
    #[redis_lock(key = "{id}")]
    async fn touch(Path((id, _shop)): Path<(u64, String)>, _headers: HeaderMap) -> &'static str {
        "touched"
    }

    let (locks, _) = memory().await;
    let router = Router::new().route("/{id}/{shop}", on_get(touch));
    assert_eq!(get(&app(router, &locks), "/7/north").await.body, "touched");
}

#[tokio::test]
async fn every_return_type_works() {
    #[redis_lock(key = "a")]
    async fn nothing() {}

    #[redis_lock(key = "a")]
    async fn opaque() -> impl IntoResponse {
        (StatusCode::CREATED, "opaque")
    }

    #[redis_lock(key = "a")]
    async fn result(Path(text): Path<String>) -> Result<Json<u64>, (StatusCode, String)> {
        if text == "early" {
            return Ok(Json(0));
        }
        let number =
            text.parse().map_err(|_| (StatusCode::IM_A_TEAPOT, format!("not a number: {text}")))?;
        Ok(Json(number))
    }

    #[redis_lock(key = "a")]
    async fn response(method: Method) -> Response {
        method.to_string().into_response()
    }

    let (locks, node) = memory().await;
    let router = Router::new()
        .route("/nothing", on_get(nothing))
        .route("/opaque", on_get(opaque))
        .route("/result/{text}", on_get(result))
        .route("/response", on_get(response));
    let app = app(router, &locks);
    for (path, status, body) in [
        ("/nothing", StatusCode::OK, ""),
        ("/opaque", StatusCode::CREATED, "opaque"),
        ("/result/early", StatusCode::OK, "0"),
        ("/result/42", StatusCode::OK, "42"),
        ("/result/x", StatusCode::IM_A_TEAPOT, "not a number: x"),
        ("/response", StatusCode::OK, "GET"),
    ] {
        let answer = get(&app, path).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{path}");
        assert!(node.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn an_extractor_that_consumes_the_request_may_be_the_only_parameter() {
    #[redis_lock(key = "pay:{to}")]
    async fn json(Json(Pay { to, .. }): Json<Pay>) -> String {
        to
    }

    #[redis_lock(key = "a")]
    async fn request(mut request: Request) -> String {
        request.extensions_mut().clear();
        request.uri().path().to_owned()
    }

    #[redis_lock(key = "a")]
    async fn bytes(body: String) -> String {
        body
    }

    let (locks, _) = memory().await;
    let router = Router::new()
        .route("/json", on_post(json))
        .route("/request", on_get(request))
        .route("/bytes", on_post(bytes));
    let app = app(router, &locks);
    assert_eq!(post_json(&app, "/json", r#"{"amount":3,"to":"ann"}"#).await.body, "ann");
    assert_eq!(get(&app, "/request").await.body, "/request");
    assert_eq!(post_json(&app, "/bytes", "text").await.body, "text");
}

#[tokio::test]
async fn a_payload_need_not_be_sync() {
    #[derive(Deserialize)]
    struct Unshared {
        id: Cell<u32>,
    }

    #[redis_lock(key("unshared:{}", payload.id.get()))]
    async fn handler(Json(payload): Json<Unshared>) -> String {
        payload.id.set(payload.id.get() + 1);
        tokio::task::yield_now().await;
        payload.id.get().to_string()
    }

    let (locks, _) = memory().await;
    let app = app(Router::new().route("/", on_post(handler)), &locks);
    assert_eq!(post_json(&app, "/", r#"{"id":1}"#).await.body, "2");
}

/// A guard that is a temporary of the key must end before the first await, because it is not `Send`.
#[tokio::test]
async fn the_key_may_borrow_from_a_guard() {
    #[derive(Deserialize)]
    struct Guarded {
        id: RefCell<String>,
    }

    #[redis_lock(key("guarded:{}", payload.id.borrow()))]
    async fn part(lock: HeldLock, Json(payload): Json<Guarded>) -> String {
        payload.id.borrow_mut().push('!');
        format!("{} {}", lock.keys()[0], payload.id.borrow())
    }

    #[redis_lock(key = payload.id.borrow().as_str())]
    async fn whole(lock: HeldLock, Json(payload): Json<Guarded>) -> String {
        payload.id.borrow_mut().push('!');
        format!("{} {}", lock.keys()[0], payload.id.borrow())
    }

    let (locks, _) = memory().await;
    let routes = Router::new().route("/part", on_post(part)).route("/whole", on_post(whole));
    let app = app(routes, &locks);
    assert_eq!(post_json(&app, "/part", r#"{"id":"a"}"#).await.body, "guarded:a a!");
    assert_eq!(post_json(&app, "/whole", r#"{"id":"a"}"#).await.body, "a a!");
}

#[tokio::test]
#[expect(
    clippy::unused_async,
    clippy::diverging_sub_expression,
    reason = "in the functions that debug_handler adds"
)]
async fn debug_handler_may_stand_above_or_below() {
    #[debug_handler]
    #[redis_lock(key = "order:{id}", installed)]
    async fn above(Path(id): Path<u64>, State(_node): State<MemoryNode>) -> String {
        id.to_string()
    }

    #[redis_lock(key = "order:{id}", installed)]
    #[debug_handler]
    async fn below(State(_node): State<MemoryNode>, Path(id): Path<u64>) -> String {
        id.to_string()
    }

    #[redis_lock(key = "a", installed)]
    #[debug_handler]
    async fn without_parameters() -> &'static str {
        "none"
    }

    let (locks, node) = memory().await;
    let router = Router::new()
        .route("/above/{id}", on_get(above))
        .route("/below/{id}", on_get(below))
        .route("/none", on_get(without_parameters))
        .with_state(node);
    let app = installed(router, &locks);
    assert_eq!(get(&app, "/above/1").await.body, "1");
    assert_eq!(get(&app, "/below/2").await.body, "2");
    assert_eq!(get(&app, "/none").await.body, "none");
}

#[tokio::test]
async fn instrument_below_is_entered_under_the_lock_and_keeps_the_name() {
    #[redis_lock(key = "order:{id}", installed)]
    #[tracing::instrument(skip(node))]
    async fn pay(Path(id): Path<u64>, State(node): State<MemoryNode>) {
        tracing::info!(held = node.len(), "paying");
    }

    let logs = Logs::collect();
    let (locks, node) = memory().await;
    let router = Router::new().route("/{id}", on_get(pay)).with_state(node);
    get(&installed(router, &locks), "/7").await;
    let text = logs.lines().join("\n");
    assert!(text.contains("pay{id=7}: "), "{text}");
    assert!(text.contains("paying held=1"), "{text}");
    assert!(!text.contains("__redis_lock"), "{text}");
}

#[tokio::test]
async fn a_handler_may_be_generic() {
    trait Store: Clone + Send + Sync + 'static {
        const NAME: &'static str;
    }

    impl Store for MemoryNode {
        const NAME: &'static str = "memory";
    }

    #[redis_lock(key = "generic:{id}", installed)]
    async fn handler<S, const N: usize>(State(_store): State<S>, Path(id): Path<u64>) -> String
    where
        S: Store,
    {
        format!("{} {N} {id}", S::NAME)
    }

    let (locks, node) = memory().await;
    let router = Router::new().route("/{id}", on_get(handler::<MemoryNode, 3>)).with_state(node);
    assert_eq!(get(&installed(router, &locks), "/7").await.body, "memory 3 7");
}

#[tokio::test]
async fn the_lock_of_a_handler_may_be_its_last_parameter() {
    #[redis_lock(key = "order:{id}")]
    async fn last(Path(id): Path<u64>, lock: HeldLock) -> String {
        assert_eq!(lock.keys()[0].as_str(), format!("order:{id}"));
        lock.keys()[0].to_string()
    }

    let (locks, _) = memory().await;
    let app = app(Router::new().route("/last/{id}", on_get(last)), &locks);
    assert_eq!(get(&app, "/last/7").await.body, "order:7");
}

#[tokio::test]
async fn a_handler_that_extracts_a_lock_but_has_none_does_not_run() {
    async fn unlocked(_lock: HeldLock) {
        unreachable!("the body ran without the lock");
    }

    let logs = Logs::collect();
    let (locks, _) = memory().await;
    let app = app(Router::new().route("/", on_get(unlocked)), &locks);
    until_logged(&logs, "ERROR", "#[redis_lock(key = ..)]", async || {
        let answer = get(&app, "/").await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    })
    .await;
}

#[tokio::test]
async fn a_locked_handler_may_use_the_manager_as_well() {
    #[redis_lock(key = "outer")]
    async fn both(
        State(locks): State<LockManager>,
        Query(query): Query<Vec<(String, String)>>,
    ) -> String {
        assert!(query.is_empty());
        let guard = locks.lock("inner").try_acquire().await.unwrap();
        // The same request holds `outer`, so the acquisition fails at once.
        let again = locks.lock("outer").wait_time(Duration::from_secs(60)).acquire();
        assert!(matches!(again.await, Err(LockError::AlreadyHeld { .. })));
        guard.release().await.unwrap();
        "both".to_owned()
    }

    let (locks, node) = memory().await;
    assert_eq!(get(&app(Router::new().route("/", on_get(both)), &locks), "/").await.body, "both");
    assert!(node.is_empty());
}

/// Of two requests for one key, the second is refused while the first one runs.
#[tokio::test]
async fn requests_for_one_key_do_not_run_together_and_for_two_keys_do() {
    #[redis_lock(key = "order:{id}", installed)]
    async fn work(State(started): State<mpsc::Sender<mpsc::Sender<()>>>, Path(id): Path<u64>) {
        let (finish, mut finished) = mpsc::channel(1);
        started.send(finish).await.unwrap();
        finished.recv().await;
    }

    let (locks, node) = memory().await;
    let (started, mut starts) = mpsc::channel(2);
    let router = Router::new().route("/{id}", on_get(work)).with_state(started);
    let app = installed(router, &locks);
    let spawn = |path: &'static str| {
        let app = app.clone();
        tokio::spawn(async move { get(&app, path).await.status })
    };

    let one = spawn("/1");
    let finish_one = starts.recv().await.unwrap();
    assert_eq!(get(&app, "/1").await.status, StatusCode::CONFLICT);
    let two = spawn("/2");
    let finish_two = starts.recv().await.unwrap();
    assert_eq!(node.len(), 2);
    drop((finish_one, finish_two));
    assert_eq!((one.await.unwrap(), two.await.unwrap()), (StatusCode::OK, StatusCode::OK));
    assert!(node.is_empty());
}
