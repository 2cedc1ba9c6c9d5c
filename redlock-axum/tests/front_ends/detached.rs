//! `detached`: a handler that goes on when its client leaves.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use redlock_axum::{HeldLock, HoldUntil, LockManager, OnLost};
use redlock_logs::Logs;
use tokio::task::yield_now;
use tower::ServiceExt;

use super::stage::Stage;
use super::{App, FrontEnd, KEY, LEASE, pay};
use crate::support::{eventually, is_held_by_caller};

on_each_front_end![
    a_client_that_leaves_is_charged_once_and_its_lock_is_released,
    a_client_that_leaves_before_the_lock_is_acquired_is_not_charged,
    a_panic_reaches_the_client_or_the_log,
    abort_drops_the_handler_whether_or_not_its_client_has_left,
    the_handler_has_its_lock_and_its_scope,
    a_shutdown_waits_for_the_handler,
    a_refusal_is_logged_within_the_limit_of_its_manager,
    the_body_holds_the_lock_until_it_is_dropped,
];

/// Counts the charges of handlers. Clones share the count.
#[derive(Clone, Default)]
struct Bank(Arc<AtomicUsize>);

impl Bank {
    fn charge(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn charges(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sends `POST /`, and drops the request when its handler runs.
async fn leave(app: &App, stage: &Stage) {
    let client = app.clone();
    let request = tokio::spawn(async move { client.post().await.status });
    stage.until_inside(1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
}

async fn a_client_that_leaves_is_charged_once_and_its_lock_is_released(front_end: FrontEnd) {
    let (stage, bank) = (Stage::new(), Bank::default());
    let app = app!(
        front_end, [detached, contended_status = 423],
        [.detached(true).contended_status(StatusCode::LOCKED)],
        async fn handler(Extension(stage): Extension<Stage>, Extension(bank): Extension<Bank>) {
            stage.enter().await;
            bank.charge();
        }
    );
    let app = app.with(stage.clone()).with(bank.clone());
    leave(&app, &stage).await;
    // The client tries again while its first payment runs.
    assert_eq!(app.post().await.status, StatusCode::LOCKED);
    assert_eq!(bank.charges(), 0);
    stage.leave(1);
    eventually("the lock is free", || app.node.is_empty()).await;
    assert_eq!(bank.charges(), 1);
    stage.leave(1);
    assert_eq!(app.post().await.status, 200);
    assert_eq!(bank.charges(), 2);
}

async fn a_client_that_leaves_before_the_lock_is_acquired_is_not_charged(front_end: FrontEnd) {
    let (stage, bank) = (Stage::new(), Bank::default());
    let app = app!(
        front_end, [detached, wait_time = "forever"], [.detached(true).wait_forever()],
        async fn handler(Extension(stage): Extension<Stage>, Extension(bank): Extension<Bank>) {
            stage.enter().await;
            bank.charge();
        }
    );
    let app = app.with(stage.clone()).with(bank.clone());
    leave(&app, &stage).await;
    tokio::select! {
        biased;
        answer = app.post() => panic!("{answer:?}"),
        () = yield_now() => {}
    }
    stage.leave(2);
    eventually("the lock is free", || app.node.is_empty()).await;
    app.locks.shutdown().await;
    assert_eq!(bank.charges(), 1);
}

/// axum, or a layer such as `CatchPanicLayer`, makes the response of a panic that reaches the client.
async fn a_panic_reaches_the_client_or_the_log(front_end: FrontEnd) {
    let (stage, logs) = (Stage::new(), Logs::collect());
    let app = app!(
        front_end, [detached], [.detached(true)],
        async fn handler(Extension(stage): Extension<Stage>) {
            stage.enter().await;
            panic!("the panic of this test");
        }
    );
    let app = app.with(stage.clone());
    stage.leave(1);
    let client = app.clone();
    let error = tokio::spawn(async move { client.post().await.status }).await.unwrap_err();
    assert_eq!(error.into_panic().downcast_ref(), Some(&"the panic of this test"));
    eventually("the lock is free", || app.node.is_empty()).await;
    assert_eq!(logs.count("ERROR", ""), 0, "{:?}", logs.lines());

    stage.until_inside(0).await;
    leave(&app, &stage).await;
    stage.leave(1);
    eventually("the lock is free", || app.node.is_empty()).await;
    let logged = format!("after its caller had left: the panic of this test lock={KEY}");
    assert_eq!(logs.count("ERROR", &logged), 1, "{:?}", logs.lines());
}

async fn abort_drops_the_handler_whether_or_not_its_client_has_left(front_end: FrontEnd) {
    /// Records a charge when its handler is dropped.
    struct OnDrop(Bank);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.charge();
        }
    }

    let (stage, dropped) = (Stage::new(), Bank::default());
    let app = app!(
        front_end, [detached, expire = LEASE, on_lost = abort],
        [.detached(true).expire(LEASE).on_lost(OnLost::Abort)],
        async fn handler(Extension(stage): Extension<Stage>, Extension(dropped): Extension<Bank>) {
            let _dropped = OnDrop(dropped);
            stage.enter().await;
            pending::<()>().await;
        }
    );
    let app = app.with(stage.clone()).with(dropped.clone());
    leave(&app, &stage).await;
    assert_eq!(dropped.charges(), 0);
    eventually("the handler is dropped", || dropped.charges() == 1).await;
    eventually("the lease runs out", || app.node.is_empty()).await;
    assert_eq!(app.post().await.status, 503);
    assert_eq!(dropped.charges(), 2);
}

async fn the_handler_has_its_lock_and_its_scope(front_end: FrontEnd) {
    let app = app!(
        front_end, [detached], [.detached(true)],
        async fn handler(State(locks): State<LockManager>, lock: HeldLock) -> String {
            assert!(lock.is_valid());
            format!("{} {}", lock.keys()[0], is_held_by_caller(&locks, KEY).await)
        }
    );
    assert_eq!(app.post().await.body, format!("{KEY} true"));
    assert!(app.node.is_empty());
}

async fn a_shutdown_waits_for_the_handler(front_end: FrontEnd) {
    let (stage, bank) = (Stage::new(), Bank::default());
    let app = app!(
        front_end, [detached], [.detached(true)],
        async fn handler(
            Extension(stage): Extension<Stage>,
            Extension(bank): Extension<Bank>,
            lock: HeldLock,
        ) {
            stage.enter().await;
            if lock.is_valid() {
                bank.charge();
            }
        }
    );
    let app = app.with(stage.clone()).with(bank.clone());
    leave(&app, &stage).await;
    let mut shutdown = pin!(app.locks.shutdown());
    tokio::select! {
        biased;
        () = &mut shutdown => panic!("the shutdown did not wait"),
        () = yield_now() => {}
    }
    assert_eq!(app.post().await.status, 503);
    stage.leave(1);
    shutdown.await;
    assert_eq!(bank.charges(), 1);
    assert!(app.node.is_empty());
}

async fn a_refusal_is_logged_within_the_limit_of_its_manager(front_end: FrontEnd) {
    let logs = Logs::collect();
    for managers in 1..=2 {
        let app = app!(front_end, [detached], [.detached(true)], async fn handler() {});
        app.locks.shutdown().await;
        assert_eq!(app.post().await.status, 503);
        assert_eq!(logs.count("WARN", "a request was rejected"), managers, "{:?}", logs.lines());
    }
}

async fn the_body_holds_the_lock_until_it_is_dropped(front_end: FrontEnd) {
    let stage = Stage::new();
    let app = app!(
        front_end, [detached, hold_until = end_of_body],
        [.detached(true).hold_until(HoldUntil::EndOfBody)],
        async fn handler(Extension(stage): Extension<Stage>) -> &'static str {
            stage.enter().await;
            "a body"
        }
    );
    let app = app.with(stage.clone());
    stage.leave(1);
    let response = app.router().oneshot(pay()).await.unwrap();
    assert_eq!(app.post().await.status, 409);
    drop(response);
    eventually("the lock is free", || app.node.is_empty()).await;
    // Nobody reads this response.
    stage.until_inside(0).await;
    leave(&app, &stage).await;
    stage.leave(1);
    eventually("the lock is free", || app.node.is_empty()).await;
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn detached_is_read_from_a_configuration() {
    use axum::Router;
    use axum::routing::post;
    use redlock_axum::{LockLayer, LockPolicy};
    use tokio::task;

    use crate::support::{answer, memory};

    for detached in [true, false] {
        let policy = format!("route = '/'\nkey = '{KEY}'\ndetached = {detached}");
        let policy: LockPolicy = toml::from_str(&policy).unwrap();
        let handler = async |lock: HeldLock| format!("{} {:?}", lock.is_valid(), task::try_id());
        let router = Router::new().route("/", post(handler));
        let (locks, _node) = memory().await;
        let router = router.layer(LockLayer::table(&locks, [policy]).unwrap());
        let request = async move { (task::id(), answer(&router, pay()).await.body) };
        let (of_request, of_handler) = tokio::spawn(request).await.unwrap();
        assert_eq!(of_handler != format!("true {:?}", Some(of_request)), detached);
    }
}
