//! `LockPolicies`: which policy is for which request, and which mistakes are found when.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::{any, get, post as on_post};
use axum::{Extension, Router};
use http::{Method, StatusCode};
use http_body_util::Full;
use redlock_axum::{HoldUntil, LockPolicies, LockPolicy, LockRejection, PolicyError, SetupError};
use support::{Log, OnlyWhenReady, hold, memory, post, request, send, text};
use tower::{Layer, ServiceExt};

fn policies(policies: impl IntoIterator<Item = LockPolicy>) -> LockPolicies {
    LockPolicies::new(policies).unwrap()
}

fn mistake(policies: impl IntoIterator<Item = LockPolicy>) -> PolicyError {
    LockPolicies::new(policies).unwrap_err()
}

fn orders() -> LockPolicy {
    LockPolicy::new("/orders/{id}", "order:{id:u64}")
}

async fn ok() {}

#[tokio::test]
async fn each_route_is_locked_by_its_own_policy() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route("/orders/{id}/pay", on_post(ok))
        .route("/stock/{sku}", on_post(ok).get(ok))
        .route("/health", get(ok))
        .layer(policies([
            LockPolicy::new("/orders/{id}/pay", "order:{id:u64}"),
            LockPolicy::new("/stock/{sku}", "stock:{sku}").methods([Method::POST]),
        ]))
        .layer(Extension(locks.clone()));

    let _order = hold(&locks, "order:42").await;
    let _stock = hold(&locks, "stock:shoe").await;
    assert_eq!(post(&app, "/orders/042/pay").await, 409);
    assert_eq!(post(&app, "/orders/43/pay").await, 200);
    assert_eq!(post(&app, "/stock/shoe").await, 409);
    assert_eq!(send(&app, Method::GET, "/stock/shoe").await.status(), 200);
    assert_eq!(send(&app, Method::GET, "/health").await.status(), 200);
    assert_eq!(post(&app, "/nowhere").await, 404);
    assert_eq!(node.len(), 2);
}

#[tokio::test]
async fn methods_of_one_route_can_have_different_keys() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/{id}", any(ok))
        .route_layer(policies([
            LockPolicy::new("/{id}", "write:{id}").methods([Method::PUT, Method::DELETE]),
            LockPolicy::new("/{id}", "append:{id}").methods([Method::POST]),
        ]))
        .layer(Extension(locks.clone()));

    let _write = hold(&locks, "write:1").await;
    assert_eq!(send(&app, Method::PUT, "/1").await.status(), 409);
    assert_eq!(send(&app, Method::DELETE, "/1").await.status(), 409);
    assert_eq!(post(&app, "/1").await, 200);
    assert_eq!(send(&app, Method::PATCH, "/1").await.status(), 200);
}

/// axum serves HEAD with the handler for GET: invariant 1.
#[tokio::test]
async fn head_falls_under_the_policy_for_get_unless_it_has_its_own() {
    let (locks, _node) = memory().await;
    let get_policy = || LockPolicy::new("/", "get").methods([Method::GET]);
    let app = |table: LockPolicies| {
        Router::new().route("/", get(ok)).layer(table).layer(Extension(locks.clone()))
    };

    let guard = hold(&locks, "get").await;
    let shared = app(policies([get_policy()]));
    assert_eq!(send(&shared, Method::HEAD, "/").await.status(), 409);
    let own = app(policies([get_policy(), LockPolicy::new("/", "head").methods([Method::HEAD])]));
    assert_eq!(send(&own, Method::HEAD, "/").await.status(), 200);

    guard.release().await.unwrap();
    let _head = hold(&locks, "head").await;
    assert_eq!(send(&own, Method::HEAD, "/").await.status(), 409);
    assert_eq!(send(&own, Method::GET, "/").await.status(), 200);
}

#[tokio::test]
async fn a_nested_route_is_found_by_its_whole_pattern_wherever_the_layer_is() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "order:7").await;
    let table = || policies([LockPolicy::new("/api/{tenant}/orders/{id}", "order:{id}")]);
    let inner = || Router::new().route("/orders/{id}", on_post(ok));
    for (place, router) in [
        ("outside", Router::new().nest("/api/{tenant}", inner()).layer(table())),
        ("inside", Router::new().nest("/api/{tenant}", inner().route_layer(table()))),
        ("nest_service", Router::new().nest_service("/api/{tenant}", inner().layer(table()))),
    ] {
        let app = router.layer(Extension(locks.clone()));
        assert_eq!(post(&app, "/api/acme/orders/7").await, 409, "{place}");
        assert_eq!(post(&app, "/api/acme/orders/8").await, 200, "{place}");
    }
}

#[tokio::test]
async fn every_pattern_that_axum_takes_is_found() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    for (route, path) in [
        ("/", "/"),
        ("/files/{*path}", "/files/a/b"),
        ("/v-{version}/{id}", "/v-2/7"),
        ("/{{literal}}/{id}", "/{literal}/7"),
        ("/slash/", "/slash/"),
    ] {
        let app = Router::new()
            .route(route, on_post(ok))
            .layer(policies([LockPolicy::new(route, "k")]))
            .layer(Extension(locks.clone()));
        assert_eq!(post(&app, path).await, 409, "{route}");
    }
}

#[tokio::test]
async fn the_names_of_parameters_matter_to_the_key_only() {
    let (locks, _node) = memory().await;
    Log::start();
    let app = |key| {
        Router::new()
            .route("/orders/{order_id}", on_post(ok))
            .layer(policies([LockPolicy::new("/orders/{id}", key)]))
            .layer(Extension(locks.clone()))
    };

    let _held = hold(&locks, "orders").await;
    assert_eq!(post(&app("orders"), "/orders/7").await, 409);
    assert_eq!(post(&app("order:{id}"), "/orders/7").await, 500);
    assert_eq!(Log::count("ERROR", "there is {order_id}"), 1);
}

#[tokio::test]
async fn a_policy_brings_its_options() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route(
            "/lease",
            on_post({
                let node = node.clone();
                async move || node.time_to_live("lease").unwrap().as_secs().to_string()
            }),
        )
        .route("/status", on_post(ok))
        .route("/wait", on_post(ok))
        .route("/body", on_post(|| async { Body::new(Full::new(Bytes::from("body"))) }))
        .layer(policies([
            LockPolicy::new("/lease", "lease").expire(Duration::from_secs(90)),
            LockPolicy::new("/status", "status").contended_status(StatusCode::LOCKED),
            LockPolicy::new("/wait", "wait").wait_time(Duration::from_secs(30)),
            LockPolicy::new("/body", "body").hold_until(HoldUntil::EndOfBody),
        ]))
        .layer(Extension(locks.clone()));

    assert_eq!(text(send(&app, Method::POST, "/lease").await).await, "89");

    let _status = hold(&locks, "status").await;
    assert_eq!(post(&app, "/status").await, 423);

    let wait = hold(&locks, "wait").await;
    let (waited, released) = tokio::join!(post(&app, "/wait"), wait.release());
    released.unwrap();
    assert_eq!(waited, 200);

    let response = send(&app, Method::POST, "/body").await;
    assert!(node.time_to_live("body").is_some());
    assert_eq!(text(response).await, "body");
    assert!(node.time_to_live("body").is_none());
}

#[tokio::test]
async fn a_table_has_its_own_manager_and_answers() {
    let (locks, _node) = memory().await;
    let table = policies([LockPolicy::new("/", "k")])
        .manager(locks.clone())
        .on_reject(|rejection: LockRejection| (StatusCode::IM_A_TEAPOT, rejection.to_string()));
    let app = Router::new().route("/", on_post(ok)).layer(table);

    let _guard = hold(&locks, "k").await;
    let response = send(&app, Method::POST, "/").await;
    assert_eq!(response.status(), 418);
    assert!(text(response).await.contains("is held by another"));
}

#[tokio::test]
async fn a_table_without_a_manager_refuses() {
    let app = Router::new().route("/", on_post(ok)).layer(policies([LockPolicy::new("/", "k")]));
    assert_eq!(post(&app, "/").await, 500);
}

/// tower's contract: only the service that was polled ready may be called.
#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let (locks, _node) = memory().await;
    let table = policies([LockPolicy::new("/", "k").methods([Method::POST])]);
    let app = Router::new()
        .route_service("/", table.layer(OnlyWhenReady::default()))
        .layer(Extension(locks));
    assert_eq!(post(&app, "/").await, 200);
    assert_eq!(send(&app, Method::GET, "/").await.status(), 200);
}

#[test]
fn each_mistake_in_a_table_names_its_policy() {
    let message = |policy: LockPolicy| mistake([orders(), policy]).to_string();
    assert_eq!(
        message(LockPolicy::new("/stock/{sku}", "stock:{sk}")),
        "lock policy 2 (/stock/{sku}): the key has the placeholder {sk}, but the route has {sku}"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "stock:{sku}")),
        "lock policy 2 (/stock): the key has the placeholder {sku}, but the route has none"
    );
    assert_eq!(
        message(LockPolicy::new("/stock/{sku", "k")),
        "lock policy 2 (/stock/{sku): the route cannot be used: a parameter is written {name} and \
         a wildcard {*name}, with {{ and }} for braces"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "stock:{sku:u46}")),
        "lock policy 2 (/stock): `u46` is not a type for the placeholder {sku}; there are u64, \
         i64, uuid, lower"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").expire(Duration::ZERO)),
        "lock policy 2 (/stock): expire is 0ns, but must be from 10 ms to 7 days"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").contended_status(StatusCode::OK)),
        "lock policy 2 (/stock): contended_status is 200 OK, but must be a client or server error \
         such as 409 or 423"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").methods([])),
        "lock policy 2 (/stock): methods is an empty list; leave it out to lock every method"
    );
}

#[test]
fn two_policies_for_one_method_of_a_route_are_a_mistake() {
    let with = |methods: &[Method]| orders().methods(methods.iter().cloned());
    let get_and_post = with(&[Method::GET, Method::POST]);

    let error = mistake([get_and_post.clone(), with(&[Method::PUT, Method::POST])]);
    assert_eq!(error.position(), 2);
    assert_eq!(error.route(), "/orders/{id}");
    assert_eq!(
        error.to_string(),
        "lock policy 2 (/orders/{id}): policy 1 is for the same route and POST"
    );
    assert_eq!(
        *mistake([get_and_post.clone(), orders()]).reason(),
        SetupError::Duplicate { other: 1, method: None }
    );
    // Another name for the parameter does not make it another route.
    let renamed = LockPolicy::new("/orders/{order}", "k").methods([Method::GET]);
    assert!(matches!(
        mistake([get_and_post.clone(), renamed]).reason(),
        SetupError::Duplicate { other: 1, method: Some(Method::GET) }
    ));
    assert!(LockPolicies::new([get_and_post, with(&[Method::PUT])]).is_ok());
}

#[test]
fn the_table_can_be_compared_with_the_routes_of_the_application() {
    let table = policies([orders(), LockPolicy::new("/stock/{sku}", "stock")]);
    assert!(table.check_routes(["/", "/stock/{id}", "/orders/{id}"]).is_ok());

    let missing = table.check_routes(["/orders/{id}", "/stock/{sku}/reserve"]).unwrap_err();
    assert_eq!(missing.position(), 2);
    assert_eq!(*missing.reason(), SetupError::NoSuchRoute);

    let renamed = table.check_routes(["/orders/{order}", "/stock/{sku}"]).unwrap_err();
    assert_eq!(
        renamed.to_string(),
        "lock policy 1 (/orders/{id}): the key has the placeholder {id}, but the route has {order}"
    );
}

#[tokio::test]
async fn a_policy_that_no_request_has_matched_is_listed() {
    let (locks, _node) = memory().await;
    let table = policies([
        orders().methods([Method::POST]),
        LockPolicy::new("/stock/{sku}", "stock:{sku}"),
    ]);
    let unmatched = || table.unmatched().map(ToString::to_string).collect::<Vec<_>>();
    let app =
        Router::new().route("/orders/{id}", any(ok)).layer(table.clone()).layer(Extension(locks));

    assert_eq!(send(&app, Method::GET, "/orders/7").await.status(), 200);
    assert_eq!(unmatched(), ["POST /orders/{id}", "/stock/{sku}"]);
    assert_eq!(post(&app, "/orders/7").await, 200);
    assert_eq!(unmatched(), ["/stock/{sku}"]);
}

/// A policy that does not meet its route must not let requests run unlocked: invariant 1.
#[tokio::test]
async fn a_request_that_a_policy_means_but_its_route_did_not_match_is_refused() {
    let (locks, _node) = memory().await;
    let table = || policies([orders().methods([Method::POST])]);
    for (place, router) in [
        ("no such route", Router::new().route("/other", on_post(ok)).layer(table())),
        ("a wider route", Router::new().route("/orders/{*rest}", any(ok)).layer(table())),
        ("a route of another kind", Router::new().route("/{kind}/{id}", any(ok)).layer(table())),
        (
            "inside of nest_service",
            Router::new()
                .nest_service("/orders", Router::new().route("/{id}", any(ok)))
                .layer(table()),
        ),
    ] {
        Log::start();
        let app = router.layer(Extension(locks.clone()));
        assert_eq!(post(&app, "/orders/7").await, 500, "{place}");
        assert_eq!(Log::count("ERROR", "the lock policy for POST /orders/{id} fits"), 1, "{place}");
        assert_ne!(send(&app, Method::GET, "/orders/7").await.status(), 500, "{place}");
    }
}

#[tokio::test]
async fn a_table_around_the_whole_router_refuses_instead_of_locking_nothing() {
    let (locks, _node) = memory().await;
    let router = Router::new().route("/orders/{id}", on_post(ok));
    let service = policies([orders()]).manager(locks).layer(router);
    let response: Response = service.oneshot(request(Method::POST, "/orders/7")).await.unwrap();
    assert_eq!(response.status(), 500);
}

#[tokio::test]
async fn a_more_specific_route_without_a_policy_is_served_unlocked() {
    let (locks, node) = memory().await;
    Log::start();
    let seen = node.clone();
    let app = Router::new()
        .route("/orders/{id}", on_post(ok))
        .route("/orders/search", on_post(async move || seen.len().to_string()))
        .layer(policies([orders()]))
        .layer(Extension(locks));

    let response = send(&app, Method::POST, "/orders/search").await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "0");
    assert_eq!(Log::lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_forgotten_prefix_is_named_in_the_log_once() {
    let (locks, _node) = memory().await;
    let table = || policies([orders()]);
    let api = Router::new().route("/orders/{id}", on_post(ok));
    for (router, path) in [
        (Router::new().nest("/api", api.clone()).layer(table()), "/api/orders/7"),
        (Router::new().nest("/api", api.layer(table())), "/api/orders/7"),
        (Router::new().route("/orders/{id}/", on_post(ok)).layer(table()), "/orders/7/"),
    ] {
        Log::start();
        let app = router.layer(Extension(locks.clone()));
        assert_eq!(post(&app, path).await, 200);
        assert_eq!(post(&app, path).await, 200);
        assert_eq!(
            Log::count("ERROR", "the lock policy for /orders/{id} has matched no request"),
            1
        );
    }
}

#[test]
fn a_policy_reads_as_it_was_written() {
    let policy = orders().methods([Method::GET, Method::POST]);
    assert_eq!(policy.to_string(), "GET,POST /orders/{id}");
    assert_eq!((policy.route(), policy.key()), ("/orders/{id}", "order:{id:u64}"));
}

#[cfg(feature = "serde")]
mod from_configuration {
    use redlock_axum::LockManager;
    use redlock_axum::{FencedLock, HeldLock, LockLayer};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Config {
        locks: LockPolicies,
    }

    async fn app(table: LockPolicies) -> (Router, LockManager) {
        let (locks, node) = memory().await;
        let lease = async move || node.time_to_live("order:7").unwrap().as_millis().to_string();
        let app = Router::new()
            .route("/orders/{id}/pay", on_post(lease).get(ok))
            .route("/stock/{sku}", any(ok))
            .layer(table)
            .layer(Extension(locks.clone()));
        (app, locks)
    }

    /// Asks for every field to have had its effect.
    async fn works(table: LockPolicies) {
        let (app, locks) = app(table).await;
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
            hold_at_least = 0
            reentrant = true
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
        let table = serde_json::from_str(
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
        works(table).await;
    }

    #[tokio::test]
    async fn the_options_of_holding_are_read() {
        let table: Config = toml::from_str(
            r#"
            locks = [
                { route = "/waits", key = "waits", wait_time = "forever" },
                { route = "/stays", key = "stays", expire = 60, hold_at_least = "30s" },
                { route = "/keeps", key = "keeps", expire = 60, keep = true },
                { route = "/stops", key = "stops", expire = "100ms", on_lost = "abort" },
                { route = "/hangs", key = "hangs", expire = "100ms", renew = true, max_hold = "200ms" },
                { route = "/again", key = "again", reentrant = true },
                { route = "/counts", key = "counts", fenced = true },
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
            .route("/hangs", on_post(|lock: HeldLock| async move { lock.lost().await }))
            .route("/again", on_post(ok))
            .route("/counts", on_post(|_: FencedLock| async {}))
            .layer(table.locks)
            .route_layer(LockLayer::new("again"))
            .layer(Extension(locks.clone()));

        let guard = hold(&locks, "waits").await;
        let (waited, released) = tokio::join!(post(&app, "/waits"), guard.release());
        released.unwrap();
        assert_eq!(waited, 200);
        assert_eq!(post(&app, "/counts").await, 200);
        assert_eq!(post(&app, "/stays").await, 200);
        let left = node.time_to_live("stays").unwrap();
        assert!((20..=30).contains(&left.as_secs()), "{left:?}");
        assert_eq!(post(&app, "/keeps").await, 200);
        assert!(node.time_to_live("keeps").unwrap() > Duration::from_secs(50));
        assert_eq!(post(&app, "/stops").await, 503);
        assert_eq!(post(&app, "/hangs").await, 200);
        assert_eq!(post(&app, "/again").await, 200);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_clearly() {
        let message = |fields: &str| {
            let text = format!("[[locks]]\nroute = '/a/{{id}}'\nkey = 'a:{{id}}'\n{fields}");
            toml::from_str::<Config>(&text).unwrap_err().to_string()
        };
        for (fields, part) in [
            ("expires = 5", "unknown field `expires`, expected one of `route`, `key`, `methods`"),
            ("methods = 'PSOT'", "`PSOT` is not a method; there are GET, POST, PUT"),
            ("methods = ['post']", "`post` is not a method"),
            ("methods = 5", "expected a method such as \"POST\", or a list of methods"),
            ("methods = []", "methods is an empty list"),
            ("expire = 'soon'", "expected a time such as \"500ms\" or \"5s\""),
            ("expire = -1", "expected a time such as"),
            ("expire = 1.5", "expected a time such as"),
            ("expire = '5ms'", "expire is 5ms, but must be from 10 ms to 7 days"),
            ("wait_time = '8days'", "wait_time is 691200s, but must be at most 7 days"),
            ("wait_time = 'for ever'", "whole number of seconds, or \"forever\""),
            ("expire = 'forever'", "expected a time such as \"500ms\" or \"5s\""),
            ("max_hold = 5", "max_hold bounds the renewal of the lease, and needs renew"),
            ("keep = true\nhold_at_least = 5", "keep holds the lock for its whole lease"),
            ("hold_at_least = 6", "hold_at_least is 6s, but must be at most the lease"),
            ("renew = 'yes'", "expected a boolean"),
            ("on_lost = 'panic'", "unknown variant `panic`, expected `keep_going` or `abort`"),
            ("contended_status = 42", "expected an HTTP status such as 409 or 423"),
            ("contended_status = 200", "contended_status is 200 OK"),
            ("hold_until = 'body'", "unknown variant `body`, expected `response` or `end_of_body`"),
            ("[[locks]]\nroute = '/a/{x}'\nkey = 'b'", "lock policy 2 (/a/{x}): policy 1 is for"),
            ("[[locks]]\nroute = '/b'", "missing field `key`"),
        ] {
            let message = message(fields);
            assert!(message.contains(part), "{fields}: {message}");
        }
    }
}
