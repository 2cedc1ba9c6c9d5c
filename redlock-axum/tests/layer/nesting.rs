//! The layer around and inside of `nest` and `nest_service`, and the fallbacks of nested routers.

use axum::Router;
use axum::routing::{MethodRouter, post as on_post};
use redlock_axum::HeldLock;

use crate::support::{hold, layer, memory, post};

/// Returns a handler that does not run without a lock.
fn work() -> MethodRouter {
    on_post(async |_: HeldLock| ())
}

/// No work without the lock: inside of `nest_service` axum sets no `MatchedPath`, as in a fallback.
#[tokio::test]
async fn a_layer_around_nest_service_locks_all_routes_below_it() {
    let (locks, _node) = memory().await;
    let pay = || Router::new().nest_service("/pay", work());
    for (place, router, prefix, key) in [
        ("constant key", Router::new().nest_service("/api", work()), "/api", "k"),
        ("slash at the end", Router::new().nest_service("/api/", work()), "/api", "k"),
        ("key of a parameter", Router::new().nest_service("/api/{k}", work()), "/api/k", "{k}"),
        ("nothing but a parameter", Router::new().nest_service("/{k}", work()), "/k", "{k}"),
        (
            "nest_service in nest_service",
            Router::new().nest_service("/{k}", pay()),
            "/k/pay",
            "{k}",
        ),
        ("nest_service in nest", Router::new().nest("/{k}", pay()), "/k/pay", "{k}"),
    ] {
        for (method, app) in [
            ("layer", router.clone().layer(layer(&locks, key))),
            ("route_layer", router.route_layer(layer(&locks, key))),
        ] {
            for end in ["/", "/a", "/a/b", "//"] {
                let path = format!("{prefix}{end}");
                assert_eq!(post(&app, &path).await, 200, "{method}, {place}: {path}");
                let _guard = hold(&locks, "k").await;
                assert_eq!(post(&app, &path).await, 409, "{method}, {place}: {path}");
            }
        }
    }
}

#[tokio::test]
async fn a_layer_between_two_nest_services_locks() {
    let (locks, _node) = memory().await;
    let layered = Router::new().nest_service("/pay", work()).layer(layer(&locks, "{k}"));
    for (place, app) in [
        ("nest_service", Router::new().nest_service("/{k}", layered.clone())),
        ("nest", Router::new().nest("/{k}", layered)),
    ] {
        let _guard = hold(&locks, "k").await;
        for path in ["/k/pay", "/k/pay/", "/k/pay/a"] {
            assert_eq!(post(&app, path).await, 409, "{place}: {path}");
        }
        assert_eq!(post(&app, "/j/pay/a").await, 200, "{place}");
    }
}

/// A request that no route matches needs no lock to get its 404.
#[tokio::test]
async fn a_route_layer_does_not_lock_a_fallback_wherever_its_router_is_nested() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    for key in ["k", "{id}"] {
        let layer = || layer(&locks, key);
        let inner = || {
            let nothing = async || http::StatusCode::NOT_FOUND;
            Router::new().route("/orders/{id}", work()).fallback(nothing)
        };
        for (place, app, prefix) in [
            ("in no other", inner().route_layer(layer()), ""),
            ("the layer inside", Router::new().nest("/api", inner().route_layer(layer())), "/api"),
            ("the layer outside", Router::new().nest("/api", inner()).route_layer(layer()), "/api"),
            (
                "nested twice",
                Router::new().nest("/a", Router::new().nest("/b", inner().route_layer(layer()))),
                "/a/b",
            ),
            ("in a parameter", Router::new().nest("/t/{t}", inner().route_layer(layer())), "/t/x"),
            (
                "beside a nest_service",
                Router::new()
                    .nest_service("/{tenant}/files", work())
                    .merge(inner())
                    .route_layer(layer()),
                "",
            ),
        ] {
            assert_eq!(post(&app, &format!("{prefix}/orders/k")).await, 409, "{place}, {key}");
            for end in ["/nothing", "/orders/k/nothing", "//orders/k"] {
                let path = format!("{prefix}{end}");
                assert_eq!(post(&app, &path).await, 404, "{place}, {key}: {path}");
            }
        }
    }
}

/// The nested router is an opaque service: the layer cannot know whether it has a matching route.
#[tokio::test]
async fn a_fallback_inside_of_nest_service_is_locked() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    let inner = || Router::new().route("/orders", work());
    for (place, app) in [
        ("outside", Router::new().nest_service("/{k}", inner()).layer(layer(&locks, "{k}"))),
        ("inside", Router::new().nest_service("/{k}", inner().layer(layer(&locks, "{k}")))),
    ] {
        assert_eq!(post(&app, "/k/nothing").await, 409, "{place}");
        assert_eq!(post(&app, "/j/nothing").await, 404, "{place}");
    }
}
