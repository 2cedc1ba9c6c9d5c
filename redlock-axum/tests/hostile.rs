//! What a client can do with a path, a query or a body: never get at the key of another resource,
//! never past a lock. And the attribute, the layer and the policies make the same key of the same
//! values.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::collections::HashMap;
use std::fmt::Display;

use axum::body::Body;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::{Method, Request, StatusCode, Uri, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use redlock_axum::{HeldLock, LockLayer, LockManager, LockPolicies, LockPolicy, redis_lock};
use serde::Deserialize;
use support::{memory, request, text};
use tokio::runtime::Runtime;
use tower::ServiceExt;
use uuid::Uuid;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// As the documentation of `KeyPart` says, written anew for the comparison.
fn encoded(value: &impl Display) -> String {
    const ENCODED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(&value.to_string(), ENCODED).to_string()
}

/// What a handler answers that sees this resource, and should hold this key.
fn answer(lock: &HeldLock, key: &str) -> String {
    let held = lock.key().as_str();
    let as_it_should_be = if key.len() > 200 { held.len() <= 200 } else { held == key };
    if !lock.is_valid() {
        format!("UNLOCKED {key}")
    } else if as_it_should_be {
        held.to_owned()
    } else {
        format!("WRONG {held} instead of {key}")
    }
}

#[redis_lock(key = "order:{id}")]
async fn number(Path((_, id)): Path<(String, u64)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{id}"))
}

#[redis_lock(key = "order:{id}")]
async fn signed(Path((_, id)): Path<(String, i64)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{id}"))
}

#[redis_lock(key = "order:{id}")]
async fn uuid(Path((_, id)): Path<(String, Uuid)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{id}"))
}

#[redis_lock(key("order:{}", id.to_lowercase()))]
async fn lower(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{}", encoded(&id.to_lowercase())))
}

#[redis_lock(key = "order:{id}")]
async fn plain(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{}", encoded(&id)))
}

#[redis_lock(key = "{{order}}/{front}/{id}")]
async fn both(Path((front, id)): Path<(String, String)>, lock: HeldLock) -> String {
    answer(&lock, &format!("{{order}}/{}/{}", encoded(&front), encoded(&id)))
}

/// Says its key, whatever it is.
async fn behind(lock: HeldLock) -> String {
    assert!(lock.is_valid());
    lock.key().to_string()
}

/// A kind of value: the handler with the attribute, and the same template for the others.
type Kind = (&'static str, fn() -> axum::routing::MethodRouter, &'static str);

const KINDS: [Kind; 6] = [
    ("u64", || post(number), "order:{id:u64}"),
    ("i64", || post(signed), "order:{id:i64}"),
    ("uuid", || post(uuid), "order:{id:uuid}"),
    ("lower", || post(lower), "order:{id:lower}"),
    ("plain", || post(plain), "order:{id}"),
    ("both", || post(both), "{{order}}/{front}/{id}"),
];

/// `/{attribute, layer or policy}/{kind}/{front}/{id}`.
fn fronts(locks: &LockManager) -> Router {
    let mut router = Router::new();
    let mut policies = Vec::new();
    for (kind, attribute, template) in KINDS {
        let route = |front: &str| format!("/{front}/{kind}/{{front}}/{{id}}");
        router = router
            .route(&route("attribute"), attribute())
            .route(&route("layer"), post(behind).route_layer(LockLayer::new(template)))
            .route(&route("policy"), post(behind));
        policies.push(LockPolicy::new(route("policy"), template));
    }
    router.layer(LockPolicies::new(policies).unwrap()).layer(Extension(locks.clone()))
}

/// `None` where no such request can be sent.
async fn ask(app: &Router, path: &str) -> Option<(StatusCode, String)> {
    path.parse::<Uri>().ok()?;
    let response = app.clone().oneshot(request(Method::POST, path)).await.unwrap();
    Some((response.status(), text(response).await))
}

/// Parts of a path that could be taken for something else.
const PIECES: [&str; 44] = [
    "a",
    "A",
    "b",
    "42",
    "042",
    "%34%32",
    "%2B42",
    "+42",
    "+",
    "-7",
    "-0",
    "-007",
    "0",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "67e55044-10b1-426f-9247-bb680e5fe0c8",
    "67E5504410B1426F9247BB680E5FE0C8",
    "%7B67e55044-10b1-426f-9247-bb680e5fe0c8%7D",
    "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
    ":",
    "%3A",
    "%3a",
    "%2F",
    "%2f",
    "%252F",
    "%25",
    "%2525",
    "%00",
    "%0A",
    "%20",
    "%FF",
    "%C3",
    "%C3%89",
    "e%CC%81",
    "%F0%9F%A6%80",
    "%E2%84%AA",
    "%23",
    "%7Bid%7D",
    "{id}",
    "..",
    ".",
    "%2e%2e",
    ";x=1",
];

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => select(&PIECES[..]).prop_map(str::to_owned),
        1 => prop::collection::vec(select(&PIECES[..]), 1..4).prop_map(|all| all.concat()),
    ]
}

/// Each as one of the values, in whatever way it is written.
#[test]
fn the_attribute_the_layer_and_the_policies_make_one_key_of_one_value() {
    let runtime = Runtime::new().unwrap();
    let (locks, node) = runtime.block_on(memory());
    let app = fronts(&locks);
    let same = |front: &str, id: &str| {
        for (kind, ..) in KINDS {
            let ask = |by: &str| {
                let path = format!("/{by}/{kind}/{front}/{id}");
                runtime.block_on(ask(&app, &path))
            };
            let (attribute, layer, policy) = (ask("attribute"), ask("layer"), ask("policy"));
            prop_assert_eq!(&layer, &policy, "{} {}/{}", kind, front, id);
            let Some(((status, key), (by_layer, layers_key))) = attribute.zip(layer) else {
                continue;
            };
            let known = [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND];
            prop_assert!(known.contains(&status) && known.contains(&by_layer), "{}", key);
            // Besides the two forms that the layer knows, the attribute reads what the crate does.
            let other_form = kind == "uuid" && (id.contains("7B") || id.contains("urn"));
            // The layer looks at the values that its key is made of, and at no other.
            let other_value = by_layer.is_success() && !status.is_success() && front.contains('%');
            if !other_form && !other_value {
                prop_assert_eq!(status, by_layer, "{} {}/{}", kind, front, id);
            }
            if status.is_success() && by_layer.is_success() {
                prop_assert_eq!(key, layers_key, "{} {}/{}", kind, front, id);
            }
        }
        Ok(())
    };
    for id in PIECES {
        same("x", id).unwrap();
    }
    let pairs = (segment(), segment());
    TestRunner::new(config(150)).run(&pairs, |(front, id)| same(&front, &id)).unwrap();
    assert!(node.is_empty());
}

#[derive(Debug, Deserialize)]
struct Item {
    sku: String,
    size: i32,
}

#[redis_lock(key = "stock:{sku}:{size}")]
async fn stock(Query(Item { sku, size }): Query<Item>, lock: HeldLock) -> String {
    answer(&lock, &format!("stock:{}:{size}", encoded(&sku)))
}

#[redis_lock(key("loose:{}", item.get("sku").map_or("", String::as_str)))]
async fn loose(Query(item): Query<HashMap<String, String>>, lock: HeldLock) -> String {
    answer(&lock, &format!("loose:{}", encoded(&item["sku"])))
}

async fn file(Path(path): Path<String>, lock: HeldLock) -> String {
    answer(&lock, &format!("file:{}", encoded(&path)))
}

async fn order(Path((tenant, id)): Path<(String, u64)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{}:{id}", encoded(&tenant)))
}

async fn coupon(Path(code): Path<String>, lock: HeldLock) -> String {
    answer(&lock, &format!("coupon:{}", encoded(&code.to_lowercase())))
}

async fn pair(Path((a, b)): Path<(String, String)>, lock: HeldLock) -> String {
    answer(&lock, &format!("pair:{}/{}", encoded(&a), encoded(&b)))
}

/// A shop, locked in every way that there is, wherever a layer can stand. Each handler compares the
/// resource that it sees with the key that is held.
fn shop(locks: &LockManager) -> Router {
    let orders = || Router::new().route("/orders/{id}", post(order));
    let policies = LockPolicies::new([
        LockPolicy::new("/pairs/{a}/{b}", "pair:{a}/{b}"),
        LockPolicy::new("/outer/{tenant}/orders/{id}", "order:{tenant}:{id:u64}"),
    ]);
    Router::new()
        .route("/stock", post(stock))
        .route("/loose", post(loose))
        .route("/files/{*path}", post(file).route_layer(LockLayer::new("file:{path}")))
        .route("/coupons/{code}", post(coupon).route_layer(LockLayer::new("coupon:{code:lower}")))
        .route("/pairs/{a}/{b}", post(pair))
        .nest("/tenants/{tenant}", orders().route_layer(LockLayer::new("order:{tenant}:{id:u64}")))
        .nest("/outer/{tenant}", orders())
        .nest_service(
            "/service/{tenant}",
            orders().layer(LockLayer::new("order:{tenant}:{id:u64}")),
        )
        .layer(policies.unwrap())
        .layer(Extension(locks.clone()))
}

fn path() -> impl Strategy<Value = String> {
    const BEGINNINGS: [&str; 12] = [
        "/stock",
        "/loose",
        "/files",
        "/coupons",
        "/pairs",
        "/tenants",
        "/outer",
        "/service",
        "/tenants/t/orders",
        "/outer/t/orders",
        "/service/t/orders",
        "/%66iles",
    ];
    const ENDS: [&str; 9] = [
        "",
        "",
        "",
        "/",
        "//",
        "?sku=a&size=1",
        "?sku=a&sku=b&size=1",
        "?size=1&sku=%2Fa%26sku=b",
        "?sku=&size=1",
    ];
    let empty = Just(String::new());
    let segments = prop::collection::vec(prop_oneof![9 => segment(), 1 => empty], 0..4);
    (select(&BEGINNINGS[..]), segments, select(&ENDS[..])).prop_map(|(begin, segments, end)| {
        let segments = [vec![begin.to_owned()], segments].concat();
        format!("{}{end}", segments.join("/"))
    })
}

#[test]
fn no_path_ends_at_the_key_of_another_resource_or_unlocked() {
    let runtime = Runtime::new().unwrap();
    let (locks, node) = runtime.block_on(memory());
    let app = shop(&locks);
    let served = std::cell::Cell::new(0);
    let check = |path: String| {
        let Some((status, answer)) = runtime.block_on(ask(&app, &path)) else { return Ok(()) };
        match status.as_u16() {
            200 => {
                let locked = !answer.starts_with("WRONG") && !answer.starts_with("UNLOCKED");
                prop_assert!(locked, "{}: {}", path, answer);
                served.set(served.get() + 1);
            }
            400 | 404 => {}
            // Inside of `nest_service` a layer is asked before the service's routes are.
            500 if path.starts_with("/service") => {}
            other => prop_assert!(false, "{}: {} {}", path, other, answer),
        }
        Ok(())
    };
    for path in [
        "/files/a%2Fb",
        "/files/a/b",
        "/files/..%2F..%2Fpairs/a/b",
        "/files//",
        "/files/%2F",
        "//files/a",
        "/files/a//b",
        "/pairs/a%2Fb/c",
        "/pairs/a/b%2Fc",
        "/tenants/a%2Forders/orders/1",
        "/tenants/a/../b/orders/1",
        "/service/a/orders/1",
        "/coupons/%E2%84%AA",
        "/coupons/k",
    ] {
        check(path.to_owned()).unwrap();
    }
    TestRunner::new(config(3000)).run(&path(), check).unwrap();
    assert!(served.get() > 150, "only {served:?} requests were served");
    assert!(node.is_empty());
}

/// One who holds a key keeps those out who mean the same resource, and nobody else.
#[tokio::test]
async fn who_means_the_resource_meets_its_lock_however_the_path_is_written() {
    let (locks, _node) = memory().await;
    let app = shop(&locks);
    let _guards = [
        support::hold(&locks, "order:t:42").await,
        support::hold(&locks, "file:a%2Fb").await,
        support::hold(&locks, "coupon:sale").await,
        support::hold(&locks, "pair:a%2Fb/c").await,
        support::hold(&locks, "stock:a%26b:1").await,
    ];
    for (path, expected) in [
        ("/tenants/t/orders/42", 409),
        ("/tenants/%74/orders/%34%32", 409),
        ("/outer/t/orders/+42", 409),
        ("/outer/t/orders/042?x", 409),
        ("/service/t/orders/%2B42", 409),
        ("/tenants/T/orders/42", 200),
        ("/tenants/t/orders/421", 200),
        ("/tenants/t/orders/42/", 404),
        ("/tenants/t//orders/42", 404),
        ("/tenants//orders/42", 400),
        ("/tenants/t%2Forders/42", 404),
        ("/files/a/b", 409),
        ("/files/a%2Fb", 409),
        ("/files/%61/b", 409),
        ("/files/a%252Fb", 200),
        ("/files/a//b", 200),
        ("/files/./a/b", 200),
        ("/files/x/../a/b", 200),
        ("/coupons/SALE", 409),
        ("/coupons/s%41le", 409),
        ("/pairs/a%2Fb/c", 409),
        ("/pairs/a/b%2Fc", 200),
        ("/pairs/a/b/c", 404),
        ("/stock?sku=a%26b&size=1", 409),
        ("/stock?size=%2B01&sku=a%26b", 409),
        ("/stock?sku=a&b&size=1", 200),
        ("/stock?sku=a%26b&sku=x&size=1", 400),
        ("/stock?sku=a%26b&size=1&size=2", 400),
        ("/stock?sku=&size=1", 400),
        ("/loose?sku=", 400),
        ("/loose", 400),
    ] {
        let (status, answer) = ask(&app, path).await.unwrap();
        assert_eq!(status, expected, "{path}: {answer}");
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[redis_lock(key = "named:{name}")]
async fn named(lock: HeldLock, Json(Named { name }): Json<Named>) -> String {
    answer(&lock, &format!("named:{}", encoded(&name)))
}

async fn send_name(app: &Router, name: &str) -> Response {
    let json = format!("{{\"name\":\"{name}\"}}");
    let request = Request::post("/named").header(header::CONTENT_TYPE, "application/json");
    app.clone().oneshot(request.body(Body::from(json)).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_value_of_a_megabyte_is_locked_by_a_short_key_of_its_own() {
    let (locks, node) = memory().await;
    let named = Router::new().route("/named", post(named)).layer(Extension(locks.clone()));
    let (one, other) = ("x".repeat(1024 * 1024), format!("{}y", "x".repeat(1024 * 1024 - 1)));
    let key = text(send_name(&named, &one).await).await;
    assert!(key.starts_with("named:xxx") && key.len() <= 200, "{key}");
    let _guard = support::hold(&locks, &key).await;
    let refused = send_name(&named, &one).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert!(text(refused).await.len() < 1000);
    assert_eq!(send_name(&named, &other).await.status(), StatusCode::OK);
    assert_eq!(send_name(&named, "").await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(node.len(), 1);

    // The longest path that there can be.
    let app = shop(&locks);
    let (status, key) = ask(&app, &format!("/files/{}", "%41".repeat(21_000))).await.unwrap();
    assert_eq!((status, key.len() <= 200), (StatusCode::OK, true), "{key}");
}

/// A GET that a layer leaves out by its methods is the developer's choice, a HEAD for GET is not a way
/// around, and a method that the route lacks never reaches a handler.
#[tokio::test]
async fn no_method_is_a_way_around_the_lock() {
    let (locks, node) = memory().await;
    let seen = node.clone();
    let handler = get(async move || assert!(!seen.is_empty(), "unlocked"));
    let app = Router::new()
        .route("/k", handler.route_layer(LockLayer::new("k").methods([Method::GET])))
        .layer(Extension(locks.clone()));
    for (method, expected) in
        [("GET", 200), ("HEAD", 200), ("get", 405), ("POST", 405), ("PROPFIND", 405)]
    {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let response = app.clone().oneshot(request(method.clone(), "/k")).await.unwrap();
        assert_eq!(response.status(), expected, "{method}");
    }
    let _guard = support::hold(&locks, "k").await;
    for method in [Method::GET, Method::HEAD] {
        let response = app.clone().oneshot(request(method.clone(), "/k")).await.unwrap();
        assert_eq!(response.status(), 409, "{method}");
    }
}
