//! The routes of the board, over locks in memory.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Extension, Router};
use http::{HeaderMap, Method, StatusCode, Version, header};
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use redlock_core::test_util::TestLocks;
use redlock_core::{LockGuard, LockManager};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tower::ServiceExt;

use super::{PAGE, board};

const LEASE: Duration = Duration::from_secs(30);
/// The headers that the browser sends for a script of the page.
const OF_PAGE: [(&str, &str); 2] =
    [("sec-fetch-site", "same-origin"), ("content-type", "application/json")];

async fn process(test: &TestLocks, label: &str) -> LockManager {
    test.builder().owner_label(label).connect().await.unwrap()
}

async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).try_acquire().await.unwrap()
}

/// Returns a board whose reader may break locks.
fn open(locks: &LockManager) -> Router {
    board(locks).may_break(|_| true).unprotected()
}

fn request(method: Method, path: &str, headers: &[(&str, &str)], body: String) -> Request {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body)).unwrap()
}

async fn text_of(response: Response) -> (StatusCode, HeaderMap, String) {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(app: &Router, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
    let request = request(Method::GET, path, headers, String::new());
    let (status, _, body) = text_of(app.clone().oneshot(request).await.unwrap()).await;
    (status, body)
}

async fn json_of(app: &Router, path: &str) -> Value {
    let (status, body) = get(app, path, &[]).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str(&body).unwrap()
}

async fn break_with(app: &Router, headers: &[(&str, &str)], order: &Value) -> (StatusCode, Value) {
    let request = request(Method::POST, "/break", headers, order.to_string());
    let (status, _, body) = text_of(app.clone().oneshot(request).await.unwrap()).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// Returns the order to break the only holder of a key.
async fn order(app: &Router, key: &str) -> Value {
    let status = json_of(app, &format!("/status?key={key}")).await;
    json!({ "key": key, "holder": status["holders"][0]["id"], "reason": "the pod is lost" })
}

fn detail(answer: &Value) -> &str {
    answer["detail"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// The same words and fields as `redlock status --json`, see `operating.md`.
#[tokio::test]
async fn a_status_has_the_holder_the_nodes_and_the_waiters() {
    let test = TestLocks::new(3);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let app = open(&ops);
    let free = json_of(&app, "/status?key=order:42").await;
    assert_eq!((&free["state"], &free["holders"]), (&json!("free"), &json!([])));

    let guard = held(&shop, "order:42").await;
    let waits = ops.lock("order:42").expire(LEASE);
    let waiting = tokio::spawn(async move { waits.acquire().await.map(drop) });
    while ops.snapshot().waiting.is_empty() {
        tokio::task::yield_now().await;
    }
    test.nodes()[2].fail();
    let status = json_of(&app, "/status?key=order%3A42").await;
    assert_eq!((&status["key"], &status["state"]), (&json!("order:42"), &json!("exclusive")));
    assert_eq!(status["process"]["label"], "ops");
    let holder = &status["holders"][0];
    assert_eq!((&holder["owner"], &holder["is_own"]), (&json!("shop"), &json!(false)));
    assert_eq!(holder["nodes"], 2);
    assert!(holder["remaining_ms"].as_u64() > Some(1) && holder["since"].as_u64() > Some(1));
    assert!(status["at"].as_u64() >= holder["since"].as_u64());
    assert_eq!((&status["local_waiters"], &status["waiting"]), (&json!(1), &json!(0)));
    assert!(status["longest_wait_ms"].is_u64());
    let [first, _, failed] = &status["nodes"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!((&first["state"], &first["ids"]), (&json!("exclusive"), &json!([holder["id"]])));
    assert!(failed["error"].as_str().unwrap().contains("cut the node off"), "{failed}");
    let own = json_of(&open(&shop), "/status?key=order:42").await;
    assert_eq!(own["holders"][0]["is_own"], true);
    waiting.abort();
    drop(guard);
}

/// The page shows it beside the field.
#[tokio::test]
async fn an_invalid_key_is_answered_with_its_rule() {
    let app = open(&LockManager::in_memory());
    for (query, rule) in [
        ("?key=", "the lock key is empty"),
        ("", "the lock key is empty"),
        ("?key=a%0Ab", "the lock key contains a control character at byte 1"),
        ("?key=redlock:x", "the lock key begins with `redlock:`, which is reserved"),
        ("?key=%FF", "the key is not UTF-8"),
    ] {
        let (status, body) = get(&app, &format!("/status{query}"), &[]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
        assert!(body.contains(rule), "{query}: {body}");
    }
}

#[tokio::test]
async fn a_key_with_strange_characters_is_found_and_broken() {
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let app = open(&ops);
    for key in ["<img src=x onerror=alert(1)>", "a&key=b+c%41#d?e", "Straße/ 💶\"'\\"] {
        let _guard = held(&ops, key).await;
        let escaped = utf8_percent_encode(key, NON_ALPHANUMERIC);
        let status = json_of(&app, &format!("/status?key={escaped}")).await;
        assert_eq!((&status["key"], &status["state"]), (&json!(key), &json!("exclusive")));
        let order = json!({ "key": key, "holder": status["holders"][0]["id"], "reason": "test" });
        let (status, broken) = break_with(&app, &OF_PAGE, &order).await;
        assert_eq!((status, &broken["key"]), (StatusCode::OK, &json!(key)), "{broken}");
    }
}

#[tokio::test]
async fn too_few_nodes_are_503_with_the_reason_of_each() {
    let test = TestLocks::new(3);
    let ops = process(&test, "ops").await;
    let app = open(&ops);
    let _guard = held(&ops, "a").await;
    let order = order(&app, "a").await;
    test.nodes()[0].fail();
    test.nodes()[1].fail();
    let (status, body) = get(&app, "/status?key=a", &[]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("no quorum of nodes answered; lock a; memory-"), "{body}");
    let (status, answer) = break_with(&app, &OF_PAGE, &order).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    ops.shutdown().await;
    let (status, body) = get(&app, "/status?key=a", &[]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("was shut down"), "{body}");
}

#[tokio::test]
async fn a_break_removes_the_shown_holder_and_names_its_votes() {
    let test = TestLocks::new(3);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let app = open(&ops);
    let guard = held(&shop, "a").await;
    let order = order(&app, "a").await;
    let (status, broken) = break_with(&app, &OF_PAGE, &order).await;
    assert_eq!(status, StatusCode::OK, "{broken}");
    assert_eq!((&broken["key"], &broken["broken"]["owner"]), (&json!("a"), &json!("shop")));
    assert!(broken["may_be_valid_for_ms"].as_u64() > Some(1));
    let votes = broken["votes"].as_object().unwrap();
    assert!(votes.len() == 3 && votes.values().all(|vote| vote == "agreed"), "{broken}");
    assert!(test.nodes().iter().all(redlock_core::test_util::TestNode::is_empty));

    let next = held(&process(&test, "next").await, "a").await;
    let (status, refused) = break_with(&app, &OF_PAGE, &order).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let present = json_of(&app, "/status?key=a").await["holders"][0]["id"].clone();
    let present = format!("its holder is {}. Nothing was changed", present.as_str().unwrap());
    assert!(detail(&refused).contains(&present), "{refused}");
    next.release().await.unwrap();
    let (status, refused) = break_with(&app, &OF_PAGE, &order).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(detail(&refused).contains("no other holder was seen"), "{refused}");
    drop(guard);
}

#[tokio::test]
async fn a_break_needs_the_holder_and_a_reason() {
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let app = open(&ops);
    let guard = held(&ops, "a").await;
    let id = order(&app, "a").await["holder"].clone();
    for (order, status, reason) in [
        (json!({ "key": "a", "holder": id }), 422, "missing field `reason`"),
        (json!({ "key": "a", "holder": id, "reason": " " }), 400, "from 1 to 200 bytes"),
        (
            json!({ "key": "a", "holder": id, "reason": "x".repeat(201) }),
            400,
            "from 1 to 200 bytes",
        ),
        (json!({ "key": "a", "holder": id, "reason": "a\nb" }), 400, "from 1 to 200 bytes"),
        (json!({ "key": "a", "holder": "0", "reason": "x" }), 400, "16"),
        (json!({ "key": "", "holder": id, "reason": "x" }), 400, "the lock key is empty"),
        (json!("text"), 422, "expected struct"),
    ] {
        let (found, answer) = break_with(&app, &OF_PAGE, &order).await;
        assert_eq!(found, status, "{order}: {answer}");
        assert!(detail(&answer).contains(reason), "{order}: {answer}");
    }
    assert!(guard.is_valid());
}

/// A drain refuses new locks. An operator may still end one, so that the service stops sooner.
#[tokio::test]
async fn a_lock_is_broken_during_a_drain() {
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let app = open(&ops);
    let guard = held(&ops, "a").await;
    ops.drain();
    assert_eq!(json_of(&app, "/process").await["process"]["is_draining"], true);
    let (status, answer) = break_with(&app, &OF_PAGE, &order(&app, "a").await).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(!guard.is_valid());
}

/// Otherwise the holder would be left on a part of the nodes.
#[tokio::test]
async fn a_break_ends_when_its_client_leaves() {
    let test = TestLocks::new(3);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let app = open(&ops);
    let guard = held(&shop, "a").await;
    let order = order(&app, "a").await;
    test.nodes()[2].delay(Duration::from_millis(5));
    {
        let request = request(Method::POST, "/break", &OF_PAGE, order.to_string());
        let mut breaking = pin!(app.clone().oneshot(request));
        poll_fn(|context| {
            assert!(breaking.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    test.clock().advance(LEASE / 2).await;
    assert!(test.nodes().iter().all(redlock_core::test_util::TestNode::is_empty));
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn nobody_may_break_a_lock_by_default() {
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let app = board(&ops).unprotected();
    let guard = held(&ops, "a").await;
    assert_eq!(json_of(&app, "/process").await["may_break"], false);
    let (status, refused) = break_with(&app, &OF_PAGE, &order(&app, "a").await).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(detail(&refused).contains("you may not break locks"), "{refused}");
    assert!(guard.is_valid());
}

/// The login adds the operator to the request.
#[tokio::test]
async fn a_layer_decides_who_reads_and_its_extension_who_may_break() {
    #[derive(Clone)]
    struct Operator {
        is_on_call: bool,
    }
    async fn login(mut request: Request, next: Next) -> Result<Response, StatusCode> {
        let name = request.headers().get("authorization").ok_or(StatusCode::UNAUTHORIZED)?;
        let is_on_call = name == "ann";
        request.extensions_mut().insert(Operator { is_on_call });
        Ok(next.run(request).await)
    }
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let is_on_call = |operator: &Operator| operator.is_on_call;
    let app: Router = board(&ops)
        .may_break(move |parts| parts.extensions.get().is_some_and(is_on_call))
        .behind(from_fn(login));
    let guard = held(&ops, "a").await;
    for path in ["/", "/status?key=a", "/process", "/break"] {
        assert_eq!(get(&app, path, &[]).await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
    let order = order(&open(&ops), "a").await;
    for (name, expected) in [("bob", StatusCode::FORBIDDEN), ("ann", StatusCode::OK)] {
        assert_eq!(get(&app, "/", &[("authorization", name)]).await.0, StatusCode::OK);
        let headers = [OF_PAGE[0], OF_PAGE[1], ("authorization", name)];
        assert_eq!(break_with(&app, &headers, &order).await.0, expected, "{name}");
        assert_eq!(guard.is_valid(), name == "bob");
    }
}

/// A page of another site, a form, a program: what browsers and others send.
#[tokio::test]
async fn a_break_that_the_page_has_not_sent_is_refused() {
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let app = open(&ops);
    let guard = held(&ops, "a").await;
    let order = order(&app, "a").await;
    let (host, json) = (("host", "ops.example"), ("content-type", "application/json"));
    for headers in [
        &[host, json][..],
        &[host, json, ("sec-fetch-site", "cross-site")],
        &[host, json, ("sec-fetch-site", "same-site")],
        &[host, json, ("sec-fetch-site", "cross-site"), ("origin", "http://ops.example")],
        &[host, json, ("origin", "http://evil.example")],
        &[host, json, ("origin", "http://ops.example:8080")],
        &[host, json, ("origin", "null")],
    ] {
        let (status, answer) = break_with(&app, headers, &order).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{headers:?}: {answer}");
        assert!(detail(&answer).contains("not from this page"), "{headers:?}: {answer}");
    }
    for media in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let headers = [OF_PAGE[0], ("content-type", media)];
        let (status, answer) = break_with(&app, &headers, &order).await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{media}: {answer}");
    }
    assert_eq!(get(&app, "/break", &OF_PAGE).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert!(guard.is_valid());
    // A browser without HTTPS sends no Sec-Fetch-Site.
    let headers = [host, json, ("origin", "http://ops.example")];
    assert_eq!(break_with(&app, &headers, &order).await.0, StatusCode::OK);
}

/// An application may allow other sites to read its answers (CORS), and its layer is outside of the board.
#[tokio::test]
async fn data_is_not_for_pages_of_other_sites() {
    let app = open(&LockManager::in_memory());
    for path in ["/status?key=a", "/process"] {
        for (site, expected) in [
            ("cross-site", StatusCode::FORBIDDEN),
            ("same-site", StatusCode::FORBIDDEN),
            ("same-origin", StatusCode::OK),
            ("none", StatusCode::OK),
        ] {
            let found = get(&app, path, &[("sec-fetch-site", site)]).await.0;
            assert_eq!(found, expected, "{path} {site}");
        }
    }
    // A link of a wiki leads to the page.
    assert_eq!(get(&app, "/", &[("sec-fetch-site", "cross-site")]).await.0, StatusCode::OK);
}

#[tokio::test]
async fn no_answer_is_stored_framed_or_guessed() {
    let app = open(&LockManager::in_memory());
    for (path, expected) in [
        ("/", StatusCode::OK),
        ("/process", StatusCode::OK),
        ("/status?key=", StatusCode::BAD_REQUEST),
    ] {
        let request = request(Method::GET, path, &[], String::new());
        let (status, headers, _) = text_of(app.clone().oneshot(request).await.unwrap()).await;
        assert_eq!(status, expected);
        for (name, value) in [
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(headers[name], value, "{path}");
            assert_eq!(headers.get_all(name).iter().count(), 1, "{path} {name}");
        }
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        for part in ["default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let chunk = |chunk: &[u8]| {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        let digits = (0..4).map(|digit| DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]);
        let digits: Vec<u8> = digits.take(chunk.len() + 1).collect();
        format!("{:=<4}", String::from_utf8(digits).unwrap())
    };
    bytes.chunks(3).map(chunk).collect()
}

/// After a change of the page, the message of this test has the hash for `access.rs`.
#[tokio::test]
async fn the_policy_has_the_hashes_of_the_script_and_the_style() {
    let app = open(&LockManager::in_memory());
    let response = app.oneshot(request(Method::GET, "/", &[], String::new())).await.unwrap();
    let (_, headers, page) = text_of(response).await;
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
        let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
        let parts: Vec<_> = page.split(&begin).skip(1).collect();
        let [part] = &parts[..] else { panic!("{} elements {element}", parts.len()) };
        let code = part.split(&end).next().unwrap();
        let allowed = format!("{directive} 'sha256-{}'; ", base64(&Sha256::digest(code)));
        assert!(policy.contains(&allowed), "{allowed} is not in {policy}");
    }
}

/// Neither texts that become HTML, nor code in attributes, which the policy forbids.
#[test]
fn the_page_makes_no_html_of_texts_and_loads_nothing() {
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "srcdoc",
        "DOMParser",
        "setHTML",
        "style=\"",
        "onclick=\"",
        "onsubmit=\"",
        "src=",
        "@import",
        "url(",
        "href=\"http",
    ] {
        assert!(!PAGE.contains(forbidden), "{forbidden}");
    }
}

#[tokio::test]
async fn the_process_names_its_suspects_and_nothing_else() {
    let test = TestLocks::new(1);
    let (shop, ops) = (process(&test, "shop").await, process(&test, "ops").await);
    let app = open(&ops);
    let quiet = json_of(&app, "/process").await;
    assert_eq!(quiet["process"]["label"], "ops");
    for kind in ["held", "waiting", "lost"] {
        assert_eq!(quiet[kind], json!({ "all": 0, "found": 0, "first": [] }), "{kind}");
    }
    assert_eq!(
        (&quiet["nodes"][0]["status"], &quiet["nodes"][0]["kind"]),
        (&json!("up"), &json!("memory"))
    );

    let _long = held(&ops, "long").await;
    let _busy = held(&shop, "busy").await;
    let lost = ops.lock("lost").expire(LEASE).try_acquire().await.unwrap();
    let waits = ops.lock("busy");
    let waiting = tokio::spawn(async move { waits.acquire().await.map(drop) });
    while ops.snapshot().waiting.is_empty() {
        tokio::task::yield_now().await;
    }
    test.clock().advance(Duration::from_millis(900)).await;
    let early = json_of(&app, "/process").await;
    assert_eq!((&early["held"]["found"], &early["waiting"]["found"]), (&json!(0), &json!(0)));
    for _ in 0..8 {
        test.clock().advance(LEASE / 6).await;
    }
    lost.lost().await;
    let _short = held(&ops, "short").await;
    let seen = json_of(&app, "/process").await;
    let held = &seen["held"];
    assert_eq!((&held["all"], &held["found"]), (&json!(2), &json!(1)), "{seen}");
    assert_eq!(held["first"][0]["keys"], json!(["long"]));
    let waiting_key = &seen["waiting"]["first"][0];
    assert_eq!((&waiting_key["key"], &waiting_key["holder"]), (&json!("busy"), &json!("shop")));
    let found = &seen["lost"]["first"][0];
    assert_eq!((&found["key"], &seen["has_lost_more"]), (&json!("lost"), &json!(false)));
    assert!(found["reason"].as_str().unwrap().starts_with("the lease ran out"), "{found}");

    test.clock().advance(Duration::from_secs(60 * 60)).await;
    let later = json_of(&app, "/process").await;
    assert_eq!((&later["lost"]["all"], &later["lost"]["found"]), (&json!(1), &json!(0)));
    waiting.abort();
}

/// A field of the page takes the key without the prefix of the manager.
#[tokio::test]
async fn suspects_have_keys_that_can_be_looked_up() {
    let test = TestLocks::new(1);
    let ops = test.builder().prefix("shop:").connect().await.unwrap();
    let app = open(&ops);
    let guard = held(&ops, "a").await;
    for _ in 0..8 {
        test.clock().advance(LEASE / 6).await;
    }
    let seen = json_of(&app, "/process").await;
    assert_eq!(seen["held"]["first"][0]["keys"], json!(["a"]));
    let (status, answer) = break_with(&app, &OF_PAGE, &order(&app, "a").await).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(json_of(&app, "/process").await["lost"]["first"][0]["key"], "a");
    drop(guard);
}

/// The answer stays small, however much a process holds.
#[tokio::test]
async fn an_answer_names_the_first_suspects_of_many() {
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let app = open(&ops);
    let first = held(&ops, "first").await;
    test.clock().advance(Duration::from_secs(1)).await;
    let mut guards = Vec::new();
    for number in 0..150 {
        guards.push(held(&ops, &format!("a:{number}")).await);
    }
    for _ in 0..8 {
        test.clock().advance(LEASE / 6).await;
    }
    let seen = json_of(&app, "/process").await;
    assert_eq!((&seen["held"]["all"], &seen["held"]["found"]), (&json!(151), &json!(151)));
    assert_eq!(seen["held"]["first"].as_array().map(Vec::len), Some(20));
    assert_eq!(seen["held"]["first"][0]["keys"], json!(["first"]));
    test.nodes()[0].forget();
    drop(first);
    while ops.snapshot().counters.lost < 151 {
        test.clock().advance(LEASE / 6).await;
    }
    let seen = json_of(&app, "/process").await;
    assert_eq!((&seen["lost"]["found"], &seen["has_lost_more"]), (&json!(100), &json!(true)));
    drop(guards);
}

/// The page asks below its own address, so that the service answers there, with and without a slash at the end.
#[tokio::test]
async fn a_nested_board_answers_with_and_without_a_slash() {
    let locks = LockManager::in_memory();
    let nested: Router = Router::new().nest_service("/ops/locks", open(&locks));
    let in_router: Router =
        Router::new().nest("/ops/locks", board(&locks).unprotected()).layer(Extension(()));
    let with_state: Router = Router::new()
        .nest("/ops/locks", board(&locks).unprotected::<String>())
        .with_state(String::new());
    for (name, app, with_slash) in
        [("service", nested, true), ("router", in_router, false), ("state", with_state, false)]
    {
        let (status, page) = get(&app, "/ops/locks", &[]).await;
        assert_eq!((status, page.as_str()), (StatusCode::OK, PAGE), "{name}");
        assert_eq!(get(&app, "/ops/locks/", &[]).await.0.is_success(), with_slash, "{name}");
        assert_eq!(json_of(&app, "/ops/locks/status?key=a").await["state"], "free");
        assert!(json_of(&app, "/ops/locks/process").await["nodes"].is_array());
        assert_eq!(get(&app, "/status?key=a", &[]).await.0, StatusCode::NOT_FOUND);
    }
}

async fn from(
    app: &Router,
    client: &str,
    headers: &[(&str, &str)],
    version: Version,
) -> StatusCode {
    let mut request = request(Method::GET, "/process", headers, String::new());
    *request.version_mut() = version;
    let client: IpAddr = client.parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((client, 50_000))));
    app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn only_clients_of_this_machine_are_local() {
    let app = board(&LockManager::in_memory()).local_only();
    let (host, version) = ([("host", "localhost:9090")], Version::HTTP_11);
    for client in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(from(&app, client, &host, version).await, StatusCode::OK, "{client}");
    }
    for client in ["10.0.0.1", "::ffff:10.0.0.1", "0.0.0.0", "fe80::1"] {
        assert_eq!(from(&app, client, &host, version).await, StatusCode::FORBIDDEN, "{client}");
    }
}

/// `axum::serve(listener, router)` gives no address.
#[tokio::test]
async fn a_client_without_an_address_is_not_local() {
    let app = board(&LockManager::in_memory()).local_only();
    for path in ["/", "/process", "/status?key=a", "/break"] {
        let (status, body) = get(&app, path, &[("host", "localhost")]).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(body.contains("into_make_service_with_connect_info"), "{body}");
    }
    let request = request(Method::GET, "/", &[], String::new());
    let (_, headers, _) = text_of(app.oneshot(request).await.unwrap()).await;
    assert_eq!(headers["x-frame-options"], "DENY");
}

/// DNS rebinding: a page of `evil.example` reads what the name leads to. The browser sends its name.
#[tokio::test]
async fn a_foreign_name_of_this_machine_is_not_local() {
    let app = board(&LockManager::in_memory()).local_only();
    let (client, version) = ("127.0.0.1", Version::HTTP_11);
    for host in ["localhost", "LOCALHOST:3000", "127.0.0.1", "127.0.0.1:80", "[::1]:3000", "[::1]"]
    {
        assert_eq!(from(&app, client, &[("host", host)], version).await, StatusCode::OK, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:3000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "10.0.0.1",
        "0.0.0.0",
        "",
        "localhost,evil.example",
    ] {
        let found = from(&app, client, &[("host", host)], version).await;
        assert_eq!(found, StatusCode::FORBIDDEN, "{host}");
    }
    assert_eq!(from(&app, client, &[], version).await, StatusCode::FORBIDDEN, "no host");
    let two = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(from(&app, client, &two, version).await, StatusCode::FORBIDDEN);
    // HTTP/2 has the host in the address.
    for (address, expected) in [
        ("http://localhost:3000/process", StatusCode::OK),
        ("http://evil.example/process", StatusCode::FORBIDDEN),
    ] {
        let mut request = request(Method::GET, address, &[], String::new());
        *request.version_mut() = Version::HTTP_2;
        let client = SocketAddr::from(([127, 0, 0, 1], 50_000));
        request.extensions_mut().insert(ConnectInfo(client));
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), expected, "{address}");
    }
}

/// A proxy on the same machine makes all its clients local. These are the headers of the usual ones; nginx adds none by default,
/// but speaks HTTP/1.0.
#[tokio::test]
async fn a_client_of_a_proxy_is_not_local() {
    let app = board(&LockManager::in_memory()).local_only();
    let (client, host) = ("127.0.0.1", ("host", "127.0.0.1:3000"));
    for header in [
        ("forwarded", "for=10.0.0.1"),
        ("via", "1.1 proxy"),
        ("x-real-ip", "10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("X-Forwarded-Host", "localhost"),
    ] {
        let found = from(&app, client, &[host, header], Version::HTTP_11).await;
        assert_eq!(found, StatusCode::FORBIDDEN, "{header:?}");
    }
    assert_eq!(from(&app, client, &[host], Version::HTTP_10).await, StatusCode::FORBIDDEN);
    assert_eq!(from(&app, client, &[host], Version::HTTP_11).await, StatusCode::OK);
}

/// Neither the token nor the password of a URL is in any answer.
#[tokio::test]
async fn no_answer_has_a_token() {
    let test = TestLocks::new(1);
    let ops = process(&test, "ops").await;
    let app = open(&ops);
    let guard = held(&ops, "a").await;
    let order = order(&app, "a").await;
    let mut answers = get(&app, "/status?key=a", &[]).await.1;
    answers += &get(&app, "/process", &[]).await.1;
    answers += &break_with(&app, &OF_PAGE, &order).await.1.to_string();
    assert!(answers.len() > 500, "{answers}");
    assert_eq!(redlock_logs::find_secret(&answers), None);
    assert!(format!("{:?}", board(&ops)).starts_with("Board { locks: "));
    drop(guard);
}
