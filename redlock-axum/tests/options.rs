//! The options of layers and policies that say how the lock is asked for and held.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::handler::Handler;
use axum::response::IntoResponse;
use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::Method;
use redlock_axum::{
    FencedLock, HeldLock, LockError, LockLayer, LockManager, LockPolicies, LockPolicy,
    LockRejection, Locks, MemoryNode, OnLost, SetupError,
};
use redlock_logs::Logs;
use support::{eventually, hold, memory, post, renewal, send, text, until_logged};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// `POST /` locked by `k`, on a node of its own.
struct App {
    router: Router,
    locks: LockManager,
    node: MemoryNode,
}

impl App {
    async fn new(route: impl FnOnce(Router) -> Router) -> Self {
        let (locks, node) = memory().await;
        let router =
            route(Router::new()).layer(Extension(node.clone())).layer(Extension(locks.clone()));
        Self { router, locks, node }
    }

    /// One app whose handler is locked by a layer, and one where a policy does it.
    async fn both<T: 'static>(
        handler: impl Handler<T, ()>,
        layer: impl FnOnce(LockLayer) -> LockLayer,
        policy: impl FnOnce(LockPolicy) -> LockPolicy,
    ) -> [Self; 2] {
        let route = |router: Router| router.route("/", on_post(handler));
        let layer = layer(LockLayer::new("k"));
        let table = LockPolicies::new([policy(LockPolicy::new("/", "k"))]).unwrap();
        let locked_by_layer = Self::new(|router| route.clone()(router).layer(layer)).await;
        [locked_by_layer, Self::new(|router| route(router).layer(table)).await]
    }

    /// The status of a POST, which must come soon.
    async fn post(&self) -> u16 {
        timeout(Duration::from_secs(10), post(&self.router, "/")).await.unwrap()
    }
}

async fn ok() {}

#[tokio::test]
async fn min_hold_keeps_the_key_for_its_time_after_the_handler() {
    let apps = App::both(
        ok,
        |layer| layer.min_hold(MINUTE / 2).expire(MINUTE),
        |policy| policy.min_hold(MINUTE / 2).expire(MINUTE),
    );
    for app in apps.await {
        assert_eq!(app.post().await, 200);
        let left = app.node.time_to_live("k").unwrap();
        assert!((MINUTE / 3..=MINUTE / 2).contains(&left), "{left:?}");
        assert_eq!(app.post().await, 409);
    }
}

#[tokio::test]
async fn min_hold_of_zero_is_none() {
    let zero = Duration::ZERO;
    let apps = App::both(ok, |layer| layer.min_hold(zero), |policy| policy.min_hold(zero));
    for app in apps.await {
        assert_eq!(app.post().await, 200);
        assert!(app.node.is_empty());
    }
}

#[tokio::test]
async fn keep_leaves_the_lock_to_run_out() {
    let keep = App::both(ok, |layer| layer.expire(MINUTE).keep(), |p| p.expire(MINUTE).keep());
    for app in keep.await {
        assert_eq!(app.post().await, 200);
        assert!(app.node.time_to_live("k").unwrap() > MINUTE / 2);
        assert_eq!(app.post().await, 409);
    }
}

/// A lock that is handed on inside the process has only a part of its lease left.
#[tokio::test]
async fn who_keeps_its_lock_gets_a_lease_of_its_own() {
    let apps = App::both(
        ok,
        |layer| layer.expire(MINUTE).wait_time(MINUTE).keep(),
        |policy| policy.expire(MINUTE).wait_time(MINUTE).keep(),
    );
    for app in apps.await {
        let guard = app.locks.lock("k").expire(MINUTE * 5 / 6).try_acquire().await.unwrap();
        let (waited, released) = tokio::join!(app.post(), guard.release());
        released.unwrap();
        assert_eq!(waited, 200);
        let left = app.node.time_to_live("k").unwrap();
        assert!(left > MINUTE * 11 / 12, "{left:?}");
    }
}

/// A client that goes away and comes back does not get a second turn.
#[tokio::test]
async fn keep_leaves_the_lock_of_a_dropped_request_as_well() {
    let apps = App::both(
        pending::<()>,
        |layer| layer.expire(MINUTE).keep(),
        |policy| policy.expire(MINUTE).keep(),
    );
    for app in apps.await {
        let request = post(&app.router, "/");
        assert!(timeout(Duration::from_millis(20), request).await.is_err());
        // What is released in the background is released by then.
        app.locks.shutdown().await;
        assert!(app.node.time_to_live("k").unwrap() > MINUTE / 2);
    }
}

#[tokio::test]
async fn a_renewal_ends_with_max_hold() {
    const LEASE: Duration = Duration::from_millis(400);

    async fn hangs(Extension(node): Extension<MemoryNode>, lock: HeldLock) -> String {
        let ended = renewal::has_ended(&node, "k", LEASE).await;
        if ended != Some(false) {
            lock.lost().await;
        }
        format!("{ended:?}")
    }

    let apps = App::both(
        hangs,
        |layer| layer.max_hold(LEASE).expire(LEASE).renew(),
        |policy| policy.max_hold(LEASE).expire(LEASE).renew(),
    );
    for app in apps.await {
        let ended = renewal::ask(async || {
            let response = timeout(Duration::from_secs(10), send(&app.router, Method::POST, "/"));
            text(response.await.unwrap()).await
        });
        assert_eq!(ended.await, "Some(true)");
    }
}

#[tokio::test]
async fn who_waits_for_ever_gets_the_lock_at_last() {
    for app in App::both(ok, LockLayer::wait_forever, LockPolicy::wait_forever).await {
        let guard = hold(&app.locks, "k").await;
        let waiting = app.post();
        tokio::pin!(waiting);
        assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
        guard.release().await.unwrap();
        assert_eq!(waiting.await, 200);
    }
}

/// Not after the waiting time, and not with the words that it is somebody else's.
#[tokio::test]
async fn a_lock_within_itself_fails_at_once_and_the_log_says_what_to_do() {
    let inner = || ok.layer(LockLayer::new("k").wait_time(HOUR));
    for app in App::both(inner(), |layer| layer, |policy| policy).await {
        let logs = Logs::collect();
        assert_eq!(app.post().await, 500);
        assert_eq!(logs.count("ERROR", "the lock k is held by the same request already"), 1);
        assert_eq!(logs.count("ERROR", "`reentrant`"), 1);
        assert!(app.node.is_empty());
    }

    // The policy inside, a layer outside.
    let table = LockPolicies::new([LockPolicy::new("/", "k").wait_time(HOUR)]).unwrap();
    let app =
        App::new(|router| router.route("/", on_post(ok)).layer(table).layer(LockLayer::new("k")));
    assert_eq!(app.await.post().await, 500);
}

#[tokio::test]
async fn a_reentrant_lock_is_shared_with_the_one_around_it() {
    async fn count(Extension(node): Extension<MemoryNode>, lock: HeldLock) -> String {
        assert!(lock.is_valid());
        assert!(node.time_to_live("k").unwrap() > MINUTE / 2, "the outer lease, never shortened");
        node.len().to_string()
    }

    let outer = || LockLayer::new("k").expire(MINUTE);
    let inner = LockLayer::new("k").reentrant();
    let layers =
        App::new(|router| router.route("/", on_post(count)).layer(inner).layer(outer())).await;
    let table = LockPolicies::new([LockPolicy::new("/", "k").reentrant()]).unwrap();
    let policies =
        App::new(|router| router.route("/", on_post(count)).layer(table).layer(outer())).await;
    for app in [layers, policies] {
        let response = send(&app.router, Method::POST, "/").await;
        assert_eq!(response.status(), 200);
        assert_eq!(text(response).await, "1");
        assert!(app.node.is_empty());
    }
}

#[tokio::test]
async fn a_fenced_lock_has_a_greater_number_each_time() {
    async fn number(lock: FencedLock) -> String {
        assert!(lock.is_valid());
        lock.fencing_token().number().to_string()
    }

    for app in App::both(number, LockLayer::fenced, LockPolicy::fenced).await {
        let mut numbers = Vec::new();
        for _ in 0..3 {
            let response = send(&app.router, Method::POST, "/").await;
            numbers.push(text(response).await.parse::<i64>().unwrap());
        }
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
        assert!(numbers[0] > 0);
    }
}

/// Rather no answer than one without the number.
#[tokio::test]
async fn a_lock_without_a_number_is_no_fenced_lock() {
    async fn perhaps(lock: Option<FencedLock>) -> String {
        lock.is_some().to_string()
    }

    let asks = |_: FencedLock| async {};
    for app in App::both(asks, |layer| layer, |policy| policy).await {
        let logs = Logs::collect();
        until_logged(&logs, "ERROR", "`.fenced()`", async || assert_eq!(app.post().await, 500))
            .await;
    }
    for app in App::both(perhaps, |layer| layer, |policy| policy).await {
        assert_eq!(text(send(&app.router, Method::POST, "/").await).await, "false");
    }
    for app in App::both(perhaps, LockLayer::fenced, LockPolicy::fenced).await {
        assert_eq!(text(send(&app.router, Method::POST, "/").await).await, "true");
    }
}

#[tokio::test]
async fn a_handler_that_asks_for_its_layers_lock_is_refused_at_once_or_shares() {
    async fn handler(locks: Locks) -> Result<(), LockRejection> {
        let again = timeout(MINUTE / 6, locks.lock("k").wait_time(HOUR).acquire()).await;
        let refused = again.expect("at once").unwrap_err();
        assert!(matches!(refused, LockError::AlreadyHeld { .. }), "{refused:?}");
        locks.lock("k").reentrant().try_acquire().await?.release().await.unwrap();
        Ok(())
    }

    for app in App::both(handler, |layer| layer, |policy| policy).await {
        assert_eq!(app.post().await, 200);
        assert!(app.node.is_empty());
    }
}

/// Two requests are two holders, although one task serves them both.
#[tokio::test]
async fn requests_of_one_connection_are_strangers() {
    async fn slow() {
        tokio::task::yield_now().await;
    }

    for app in App::both(slow, LockLayer::reentrant, LockPolicy::reentrant).await {
        assert_eq!(tokio::join!(app.post(), app.post()), (200, 409));
    }
}

/// A handler that never ends, and notes that it was dropped.
#[derive(Clone, Default)]
struct Stuck(Arc<AtomicBool>);

impl Stuck {
    async fn work(self) {
        struct OnDrop(Arc<AtomicBool>);

        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }

        let _on_drop = OnDrop(self.0);
        pending::<()>().await;
    }

    fn was_dropped(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[tokio::test]
async fn abort_drops_the_handler_with_its_lock_and_answers_503() {
    let stuck = Stuck::default();
    let handler = stuck.clone();
    let apps = App::both(
        move || handler.work(),
        |layer| layer.expire(SHORT).on_lost(OnLost::Abort),
        |policy| policy.expire(SHORT).on_lost(OnLost::Abort),
    );
    for app in apps.await {
        let logs = Logs::collect();
        let response = send(&app.router, Method::POST, "/").await;
        assert!(stuck.was_dropped());
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
        assert!(text(response).await.contains("stopped half-way"));
        assert_eq!(logs.count("WARN", "a lock was lost"), 1);
        assert_eq!(logs.count("WARN", "a request was stopped half-way: the lock k was lost"), 1);
        eventually("the lease runs out", || app.node.is_empty()).await;
    }
}

#[tokio::test]
async fn the_application_can_answer_a_lost_lock_itself() {
    let layer = LockLayer::new("k")
        .expire(SHORT)
        .on_lost(OnLost::Abort)
        .on_reject(|rejection| format!("{:?}", rejection.kind()).into_response());
    let app = App::new(|router| router.route("/", on_post(pending::<()>)).layer(layer)).await;
    assert_eq!(text(send(&app.router, Method::POST, "/").await).await, "Lost");
}

#[tokio::test]
async fn a_handler_that_could_be_aborted_and_is_not_is_served_as_ever() {
    async fn count(Extension(node): Extension<MemoryNode>) -> String {
        tokio::task::yield_now().await;
        node.len().to_string()
    }

    let abort = OnLost::Abort;
    for app in App::both(count, |layer| layer.on_lost(abort), |p| p.on_lost(abort)).await {
        assert_eq!(text(send(&app.router, Method::POST, "/").await).await, "1");
        assert!(app.node.is_empty());
    }
}

#[test]
fn options_that_do_not_go_together_are_mistakes() {
    let check = |layer: fn(LockLayer) -> LockLayer, policy: fn(LockPolicy) -> LockPolicy| {
        let of_layer = layer(LockLayer::new("k")).checked().map(drop);
        let of_policy = LockPolicies::new([policy(LockPolicy::new("/", "k"))]);
        let of_policy = of_policy.map(drop).map_err(|error| error.reason().clone());
        assert_eq!(of_layer, of_policy);
        of_layer
    };
    assert_eq!(
        check(|l| l.max_hold(MINUTE), |p| p.max_hold(MINUTE)),
        Err(SetupError::MaxHoldWithoutRenew)
    );
    assert_eq!(
        check(|l| l.min_hold(SHORT).keep(), |p| p.min_hold(SHORT).keep()),
        Err(SetupError::KeepAndMinHold)
    );
    let message = |result: Result<(), SetupError>| result.unwrap_err().to_string();
    assert_eq!(
        message(check(|l| l.min_hold(MINUTE), |p| p.min_hold(MINUTE))),
        "min_hold is 60s, but must be at most the lease, expire"
    );
    assert_eq!(
        message(check(
            |l| l.renew().max_hold(Duration::ZERO),
            |p| p.renew().max_hold(Duration::ZERO)
        )),
        "max_hold is 0ns, but must be longer than zero"
    );
    assert_eq!(check(|l| l.max_hold(MINUTE).renew(), |p| p.max_hold(MINUTE).renew()), Ok(()));
}

/// A layer is built step by step: what the next step makes good is none.
#[tokio::test]
async fn a_layer_that_is_not_complete_yet_is_not_called_wrong() {
    let logs = Logs::collect();
    let good = LockLayer::new("k").max_hold(HOUR).renew().min_hold(MINUTE).expire(HOUR);
    assert_eq!(logs.lines(), Vec::<String>::new());
    let app = App::new(|router| router.route("/", on_post(ok)).layer(good)).await;
    assert_eq!(app.post().await, 200);

    let wrong = LockLayer::new("k").max_hold(HOUR);
    let app = App::new(|router| router.route("/", on_post(ok)).layer(wrong)).await;
    assert_eq!(app.post().await, 500);
    assert_eq!(logs.count("ERROR", "max_hold bounds the renewal of the lease, and needs renew"), 1);
}
