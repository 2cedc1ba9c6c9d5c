//! `LockLayer`: what is locked, by which key, for how long.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::{Method, Request, StatusCode};
use redlock_axum::{
    HeldLock, LockLayer, LockManager, LockPolicies, LockPolicy, LockRejection, MemoryNode,
    SetupError,
};
use support::{Log, OnlyWhenReady, eventually, hold, memory, post, request, send, text};
use tower::{Layer, Service, ServiceExt, service_fn};

/// `/orders/{id}/pay` behind the layer; the handler says how many keys are there while it runs.
fn app(layer: LockLayer, locks: LockManager, node: &MemoryNode) -> Router {
    let node = node.clone();
    let pay = move || async move { node.len().to_string() };
    Router::new()
        .route("/orders/{id}/pay", on_post(pay.clone()).get(pay).route_layer(layer))
        .layer(Extension(locks))
}

#[tokio::test]
async fn the_handler_runs_under_the_lock_and_the_lock_is_free_when_the_response_leaves() {
    let (locks, node) = memory().await;
    let app = app(LockLayer::new("order:{id}"), locks, &node);

    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(node.len(), 0);
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "1");
}

/// klock runs the body without the lock when the wait is over: invariant 1.
#[tokio::test]
async fn a_contended_request_is_refused_and_its_handler_never_called() {
    let (locks, _node) = memory().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = async move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let app = Router::new()
        .route("/orders/{id}", on_post(handler).route_layer(LockLayer::new("order:{id}")))
        .layer(Extension(locks.clone()));

    let guard = hold(&locks, "order:1").await;
    assert_eq!(post(&app, "/orders/1").await, 409);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert_eq!(post(&app, "/orders/2").await, 200);

    guard.release().await.unwrap();
    assert_eq!(post(&app, "/orders/1").await, 200);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_request_without_a_manager_is_refused_and_the_log_names_the_line_to_add() {
    let (locks, node) = memory().await;
    Log::start();
    let bare =
        |layer: LockLayer| Router::new().route("/", on_post(|| async { "ran" }).route_layer(layer));

    let response = send(&bare(LockLayer::new("k")), Method::POST, "/").await;
    assert_eq!(response.status(), 500);
    assert!(!text(response).await.contains("Extension"));
    assert_eq!(Log::count("ERROR", ".layer(axum::Extension(locks))"), 1);

    let given = bare(LockLayer::new("k").manager(locks));
    assert_eq!(post(&given, "/").await, 200);
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn the_given_manager_goes_before_the_installed_one() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/", on_post(|| async {}).route_layer(LockLayer::new("k").manager(locks.clone())))
        .layer(Extension(LockManager::in_memory()));

    let _guard = hold(&locks, "k").await;
    assert_eq!(post(&app, "/").await, 409);
}

#[tokio::test]
async fn after_the_shutdown_requests_are_refused_as_unavailable() {
    let (locks, node) = memory().await;
    let app = app(LockLayer::new("order:{id}"), locks.clone(), &node);
    locks.shutdown().await;
    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
}

/// One resource, one key.
#[tokio::test]
async fn a_typed_placeholder_gives_one_key_for_one_value() {
    let (locks, node) = memory().await;
    let order = app(LockLayer::new("order:{id:u64}"), locks.clone(), &node);
    let _guard = hold(&locks, "order:42").await;
    for id in ["42", "042", "+42", "%34%32"] {
        assert_eq!(post(&order, &format!("/orders/{id}/pay")).await, 409, "{id}");
    }

    let coupon = app(LockLayer::new("coupon:{id:lower}"), locks.clone(), &node);
    let _guard = hold(&locks, "coupon:sale").await;
    assert_eq!(post(&coupon, "/orders/SaLE/pay").await, 409);

    let session = app(LockLayer::new("session:{id:uuid}"), locks.clone(), &node);
    let _guard = hold(&locks, "session:67e55044-10b1-426f-9247-bb680e5fe0c8").await;
    assert_eq!(post(&session, "/orders/67E5504410B1426F9247BB680E5FE0C8/pay").await, 409);
}

/// Different inputs, different keys: invariant 10.
#[tokio::test]
async fn a_value_cannot_reach_into_the_next_part_of_the_key() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/{a}/{b}", on_post(|| async {}).route_layer(LockLayer::new("{a}:{b}")))
        .layer(Extension(locks.clone()));

    let _guard = hold(&locks, "x%3Ay:z").await;
    assert_eq!(post(&app, "/x:y/z").await, 409);
    assert_eq!(post(&app, "/x/y:z").await, 200);
}

#[tokio::test]
async fn a_value_that_no_key_can_be_made_of_is_a_bad_request() {
    let (locks, node) = memory().await;
    let typed = app(LockLayer::new("order:{id:u64}"), locks.clone(), &node);
    let response = send(&typed, Method::POST, "/orders/forty/pay").await;
    assert_eq!(response.status(), 400);
    assert!(text(response).await.contains("the parameter id is not a whole number"));

    let plain = app(LockLayer::new("order:{id}"), locks, &node);
    let response = send(&plain, Method::POST, "/orders/%ff/pay").await;
    assert_eq!(response.status(), 400);
    assert!(text(response).await.contains("a path parameter is not valid UTF-8"));
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn a_placeholder_that_the_route_lacks_is_a_server_error_with_the_names_in_the_log() {
    let (locks, node) = memory().await;
    Log::start();
    let app = app(LockLayer::new("order:{idd}"), locks, &node);

    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 500);
    assert!(!text(response).await.contains("idd"));
    assert_eq!(Log::count("ERROR", "{idd}"), 1);
    assert_eq!(Log::count("ERROR", "there is {id}"), 1);
}

#[tokio::test]
async fn a_name_that_two_parameters_have_is_a_server_error() {
    let (locks, _node) = memory().await;
    let inner = Router::new()
        .route("/{id}", on_post(|| async {}).route_layer(LockLayer::new("order:{id}")));
    let app = Router::new().nest_service("/{id}", inner).layer(Extension(locks));

    Log::start();
    assert_eq!(post(&app, "/1/2").await, 500);
    assert_eq!(Log::count("ERROR", "could be one of several path parameters"), 1);
}

#[tokio::test]
async fn only_the_named_methods_are_locked() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").methods([Method::POST]);
    let app = app(layer, locks.clone(), &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(post(&app, "/orders/42/pay").await, 409);
    assert_eq!(send(&app, Method::GET, "/orders/42/pay").await.status(), 200);
}

/// axum serves HEAD with the handler for GET: invariant 1.
#[tokio::test]
async fn head_is_locked_where_get_is() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").methods([Method::GET]);
    let app = app(layer, locks.clone(), &node);

    let _guard = hold(&locks, "order:42").await;
    assert_eq!(send(&app, Method::HEAD, "/orders/42/pay").await.status(), 409);
}

#[tokio::test]
async fn contention_answers_with_the_chosen_status() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").contended_status(StatusCode::LOCKED);
    let app = app(layer, locks.clone(), &node);

    let _guard = hold(&locks, "order:42").await;
    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 423);
    assert!(text(response).await.contains(r#""title":"Locked","status":423"#));
}

#[tokio::test]
async fn a_waiting_request_is_served_once_the_lock_is_free() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").wait_time(Duration::from_secs(30));
    let app = app(layer, locks.clone(), &node);

    let guard = hold(&locks, "order:42").await;
    let mut waiting = pin!(send(&app, Method::POST, "/orders/42/pay"));
    assert!(poll_once(&mut waiting).is_pending());
    guard.release().await.unwrap();
    assert_eq!(waiting.await.status(), 200);
}

#[tokio::test]
async fn a_waiting_request_is_refused_when_its_time_is_over() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").wait_time(Duration::from_millis(50));
    let app = app(layer, locks.clone(), &node);

    let _guard = hold(&locks, "order:42").await;
    let start = std::time::Instant::now();
    assert_eq!(post(&app, "/orders/42/pay").await, 409);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn the_lease_is_what_was_asked_for() {
    let (locks, node) = memory().await;
    let lease = async |layer: LockLayer| {
        let seen = node.clone();
        let handler = async move || seen.time_to_live("k").unwrap().as_millis().to_string();
        let app =
            Router::new().route("/", on_post(handler).route_layer(layer.manager(locks.clone())));
        let millis = text(send(&app, Method::POST, "/").await).await;
        millis.parse::<u64>().unwrap()
    };

    let default = lease(LockLayer::new("k")).await;
    assert!((4000..=5000).contains(&default), "{default}");
    let chosen = lease(LockLayer::new("k").expire(Duration::from_secs(90))).await;
    assert!((89_000..=90_000).contains(&chosen), "{chosen}");
}

#[tokio::test]
async fn a_renewed_lease_outlives_its_first_time() {
    let (locks, node) = memory().await;
    let seen = node.clone();
    let expire = Duration::from_millis(300);
    let handler = async move || {
        tokio::time::sleep(3 * expire).await;
        seen.len().to_string()
    };
    let layer = LockLayer::new("k").expire(expire).renew();
    let app = Router::new().route("/", on_post(handler).route_layer(layer)).layer(Extension(locks));

    assert_eq!(text(send(&app, Method::POST, "/").await).await, "1");
    assert_eq!(node.len(), 0);
}

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
        let app = router.layer(Extension(locks.clone()));
        assert_eq!(post(&app, &format!("{path}7")).await, 409, "{place}");
        assert_eq!(post(&app, &format!("{path}8")).await, 200, "{place}");
    }
}

async fn ok(_: Request<Body>) -> Result<Response, Infallible> {
    Ok(Response::new(Body::empty()))
}

/// axum has no `MatchedPath` there, as it has none for a fallback.
#[tokio::test]
async fn a_service_in_nest_service_is_locked() {
    let (locks, _node) = memory().await;
    let service = LockLayer::new("k").layer(service_fn(ok));
    let app = Router::new().nest_service("/files", service).layer(Extension(locks.clone()));

    let _guard = hold(&locks, "k").await;
    assert_eq!(post(&app, "/files/a").await, 409);
}

#[tokio::test]
async fn a_wildcard_gives_the_whole_rest_of_the_path() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/files/{*path}", on_post(|| async {}).route_layer(LockLayer::new("file:{path}")))
        .layer(Extension(locks.clone()));

    let _guard = hold(&locks, "file:a%2Fb").await;
    assert_eq!(post(&app, "/files/a/b").await, 409);
    assert_eq!(post(&app, "/files/a").await, 200);
}

#[tokio::test]
async fn a_request_that_no_route_matches_takes_no_lock() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    for template in ["k", "order:{id}"] {
        let app = Router::new()
            .route("/orders/{id}", on_post(|| async {}))
            .layer(LockLayer::new(template))
            .layer(Extension(locks.clone()));
        assert_eq!(post(&app, "/nowhere").await, 404, "{template}");
    }
}

#[tokio::test]
async fn a_fallback_that_works_unlocked_is_named_in_the_log_and_can_be_locked() {
    let (locks, _node) = memory().await;
    let _guard = hold(&locks, "k").await;
    let app = |layer| {
        Router::new()
            .fallback(|| async { "work" })
            .layer::<LockLayer>(layer)
            .layer(Extension(locks.clone()))
    };
    Log::start();

    let unlocked = app(LockLayer::new("k"));
    assert_eq!(post(&unlocked, "/x").await, 200);
    assert_eq!(post(&unlocked, "/x").await, 200);
    assert_eq!(Log::count("WARN", ".lock_fallback()"), 1);

    assert_eq!(post(&app(LockLayer::new("k").lock_fallback()), "/x").await, 409);
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

/// tower's contract: only the service that was polled ready may be called.
#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
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

#[tokio::test]
async fn the_lock_is_released_when_the_handler_answers_with_an_error() {
    let (locks, node) = memory().await;
    let app = Router::new()
        .route(
            "/",
            on_post(|| async { Err::<(), _>(StatusCode::IM_A_TEAPOT) })
                .route_layer(LockLayer::new("k")),
        )
        .layer(Extension(locks));

    assert_eq!(post(&app, "/").await, 418);
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn the_lock_is_released_when_the_handler_panics() {
    let (locks, node) = memory().await;
    let seen = node.clone();
    let handler = async move || -> &'static str {
        tokio::task::yield_now().await;
        panic!("{} key is held", seen.len());
    };
    let app = Router::new()
        .route("/", on_post(handler).route_layer(LockLayer::new("k")))
        .layer(Extension(locks));

    let outcome = tokio::spawn(async move { post(&app, "/").await }).await;
    let panic = outcome.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "1 key is held");
    eventually("no key is left", || node.is_empty()).await;
}

/// A client that goes away, a timeout around the layer: invariant 6. rslock leaves the key.
#[tokio::test]
async fn a_request_dropped_at_any_point_leaves_nothing_behind() {
    let mut dropped_with_a_key = 0;
    let mut polls = 0;
    loop {
        let (locks, node) = memory().await;
        let handler = async || {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        };
        let app = Router::new()
            .route("/", on_post(handler).route_layer(LockLayer::new("k")))
            .layer(Extension(locks.clone()));

        let mut finished = false;
        {
            let mut future = pin!(send(&app, Method::POST, "/"));
            for _ in 0..polls {
                if poll_once(&mut future).is_ready() {
                    finished = true;
                    break;
                }
                tokio::task::yield_now().await;
            }
            dropped_with_a_key += usize::from(node.len() == 1);
        }
        eventually("no key is left", || node.is_empty()).await;
        hold(&locks, "k").await.release().await.unwrap();
        if finished {
            break;
        }
        polls += 1;
        assert!(polls < 1000, "the request never finishes");
    }
    assert!(dropped_with_a_key >= 3, "the test never dropped a request that held its lock");
}

/// lock4j's holder deletes the next one's lock: invariant 2.
#[tokio::test]
async fn a_handler_that_outlives_its_lease_keeps_its_response_and_leaves_the_next_lock_alone() {
    let (locks, node) = memory().await;
    Log::start();
    let next = locks.clone();
    let seen = node.clone();
    let handler = async move || {
        eventually("the lease runs out", || seen.is_empty()).await;
        // Held on beyond this handler.
        std::mem::forget(hold(&next, "k").await);
        "done"
    };
    let layer = LockLayer::new("k").expire(Duration::from_millis(100));
    let app = Router::new().route("/", on_post(handler).route_layer(layer)).layer(Extension(locks));

    let response = send(&app, Method::POST, "/").await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "done");
    assert_eq!(node.len(), 1);
    assert_eq!(Log::count("WARN", "not released in order"), 1);
}

#[tokio::test]
async fn the_application_can_answer_refusals_itself() {
    let (locks, node) = memory().await;
    Log::start();
    let layer = |template| {
        LockLayer::new(template).on_reject(|rejection: LockRejection| {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{:?}", rejection.kind()))
        })
    };
    let _held = hold(&locks, "order:42").await;

    let contended = app(layer("order:{id}"), locks.clone(), &node);
    let response = send(&contended, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 503);
    assert_eq!(text(response).await, "Contended");

    let wrong = app(layer("order:{idd}"), locks, &node);
    let response = send(&wrong, Method::POST, "/orders/42/pay").await;
    assert_eq!(text(response).await, "Misconfigured");
    assert_eq!(Log::count("ERROR", "{idd}"), 1, "the answer must not hide it from the log");
}

#[test]
fn mistakes_are_errors_when_checked() {
    let mistake = |layer: LockLayer| layer.checked().unwrap_err();
    assert!(matches!(mistake(LockLayer::new("order:{id")), SetupError::Template(_)));
    assert_eq!(
        mistake(LockLayer::new("k").expire(Duration::ZERO)).to_string(),
        "expire is 0ns, but must be from 10 ms to 7 days"
    );
    let eight_days = Duration::from_secs(8 * 24 * 3600);
    assert!(matches!(
        mistake(LockLayer::new("k").wait_time(eight_days)),
        SetupError::OutOfRange { option: "wait_time", .. }
    ));
    assert_eq!(
        mistake(LockLayer::new("k").contended_status(StatusCode::OK)),
        SetupError::ContendedStatus(StatusCode::OK)
    );
    assert_eq!(mistake(LockLayer::new("k").methods([])), SetupError::NoMethods);
    assert!(LockLayer::new("order:{id:u64}").checked().is_ok());
}

/// A mistake that nobody checked for must not run handlers unlocked: invariant 1.
#[tokio::test]
async fn an_unchecked_mistake_is_logged_at_once_and_refuses_every_request() {
    let (locks, node) = memory().await;
    let mistakes: [fn() -> LockLayer; 4] = [
        || LockLayer::new("order:{id").renew(),
        || LockLayer::new("k").expire(Duration::ZERO).renew(),
        || LockLayer::new("k").methods([]),
        || LockLayer::new("k").contended_status(StatusCode::OK),
    ];
    for mistake in mistakes {
        Log::start();
        let app = app(mistake(), locks.clone(), &node);
        assert_eq!(Log::count("ERROR", "a lock layer is set up wrongly"), 1);
        assert_eq!(post(&app, "/orders/42/pay").await, 500);
    }
}

fn poll_once<F: Future>(future: &mut std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn the_handler_finds_its_lock_behind_a_layer_and_behind_a_policy() {
    async fn look(lock: HeldLock) -> String {
        format!("{} {}", lock.key(), lock.is_valid())
    }

    let policies = LockPolicies::new([LockPolicy::new("/policy/{id}", "order:{id}")]).unwrap();
    let app = Router::new()
        .route("/layer/{id}", on_post(look).route_layer(LockLayer::new("order:{id}")))
        .route("/policy/{id}", on_post(look))
        .route("/unlocked", on_post(look))
        .layer(policies)
        .layer(Extension(LockManager::in_memory()));
    for path in ["/layer/42", "/policy/42"] {
        assert_eq!(text(send(&app, Method::POST, path).await).await, "order:42 true", "{path}");
    }
    assert_eq!(post(&app, "/unlocked").await, 500);
}
