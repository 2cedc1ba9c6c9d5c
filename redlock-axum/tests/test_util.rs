//! The feature `test-util`, as the tests of an application use it: the test controls the clock and the nodes of
//! the locks of each front end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::post;
use http::Request;
use http_body_util::BodyExt;
use redlock_axum::test_util::TestLocks;
use redlock_axum::{
    FencedLock, FencingToken, HeldLock, HoldError, LockError, LockManager, LockPolicy,
    LockRejection, OnLost, RejectionKind, ScopeLayer, redis_lock,
};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::support::layer;

const LEASE: Duration = Duration::from_secs(30);

#[redis_lock(key = "order:{id}", expire = 30)]
async fn pay(Path(id): Path<u64>) -> String {
    format!("order {id} is paid")
}

#[redis_lock(key = "order:{id}", expire = 30, wait_time = 60)]
async fn wait_and_pay(Path(id): Path<u64>) -> String {
    format!("order {id} is paid")
}

#[redis_lock(key = "order:{id}", expire = 30, wait_time = "forever")]
async fn wait_forever_and_pay(Path(id): Path<u64>) -> String {
    format!("order {id} is paid")
}

/// Works for twenty leases, and responds with whether its lock is still valid.
#[redis_lock(key = "report", expire = 30, renew)]
async fn report(lock: HeldLock) -> String {
    sleep(LEASE * 20).await;
    lock.is_valid().to_string()
}

#[redis_lock(key = "report", expire = 30, renew, on_lost = abort)]
async fn abortable_report() {
    sleep(LEASE * 20).await;
}

/// Works for two leases, and responds with whether its lock is still valid.
async fn slow(lock: HeldLock) -> String {
    sleep(LEASE * 2).await;
    lock.is_valid().to_string()
}

async fn locked_by_hand(State(locks): State<LockManager>) -> String {
    match locks.lock("by-hand").try_acquire().await {
        Ok(_) => "acquired".to_owned(),
        Err(LockError::Contended { .. }) => "contended".to_owned(),
        Err(LockError::Unavailable { .. }) => "unavailable".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn app(test: &TestLocks) -> Router {
    let renewed = LockPolicy::new("layer").expire(LEASE).renew(true).on_lost(OnLost::Abort);
    let short = LockPolicy::new("short").expire(LEASE);
    let layer = |policy| layer(&test.manager(), policy);
    Router::new()
        .route("/orders/{id}/pay", post(pay))
        .route("/orders/{id}/wait-and-pay", post(wait_and_pay))
        .route("/report", post(report))
        .route("/abortable-report", post(abortable_report))
        .route("/layer", post(slow).route_layer(layer(renewed)))
        .route("/short", post(slow).route_layer(layer(short)))
        .route("/by-hand", post(locked_by_hand))
        .layer(ScopeLayer::new(&test.manager()))
        .with_state(test.manager())
}

async fn send(app: &Router, path: &str) -> Response {
    let request = Request::post(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn status(app: &Router, path: &str) -> u16 {
    send(app, path).await.status().as_u16()
}

async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_lock_of_another_copy_of_the_service_is_a_409() {
    let test = TestLocks::new(1);
    let app = app(&test);
    let other_copy = test.builder().connect().await.unwrap();
    let guard = other_copy.lock("order:42").expire(LEASE).try_acquire().await.unwrap();

    let response = send(&app, "/orders/42/pay").await;
    assert_eq!(response.status(), 409);
    assert_eq!(response.headers()["retry-after"], "5", "the default of retry_after_max");
    assert_eq!(status(&app, "/orders/43/pay").await, 200);

    test.clock().advance(Duration::from_secs(27)).await;
    assert_eq!(send(&app, "/orders/42/pay").await.headers()["retry-after"], "3");

    guard.release().await.unwrap();
    assert_eq!(status(&app, "/orders/42/pay").await, 200);
    assert!(test.nodes()[0].is_empty());
}

/// No work without the lock.
#[tokio::test]
async fn without_a_quorum_of_nodes_it_is_a_503_and_the_handler_does_not_run() {
    async fn count(State(served): State<Arc<AtomicU32>>) {
        served.fetch_add(1, Ordering::Relaxed);
    }

    #[redis_lock(key = "attribute", expire = 30, installed)]
    async fn locked_count(served: State<Arc<AtomicU32>>) {
        count(served).await;
    }

    for by_layer in [false, true] {
        let test = TestLocks::new(3);
        let served = Arc::new(AtomicU32::new(0));
        let lock = layer(&test.manager(), "layer");
        let handler = if by_layer { post(count).route_layer(lock) } else { post(locked_count) };
        let app = Router::new().route("/", handler).with_state(Arc::clone(&served));
        let app = app.layer(ScopeLayer::new(&test.manager()));
        test.nodes()[0].fail();
        assert_eq!(status(&app, "/").await, 200);
        assert_eq!(served.load(Ordering::Relaxed), 1);

        test.nodes()[1].freeze();
        let response = send(&app, "/").await;
        assert_eq!(response.status(), 503);
        let rejection = response.extensions().get::<LockRejection>().unwrap();
        assert_eq!(rejection.kind(), RejectionKind::Unavailable);
        assert_eq!(served.load(Ordering::Relaxed), 1);

        test.nodes()[1].recover();
        assert_eq!(status(&app, "/").await, 200);
        assert_eq!(served.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn a_node_that_is_too_slow_is_a_503() {
    let test = TestLocks::new(1);
    let app = app(&test);
    test.nodes()[0].delay(Duration::from_millis(100));
    assert_eq!(status(&app, "/orders/42/pay").await, 200);
    test.nodes()[0].delay(Duration::from_secs(20));
    assert_eq!(status(&app, "/orders/42/pay").await, 503);
}

/// The test of an application that maps errors need not construct them: the locks return the real errors.
#[tokio::test]
async fn a_handler_that_locks_by_hand_gets_the_errors_of_an_outage() {
    let test = TestLocks::new(1);
    let app = app(&test);
    let guard = test.manager().lock("by-hand").try_acquire().await.unwrap();
    assert_eq!(text(send(&app, "/by-hand").await).await, "contended");
    guard.release().await.unwrap();
    test.nodes()[0].fail();
    assert_eq!(text(send(&app, "/by-hand").await).await, "unavailable");
    test.nodes()[0].recover();
    assert_eq!(text(send(&app, "/by-hand").await).await, "acquired");
}

/// The outage begins before the request, or while it waits.
#[tokio::test]
async fn a_request_that_waits_forever_waits_through_an_outage_for_as_long_as_its_client() {
    for by_layer in [true, false] {
        for begins_before in [true, false] {
            let test = TestLocks::new(1);
            let policy = LockPolicy::new("order:42").expire(LEASE).wait_forever();
            let handler = if by_layer {
                post(async || "order 42 is paid").route_layer(layer(&test.manager(), policy))
            } else {
                post(wait_forever_and_pay)
            };
            let app = Router::new().route("/{id}", handler).with_state(test.manager());
            let other_copy = test.builder().connect().await.unwrap();
            let guard = other_copy.lock("order:42").expire(LEASE).try_acquire().await.unwrap();
            let mut waiting = None;
            for fails in [begins_before, !begins_before] {
                if fails {
                    test.nodes()[0].fail();
                } else {
                    let request = || Request::post("/42").body(Body::empty()).unwrap();
                    let [leaves, stays] =
                        [(); 2].map(|()| tokio::spawn(app.clone().oneshot(request())));
                    test.clock().advance(Duration::from_secs(1)).await;
                    leaves.abort();
                    waiting = Some(stays);
                }
            }
            let waiting = waiting.unwrap();
            test.clock().advance(LEASE * 20).await;
            assert!(!waiting.is_finished(), "{by_layer}, {begins_before}");
            drop(guard);
            test.nodes()[0].recover();
            test.clock().advance(Duration::from_secs(1)).await;
            let response = waiting.await.unwrap().unwrap();
            assert_eq!(text(response).await, "order 42 is paid");
        }
    }
}

#[tokio::test]
async fn a_request_waits_until_the_lease_of_a_crashed_holder_has_run_out() {
    let test = TestLocks::new(1);
    let app = app(&test);
    let other_copy = test.builder().connect().await.unwrap();
    let crashed = other_copy.lock("order:42").expire(LEASE).try_acquire().await.unwrap();
    crashed.keep_until_expiry();

    let begun = Instant::now();
    assert_eq!(status(&app, "/orders/42/wait-and-pay").await, 200);
    let waited = begun.elapsed();
    assert!((LEASE..LEASE * 2).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_wait_ends_with_409_when_the_holder_renews_for_longer() {
    let test = TestLocks::new(1);
    let app = app(&test);
    let other_copy = test.builder().connect().await.unwrap();
    let guard = other_copy.lock("order:42").expire(LEASE).renew(true).try_acquire().await.unwrap();
    let begun = Instant::now();
    assert_eq!(status(&app, "/orders/42/wait-and-pay").await, 409);
    assert!(begun.elapsed() >= LEASE * 2, "{:?}", begun.elapsed());
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_renewed_lock_is_held_for_as_long_as_its_handler_works() {
    let test = TestLocks::new(3);
    let app = app(&test);
    assert_eq!(text(send(&app, "/report").await).await, "true");
    // The lock of the same work without renewal runs out.
    assert_eq!(text(send(&app, "/short").await).await, "false");
}

#[tokio::test]
async fn a_handler_is_stopped_with_503_when_its_lock_is_forgotten() {
    for path in ["/abortable-report", "/layer"] {
        let test = TestLocks::new(1);
        let app = app(&test);
        let begun = Instant::now();
        let request = Request::post(path).body(Body::empty()).unwrap();
        let response = tokio::spawn(app.oneshot(request));
        test.clock().advance(Duration::from_secs(20)).await;
        assert_eq!(test.nodes()[0].len(), 1, "{path}: the handler runs");
        test.nodes()[0].forget();

        let response = response.await.unwrap().unwrap();
        assert_eq!(response.status(), 503, "{path}");
        let rejection = response.extensions().get::<LockRejection>().unwrap();
        assert_eq!(rejection.kind(), RejectionKind::Lost, "{path}");
        // The loss is noticed at the next renewal, long before the end of the work.
        assert!(begun.elapsed() < Duration::from_secs(40), "{path}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_handler_that_goes_on_sees_that_its_lock_is_lost() {
    let test = TestLocks::new(1);
    let app = app(&test);
    let request = Request::post("/report").body(Body::empty()).unwrap();
    let response = tokio::spawn(app.oneshot(request));
    test.clock().advance(Duration::from_secs(20)).await;
    test.nodes()[0].forget();
    let response = response.await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "false");
}

/// The renewals fail for a part of the lease, and then for longer than the lease.
#[tokio::test]
async fn a_lock_is_lost_when_an_outage_lasts_for_longer_than_its_lease() {
    let test = TestLocks::new(1);
    let app = app(&test);
    for (outage, expected) in [(LEASE / 3, 200), (LEASE * 2, 503)] {
        let request = Request::post("/abortable-report").body(Body::empty()).unwrap();
        let response = tokio::spawn(app.clone().oneshot(request));
        test.clock().advance(Duration::from_secs(20)).await;
        test.nodes()[0].fail();
        test.clock().advance(outage).await;
        test.nodes()[0].recover();
        assert_eq!(response.await.unwrap().unwrap().status().as_u16(), expected, "{outage:?}");
    }
}

/// A handler is a function, which a test can call without a router.
#[tokio::test]
async fn a_handler_is_called_with_a_lock_that_the_test_has_acquired() {
    async fn import(lock: HeldLock) -> Result<String, HoldError> {
        lock.extend(Duration::from_secs(60)).await?;
        Ok(lock.keys()[0].to_string())
    }

    let test = TestLocks::new(1);
    let guard = test.manager().lock("import").expire(LEASE).try_acquire().await.unwrap();
    let lock = HeldLock::from_guard(&guard);
    assert_eq!(import(lock.clone()).await.unwrap(), "import");
    assert!(guard.remaining() > LEASE, "{:?}", guard.remaining());
    test.nodes()[0].forget();
    assert!(matches!(import(lock.clone()).await, Err(HoldError::Lost(_))));
    assert!(!lock.is_valid());
}

#[tokio::test]
async fn a_handler_is_called_with_a_fenced_lock_that_the_test_has_acquired() {
    async fn transfer(lock: FencedLock) -> Result<FencingToken, HoldError> {
        lock.extend(LEASE * 2).await?;
        Ok(lock.fencing_token())
    }

    let test = TestLocks::new(3);
    let guard = test.manager().lock("transfer").fenced(true).try_acquire().await.unwrap();
    let lock = FencedLock::from_guard(&guard);
    assert!(lock.is_valid());
    assert_eq!(Some(transfer(lock).await.unwrap()), guard.fencing_token());
}
