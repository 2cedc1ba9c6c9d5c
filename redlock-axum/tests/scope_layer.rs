//! The manager of a request: in the state, or installed by `ScopeLayer`, and the scope of a request.

use std::time::Duration;

use axum::extract::{FromRef, Path, State};
use axum::routing::{get as on_get, post as on_post};
use axum::{Extension, Router};
use http::{Method, Request};
use redlock_axum::{
    FencedLock, LockError, LockManager, LockRejection, ScopeLayer, ScopeService, redis_lock, scope,
};
use redlock_logs::Logs;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{get, hold, memory, post, send, text};

const HOUR: Duration = Duration::from_secs(3600);

/// The state of an application with more than its locks.
#[derive(Clone)]
struct App {
    locks: LockManager,
    greeting: &'static str,
}

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.locks.clone()
    }
}

impl FromRef<App> for &'static str {
    fn from_ref(app: &App) -> Self {
        app.greeting
    }
}

#[redis_lock(key = "order:{id}", fenced)]
async fn pay(Path(id): Path<u64>, lock: FencedLock) -> String {
    format!("{id} {}", lock.fencing_token().number() > 0)
}

async fn settle(State(locks): State<LockManager>) -> Result<&'static str, LockRejection> {
    let _guard = locks.lock("settlement").try_acquire().await?;
    Ok("settled")
}

/// A router of another crate, for any application with locks in its state.
fn orders<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    LockManager: FromRef<S>,
{
    Router::new().route("/{id}", on_post(pay))
}

#[tokio::test]
async fn handlers_take_the_manager_from_the_state_in_nested_and_merged_routers() {
    let (locks, node) = memory().await;
    let inner = orders().with_state(locks.clone());
    let app = Router::new()
        .route("/pay/{id}", on_post(pay))
        .route("/settle", on_post(settle))
        .nest("/orders", orders())
        .nest("/other", inner)
        .with_state(App { locks: locks.clone(), greeting: "hello" });
    for path in ["/pay/7", "/orders/7", "/other/7"] {
        assert_eq!(text(send(&app, Method::POST, path).await).await, "7 true", "{path}");
    }
    assert_eq!(post(&app, "/settle").await, 200);
    assert!(node.is_empty());
    let _guard = hold(&locks, "order:7").await;
    assert_eq!(post(&app, "/orders/7").await, 409);
}

/// Above the attribute, `debug_handler` sees only the parameters that the user wrote.
#[tokio::test]
async fn debug_handler_works_above_and_below_with_the_manager_in_the_state() {
    #[axum::debug_handler(state = App)]
    #[redis_lock(key = "order:{id}")]
    async fn above(Path(id): Path<u64>) -> String {
        id.to_string()
    }

    #[redis_lock(key = "order:{id}")]
    #[axum::debug_handler]
    async fn below(Path(id): Path<u64>) -> String {
        id.to_string()
    }

    let (locks, _) = memory().await;
    let app = Router::new()
        .route("/above/{id}", on_get(above))
        .route("/below/{id}", on_get(below))
        .with_state(App { locks, greeting: "hello" });
    assert_eq!(get(&app, "/above/7").await.body, "7");
    assert_eq!(get(&app, "/below/8").await.body, "8");
}

async fn by_hand(locks: LockManager) -> Result<(), LockError> {
    #[redis_lock(key = "stock:a", wait_time = "forever", manager = locks)]
    async fn reserve(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }

    let _guard = locks.lock("stock:a").try_acquire().await?;
    reserve(&locks).await
}

/// Without the layer, the second acquisition would wait for the first one for ever.
#[tokio::test]
async fn a_request_behind_the_layer_never_waits_for_itself() {
    async fn state(State(locks): State<LockManager>) -> Result<(), LockRejection> {
        Ok(by_hand(locks).await?)
    }

    let (locks, node) = memory().await;
    let app =
        Router::new().route("/", on_post(state)).layer(ScopeLayer::new(&locks)).with_state(locks);
    let logs = Logs::collect();
    let status = tokio::time::timeout(HOUR / 360, post(&app, "/")).await;
    assert_eq!(status.expect("the request waits for itself"), 500);
    assert!(logs.lines().join("\n").contains("already held by the same request"));
    assert!(node.is_empty());
}

#[tokio::test]
async fn two_requests_behind_the_layer_are_two_holders() {
    async fn twice(State(locks): State<LockManager>) -> Result<(), LockRejection> {
        let reentrant = || locks.lock("a").reentrant(true);
        let _first = reentrant().try_acquire().await?;
        let _second = reentrant().try_acquire().await?;
        Ok(())
    }

    let (locks, _) = memory().await;
    let app = Router::new()
        .route("/", on_post(twice))
        .layer(ScopeLayer::new(&locks))
        .with_state(locks.clone());
    assert_eq!(post(&app, "/").await, 200);
    let _guard = scope(hold(&locks, "a")).await;
    assert_eq!(post(&app, "/").await, 409);
}

/// An `Extension` would give handlers a manager, but no scope.
#[tokio::test]
async fn only_the_layer_installs_a_manager() {
    #[redis_lock(key = "a", installed)]
    async fn locked() {}

    let (locks, _) = memory().await;
    let app = Router::new().route("/", on_post(locked));
    let extension = app.clone().layer(Extension(locks.clone()));
    assert_eq!(post(&extension, "/").await, 500);
    assert_eq!(post(&app.layer(ScopeLayer::new(&locks)), "/").await, 200);
}

#[tokio::test]
async fn the_service_forwards_requests_of_any_kind() {
    let (locks, _) = memory().await;
    let inner = service_fn(async |request: Request<u32>| Ok::<_, String>(request.into_body() + 1));
    let service: ScopeService<_> = ScopeLayer::new(&locks).layer(inner);
    assert_eq!(service.clone().oneshot(Request::new(41)).await, Ok(42));
}
