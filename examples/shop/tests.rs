//! Tests of the service without a server. Two copies of the service share their nodes and their stock.
//! In a service that is not an example, this file is the module `tests` of `main.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "the start of the service is not under test")]

mod config;
mod error;
mod routes;
mod shop;
mod stock;

use std::time::{Duration, UNIX_EPOCH};

use axum::Json;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, State};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use redlock_axum::test_util::TestLocks;
use redlock_axum::{HeldLock, LockManager, MemoryNode};
use tower::ServiceExt;

use crate::config::parse_policies;
use crate::error::ShopError;
use crate::routes::{Article, Count};
use crate::shop::{Shop, until_midnight};
use crate::stock::{FULL, Stock};

const BUSY: &str = r#"{"error":{"code":"busy","message":"another request is being processed for this resource; try again later"}}"#;
const UNAVAILABLE: &str = r#"{"error":{"code":"unavailable","message":"the lock for this resource is not available at the moment; try again later"}}"#;

/// All routes that lock an article.
const LOCKED: [(&str, &str); 3] = [
    ("POST", "/articles/shoe/orders"),
    ("POST", "/articles/shoe/refill"),
    ("PUT", "/articles/shoe?left=5"),
];

fn app(locks: LockManager, stock: &Stock) -> Router {
    let policies = parse_policies(include_str!("policies.toml")).unwrap();
    routes::app(Shop { locks, stock: stock.clone() }, policies).unwrap()
}

async fn send(app: &Router, method: &str, path: &str) -> Response {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_sell_each_article_once() {
    let (node, stock) = (MemoryNode::new(), Stock::new());
    let mut customers = Vec::new();
    for _copy in 0..2 {
        let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
        let app = app(locks, &stock);
        for _customer in 0..FULL {
            let app = app.clone();
            customers.push(tokio::spawn(async move {
                loop {
                    let response = send(&app, "POST", "/articles/shoe/orders?hold_ms=1").await;
                    let status = response.status();
                    let body = text(response).await;
                    if !body.contains("busy") {
                        return (status, body);
                    }
                }
            }));
        }
    }
    let (mut sold, mut sold_out) = (0, 0);
    for customer in customers {
        match customer.await.unwrap() {
            (StatusCode::OK, _) => sold += 1,
            (StatusCode::CONFLICT, body) if body.contains("sold_out") => sold_out += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((sold, sold_out), (FULL, FULL));
    assert_eq!(stock.read("shoe"), Some(0));
    assert_eq!(stock.read("hat"), Some(FULL));
}

#[tokio::test]
async fn a_refused_request_has_the_body_of_the_service() {
    let test = TestLocks::new(1);
    let app = app(test.manager(), &Stock::new());
    let other_copy = test.builder().connect().await.unwrap();
    let guard = other_copy.lock("stock:shoe").try_acquire().await.unwrap();
    for (method, path) in LOCKED {
        // `SHOE` is the same article.
        for path in [path, &path.replace("shoe", "SHOE")] {
            let response = send(&app, method, path).await;
            assert_eq!(response.status(), 409, "{path}");
            assert_eq!(response.headers()["retry-after"], "5", "{path}");
            assert_eq!(response.headers()["content-type"], "application/json", "{path}");
            assert_eq!(text(response).await, BUSY, "{path}");
        }
    }
    guard.release().await.unwrap();
    for (method, path) in LOCKED {
        assert_eq!(send(&app, method, path).await.status(), 200, "{path}");
    }
}

/// The second customer comes while the first one pays, and waits for the lock. It must not see the article that is being
/// sold.
#[tokio::test]
async fn the_last_article_is_sold_to_one_of_two_customers() {
    let (test, stock) = (TestLocks::new(1), Stock::new());
    stock.write("shoe", 1);
    let app = app(test.manager(), &stock);
    let order = || send(&app, "POST", "/articles/shoe/orders?hold_ms=200");
    let (first, second) = tokio::join!(order(), order());
    assert_eq!(first.status(), 200);
    assert!(text(second).await.contains(r#""code":"sold_out""#));
    assert_eq!(stock.read("shoe"), Some(0));
}

#[tokio::test]
async fn an_article_has_one_stock_in_upper_and_lower_case() {
    let stock = Stock::new();
    let app = app(LockManager::in_memory(), &stock);
    assert_eq!(send(&app, "POST", "/articles/SHOE/orders").await.status(), 200);
    assert_eq!(stock.read("shoe"), Some(FULL - 1));
}

#[tokio::test]
async fn an_order_that_takes_longer_than_its_lease_keeps_its_lock() {
    let (test, stock) = (TestLocks::new(1), Stock::new());
    let first_copy = app(test.manager(), &stock);
    let second_copy = app(test.builder().connect().await.unwrap(), &stock);

    let path = "/articles/shoe/orders?hold_ms=20000";
    let order = tokio::spawn(async move { send(&first_copy, "POST", path).await });
    test.clock().advance(Duration::from_secs(7)).await;
    assert_eq!(send(&second_copy, "POST", path).await.status(), 409);
    assert_eq!(order.await.unwrap().status(), 200);
    assert_eq!(stock.read("shoe"), Some(FULL - 1));
}

#[tokio::test]
async fn an_order_goes_on_when_its_customer_leaves() {
    let (test, stock) = (TestLocks::new(1), Stock::new());
    let app = app(test.manager(), &stock);

    let customer = {
        let app = app.clone();
        tokio::spawn(async move { send(&app, "POST", "/articles/shoe/orders?hold_ms=2000").await })
    };
    test.clock().advance(Duration::from_secs(1)).await;
    customer.abort();
    assert!(customer.await.unwrap_err().is_cancelled());
    assert_eq!(send(&app, "POST", "/articles/shoe/orders").await.status(), 409);
    test.clock().advance(Duration::from_secs(2)).await;
    assert_eq!(stock.read("shoe"), Some(FULL - 1));
    assert!(test.nodes()[0].is_empty());
}

/// The other copy has crashed: nobody renews or releases its lock.
#[tokio::test]
async fn an_article_is_free_when_the_lease_of_a_crashed_copy_is_over() {
    let test = TestLocks::new(1);
    let app = app(test.manager(), &Stock::new());
    let other_copy = test.builder().connect().await.unwrap();
    other_copy.lock("stock:shoe").try_acquire().await.unwrap().keep_until_expiry();

    test.clock().advance(Duration::from_secs(27)).await;
    let response = send(&app, "POST", "/articles/shoe/orders").await;
    assert_eq!(response.status(), 409);
    assert_eq!(response.headers()["retry-after"], "3");
    test.clock().advance(Duration::from_secs(3)).await;
    assert_eq!(send(&app, "POST", "/articles/shoe/orders").await.status(), 200);
}

#[tokio::test]
async fn a_report_is_sent_once_in_ten_minutes() {
    let test = TestLocks::new(1);
    let app = app(test.manager(), &Stock::new());
    assert_eq!(send(&app, "POST", "/reports/daily").await.status(), 200);
    test.clock().advance(Duration::from_secs(60)).await;
    let response = send(&app, "POST", "/reports/daily").await;
    assert_eq!(response.status(), 409);
    assert_eq!(response.headers()["retry-after"], "540");
    test.clock().advance(Duration::from_secs(540)).await;
    assert_eq!(send(&app, "POST", "/reports/daily").await.status(), 200);
}

#[tokio::test]
async fn an_order_that_loses_its_lock_is_stopped_and_sells_nothing() {
    let (test, stock) = (TestLocks::new(1), Stock::new());
    let app = app(test.manager(), &stock);

    let path = "/articles/shoe/orders?hold_ms=20000";
    let order = tokio::spawn(async move { send(&app, "POST", path).await });
    test.clock().advance(Duration::from_secs(1)).await;
    test.nodes()[0].forget(); // as a Redis that is restarted without its data
    let response = order.await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(text(response).await.contains(r#""code":"stopped""#));
    assert_eq!(stock.read("shoe"), Some(FULL));
}

#[tokio::test]
async fn an_unavailable_lock_is_answered_with_503() {
    let test = TestLocks::new(3);
    let app = app(test.manager(), &Stock::new());
    test.nodes()[0].fail();
    test.nodes()[1].freeze();
    for (method, path) in LOCKED {
        let response = send(&app, method, path).await;
        assert_eq!(response.status(), 503, "{path}");
        assert_eq!(text(response).await, UNAVAILABLE, "{path}");
    }
}

#[tokio::test]
async fn after_the_shutdown_of_the_locks_no_handler_runs() {
    let stock = Stock::new();
    let locks = LockManager::in_memory();
    let app = app(locks.clone(), &stock);
    locks.shutdown().await;
    for (method, path) in LOCKED {
        let response = send(&app, method, path).await;
        assert_eq!(response.status(), 503, "{path}");
        assert_eq!(response.headers()["retry-after"], "1", "{path}");
        assert_eq!(text(response).await, UNAVAILABLE, "{path}");
    }
    assert_eq!(stock.read("shoe"), Some(FULL));
}

#[tokio::test]
async fn an_error_of_the_shop_has_the_same_form_and_releases_the_lock() {
    let app = app(LockManager::in_memory(), &Stock::new());
    assert_eq!(send(&app, "PUT", "/articles/shoe?left=0").await.status(), 200);
    for _ in 0..2 {
        let response = send(&app, "POST", "/articles/shoe/orders").await;
        assert_eq!(response.status(), 409);
        assert!(!response.headers().contains_key("retry-after"));
        let sold_out = r#"{"error":{"code":"sold_out","message":"this article is sold out"}}"#;
        assert_eq!(text(response).await, sold_out);
    }
    let response = send(&app, "POST", "/articles/boat/orders").await;
    assert_eq!(response.status(), 404);
    let unknown = r#"{"error":{"code":"unknown_article","message":"there is no such article"}}"#;
    assert_eq!(text(response).await, unknown);
}

/// A handler that a policy locks is a plain function.
#[tokio::test]
async fn a_change_by_hand_sets_the_stock() {
    let (locks, stock) = (LockManager::in_memory(), Stock::new());
    let guard = locks.lock("stock:shoe").try_acquire().await.unwrap();
    let change = |sku: &str| {
        let (lock, sku) = (HeldLock::from_guard(&guard), Path(sku.to_owned()));
        routes::change(lock, State(stock.clone()), sku, Query(Count { left: 3 }))
    };
    let Json(Article { sku, left }) = change("shoe").await.unwrap();
    assert_eq!((&*sku, left), ("shoe", 3));
    assert_eq!(stock.read("shoe"), Some(3));
    assert!(matches!(change("boat").await, Err(ShopError::UnknownArticle)));
}

#[tokio::test]
async fn a_change_is_refused_if_its_policy_is_missing() {
    let stock = Stock::new();
    let shop = Shop { locks: LockManager::in_memory(), stock: stock.clone() };
    let reports = parse_policies(include_str!("policies.toml")).unwrap().split_off(1);
    let app = routes::app(shop, reports).unwrap();
    assert_eq!(send(&app, "PUT", "/articles/shoe?left=3").await.status(), 500);
    assert_eq!(stock.read("shoe"), Some(FULL));
}

#[test]
fn a_policy_for_a_route_that_does_not_exist_is_an_error_at_the_start() {
    let text = include_str!("policies.toml").replace("/articles/", "/article/");
    let shop = Shop { locks: LockManager::in_memory(), stock: Stock::new() };
    let error = routes::app(shop, parse_policies(&text).unwrap()).unwrap_err();
    assert!(error.to_string().contains("the application has no such route"), "{error}");
}

#[tokio::test]
async fn the_lock_of_an_export_is_held_until_its_last_line() {
    let app = app(LockManager::in_memory(), &Stock::new());
    let first = send(&app, "GET", "/export").await;
    assert_eq!(first.status(), 200);
    let second = send(&app, "GET", "/export").await;
    assert_eq!(second.status(), 409);
    assert_eq!(text(second).await, BUSY);
    assert_eq!(text(first).await, "hat,10\nshoe,10\n");
    assert_eq!(send(&app, "GET", "/export").await.status(), 200);
}

#[tokio::test]
async fn one_copy_fills_up_the_stock_each_night() {
    let (test, stock) = (TestLocks::new(1), Stock::new());
    let shop = Shop { locks: test.manager(), stock: stock.clone() };
    let other_copy = test.builder().connect().await.unwrap();
    let other_copy = Shop { locks: other_copy, stock: stock.clone() };

    stock.write("shoe", 3);
    assert_eq!(shop.restock().await.unwrap(), Some(2));
    assert_eq!(stock.read("shoe"), Some(FULL));
    stock.write("shoe", 3);
    assert_eq!(other_copy.restock().await.unwrap(), None);
    assert_eq!(stock.read("shoe"), Some(3));

    test.clock().advance(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(other_copy.restock().await.unwrap(), Some(2));
    assert_eq!(stock.read("shoe"), Some(FULL));
}

#[test]
fn the_night_begins_at_midnight() {
    let hour = Duration::from_secs(60 * 60);
    assert_eq!(until_midnight(UNIX_EPOCH + 23 * hour), hour);
    assert_eq!(until_midnight(UNIX_EPOCH + 24 * hour), 24 * hour);
}
