//! `CommitUnderLock`: locks that end after the commit of a layer around their handlers.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, Method, StatusCode};
use axum::middleware::{FromFnLayer, Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post as on_post;
use axum::{Extension, Router};
use futures_util::FutureExt;
use redlock_axum::{
    CommitUnderLock, HeldLock, LockError, LockManager, LockPolicy, MemoryNode, ScopeLayer,
    redis_lock,
};
use redlock_logs::Logs;
use tokio::task::yield_now;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::front_ends::stage::Stage;
use crate::support::{
    OnlyWhenReady, answer, eventually, hold, is_held_by_caller, layer, memory, post, request, send,
    text,
};

const LEASE: Duration = Duration::from_millis(400);

/// Stands for a database, and records what happens to its transactions, each time with the number of keys that are locked.
#[derive(Clone)]
struct Shop {
    locks: LockManager,
    node: MemoryNode,
    events: Arc<Mutex<Vec<String>>>,
    /// Each handler enters it.
    work: Stage,
    /// Each commit enters it.
    commit: Stage,
}

impl FromRef<Shop> for LockManager {
    fn from_ref(shop: &Shop) -> Self {
        shop.locks.clone()
    }
}

impl Shop {
    async fn new() -> Self {
        let (locks, node) = memory().await;
        let shop =
            Self { locks, node, events: Arc::default(), work: Stage::new(), commit: Stage::new() };
        // Each test sends fewer requests.
        shop.work.leave(100);
        shop.commit.leave(100);
        shop
    }

    /// Lets handlers wait.
    fn with_slow_work(mut self) -> Self {
        self.work = Stage::new();
        self
    }

    /// Lets commits wait.
    fn with_slow_commit(mut self) -> Self {
        self.commit = Stage::new();
        self
    }

    fn record(&self, event: &str) {
        self.events.lock().unwrap().push(format!("{event} with {}", self.node.len()));
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    /// Returns the layer with the transaction, under the lock.
    fn under_lock<T>(
        &self,
        middleware: T,
    ) -> CommitUnderLock<FromFnLayer<T, Self, (State<Self>, Request)>> {
        CommitUnderLock::new(from_fn_with_state(self.clone(), middleware))
    }

    /// Returns a router whose only route is under the lock.
    fn app<H, T: 'static>(&self, handler: H) -> Router
    where
        H: axum::handler::Handler<T, Self>,
    {
        let layer = CommitUnderLock::new(from_fn_with_state(self.clone(), transaction));
        Router::new().route("/", on_post(handler)).layer(layer).with_state(self.clone())
    }
}

/// Begins a transaction for each request, and commits it after the handler.
async fn transaction(State(shop): State<Shop>, request: Request, next: Next) -> Response {
    let mut transaction = Transaction { shop: shop.clone(), is_committed: false };
    let response = next.run(request).await;
    if response.status().is_success() || response.status().is_redirection() {
        shop.commit.enter().await;
        shop.record("commit");
        transaction.is_committed = true;
    }
    response
}

struct Transaction {
    shop: Shop,
    is_committed: bool,
}

impl Drop for Transaction {
    /// Records a rollback.
    fn drop(&mut self) {
        if !self.is_committed {
            self.shop.record("rollback");
        }
    }
}

#[redis_lock(key = "a")]
async fn plain(State(shop): State<Shop>, lock: HeldLock) -> StatusCode {
    shop.work.enter().await;
    if lock.is_valid() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }
}

#[redis_lock(key = "a", detached)]
async fn detached(State(shop): State<Shop>) {
    shop.work.enter().await;
    shop.record("charge");
}

#[redis_lock(key = "a", expire = LEASE)]
async fn short(State(shop): State<Shop>) {
    shop.record("charge");
}

#[redis_lock(key = "a", expire = LEASE, on_lost = abort)]
async fn abortable(State(shop): State<Shop>) {
    shop.record("charge");
}

#[redis_lock(key = "a", hold_until = end_of_body)]
async fn streamed(method: Method) -> &'static str {
    if method == Method::PUT { "" } else { "a body" }
}

async fn unlocked() {}

/// Sends `POST /` as a client that leaves when `stage` is entered.
async fn leave(app: &Router, stage: &Stage) {
    let client = app.clone();
    let request = tokio::spawn(async move { post(&client, "/").await });
    stage.until_inside(1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn the_lock_of_a_handler_ends_after_the_commit() {
    let shop = Shop::new().await;
    assert_eq!(post(&shop.app(plain), "/").await, 200);
    assert_eq!(shop.events(), ["commit with 1"]);
    assert!(shop.node.is_empty(), "the release is not awaited");
    // Without the layer, it ends before.
    let wrong = Router::new().route("/", on_post(plain));
    let wrong = wrong.layer(from_fn_with_state(shop.clone(), transaction));
    assert_eq!(post(&wrong.with_state(shop.clone()), "/").await, 200);
    assert_eq!(shop.events(), ["commit with 1", "commit with 0"]);
}

/// The lock of a layer, and that of the attribute, in nested routers.
#[tokio::test]
async fn all_locks_of_a_request_end_after_the_commit() {
    let shop = Shop::new().await;
    let inner = Router::new().route("/b", on_post(plain)).route_layer(layer(&shop.locks, "b"));
    let app = Router::new().nest("/a", inner.layer(layer(&shop.locks, "c")));
    let app = app.layer(shop.under_lock(transaction)).with_state(shop.clone());
    assert_eq!(post(&app, "/a/b").await, 200);
    assert_eq!(shop.events(), ["commit with 3"]);
    assert!(shop.node.is_empty());
}

/// Two wrapped layers, such as a session and a transaction.
#[tokio::test]
async fn the_first_layer_of_a_request_ends_the_locks_of_all() {
    let shop = Shop::new().await;
    let app = shop.app(plain).layer(shop.under_lock(transaction));
    assert_eq!(post(&app, "/").await, 200);
    assert_eq!(shop.events(), ["commit with 1", "commit with 1"]);
    assert!(shop.node.is_empty());
}

#[tokio::test]
async fn a_request_without_a_lock_is_served() {
    let shop = Shop::new().await;
    assert_eq!(post(&shop.app(unlocked), "/").await, 200);
    let _guard = hold(&shop.locks, "a").await;
    assert_eq!(post(&shop.app(plain), "/").await, 409);
    assert_eq!(shop.events(), ["commit with 0", "rollback with 1"]);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_transaction_before_the_lock() {
    let shop = Shop::new().await.with_slow_work();
    leave(&shop.app(plain), &shop.work).await;
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert_eq!(shop.events(), ["rollback with 1"]);
    let shop = Shop::new().await.with_slow_commit();
    leave(&shop.app(plain), &shop.commit).await;
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert_eq!(shop.events(), ["rollback with 1"]);
}

/// In the issue: the charge was made, and its row was lost.
#[tokio::test]
async fn a_detached_handler_commits_after_its_client_has_left() {
    let shop = Shop::new().await.with_slow_work().with_slow_commit();
    leave(&shop.app(detached), &shop.work).await;
    assert_eq!(post(&shop.app(detached), "/").await, 409);
    shop.work.leave(1);
    shop.commit.until_inside(1).await;
    assert_eq!(shop.node.len(), 1);
    shop.commit.leave(1);
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert_eq!(shop.events(), ["rollback with 1", "charge with 1", "commit with 1"]);
}

#[tokio::test]
async fn a_client_that_leaves_during_the_commit_of_a_detached_handler_does_not_stop_it() {
    let shop = Shop::new().await.with_slow_commit();
    leave(&shop.app(detached), &shop.commit).await;
    shop.commit.leave(1);
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert_eq!(shop.events(), ["charge with 1", "commit with 1"]);
}

#[tokio::test]
async fn a_shutdown_waits_for_the_commit_of_a_detached_handler() {
    let shop = Shop::new().await.with_slow_work().with_slow_commit();
    leave(&shop.app(detached), &shop.work).await;
    let mut shutdown = pin!(shop.locks.shutdown());
    for stage in [&shop.work, &shop.commit] {
        stage.until_inside(1).await;
        tokio::select! {
            biased;
            () = &mut shutdown => panic!("the shutdown did not wait"),
            () = yield_now() => {}
        }
        stage.leave(1);
    }
    shutdown.await;
    assert_eq!(shop.events(), ["charge with 1", "commit with 1"]);
}

/// The waiter of a lock begins nothing after its client has left.
#[tokio::test]
async fn a_detached_handler_whose_client_leaves_before_the_lock_does_not_begin() {
    #[redis_lock(key = "a", wait_time = "forever", detached)]
    async fn waits(State(shop): State<Shop>) {
        shop.record("charge");
    }

    let shop = Shop::new().await;
    let guard = hold(&shop.locks, "a").await;
    let app = shop.app(waits);
    tokio::select! {
        biased;
        status = post(&app, "/") => panic!("{status}"),
        () = yield_now() => {}
    }
    guard.release().await.unwrap();
    shop.locks.shutdown().await;
    assert_eq!(shop.events(), ["rollback with 1"]);
}

#[tokio::test]
async fn abort_drops_a_commit_whose_lock_is_lost() {
    let shop = Shop::new().await.with_slow_commit();
    let answer = answer(&shop.app(abortable), request(Method::POST, "/")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert!(answer.body.contains("the request was stopped"), "{}", answer.body);
    assert_eq!(shop.events()[0], "charge with 1");
    assert!(shop.events()[1].starts_with("rollback"), "{:?}", shop.events());
    eventually("the lease runs out", || shop.node.is_empty()).await;
}

#[tokio::test]
async fn a_commit_without_abort_goes_on_after_a_loss_and_the_log_tells() {
    let (shop, logs) = (Shop::new().await.with_slow_commit(), Logs::collect());
    let (app, commit) = (shop.app(short), shop.commit.clone());
    let client = tokio::spawn(async move { post(&app, "/").await });
    commit.until_inside(1).await;
    eventually("the loss is logged", || logs.count("WARN", "a lock was lost") == 1).await;
    commit.leave(1);
    assert_eq!(client.await.unwrap(), 200);
    assert_eq!(shop.events()[0], "charge with 1");
    assert!(shop.events()[1].starts_with("commit"), "{:?}", shop.events());
}

#[tokio::test]
async fn the_body_of_a_response_holds_the_lock_after_the_commit() {
    let shop = Shop::new().await;
    let app = Router::new().route("/", on_post(streamed).put(streamed));
    let app = app.layer(shop.under_lock(transaction)).with_state(shop.clone());
    let response = send(&app, Method::POST, "/").await;
    assert_eq!((shop.events(), shop.node.len()), (vec!["commit with 1".to_owned()], 1));
    assert_eq!(text(response).await, "a body");
    assert!(shop.node.is_empty());
    // The lock of an empty body ends with the response, and not before the commit.
    send(&app, Method::PUT, "/").await;
    assert_eq!(shop.events()[1], "commit with 1");
    assert!(shop.node.is_empty());
}

/// A layer inside of the transaction makes a response of the panic, and the transaction is committed.
#[tokio::test]
async fn a_handler_that_panics_keeps_its_lock_until_the_commit() {
    #[redis_lock(key = "a")]
    async fn panics() {
        panic!("the panic of this test");
    }

    async fn catch(request: Request, next: Next) -> Response {
        let caught = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        caught.unwrap_or_else(|_| StatusCode::ACCEPTED.into_response())
    }

    let shop = Shop::new().await;
    let app = Router::new().route("/", on_post(panics)).layer(from_fn(catch));
    let app = app.layer(shop.under_lock(transaction)).with_state(shop.clone());
    assert_eq!(post(&app, "/").await, 202);
    assert_eq!(shop.events(), ["commit with 1"]);
    assert!(shop.node.is_empty());
    // Without a layer that catches it.
    let app = shop.app(panics);
    let panicked = tokio::spawn(async move { post(&app, "/").await }).await;
    assert!(panicked.unwrap_err().is_panic());
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert_eq!(shop.events()[1], "rollback with 1");
}

#[tokio::test]
async fn a_rejected_parameter_keeps_the_lock_until_the_commit() {
    struct Rejects;

    impl<S: Sync> FromRequestParts<S> for Rejects {
        type Rejection = StatusCode;

        async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, StatusCode> {
            Err(StatusCode::SEE_OTHER)
        }
    }

    #[redis_lock(key = "a")]
    async fn rejected(_: redlock_axum::UnderLock<Rejects>) {}

    let shop = Shop::new().await;
    assert_eq!(post(&shop.app(rejected), "/").await, 303);
    assert_eq!(shop.events(), ["commit with 1"]);
    assert!(shop.node.is_empty());
}

/// The lock belongs to the request after its handler, too.
#[tokio::test]
async fn a_middleware_after_the_handler_does_not_wait_for_the_lock_of_its_own_request() {
    async fn again(State(shop): State<Shop>, request: Request, next: Next) -> Response {
        let response = next.run(request).await;
        let again = shop.locks.lock("a").try_acquire().await;
        assert!(matches!(again, Err(LockError::AlreadyHeld { .. })), "{again:?}");
        response
    }

    let shop = Shop::new().await;
    let app = Router::new().route("/", on_post(plain)).layer(shop.under_lock(again));
    assert_eq!(post(&app.with_state(shop.clone()), "/").await, 200);
}

/// The extensions that a task keeps after its request.
type Kept = Arc<Mutex<Option<Extensions>>>;

async fn keep(Extension(kept): Extension<Kept>, request: Request, next: Next) -> Response {
    *kept.lock().unwrap() = Some(request.extensions().clone());
    next.run(request).await
}

/// Locks of requests that it sends end with their work.
#[tokio::test]
async fn a_task_that_outlives_the_request_keeps_no_lock() {
    let (shop, kept) = (Shop::new().await, Kept::default());
    let app = Router::new().route("/", on_post(plain)).layer(from_fn(keep));
    let app = app.layer(shop.under_lock(transaction)).layer(Extension(kept.clone()));
    assert_eq!(post(&app.with_state(shop.clone()), "/").await, 200);
    assert!(shop.node.is_empty());
    let mut later = request(Method::POST, "/");
    *later.extensions_mut() = kept.lock().unwrap().clone().unwrap();
    assert_eq!(shop.app(plain).oneshot(later).await.unwrap().status(), 200);
    assert_eq!(shop.events(), ["commit with 1", "commit with 1"]);
    assert!(shop.node.is_empty());
}

#[tokio::test]
async fn a_task_that_outlives_a_request_whose_client_has_left_keeps_no_lock() {
    let (shop, kept) = (Shop::new().await.with_slow_commit(), Kept::default());
    let app = Router::new().route("/", on_post(plain)).layer(from_fn(keep));
    let app = app.layer(shop.under_lock(transaction)).layer(Extension(kept.clone()));
    leave(&app.with_state(shop.clone()), &shop.commit).await;
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert!(kept.lock().unwrap().is_some());
}

/// Also inside of a scope that ends with the client.
#[tokio::test]
async fn a_detached_request_stays_one_holder_after_its_client_has_left() {
    async fn again(State(shop): State<Shop>, request: Request, next: Next) -> Response {
        let response = next.run(request).await;
        let is_holder = is_held_by_caller(&shop.locks, "a").await;
        shop.record(&format!("holder {is_holder}"));
        response
    }

    let shop = Shop::new().await.with_slow_work();
    let app = Router::new().route("/", on_post(detached)).layer(shop.under_lock(again));
    let app = app.layer(ScopeLayer::new(&shop.locks)).with_state(shop.clone());
    leave(&app, &shop.work).await;
    shop.work.leave(1);
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert_eq!(shop.events(), ["charge with 1", "holder true with 1"]);
}

/// A service without axum, whose error ends the lock, too.
#[tokio::test]
async fn an_error_of_the_service_ends_the_lock() {
    let (locks, node) = memory().await;
    let fails = layer(&locks, LockPolicy::new("a"))
        .layer(service_fn(async |_: Request<Body>| Err::<Response, _>("the database is gone")));
    let seen = Arc::new(Mutex::new(0));
    let (in_layer, in_node) = (Arc::clone(&seen), node.clone());
    let inner = service_fn(move |request: Request<Body>| {
        let (response, seen, node) =
            (fails.clone().oneshot(request), in_layer.clone(), in_node.clone());
        async move {
            let response = response.await;
            *seen.lock().unwrap() = node.len();
            response
        }
    });
    let service = CommitUnderLock::new(tower::layer::util::Identity::new()).layer(inner);
    assert_eq!(
        service.oneshot(request(Method::POST, "/")).await.unwrap_err(),
        "the database is gone"
    );
    assert_eq!(*seen.lock().unwrap(), 1);
    assert!(node.is_empty());
}

#[tokio::test]
async fn the_service_is_ready_when_its_inner_service_is() {
    let layer = CommitUnderLock::new(tower::layer::util::Identity::new());
    let mut service = layer.layer(OnlyWhenReady::default());
    let ready: Result<_, Infallible> = service.ready().await;
    assert_eq!(ready.unwrap().call(request(Method::POST, "/")).await.unwrap().status(), 200);
}
