//! The places of an application where the layer can stand.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{MethodRouter, any, any_service, post as on_post};
use http::{Method, Request, StatusCode};
use redlock_axum::{LockLayer, LocksLayer};
use redlock_logs::Logs;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{OnlyWhenReady, hold, memory, post, request, send};

#[tokio::test]
async fn every_place_that_axum_has_for_a_layer_works() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "order:7").await;
    let layer = || LockLayer::new("order:{id:u64}");
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
    for (place, path, router) in places {
        let app = router.layer(LocksLayer::new(&locks));
        assert_eq!(post(&app, &format!("{path}7")).await, 409, "{place}");
        assert_eq!(post(&app, &format!("{path}8")).await, 200, "{place}");
    }
}

/// This is why the documentation recommends `.layer` for `any`.
#[tokio::test]
async fn a_route_layer_does_not_lock_the_handler_of_any() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    let layer = LockLayer::new("k").manager(locks);
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
    let service = LockLayer::new("k").layer(service_fn(ok));
    let app = Router::new().nest_service("/files", service).layer(LocksLayer::new(&locks));

    let _guard = hold(&locks, "k").await;
    assert_eq!(post(&app, "/files/a").await, 409);
}

#[tokio::test]
async fn a_request_that_no_route_matches_takes_no_lock() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    for template in ["k", "order:{id}"] {
        let app = Router::new()
            .route("/orders/{id}", on_post(|| async {}))
            .layer(LockLayer::new(template))
            .layer(LocksLayer::new(&locks));
        assert_eq!(post(&app, "/nowhere").await, 404, "{template}");
    }
}

#[tokio::test]
async fn an_unlocked_fallback_is_logged_once_and_can_be_locked() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    let app = |layer| {
        Router::new()
            .fallback(|| async { "work" })
            .layer::<LockLayer>(layer)
            .layer(LocksLayer::new(&locks))
    };
    let logs = Logs::collect();

    let unlocked = app(LockLayer::new("k"));
    assert_eq!(post(&unlocked, "/x").await, 200);
    assert_eq!(post(&unlocked, "/x").await, 200);
    assert_eq!(logs.count("WARN", ".lock_fallback()"), 1);

    assert_eq!(post(&app(LockLayer::new("k").lock_fallback()), "/x").await, 409);
}

/// A fallback that works may respond with an error, and a layer around it looks like a lock. Only
/// 404 and 405 show that there was no work.
#[tokio::test]
async fn an_unlocked_fallback_is_logged_unless_it_responds_with_404_or_405() {
    let (locks, _node) = memory().await;
    for (status, warnings) in [(200, 1), (303, 1), (400, 1), (500, 1), (404, 0), (405, 0)] {
        let answer = async move || StatusCode::from_u16(status).unwrap();
        let app = Router::new()
            .fallback(answer.layer(LockLayer::new("k")))
            .layer(LocksLayer::new(&locks));
        let logs = Logs::collect();
        assert_eq!(post(&app, "/x").await, status);
        assert_eq!(logs.count("WARN", ".lock_fallback()"), warnings, "{status}");
    }
}

#[tokio::test]
async fn a_service_outside_of_any_router_is_locked() {
    let (locks, node) = memory().await;
    let service = LockLayer::new("job").manager(locks.clone()).layer(service_fn(ok));
    let guard = hold(&locks, "job").await;
    let response = service.clone().oneshot(request(Method::POST, "/")).await.unwrap();
    assert_eq!(response.status(), 409);
    guard.release().await.unwrap();
    assert_eq!(service.oneshot(request(Method::POST, "/")).await.unwrap().status(), 200);

    let service = LockLayer::new("job:{id}").manager(locks).layer(service_fn(ok));
    assert_eq!(service.oneshot(request(Method::POST, "/")).await.unwrap().status(), 500);
    assert_eq!(node.len(), 0);
}

/// tower's contract: a service may be called only after `poll_ready` of the same instance.
#[tokio::test]
async fn only_the_instance_that_was_polled_ready_is_called() {
    let (locks, _node) = memory().await;
    let layer = LockLayer::new("k").manager(locks).methods([Method::POST]);
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
    let service = LockLayer::new("k").manager(locks).layer(failing);

    let result = service.oneshot(request(Method::POST, "/")).await;
    assert_eq!(node.len(), 0);
    assert_eq!(result.unwrap_err(), "broken");
}
