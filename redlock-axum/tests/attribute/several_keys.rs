//! The forms of `keys`: a lock of several keys.

use std::cell::Cell;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get as on_get, post};
use axum::{Json, Router};
use redlock_axum::{
    Dialect, FencedLock, HeldLock, LockError, LockKey, LockManager, MemoryNode, redis_lock,
};
use serde::Deserialize;

use crate::support::{app, get, held_by_another, hold, is_held_by_caller, memory, post_json};

const SHOP: &str = "shop";

#[derive(Deserialize)]
struct Item {
    sku: String,
}

#[derive(Deserialize)]
struct Cart {
    items: Vec<Item>,
}

impl Cart {
    fn skus(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|item| &*item.sku)
    }
}

fn keys(lock: &HeldLock) -> String {
    lock.keys().iter().map(LockKey::as_str).collect::<Vec<_>>().join(" ")
}

#[redis_lock(keys("sku:{}", cart.items.iter().map(|item| &item.sku)))]
async fn items(lock: HeldLock, Json(cart): Json<Cart>) -> String {
    assert!(lock.is_valid());
    keys(&lock)
}

#[redis_lock(keys("{SHOP}:{shop}:{tenant}/{}", cart.skus(), tenant = cart.items.len()))]
async fn with_parameters(
    Path(shop): Path<String>,
    lock: HeldLock,
    Json(cart): Json<Cart>,
) -> String {
    keys(&lock)
}

#[redis_lock(keys("{:lower}/{0:lower}", cart.skus()))]
async fn typed(lock: HeldLock, Json(cart): Json<Cart>) -> String {
    keys(&lock)
}

#[redis_lock(keys = cart.skus())]
async fn expression(lock: HeldLock, Json(cart): Json<Cart>) -> String {
    keys(&lock)
}

#[redis_lock(keys = skus)]
async fn parameter(lock: HeldLock, Json(skus): Json<Vec<String>>) -> String {
    assert!(!skus.is_empty());
    keys(&lock)
}

#[redis_lock(keys("{}", skus), fenced)]
async fn numbered(lock: FencedLock, Json(skus): Json<Vec<String>>) -> String {
    format!("{} {}", skus.len(), lock.fencing_token().number() > 0)
}

#[redis_lock(keys("{}", ["b", "a"]), wait_time = 60, on_lost = abort)]
async fn constants(lock: HeldLock) -> String {
    keys(&lock)
}

fn router() -> Router<LockManager> {
    Router::new()
        .route("/items", post(items))
        .route("/with-parameters/{shop}", post(with_parameters))
        .route("/typed", post(typed))
        .route("/expression", post(expression))
        .route("/parameter", post(parameter))
        .route("/numbered", post(numbered))
        .route("/constants", on_get(constants))
}

const CART: &str = r#"{"items": [{"sku": "Shoe:9"}, {"sku": "hat"}, {"sku": "Shoe:9"}]}"#;

#[tokio::test]
async fn the_keys_are_made_of_the_items_and_the_parameters() {
    let (locks, node) = memory().await;
    let app = app(router(), &locks);
    for (path, body, expected) in [
        ("/items", CART, "sku:Shoe%3A9 sku:hat"),
        ("/with-parameters/a%20b", CART, "shop:a%20b:3/Shoe%3A9 shop:a%20b:3/hat"),
        ("/typed", CART, "hat/hat shoe%3A9/shoe%3A9"),
        // An expression is not escaped.
        ("/expression", CART, "Shoe:9 hat"),
        ("/parameter", r#"["b", "a"]"#, "a b"),
        ("/numbered", r#"["b", "a"]"#, "2 true"),
    ] {
        let answer = post_json(&app, path, body).await;
        assert_eq!((answer.status, &*answer.body), (StatusCode::OK, expected), "{path}");
    }
    assert_eq!(get(&app, "/constants").await.body, "a b");
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_handler_does_not_run_while_another_holds_one_of_its_keys() {
    let (locks, node) = memory().await;
    let app = app(router(), &locks);
    let held = [hold(&locks, "sku:hat").await, held_by_another(&node, "sku:Shoe%3A9").await];
    for guard in held {
        let answer = post_json(&app, "/items", CART).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.body);
        assert!(answer.headers.contains_key("retry-after"));
        guard.release().await.unwrap();
    }
    assert_eq!(post_json(&app, "/items", CART).await.status, StatusCode::OK);
    assert!(node.is_empty());
}

/// The list comes from the client, so its mistakes are the client's.
#[tokio::test]
async fn a_list_that_is_empty_or_too_long_or_has_an_empty_value_is_answered_with_400() {
    let (locks, node) = memory().await;
    let app = app(router(), &locks);
    let many: Vec<_> = (0..65).map(|sku| format!(r#"{{"sku": "{sku}"}}"#)).collect();
    let many = format!(r#"{{"items": [{}]}}"#, many.join(","));
    for (path, body, detail) in [
        ("/items", r#"{"items": []}"#, "the list of the resources is empty"),
        ("/items", many.leak(), "the list of the resources has more than 64 different entries"),
        ("/items", r#"{"items": [{"sku": "a"}, {"sku": ""}]}"#, "is empty"),
        ("/parameter", "[]", "the list of the resources is empty"),
        ("/parameter", r#"["a", "\u0000"]"#, "contains a control character"),
        ("/parameter", r#"["a", ""]"#, "is empty"),
    ] {
        let answer = post_json(&app, path, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path} {}", answer.body);
        assert!(answer.body.contains(detail), "{path} {}", answer.body);
    }
    assert!(node.is_empty());
}

#[redis_lock(keys("sku:{}", skus.iter()), manager = locks, wait_time = 5)]
async fn reserve(locks: &LockManager, skus: &[String]) -> Result<usize, LockError> {
    for sku in skus {
        assert!(is_held_by_caller(locks, &format!("sku:{sku}")).await);
    }
    Ok(skus.len())
}

#[redis_lock(keys = skus, manager = locks, skip = 0)]
async fn reserve_or_skip(locks: &LockManager, skus: Vec<String>) -> Result<usize, LockError> {
    Ok(skus.len())
}

#[tokio::test]
async fn a_function_locks_all_keys_of_its_parameter() {
    let (locks, node) = memory().await;
    let skus = ["b".to_owned(), "a".to_owned()];
    assert_eq!(reserve(&locks, &skus).await.unwrap(), 2);
    let held = held_by_another(&node, "sku:b").await;
    // The first future is polled first, and waits.
    let (reserved, released) = tokio::join!(reserve(&locks, &skus), held.release());
    assert_eq!(reserved.unwrap(), 2);
    released.unwrap();
    assert_eq!(reserve_or_skip(&locks, skus.to_vec()).await.unwrap(), 2);
    let _held = held_by_another(&node, "b").await;
    assert_eq!(reserve_or_skip(&locks, skus.to_vec()).await.unwrap(), 0);
    let error = reserve(&locks, &[]).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey(_)), "{error:?}");
}

#[tokio::test]
async fn a_value_that_all_keys_share_is_evaluated_once() {
    fn shop(calls: &Cell<u8>) -> u8 {
        calls.replace(calls.get() + 1)
    }

    #[redis_lock(keys("{shop}:{}", [7, 8], shop = shop(calls)), manager = locks)]
    async fn reserve(locks: &LockManager, calls: &Cell<u8>) -> Result<u8, LockError> {
        assert!(is_held_by_caller(locks, "0:7").await && is_held_by_caller(locks, "0:8").await);
        Ok(calls.get())
    }

    let (locks, _) = memory().await;
    assert_eq!(reserve(&locks, &Cell::new(0)).await.unwrap(), 1);
}

/// The manager decides the dialect, so the compiler cannot refuse it. A list of one key must not work in a test, and fail
/// with the first list of two.
#[tokio::test]
async fn a_list_of_one_key_is_refused_in_the_dialect_of_redisson_as_a_list_of_two_is() {
    let builder = LockManager::builder().memory_node(&MemoryNode::new());
    let locks = builder.dialect(Dialect::Redisson).connect().await.unwrap();
    let app = app(router(), &locks);
    for json in [
        r#"{"items":[{"sku":"hat"}]}"#,
        r#"{"items":[{"sku":"hat"},{"sku":"hat"}]}"#,
        r#"{"items":[{"sku":"hat"},{"sku":"shoe"}]}"#,
    ] {
        assert_eq!(post_json(&app, "/items", json).await.status, 500, "{json}");
    }
}
