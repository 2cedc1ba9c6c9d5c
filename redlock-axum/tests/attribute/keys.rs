//! The forms of `key`, and how values are encoded in the key.

use std::sync::Mutex;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::get as on_get;
use redlock_axum::{HeldLock, KeyError, LockError, LockManager, redis_lock};
use serde::Deserialize;

use crate::support::{app, get, installed, is_held_by_caller, memory};

const TENANT: &str = "north:1";

#[derive(Deserialize)]
struct Item {
    sku: String,
    size: u32,
}

#[derive(Deserialize)]
struct Format {
    width: usize,
    precision: usize,
}

#[redis_lock(key = "{{item}}:{sku}:{size}")]
async fn template(Query(Item { sku, size }): Query<Item>, lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key("{}:{0}:{size}:{id}", item.sku, size = item.size + 1))]
async fn values(Path(id): Path<String>, Query(item): Query<Item>, lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key("{name}/{id}", name = item.sku))]
async fn named(Path(id): Path<String>, Query(item): Query<Item>, lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key = format!("{TENANT}/{}:{size:03}", sku.to_lowercase()))]
async fn expression(Query(Item { sku, size }): Query<Item>, lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key = format!("bin:{size:0width$.precision$}"))]
async fn formatted(
    Path(size): Path<f64>,
    Query(Format { width, precision }): Query<Format>,
    lock: HeldLock,
) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key = item.sku)]
async fn field(Query(item): Query<Item>, lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key = TENANT)]
async fn constant(lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key = "{TENANT}:{id}")]
async fn prefixed(Path(id): Path<String>, lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

#[redis_lock(key = r#"raw:"{id}""#)]
async fn raw(Path(id): Path<String>, lock: HeldLock) -> String {
    lock.keys()[0].to_string()
}

fn router() -> Router<LockManager> {
    Router::new()
        .route("/template", on_get(template))
        .route("/values/{id}", on_get(values))
        .route("/named/{id}", on_get(named))
        .route("/expression", on_get(expression))
        .route("/formatted/{size}", on_get(formatted))
        .route("/field", on_get(field))
        .route("/constant", on_get(constant))
        .route("/prefixed/{id}", on_get(prefixed))
        .route("/raw/{id}", on_get(raw))
}

#[tokio::test]
async fn each_form_of_key_gives_the_expected_key() {
    let (locks, _) = memory().await;
    let app = app(router(), &locks);
    for (path, key) in [
        ("/template?sku=shoe&size=42", "{item}:shoe:42"),
        ("/values/7?sku=shoe&size=42", "shoe:shoe:43:7"),
        ("/named/7?sku=shoe&size=42", "shoe/7"),
        ("/expression?sku=SHOE&size=42", "north:1/shoe:042"),
        ("/formatted/1.5?width=6&precision=2", "bin:001.50"),
        ("/field?sku=shoe&size=42", "shoe"),
        ("/constant", "north:1"),
        ("/prefixed/7", "north:1:7"),
        ("/raw/7", r#"raw:"7""#),
    ] {
        assert_eq!(get(&app, path).await.body, key, "{path}");
    }
}

/// Different values, different keys.
#[tokio::test]
async fn a_value_cannot_change_the_other_parts_of_the_key() {
    let (locks, _) = memory().await;
    let app = app(router(), &locks);
    for (path, key) in [
        ("/template?sku=a:b%7Bc%7D&size=1", "{item}:a%3Ab%7Bc%7D:1"),
        ("/values/a%2Fb?sku=%25&size=1", "%25:%25:2:a%2Fb"),
        ("/named/c?sku=a%2Fb:&size=1", "a%2Fb%3A/c"),
        ("/prefixed/%00%0A", "north:1:%00%0A"),
        ("/raw/%22", r#"raw:"%22""#),
    ] {
        assert_eq!(get(&app, path).await.body, key, "{path}");
    }
}

#[tokio::test]
async fn an_empty_value_is_answered_with_400() {
    let (locks, node) = memory().await;
    let app = app(router(), &locks);
    for path in ["/template?sku=&size=1", "/values/7?sku=&size=1"] {
        assert_eq!(get(&app, path).await.status, StatusCode::BAD_REQUEST, "{path}");
    }
    assert!(node.is_empty());
}

#[tokio::test]
async fn an_expression_that_gives_an_invalid_key_is_an_error() {
    #[redis_lock(key = name, manager = locks)]
    async fn named(locks: &LockManager, name: &str) -> Result<(), LockError> {
        assert!(name.len() > 1);
        Ok(())
    }

    #[redis_lock(key("{name}"), manager = locks)]
    async fn part(locks: &LockManager, name: &str) -> Result<(), LockError> {
        unreachable!("the body ran without the lock of {name}");
    }

    let (locks, _) = memory().await;
    named(&locks, "two words").await.unwrap();
    assert!(matches!(named(&locks, "").await, Err(LockError::InvalidKey(KeyError::Empty))));
    assert!(matches!(
        named(&locks, "a\nb").await,
        Err(LockError::InvalidKey(KeyError::ControlCharacter { index: 1, .. }))
    ));
    assert!(matches!(
        part(&locks, "").await,
        Err(LockError::InvalidKey(KeyError::EmptyPart { .. }))
    ));
}

/// Keys that begin with `redlock:` belong to the library.
#[tokio::test]
async fn a_reserved_key_is_the_mistake_of_the_client_or_of_the_constant_or_expression() {
    const OWNER: &str = "redlock";

    #[redis_lock(key = "{name}:{id}")]
    async fn value(Path((name, id)): Path<(String, u64)>) -> String {
        format!("{name} {id}")
    }

    #[redis_lock(key = "{OWNER}:{id}")]
    async fn constant(Path((_, id)): Path<(String, u64)>) {
        unreachable!("the body ran without the lock of {id}");
    }

    #[redis_lock(key = format!("{name}:{id}"))]
    async fn expression(Path((name, id)): Path<(String, u64)>) {
        unreachable!("the body ran without the lock of {name} {id}");
    }

    let (locks, node) = memory().await;
    let router = Router::new()
        .route("/value/{name}/{id}", on_get(value))
        .route("/constant/{name}/{id}", on_get(constant))
        .route("/expression/{name}/{id}", on_get(expression));
    let app = app(router, &locks);
    assert_eq!(get(&app, "/value/shop/7").await.body, "shop 7");
    for (path, status) in [
        ("/value/redlock/7", StatusCode::BAD_REQUEST),
        ("/constant/shop/7", StatusCode::INTERNAL_SERVER_ERROR),
        ("/expression/redlock/7", StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        assert_eq!(get(&app, path).await.status, status, "{path}");
    }
    assert!(node.is_empty());
}

#[tokio::test]
async fn the_key_is_made_once_and_before_the_body() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn next(counter: &AtomicU32) -> String {
        format!("made:{}", counter.fetch_add(1, Ordering::Relaxed))
    }

    #[redis_lock(key = next(counter), manager = locks)]
    async fn counted(locks: &LockManager, counter: &AtomicU32) -> Result<u32, LockError> {
        Ok(counter.load(Ordering::Relaxed))
    }

    let (locks, _) = memory().await;
    assert_eq!(counted(&locks, &AtomicU32::new(0)).await.unwrap(), 1);

    #[redis_lock(key = next(counter), installed)]
    async fn handler(State(counter): State<Arc<AtomicU32>>, lock: HeldLock) -> String {
        format!("{} {}", lock.keys()[0], counter.load(Ordering::Relaxed))
    }

    let router = Router::new().route("/", on_get(handler)).with_state(Arc::default());
    assert_eq!(get(&installed(router, &locks), "/").await.body, "made:0 1");
}

mod typed {
    use std::cell::Cell;

    use super::*;

    #[redis_lock(
        key("{TENANT}/{:lower}/{number:u64}/{0}/{number}/{id:uuid}", next(calls), number = " 7".trim()),
        manager = locks
    )]
    async fn all_forms(
        locks: &LockManager,
        calls: &Cell<u32>,
        id: &str,
    ) -> Result<bool, LockError> {
        let _ = id;
        let taken = format!("{TENANT}/x-1/7/X-1/7/67e55044-10b1-426f-9247-bb680e5fe0c8");
        Ok(is_held_by_caller(locks, &taken).await)
    }

    fn next(calls: &Cell<u32>) -> String {
        calls.set(calls.get() + 1);
        format!("X-{}", calls.get())
    }

    #[tokio::test]
    async fn placeholders_of_all_forms_may_have_a_type() {
        let (locks, _) = memory().await;
        let calls = Cell::new(0);
        let id = "67E5504410B1426F9247BB680E5FE0C8";
        assert!(all_forms(&locks, &calls, id).await.unwrap());
        assert_eq!(calls.get(), 1, "a value is evaluated once");
    }

    #[redis_lock(key = "order:{id:i64}", manager = locks)]
    async fn pay(locks: &LockManager, id: &str) -> Result<(), LockError> {
        let _ = id;
        Ok(())
    }

    #[tokio::test]
    async fn a_value_of_another_type_is_an_invalid_key() {
        let (locks, node) = memory().await;
        for id in ["-7", "+7", "007"] {
            pay(&locks, id).await.unwrap();
        }
        for id in ["x", "7.0", "9223372036854775808", "7 "] {
            let error = pay(&locks, id).await.unwrap_err();
            let LockError::InvalidKey(KeyError::WrongType { name, .. }) = error else {
                panic!("{id}: {error}");
            };
            assert_eq!(name, "id");
        }
        let empty = pay(&locks, "").await.unwrap_err();
        assert!(matches!(empty, LockError::InvalidKey(KeyError::EmptyPart { .. })), "{empty}");
        assert!(node.is_empty());
    }

    /// The text of a typed value is its `Display`.
    #[redis_lock(key = "order:{id:u64}")]
    async fn typed_value(Path(id): Path<u64>, lock: HeldLock) -> String {
        format!("{id} {}", lock.keys()[0])
    }

    #[tokio::test]
    async fn a_typed_parameter_may_have_a_type_in_the_template() {
        let (locks, _) = memory().await;
        let app = app(Router::new().route("/{id}", on_get(typed_value)), &locks);
        assert_eq!(get(&app, "/042").await.body, "42 order:42");
    }
}

/// A value may borrow from a temporary, as in `format!`.
#[tokio::test]
async fn a_value_may_borrow_from_a_guard() {
    #[redis_lock(key("sku:{}", name.lock().unwrap().as_str()), manager = locks)]
    async fn guarded(locks: &LockManager, name: Mutex<String>) -> Result<String, LockError> {
        assert!(is_held_by_caller(locks, "sku:a").await);
        Ok(name.into_inner().unwrap())
    }

    let (locks, _) = memory().await;
    assert_eq!(guarded(&locks, Mutex::new("a".into())).await.unwrap(), "a");
}
