//! Policies that are read from the application's configuration.

use std::time::Duration;

use axum::Router;
use axum::routing::{any, post as on_post};
use http::{Method, Request};
use redlock_axum::{FencedLock, HeldLock, LockLayer, LockManager, LockPolicy};
use serde::Deserialize;

use super::ok;
use crate::support::{answer, hold, layer, memory, post, send, table, text};

#[derive(Debug, Deserialize)]
struct Config {
    locks: Vec<LockPolicy>,
}

async fn app(policies: Vec<LockPolicy>) -> (Router, LockManager) {
    let (locks, node) = memory().await;
    let lease = async move || node.time_to_live("order:7").unwrap().as_millis().to_string();
    let app = Router::new()
        .route("/orders/{id}/pay", on_post(lease).get(ok))
        .route("/stock/{sku}", any(ok))
        .layer(table(&locks, policies));
    (app, locks)
}

/// Asserts that every field has its effect.
async fn works(policies: Vec<LockPolicy>) {
    let (app, locks) = app(policies).await;
    let lease = text(send(&app, Method::POST, "/orders/7/pay").await).await;
    assert!((1400..=1500).contains(&lease.parse::<u64>().unwrap()), "{lease}");

    let _order = hold(&locks, "order:7").await;
    assert_eq!(post(&app, "/orders/7/pay").await, 409);
    assert_eq!(send(&app, Method::GET, "/orders/7/pay").await.status(), 200);

    let stock = hold(&locks, "stock:shoe").await;
    assert_eq!(post(&app, "/stock/SHOE").await, 200);
    assert_eq!(send(&app, Method::PATCH, "/stock/SHOE").await.status(), 423);
    let put = send(&app, Method::PUT, "/stock/hat");
    assert_eq!(put.await.status(), 200);
    stock.release().await.unwrap();
    assert_eq!(send(&app, Method::PATCH, "/stock/SHOE").await.status(), 200);
}

#[tokio::test]
async fn a_table_is_read_from_toml() {
    let config: Config = toml::from_str(
        r#"
        [[locks]]
        methods = "POST"
        route = "/orders/{id}/pay"
        key = "order:{id:u64}"
        expire = "1s 500ms"

        [[locks]]
        methods = ["PUT", "PATCH"]
        route = "/stock/{sku}"
        key = "stock:{sku:lower}"
        expire = 10
        renew = true
        max_hold = "1h"
        min_hold = 0
        reentrant = true
        fair = true
        keep = false
        on_lost = "keep_going"
        wait_time = "20ms"
        contended_status = 423
        hold_until = "end_of_body"
        "#,
    )
    .unwrap();
    works(config.locks).await;
}

#[tokio::test]
async fn a_table_is_read_from_json() {
    let policies = serde_json::from_str(
        r#"[
            {
                "methods": ["POST"],
                "route": "/orders/{id}/pay",
                "key": "order:{id:u64}",
                "expire": "1500ms"
            },
            {
                "methods": ["PUT", "PATCH"],
                "route": "/stock/{sku}",
                "key": "stock:{sku:lower}",
                "contended_status": 423,
                "hold_until": "response"
            }
        ]"#,
    )
    .unwrap();
    works(policies).await;
}

#[tokio::test]
async fn the_options_for_holding_a_lock_are_read() {
    let config: Config = toml::from_str(
        r#"
        locks = [
            { route = "/waits", key = "waits", wait_time = "forever" },
            { route = "/stays", key = "stays", expire = 60, min_hold = "30s" },
            { route = "/keeps", key = "keeps", expire = 60, keep = true },
            { route = "/stops", key = "stops", expire = "400ms", on_lost = "abort" },
            { route = "/hangs", key = "hangs", expire = "400ms", renew = true, max_hold = "800ms" },
            { route = "/again", key = "again", reentrant = true },
            { route = "/counts", key = "counts", fenced = true },
            { route = "/streams", key = "streams", hold_until = "end_of_body" },
            { route = "/shares", key = "shares", shared = true },
            { route = "/limits", key = "limits", permits = 2 },
            { route = "/small", key = "small", body_limit = "4" },
            { route = "/big", key = "big", body_limit = 4, body = "buffer" },
            { route = "/scan", key = "scan", body = "stream" },
            { route = "/reads", key = "reads", methods = ["GET", "POST"], shared_on = "GET" },
        ]
        "#,
    )
    .unwrap();
    let (locks, node) = memory().await;
    let app = Router::new()
        .route("/waits", on_post(ok))
        .route("/stays", on_post(ok))
        .route("/keeps", on_post(ok))
        .route("/stops", on_post(std::future::pending::<()>))
        .route("/hangs", on_post(|lock: HeldLock| async move { drop(lock.lost().await) }))
        .route("/again", on_post(ok))
        .route("/counts", on_post(|_: FencedLock| async {}))
        .route("/streams", on_post(async || "a body"))
        .route("/shares", on_post(ok))
        .route("/limits", on_post(ok))
        .route("/small", on_post(ok))
        .route("/big", on_post(ok))
        .route("/scan", on_post(ok))
        .route("/reads", on_post(ok).get(ok).put(ok))
        .layer(table(&locks, config.locks))
        .route_layer(layer(&locks, "again"));

    let guard = hold(&locks, "waits").await;
    let (waited, released) = tokio::join!(post(&app, "/waits"), guard.release());
    released.unwrap();
    assert_eq!(waited, 200);
    assert_eq!(post(&app, "/counts").await, 200);
    let streams = send(&app, Method::POST, "/streams").await;
    assert!(node.time_to_live("streams").is_some());
    assert_eq!(text(streams).await, "a body");
    assert!(node.time_to_live("streams").is_none());
    assert_eq!(post(&app, "/stays").await, 200);
    let left = node.time_to_live("stays").unwrap();
    assert!((20..=30).contains(&left.as_secs()), "{left:?}");
    assert_eq!(post(&app, "/keeps").await, 200);
    assert!(node.time_to_live("keeps").unwrap() > Duration::from_secs(50));
    assert_eq!(post(&app, "/stops").await, 503);
    assert_eq!(post(&app, "/hangs").await, 200);
    assert_eq!(post(&app, "/again").await, 200);

    for (path, status) in [("/small", 413), ("/big", 413), ("/scan", 200)] {
        let request = Request::post(path).body("12345".into()).unwrap();
        assert_eq!(answer(&app, request).await.status, status, "{path}");
    }

    let _reader = locks.lock("shares").shared(true).try_acquire().await.unwrap();
    assert_eq!(post(&app, "/shares").await, 200);
    let permit = async || locks.lock("limits").permits(2).try_acquire().await.unwrap();
    let _one = permit().await;
    assert_eq!(post(&app, "/limits").await, 200);
    let _two = permit().await;
    assert_eq!(post(&app, "/limits").await, 409);
    let _reader = locks.lock("reads").shared(true).try_acquire().await.unwrap();
    for (method, status) in
        [(Method::GET, 200), (Method::HEAD, 200), (Method::POST, 409), (Method::PUT, 200)]
    {
        assert_eq!(send(&app, method.clone(), "/reads").await.status(), status, "{method}");
    }
}

#[test]
fn each_mistake_in_a_file_has_a_clear_message() {
    let locks = LockManager::in_memory();
    let message = |fields: &str| {
        let text = format!("[[locks]]\nroute = '/a/{{id}}'\nkey = 'a:{{id}}'\n{fields}");
        match toml::from_str::<Config>(&text) {
            Ok(config) => LockLayer::table(&locks, config.locks).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (fields, part) in [
        (
            "expires = 5",
            "unknown field `expires`, expected one of `route`, `key`, `name`, `methods`",
        ),
        ("methods = 'PSOT'", "`PSOT` is not a method; the methods are GET, POST, PUT"),
        ("methods = ['post']", "`post` is not a method"),
        ("methods = 5", "expected a method such as \"POST\", or a list of methods"),
        ("methods = []", "methods is an empty list, but must be at least one method"),
        ("expire = 'soon'", "expected a time such as \"500ms\" or \"5s\""),
        ("expire = -1", "expected a time such as"),
        ("expire = 1.5", "expected a time such as"),
        ("expire = '5ms'", "expire is 5ms, but must be from 10 ms to 7 days"),
        ("wait_time = '8d'", "wait_time is 691200s, but must be at most 7 days"),
        ("wait_time = 'for ever'", "whole number of seconds, or \"forever\""),
        ("expire = 'forever'", "expected a time such as \"500ms\" or \"5s\""),
        ("expire = 5\nmax_hold = 5", "max_hold requires renew"),
        ("keep = true\nmin_hold = 5", "min_hold cannot be combined with keep"),
        ("expire = 5\nmin_hold = 6", "min_hold is 6s, but must be at most the lease"),
        ("renew = 'yes'", "expected a boolean"),
        ("keep = true\nkeep = true", "duplicate key"),
        ("dialect = 'redis'", "invalid value: string \"redis\", expected `plain` or `redisson`"),
        ("on_lost = 'panic'", "invalid value: string \"panic\", expected `keep_going` or `abort`"),
        ("shared = 'yes'", "expected a boolean"),
        ("permits = 0", "permits is 0, but must be from 1 to 1000"),
        ("permits = -1", "expected a whole number"),
        ("shared = true\npermits = 3", "permits cannot be combined with shared"),
        ("shared = true\nfenced = true", "fenced cannot be combined with shared"),
        ("shared_on = 'get'", "`get` is not a method; the methods are GET, POST, PUT"),
        ("shared_on = []", "shared_on is an empty list, but must be at least one method"),
        ("shared_on = ['GET', 'GET']", "shared_on is GET, GET, but must be a list that has GET"),
        ("shared_on = 'GET'\nshared = true", "shared_on is GET, but must be unset beside shared"),
        ("shared_on = 'GET'\npermits = 3", "shared_on is GET, but must be unset beside permits"),
        ("shared_on = 'GET'\nmethods = 'PUT'", "shared_on is GET, but must be among the methods"),
        ("body_limit = '2 MiB'", "expected a whole number of bytes"),
        ("body_limit = 0", "body_limit is 0, but must be from 1 to 67108864 bytes"),
        ("body = 'streamed'", "invalid value: string \"streamed\", expected `buffer` or `stream`"),
        ("body = 'stream'\nbody_limit = 5", "body_limit is 5, but must be unset beside"),
        ("contended_status = 42", "expected an HTTP status such as 409 or 423"),
        ("contended_status = 200", "contended_status is 200"),
        ("retry_after_max = 'soon'", "expected a time such as"),
        ("retry_after_max = 0", "retry_after_max is 0ns, but must be at least 1 s"),
        (
            "hold_until = 'body'",
            "invalid value: string \"body\", expected `response` or `end_of_body`",
        ),
        ("[[locks]]\nroute = '/a/{x}'\nkey = 'b'", "lock policy 2 (/a/{x}): policy 1 is for"),
        ("[[locks]]\nroute = '/b'", "missing field `key`"),
    ] {
        let message = message(fields);
        assert!(message.contains(part), "{fields}: {message}");
    }
}

/// With `serde(flatten)`, an option with a spelling mistake would pass as a field of another
/// struct.
#[test]
fn a_misspelt_option_is_an_error_with_line_and_column() {
    let policy = "[[locks]]\nroute = '/a'\nkey = 'a'\n";
    for (field, column) in
        [("wait_tmie = 2", 1), ("wait_time = 'soon'", 13), ("hold_untill = 'x'", 1)]
    {
        let error = toml::from_str::<Config>(&format!("{policy}{field}")).unwrap_err().to_string();
        assert!(error.contains(&format!("line 4, column {column}")), "{error}");
    }
    let json = "{\"locks\": [{\n\"route\": \"/a\",\n\"key\": \"a\",\n\"renw\": true}]}";
    let error = serde_json::from_str::<Config>(json).unwrap_err();
    assert_eq!((error.line(), error.column()), (4, 6), "{error}");
    let json = "{\"locks\": [{\n\"route\": \"/a\",\n\"key\": \"a\",\n\"expire\": \"x\"}]}";
    let error = serde_json::from_str::<Config>(json).unwrap_err();
    assert_eq!(error.line(), 4, "{error}");
    for field in ["\"keep\": true", "\"fenced\": true"] {
        let json =
            format!("{{\"locks\": [{{\"route\": \"/a\", \"key\": \"a\", {field}, {field}}}]}}");
        let error = serde_json::from_str::<Config>(&json).unwrap_err();
        assert!(error.to_string().starts_with("duplicate field"), "{error}");
    }
}
