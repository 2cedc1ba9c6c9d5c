//! Policies that contradict each other, themselves, or the application's routes.

use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::{any, post as on_post};
use http::{Method, StatusCode};
use redlock_axum::{LockLayer, LockPolicies, LockPolicy, LocksLayer, PolicyError, SetupError};
use redlock_logs::Logs;
use tower::{Layer, ServiceExt};

use super::{ok, orders, policies};
use crate::support::{OnlyWhenReady, memory, post, request, send};

pub(crate) fn mistake(policies: impl IntoIterator<Item = LockPolicy>) -> PolicyError {
    LockPolicies::new(policies).unwrap_err()
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
        message(LockPolicy::new("/stock/{sku}", "redlock:{sku}")),
        "lock policy 2 (/stock/{sku}): the key template begins with `redlock:`, which is reserved"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").expire(Duration::ZERO)),
        "lock policy 2 (/stock): expire is 0ns, but must be from 10 ms to 7 days"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").contended_status(StatusCode::OK)),
        "lock policy 2 (/stock): contended_status is 200, but must be a client or server error \
         such as 409 or 423"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").retry_after_max(Duration::from_millis(999))),
        "lock policy 2 (/stock): retry_after_max is 999ms, but must be at least 1 s"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").methods([])),
        "lock policy 2 (/stock): methods is an empty list; leave it out to lock every method"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").permits(1001)),
        "lock policy 2 (/stock): permits is 1001, but must be from 1 to 1000"
    );
    assert_eq!(
        message(LockPolicy::new("/stock", "k").shared_on([])),
        "lock policy 2 (/stock): shared_on is an empty list, but must be at least one method; leave \
         it out to lock every method exclusively"
    );
    let twice = [Method::GET, Method::HEAD, Method::GET];
    assert_eq!(
        message(LockPolicy::new("/stock", "k").shared_on(twice)),
        "lock policy 2 (/stock): shared_on is GET, HEAD, GET, but must be a list that has GET once"
    );
}

#[test]
fn two_policies_for_the_same_route_and_method_are_a_mistake() {
    let with = |methods: &[Method]| orders().methods(methods.iter().cloned());
    let get_and_post = with(&[Method::GET, Method::POST]);

    let error = mistake([get_and_post.clone(), with(&[Method::PUT, Method::POST])]);
    assert_eq!(error.position(), 2);
    assert_eq!(error.route(), "/orders/{id}");
    assert_eq!(
        error.to_string(),
        "lock policy 2 (/orders/{id}): policy 1 is for the same route and POST"
    );
    assert!(matches!(
        mistake([get_and_post.clone(), orders()]).reason(),
        SetupError::Duplicate { other: 1, method: None, .. }
    ));
    // The route stays the same if its parameter has another name.
    let renamed = LockPolicy::new("/orders/{order}", "k").methods([Method::GET]);
    assert!(matches!(
        mistake([get_and_post.clone(), renamed]).reason(),
        SetupError::Duplicate { other: 1, method: Some(Method::GET), .. }
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
async fn policies_that_no_request_has_matched_are_listed() {
    let (locks, _node) = memory().await;
    let table = policies([
        orders().methods([Method::POST]),
        LockPolicy::new("/stock/{sku}", "stock:{sku}"),
    ]);
    let unmatched = || table.unmatched().map(ToString::to_string).collect::<Vec<_>>();
    let app = Router::new()
        .route("/orders/{id}", any(ok))
        .layer(table.clone())
        .layer(LocksLayer::new(&locks));

    assert_eq!(send(&app, Method::GET, "/orders/7").await.status(), 200);
    assert_eq!(unmatched(), ["POST /orders/{id}", "/stock/{sku}"]);
    assert_eq!(post(&app, "/orders/7").await, 200);
    assert_eq!(unmatched(), ["/stock/{sku}"]);
}

/// No work without the lock: a request that fits a policy must not run unlocked because axum has
/// matched another route.
#[tokio::test]
async fn a_request_that_fits_a_policy_but_matched_another_route_is_refused() {
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
        let app = router.layer(LocksLayer::new(&locks));
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
    let table = |route: &str| policies([LockPolicy::new(route, "k").methods([Method::POST])]);
    let nest = |path: &str, inner: Router| Router::new().nest(path, inner);
    let orders = || Router::new().nest_service("/orders", any(ok));
    let fallback = || Router::new().fallback(ok);
    let beside = || Router::new().route("/other", any(ok)).fallback(ok);
    let (api, v1) = (|inner| nest("/api", inner), |inner| nest("/v1", inner));
    for (place, router, path, status) in [
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
        let app = router.layer(LocksLayer::new(&locks));
        assert_eq!(post(&app, path).await, status, "{place}");
        assert_eq!(send(&app, Method::GET, path).await.status(), 200, "{place}");
    }
}

/// No work without the lock: axum's `nest_service` removes a slash, so that `/api//orders/7`
/// reaches the inner `/orders/{id}`. Other services may remove more.
#[tokio::test]
async fn doubled_slashes_do_not_bypass_a_policy() {
    let (locks, _node) = memory().await;
    let table = || policies([LockPolicy::new("/api/v1/orders/{id}", "order:{id}")]);
    let orders = || Router::new().route("/orders/{id}", any(ok));
    let twice = Router::new().nest_service("/v1", orders());
    for (place, router) in [
        ("nest_service", Router::new().nest_service("/api/v1", orders())),
        ("nested twice", Router::new().nest_service("/api", twice)),
        ("a wider route", Router::new().route("/api/{*rest}", any(ok))),
    ] {
        for path in ["/api/v1/orders/7", "/api/v1//orders/7", "/api//v1//orders/7"] {
            let app = router.clone().layer(table()).layer(LocksLayer::new(&locks));
            let meant = place != "nest_service" || !path.contains("api//");
            let logs = Logs::collect();
            assert_eq!(post(&app, path).await, if meant { 500 } else { 404 }, "{place}: {path}");
            let refused = logs.count("ERROR", "the lock policy for /api/v1/orders/{id} fits");
            assert_eq!(refused, usize::from(meant), "{place}: {path}");
        }
    }

    // Without `nest_service` a doubled slash matches no route, so there is nothing to lock.
    let logs = Logs::collect();
    let app = Router::new().nest("/api/v1", orders()).layer(table()).layer(LocksLayer::new(&locks));
    assert_eq!(post(&app, "/api/v1/orders/7").await, 200);
    assert_eq!(post(&app, "/api/v1//orders/7").await, 404);
    assert_eq!(logs.lines(), Vec::<String>::new());
}

/// tower's contract: a service may be called only after `poll_ready` of the same instance.
#[tokio::test]
async fn only_the_instance_that_was_polled_ready_is_called() {
    let (locks, _node) = memory().await;
    let fallback = policies([orders()]).manager(locks).layer(OnlyWhenReady::default());
    let app = Router::new().fallback_service(fallback);
    assert_eq!(post(&app, "//orders/7").await, 200);
    assert_eq!(post(&app, "/orders/7").await, 500);
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
async fn a_policy_without_the_prefix_of_its_route_is_logged_once() {
    let (locks, _node) = memory().await;
    let table = || policies([orders()]);
    let api = Router::new().route("/orders/{id}", on_post(ok));
    for (router, path) in [
        (Router::new().nest("/api", api.clone()).layer(table()), "/api/orders/7"),
        (Router::new().nest("/api", api.layer(table())), "/api/orders/7"),
        (Router::new().route("/orders/{id}/", on_post(ok)).layer(table()), "/orders/7/"),
    ] {
        let logs = Logs::collect();
        let app = router.layer(LocksLayer::new(&locks));
        assert_eq!(post(&app, path).await, 200);
        assert_eq!(post(&app, path).await, 200);
        assert_eq!(
            logs.count("ERROR", "no request has matched the lock policy for /orders/{id} yet"),
            1
        );
    }
}

#[test]
fn conflicting_options_are_the_same_mistakes_as_in_a_layer() {
    const MINUTE: Duration = Duration::from_secs(60);

    let check = |layer: fn(LockLayer) -> LockLayer, policy: fn(LockPolicy) -> LockPolicy| {
        let of_layer = layer(LockLayer::new("k")).checked().map(drop);
        let of_policy = LockPolicies::new([policy(LockPolicy::new("/", "k"))]);
        let of_policy = of_policy.map(drop).map_err(|error| error.reason().clone());
        assert_eq!(of_layer, of_policy);
        of_layer
    };
    let message = |result: Result<(), SetupError>| result.unwrap_err().to_string();
    assert_eq!(
        message(check(
            |l| l.expire(MINUTE).max_hold(MINUTE),
            |p| p.expire(MINUTE).max_hold(MINUTE)
        )),
        "max_hold requires renew"
    );
    assert_eq!(
        message(check(|l| l.min_hold(MINUTE).keep(true), |p| p.min_hold(MINUTE).keep(true))),
        "min_hold cannot be combined with keep, which holds the lock for its whole lease"
    );
    assert_eq!(
        message(check(
            |l| l.expire(MINUTE / 2).min_hold(MINUTE),
            |p| p.expire(MINUTE / 2).min_hold(MINUTE)
        )),
        "min_hold is 60s, but must be at most the lease (expire) of 30s"
    );
    assert_eq!(
        message(check(
            |l| l.renew(true).max_hold(Duration::ZERO),
            |p| p.renew(true).max_hold(Duration::ZERO)
        )),
        "max_hold is 0ns, but must be longer than zero"
    );
    assert_eq!(
        check(|l| l.max_hold(MINUTE).renew(true), |p| p.max_hold(MINUTE).renew(true)),
        Ok(())
    );
}
