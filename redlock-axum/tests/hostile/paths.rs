//! Crafted requests.

use std::cell::Cell;
use std::collections::HashMap;

use axum::body::Body;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{Method, Request, StatusCode, header};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use redlock_axum::{HeldLock, LockManager, LockPolicy, ScopeLayer, redis_lock};
use serde::Deserialize;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::requests::{answer, ask, config, encoded, segment};
use crate::support::{hold, layer, memory, request, table, text};

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

/// Returns an application that is locked by each front end, in each place where a layer can stand.
/// Each handler compares the resource of its request with the key that it holds.
fn shop(locks: &LockManager) -> Router {
    let orders = || Router::new().route("/orders/{id}", post(order));
    let policies = [
        LockPolicy::new("pair:{a}/{b}").route("/pairs/{a}/{b}"),
        LockPolicy::new("order:{tenant}:{id:u64}").route("/outer/{tenant}/orders/{id}"),
    ];
    let order = layer(locks, "order:{tenant}:{id:u64}");
    Router::new()
        .route("/stock", post(stock))
        .route("/loose", post(loose))
        .route("/files/{*path}", post(file).route_layer(layer(locks, "file:{path}")))
        .route("/coupons/{code}", post(coupon).route_layer(layer(locks, "coupon:{code:lower}")))
        .route("/pairs/{a}/{b}", post(pair))
        .nest("/tenants/{tenant}", orders().route_layer(order.clone()))
        .nest("/outer/{tenant}", orders())
        .nest_service("/service/{tenant}", orders().layer(order).with_state(locks.clone()))
        .layer(table(locks, policies))
        .layer(ScopeLayer::new(locks))
        .with_state(locks.clone())
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
fn no_path_reaches_a_handler_unlocked_or_with_the_key_of_another_resource() {
    let runtime = Runtime::new().unwrap();
    let (locks, node) = runtime.block_on(memory());
    let app = shop(&locks);
    let served = Cell::new(0_u32);
    let check = |path: String| {
        let Some((status, answer)) = runtime.block_on(ask(&app, &path)) else { return Ok(()) };
        match status.as_u16() {
            200 => {
                let locked = !answer.starts_with("WRONG") && !answer.starts_with("UNLOCKED");
                prop_assert!(locked, "{}: {}", path, answer);
                served.set(served.get() + 1);
            }
            400 | 404 => {}
            // Inside of `nest_service` the layer runs before the routes of the nested service are
            // matched.
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
    let config = config(3000);
    let cases = config.cases;
    TestRunner::new(config).run(&path(), check).unwrap();
    assert!(served.get() > cases / 20, "only {served:?} requests were served");
    assert!(node.is_empty());
}

/// A held key blocks the requests for its resource, and no other request.
#[tokio::test]
async fn every_spelling_of_a_path_meets_the_lock_of_its_resource() {
    let (locks, _node) = memory().await;
    let app = shop(&locks);
    let _guards = [
        hold(&locks, "order:t:42").await,
        hold(&locks, "file:a%2Fb").await,
        hold(&locks, "coupon:sale").await,
        hold(&locks, "pair:a%2Fb/c").await,
        hold(&locks, "stock:a%26b:1").await,
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
async fn a_value_of_a_megabyte_has_a_short_and_distinct_key() {
    let (locks, node) = memory().await;
    let named = Router::new()
        .route("/named", post(named))
        .layer(ScopeLayer::new(&locks))
        .with_state(locks.clone());
    let (one, other) = ("x".repeat(1024 * 1024), format!("{}y", "x".repeat(1024 * 1024 - 1)));
    let key = text(send_name(&named, &one).await).await;
    assert!(key.starts_with("named:xxx") && key.len() <= 200, "{key}");
    let _guard = hold(&locks, &key).await;
    let refused = send_name(&named, &one).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert!(text(refused).await.len() < 1000);
    assert_eq!(send_name(&named, &other).await.status(), StatusCode::OK);
    assert_eq!(send_name(&named, "").await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(node.len(), 1);

    // About the longest path that a URI can have.
    let app = shop(&locks);
    let (status, key) = ask(&app, &format!("/files/{}", "%41".repeat(21_000))).await.unwrap();
    assert_eq!((status, key.len() <= 200), (StatusCode::OK, true), "{key}");
}

/// This layer locks GET only, as a developer may choose. A HEAD request, which axum serves with the
/// handler for GET, is locked as well. A method that the route does not have never reaches a
/// handler.
#[tokio::test]
async fn no_method_bypasses_the_lock() {
    let (locks, node) = memory().await;
    let seen = node.clone();
    let handler = get(async move || assert!(!seen.is_empty(), "unlocked"));
    let policy = LockPolicy::new("k").methods([Method::GET]);
    let app = Router::new().route("/k", handler.route_layer(layer(&locks, policy)));
    for (method, expected) in
        [("GET", 200), ("HEAD", 200), ("get", 405), ("POST", 405), ("PROPFIND", 405)]
    {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let response = app.clone().oneshot(request(method.clone(), "/k")).await.unwrap();
        assert_eq!(response.status(), expected, "{method}");
    }
    let _guard = hold(&locks, "k").await;
    for method in [Method::GET, Method::HEAD] {
        let response = app.clone().oneshot(request(method.clone(), "/k")).await.unwrap();
        assert_eq!(response.status(), 409, "{method}");
    }
}
