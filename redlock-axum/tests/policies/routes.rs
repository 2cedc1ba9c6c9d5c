//! Which policy applies to a request.

use axum::Router;
use axum::routing::{any, get, post as on_post};
use http::Method;
use redlock_axum::LockPolicy;
use redlock_logs::Logs;

use super::{ok, orders};
use crate::support::{hold, memory, post, send, table, text};

#[tokio::test]
async fn each_route_is_locked_by_its_own_policy() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route("/orders/{id}/pay", on_post(ok))
        .route("/stock/{sku}", on_post(ok).get(ok))
        .route("/health", get(ok))
        .layer(table(
            &locks,
            [
                LockPolicy::new("order:{id:u64}").route("/orders/{id}/pay"),
                LockPolicy::new("stock:{sku}").route("/stock/{sku}").methods([Method::POST]),
            ],
        ));

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
    let app = Router::new().route("/{id}", any(ok)).route_layer(table(
        &locks,
        [
            LockPolicy::new("write:{id}").route("/{id}").methods([Method::PUT, Method::DELETE]),
            LockPolicy::new("append:{id}").route("/{id}").methods([Method::POST]),
        ],
    ));

    let _write = hold(&locks, "write:1").await;
    assert_eq!(send(&app, Method::PUT, "/1").await.status(), 409);
    assert_eq!(send(&app, Method::DELETE, "/1").await.status(), 409);
    assert_eq!(post(&app, "/1").await, 200);
    assert_eq!(send(&app, Method::PATCH, "/1").await.status(), 200);
}

/// No work without the lock: axum serves HEAD with the handler for GET.
#[tokio::test]
async fn the_policy_for_get_applies_to_head_unless_head_has_its_own() {
    let (locks, _node) = memory().await;
    let get_policy = || LockPolicy::new("get").route("/").methods([Method::GET]);
    let app = |policies: Vec<LockPolicy>| {
        Router::new().route("/", get(ok)).layer(table(&locks, policies))
    };

    let guard = hold(&locks, "get").await;
    let shared = app(vec![get_policy()]);
    assert_eq!(send(&shared, Method::HEAD, "/").await.status(), 409);
    let own = app(vec![get_policy(), LockPolicy::new("head").route("/").methods([Method::HEAD])]);
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
    let policy = || LockPolicy::new("order:{id}").route("/api/{tenant}/orders/{id}");
    let table = || table(&locks, [policy()]);
    let inner = || Router::new().route("/orders/{id}", on_post(ok));
    for (place, app) in [
        ("outside", Router::new().nest("/api/{tenant}", inner()).layer(table())),
        ("inside", Router::new().nest("/api/{tenant}", inner().route_layer(table()))),
        ("nest_service", Router::new().nest_service("/api/{tenant}", inner().layer(table()))),
    ] {
        assert_eq!(post(&app, "/api/acme/orders/7").await, 409, "{place}");
        assert_eq!(post(&app, "/api/acme/orders/8").await, 200, "{place}");
    }
}

#[tokio::test]
async fn a_policy_matches_every_kind_of_pattern_that_axum_accepts() {
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
            .layer(table(&locks, [LockPolicy::new("k").route(route)]));
        assert_eq!(post(&app, path).await, 409, "{route}");
    }
}

#[tokio::test]
async fn the_names_of_parameters_matter_only_in_the_key() {
    let (locks, _node) = memory().await;
    let logs = Logs::collect();
    let app = |key| {
        Router::new()
            .route("/orders/{order_id}", on_post(ok))
            .layer(table(&locks, [LockPolicy::new(key).route("/orders/{id}")]))
    };

    let _held = hold(&locks, "orders").await;
    assert_eq!(post(&app("orders"), "/orders/7").await, 409);
    assert_eq!(post(&app("order:{id}"), "/orders/7").await, 500);
    assert_eq!(logs.count("ERROR", "available: {order_id}"), 1);
}

#[tokio::test]
async fn a_more_specific_route_without_a_policy_is_served_unlocked() {
    let (locks, node) = memory().await;
    let logs = Logs::collect();
    let seen = node.clone();
    let app = Router::new()
        .route("/orders/{id}", on_post(ok))
        .route("/orders/search", on_post(async move || seen.len().to_string()))
        .layer(table(&locks, [orders()]));

    let response = send(&app, Method::POST, "/orders/search").await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "0");
    assert_eq!(logs.lines(), Vec::<String>::new());
}
