//! Policies that contradict each other, themselves, or the application's routes.

use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::{any, post as on_post};
use http::{Method, StatusCode};
use redlock_axum::{LockLayer, LockManager, LockPolicy, SetupError};
use redlock_logs::Logs;
use tower::{Layer, ServiceExt};

use super::{ok, orders};
use crate::support::{OnlyWhenReady, layer, memory, post, request, send, table};

fn mistake(policies: impl IntoIterator<Item = LockPolicy>) -> SetupError {
    LockLayer::table(&LockManager::in_memory(), policies).unwrap_err()
}

#[test]
fn each_mistake_in_a_table_names_its_policy() {
    let message = |policy: LockPolicy| mistake([orders(), policy]).to_string();
    assert_eq!(
        message(LockPolicy::new("stock:{sk}").route("/stock/{sku}")),
        "lock policy 2 (/stock/{sku}): the key has the placeholder {sk}, but the route has {sku}"
    );
    assert_eq!(
        message(LockPolicy::new("stock:{sku}").route("/stock")),
        "lock policy 2 (/stock): the key has the placeholder {sku}, but the route has none"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("/stock/{sku")),
        "lock policy 2 (/stock/{sku): the route cannot be used: Parameters must be registered with a valid name"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("stock")),
        "lock policy 2 (stock): the route must start with a slash"
    );
    for route in ["/stock/:sku", "/stock/*rest"] {
        assert_eq!(
            message(LockPolicy::new("k").route(route)),
            format!(
                "lock policy 2 ({route}): a parameter of the route is written {{name}}, a wildcard {{*name}}"
            )
        );
    }
    assert_eq!(
        message(LockPolicy::new("k:{id}").route("/{id}/{id}")),
        "lock policy 2 (/{id}/{id}): the key has the placeholder {id}, but the route has {id}, {id}"
    );
    assert_eq!(
        message(LockPolicy::new("stock:{sku}")),
        "lock policy 2 (stock:{sku}): it has no route, by which a table finds the policy of a request"
    );
    assert_eq!(
        message(LockPolicy::new("stock:{sku:u46}").route("/stock")),
        "lock policy 2 (/stock): `u46` is not a type for the placeholder {sku}; there are u64, \
         i64, uuid, lower"
    );
    assert_eq!(
        message(LockPolicy::new("redlock:{sku}").route("/stock/{sku}")),
        "lock policy 2 (/stock/{sku}): the key template begins with `redlock:`, which is reserved"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("/stock").expire(Duration::ZERO)),
        "lock policy 2 (/stock): expire is 0ns, but must be from 10 ms to 7 days"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("/stock").contended_status(StatusCode::OK)),
        "lock policy 2 (/stock): contended_status is 200, but must be a client or server error, \
         from 400 to 599, such as 409 or 423"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("/stock").retry_after_max(Duration::from_millis(999))),
        "lock policy 2 (/stock): retry_after_max is 999ms, but must be at least 1 s"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("/stock").methods([])),
        "lock policy 2 (/stock): methods is an empty list, but must be at least one method; leave it out for the default"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("/stock").permits(1001)),
        "lock policy 2 (/stock): permits is 1001, but must be from 1 to 1000"
    );
    assert_eq!(
        message(LockPolicy::new("k").route("/stock").shared_on([])),
        "lock policy 2 (/stock): shared_on is an empty list, but must be at least one method; leave \
         it out for the default"
    );
    let twice = [Method::GET, Method::HEAD, Method::GET];
    assert_eq!(
        message(LockPolicy::new("k").route("/stock").shared_on(twice)),
        "lock policy 2 (/stock): shared_on is GET, HEAD, GET, but must be a list that has GET once"
    );
}

#[test]
fn two_policies_for_the_same_route_and_method_are_a_mistake() {
    let with = |methods: &[Method]| orders().methods(methods.iter().cloned());
    let get_and_post = with(&[Method::GET, Method::POST]);

    let error = mistake([get_and_post.clone(), with(&[Method::PUT, Method::POST])]);
    assert_eq!(error.position(), 2);
    assert_eq!(error.policy(), "/orders/{id}");
    assert_eq!(
        error.to_string(),
        "lock policy 2 (/orders/{id}): policy 1 is for the same route and POST"
    );
    assert_eq!(
        mistake([get_and_post.clone(), orders()]).to_string(),
        "lock policy 2 (/orders/{id}): policy 1 is for the same route"
    );
    // The route stays the same if its parameter has another name.
    let renamed = LockPolicy::new("k").route("/orders/{order}").methods([Method::GET]);
    assert_eq!(
        mistake([get_and_post.clone(), renamed]).to_string(),
        "lock policy 2 (/orders/{order}): policy 1 is for the same route and GET"
    );
    let other = LockPolicy::new("k").route("/orders/{*rest}");
    assert!(mistake([orders(), other]).to_string().contains("conflict with previously registered"));
    let _ = table(&LockManager::in_memory(), [get_and_post, with(&[Method::PUT])]);
}

#[test]
fn the_table_can_be_compared_with_the_routes_of_the_application() {
    let stock = LockPolicy::new("stock").route("/stock/{sku}");
    let table = table(&LockManager::in_memory(), [orders(), stock]);
    assert!(table.check_routes(["/", "/stock/{id}", "/orders/{id}"]).is_ok());

    let missing = table.check_routes(["/orders/{id}", "/stock/{sku}/reserve"]).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "lock policy 2 (/stock/{sku}): the application has no such route"
    );

    let renamed = table.check_routes(["/orders/{order}", "/stock/{sku}"]).unwrap_err();
    assert_eq!(
        renamed.to_string(),
        "lock policy 1 (/orders/{id}): the key has the placeholder {id}, but the route has {order}"
    );
}

#[tokio::test]
async fn policies_that_no_request_has_matched_are_listed() {
    let (locks, _node) = memory().await;
    let stock = LockPolicy::new("stock:{sku}").route("/stock/{sku}");
    let table = table(&locks, [orders().methods([Method::POST]), stock]);
    let unmatched = || table.unmatched().map(ToString::to_string).collect::<Vec<_>>();
    let app = Router::new().route("/orders/{id}", any(ok)).layer(table.clone());

    assert_eq!(send(&app, Method::GET, "/orders/7").await.status(), 200);
    assert_eq!(unmatched(), ["POST /orders/{id}", "/stock/{sku}"]);
    assert_eq!(post(&app, "/orders/7").await, 200);
    assert_eq!(unmatched(), ["/stock/{sku}"]);
}

#[tokio::test]
async fn a_request_whose_key_is_refused_has_matched_its_policy() {
    let policy = LockPolicy::new("order:{query(id)}").route("/");
    let table = table(&LockManager::in_memory(), [policy]);
    let app = Router::new().route("/", on_post(ok)).layer(table.clone());
    assert_eq!(post(&app, "/").await, 400);
    assert_eq!(table.unmatched().count(), 0);
}

/// No work without the lock: the wider route has a policy, but not for this method.
#[tokio::test]
async fn a_request_that_fits_a_policy_but_matched_a_route_with_another_policy_is_refused() {
    let search = LockPolicy::new("search").route("/orders/search").methods([Method::GET]);
    let policies = [orders().methods([Method::POST]), search];
    let table = table(&LockManager::in_memory(), policies);
    let app = Router::new().route("/orders/{id}", any(ok)).layer(table);
    let logs = Logs::collect();
    assert_eq!(send(&app, Method::GET, "/orders/search").await.status(), 500);
    assert_eq!(logs.count("ERROR", "the lock policy for GET /orders/search fits"), 1);
    for (method, path) in [(Method::GET, "/orders/7"), (Method::POST, "/orders/7")] {
        assert_eq!(send(&app, method, path).await.status(), 200);
    }
}

/// No work without the lock: a request that fits a policy must not run unlocked because axum has
/// matched another route.
#[tokio::test]
async fn a_request_that_fits_a_policy_but_matched_another_route_is_refused() {
    // Each manager has its own limit for similar log lines.
    let table = || table(&LockManager::in_memory(), [orders().methods([Method::POST])]);
    for (place, app) in [
        ("no such route", Router::new().route("/other", on_post(ok)).layer(table())),
        ("a wider route", Router::new().route("/orders/{*rest}", any(ok)).layer(table())),
        ("a route of another kind", Router::new().route("/{kind}/{id}", any(ok)).layer(table())),
        (
            "inside of nest_service",
            Router::new()
                .nest_service("/orders", Router::new().route("/{id}", any(ok)))
                .layer(table()),
        ),
        (
            "a service inside of nest_service",
            Router::new().nest_service("/orders", any(ok)).layer(table()),
        ),
        ("a fallback that works", Router::new().fallback(ok).layer(table())),
        (
            "a fallback beside a route",
            Router::new().route("/other", on_post(ok)).fallback_service(any(ok)).layer(table()),
        ),
    ] {
        let logs = Logs::collect();
        assert_eq!(post(&app, "/orders/7").await, 500, "{place}");
        assert_eq!(logs.count("ERROR", "the lock policy for POST /orders/{id} fits"), 1, "{place}");
        assert_ne!(send(&app, Method::GET, "/orders/7").await.status(), 500, "{place}");
    }
}

/// No work without the lock: in a nested router, axum removes the prefix from the URI. The policy has the whole route,
/// so its path is compared with the original URI.
#[tokio::test]
async fn a_request_in_a_nested_router_that_fits_a_policy_is_refused() {
    let (locks, _node) = memory().await;
    let policy = |route: &str| LockPolicy::new("k").route(route).methods([Method::POST]);
    let table = |route: &str| table(&locks, [policy(route)]);
    let nest = |path: &str, inner: Router| Router::new().nest(path, inner);
    let orders = || Router::new().nest_service("/orders", any(ok));
    let fallback = || Router::new().fallback(ok);
    let beside = || Router::new().route("/other", any(ok)).fallback(ok);
    let (api, v1) = (|inner| nest("/api", inner), |inner| nest("/v1", inner));
    for (place, app, path, status) in [
        ("nest_service", api(orders().layer(table("/api/orders/{id}"))), "/api/orders/7", 500),
        (
            "a prefix with a parameter",
            nest("/in/{shop}", orders().layer(table("/in/{shop}/orders/{id}"))),
            "/in/north/orders/7",
            500,
        ),
        (
            "nested twice",
            api(v1(orders().layer(table("/api/v1/orders/{id}")))),
            "/api/v1/orders/7",
            500,
        ),
        (
            "between two nested routers",
            api(v1(orders()).layer(table("/api/v1/orders/{id}"))),
            "/api/v1/orders/7",
            500,
        ),
        ("a fallback", api(fallback().layer(table("/api/orders/{id}"))), "/api/orders/7", 500),
        (
            "a fallback beside a route",
            api(beside().layer(table("/api/orders/{id}"))),
            "/api/orders/7",
            500,
        ),
        (
            "a router inside of nest_service",
            Router::new().nest_service("/api", fallback().layer(table("/api/orders/{id}"))),
            "/api/orders/7",
            500,
        ),
        // Policies for other paths.
        ("without the prefix", api(orders().layer(table("/orders/{id}"))), "/api/orders/7", 200),
        (
            "without the outer prefix",
            api(v1(orders().layer(table("/v1/orders/{id}")))),
            "/api/v1/orders/7",
            200,
        ),
        (
            "a fallback without the prefix",
            api(fallback().layer(table("/orders/{id}"))),
            "/api/orders/7",
            200,
        ),
    ] {
        assert_eq!(post(&app, path).await, status, "{place}");
        assert_eq!(send(&app, Method::GET, path).await.status(), 200, "{place}");
    }
}

/// tower's contract: a service may be called only after `poll_ready` of the same instance.
#[tokio::test]
async fn only_the_instance_that_was_polled_ready_is_called() {
    let (locks, _node) = memory().await;
    let fallback = table(&locks, [orders()]).layer(OnlyWhenReady::default());
    let app = Router::new().fallback_service(fallback);
    assert_eq!(post(&app, "/other").await, 200);
    assert_eq!(post(&app, "/orders/7").await, 500);
}

#[tokio::test]
async fn a_table_around_the_whole_router_refuses_instead_of_locking_nothing() {
    let (locks, _node) = memory().await;
    let router = Router::new().route("/orders/{id}", on_post(ok));
    let service = table(&locks, [orders()]).layer(router);
    let response: Response = service.oneshot(request(Method::POST, "/orders/7")).await.unwrap();
    assert_eq!(response.status(), 500);
}

#[tokio::test]
async fn the_refusal_of_a_request_that_fits_a_policy_names_its_lock_and_the_matched_route() {
    let (locks, _node) = memory().await;
    let layer = layer(&locks, orders());
    let app = Router::new().route("/orders/{*rest}", any(ok)).layer(layer);
    let logs = Logs::collect();
    assert_eq!(post(&app, "/orders/7").await, 500);
    assert_eq!(logs.count("ERROR", "lock=\"order:{id:u64}\" route=\"/orders/{*rest}\""), 1);
}

#[test]
fn conflicting_options_are_mistakes() {
    const MINUTE: Duration = Duration::from_secs(60);

    let policy = || LockPolicy::new("k").route("/");
    let message = |policy| mistake([policy]).to_string();
    for (policy, text) in [
        (policy().expire(MINUTE).max_hold(MINUTE), "max_hold requires renew"),
        (
            policy().min_hold(MINUTE).keep(true),
            "min_hold cannot be combined with keep, which holds the lock for its whole lease",
        ),
        (
            policy().expire(MINUTE / 2).min_hold(MINUTE),
            "min_hold is 60s, but must be at most the lease (expire) of 30s",
        ),
        (
            policy().renew(true).max_hold(Duration::ZERO),
            "max_hold is 0ns, but must be longer than zero",
        ),
    ] {
        assert_eq!(message(policy), format!("lock policy 1 (/): {text}"));
    }
    let _ = table(&LockManager::in_memory(), [policy().max_hold(MINUTE).renew(true)]);
}
