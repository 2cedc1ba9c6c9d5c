//! The places of an application where the layer can stand.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{MethodRouter, any, any_service, post as on_post};
use http::{Method, Request};
use redlock_axum::LockPolicy;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{OnlyWhenReady, hold, layer, memory, post, request, send};

/// The layer's own table, and the page about readers, say so.
#[tokio::test]
async fn a_request_for_another_method_is_locked_by_a_layer_of_the_router_and_not_of_the_route() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "order:7").await;
    let layer = || layer(&locks, "order:{id:u64}");
    let route = on_post(async || {});
    let path = "/orders/{id}";
    for (place, app, status) in [
        (
            "route_layer of the route",
            Router::new().route(path, route.clone().route_layer(layer())),
            405,
        ),
        ("layer of the route", Router::new().route(path, route.clone().layer(layer())), 409),
        (
            "route_layer of the router",
            Router::new().route(path, route.clone()).route_layer(layer()),
            409,
        ),
        ("layer of the router", Router::new().route(path, route).layer(layer()), 409),
    ] {
        assert_eq!(post(&app, "/orders/7").await, 409, "{place}");
        assert_eq!(send(&app, Method::PUT, "/orders/7").await.status(), status, "{place}");
        assert_eq!(send(&app, Method::PUT, "/orders/8").await.status(), 405, "{place}");
    }
}

#[tokio::test]
async fn every_place_that_axum_has_for_a_layer_works() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "order:7").await;
    let layer = || layer(&locks, "order:{id:u64}");
    let handler = || async {};
    let places = [
        (
            "MethodRouter::route_layer",
            "/orders/",
            Router::new().route("/orders/{id}", on_post(handler).route_layer(layer())),
        ),
        (
            "MethodRouter::layer",
            "/orders/",
            Router::new().route("/orders/{id}", on_post(handler).layer(layer())),
        ),
        (
            "MethodRouter::layer of any",
            "/orders/",
            Router::new().route("/orders/{id}", any(handler).layer(layer())),
        ),
        (
            "MethodRouter::layer of any with another method",
            "/orders/",
            Router::new().route("/orders/{id}", any(handler).get(handler).layer(layer())),
        ),
        (
            "MethodRouter::layer of any_service",
            "/orders/",
            Router::new().route("/orders/{id}", any_service(service_fn(ok)).layer(layer())),
        ),
        (
            "Router::route_layer around any",
            "/orders/",
            Router::new().route("/orders/{id}", any(handler)).route_layer(layer()),
        ),
        (
            "Handler::layer",
            "/orders/",
            Router::new().route("/orders/{id}", on_post(handler.layer(layer()))),
        ),
        (
            "Router::route_layer",
            "/orders/",
            Router::new().route("/orders/{id}", on_post(handler)).route_layer(layer()),
        ),
        (
            "Router::layer",
            "/orders/",
            Router::new().route("/orders/{id}", on_post(handler)).layer(layer()),
        ),
        (
            "route_service",
            "/orders/",
            Router::new().route_service("/orders/{id}", layer().layer(service_fn(ok))),
        ),
        (
            "outside of nest",
            "/api/orders/",
            Router::new()
                .nest("/api", Router::new().route("/orders/{id}", on_post(handler)))
                .layer(layer()),
        ),
        (
            "inside of nest",
            "/api/orders/",
            Router::new().nest(
                "/api",
                Router::new().route("/orders/{id}", on_post(handler)).route_layer(layer()),
            ),
        ),
        (
            "a parameter of the outer router",
            "/shop/",
            Router::new().nest(
                "/shop/{id}",
                Router::new().route("/", on_post(handler).route_layer(layer())),
            ),
        ),
        (
            "a parameter of nest_service",
            "/shop/",
            Router::new().nest_service("/shop/{id}", layer().layer(service_fn(ok))),
        ),
        (
            "a wildcard",
            "/orders/",
            Router::new().route("/orders/{*id}", on_post(handler).route_layer(layer())),
        ),
    ];
    for (place, path, app) in places {
        assert_eq!(post(&app, &format!("{path}7")).await, 409, "{place}");
        assert_eq!(post(&app, &format!("{path}8")).await, 200, "{place}");
    }
}

/// This is why the documentation recommends `.layer` for `any`.
#[tokio::test]
async fn a_route_layer_does_not_lock_the_handler_of_any() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    let layer = layer(&locks, "k");
    let only_any = || -> MethodRouter { any(async || {}).route_layer(layer.clone()) };
    std::panic::catch_unwind(AssertUnwindSafe(|| drop(only_any()))).unwrap_err();
    let beside_get = any(async || {}).get(async || {}).route_layer(layer);
    let app = Router::new().route("/", beside_get);
    assert_eq!(send(&app, Method::GET, "/").await.status(), 409);
    assert_eq!(post(&app, "/").await, 200);
}

async fn ok(_: Request<Body>) -> Result<Response, Infallible> {
    Ok(Response::new(Body::empty()))
}

/// Inside of `nest_service` axum sets no `MatchedPath`, as in a fallback.
#[tokio::test]
async fn a_service_in_nest_service_is_locked() {
    let (locks, _node) = memory().await;
    let service = layer(&locks, "k").layer(service_fn(ok));
    let app = Router::new().nest_service("/files", service);

    let _guard = hold(&locks, "k").await;
    assert_eq!(post(&app, "/files/a").await, 409);
}

/// A `route_layer` does not reach the fallback of its router. A `layer` does.
#[tokio::test]
async fn a_request_that_no_route_matches_is_locked_by_a_layer_only() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    let router = || Router::new().route("/orders/{id}", on_post(|| async {}));
    for key in ["k", "order:{id}"] {
        let app = router().route_layer(layer(&locks, key));
        assert_eq!(post(&app, "/nowhere").await, 404, "{key}");
    }
    assert_eq!(post(&router().layer(layer(&locks, "k")), "/nowhere").await, 409);

    let work = async || "work";
    let fallback = Router::new().fallback(work.layer(layer(&locks, "k")));
    assert_eq!(post(&fallback, "/x").await, 409);
}

#[tokio::test]
async fn a_service_outside_of_any_router_is_locked() {
    let (locks, node) = memory().await;
    let service = layer(&locks, "job").layer(service_fn(ok));
    let guard = hold(&locks, "job").await;
    let response = service.clone().oneshot(request(Method::POST, "/")).await.unwrap();
    assert_eq!(response.status(), 409);
    guard.release().await.unwrap();
    assert_eq!(service.oneshot(request(Method::POST, "/")).await.unwrap().status(), 200);

    let service = layer(&locks, "job:{id}").layer(service_fn(ok));
    assert_eq!(service.oneshot(request(Method::POST, "/")).await.unwrap().status(), 500);
    assert_eq!(node.len(), 0);
}

/// tower's contract: a service may be called only after `poll_ready` of the same instance.
#[tokio::test]
async fn only_the_instance_that_was_polled_ready_is_called() {
    let (locks, _node) = memory().await;
    let layer = layer(&locks, LockPolicy::new("k").methods([Method::POST]));
    let mut service = layer.layer(OnlyWhenReady::default());
    for method in [Method::POST, Method::GET, Method::POST] {
        let ready = ServiceExt::<Request<Body>>::ready(&mut service).await.unwrap();
        assert_eq!(ready.call(request(method, "/")).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn the_lock_is_released_when_the_inner_service_fails() {
    let (locks, node) = memory().await;
    let failing = service_fn(async |_: Request<Body>| Err::<Response, _>("broken"));
    let service = layer(&locks, "k").layer(failing);

    let result = service.oneshot(request(Method::POST, "/")).await;
    assert_eq!(node.len(), 0);
    assert_eq!(result.unwrap_err(), "broken");
}
