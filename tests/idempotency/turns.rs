//! The one request that runs the handler: a lock that is lost, a store that fails, and a service that fails.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redlock_axum::{
    AnswerClaim, AnswerId, Answers, ClaimResult, Idempotency, IdempotencyLayer, IdempotencyService,
    LockManager, StoredAnswer, Unfinished,
};
use redlock_core::test_util::TestLocks;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::PollSemaphore;
use tower::{Layer, Service, ServiceExt};

use super::played::{Operation, Play, Played};
use super::{Counted, request, route, send};

const KEEP: Duration = Duration::from_secs(300);

/// A store that fails before the handler begins: no run without the guard.
#[tokio::test]
async fn a_request_whose_store_fails_or_hangs_before_its_handler_is_refused() {
    for operation in [Operation::Load, Operation::Claim] {
        for play in [Play::Fail, Play::Lose, Play::Hang] {
            let (test, store, counted) = (TestLocks::new(1), Played::default(), Counted::default());
            let layer = IdempotencyLayer::new(&test.manager(), store.clone());
            let app = route(counted.handler(), layer.unfinished(Unfinished::Refuse));
            store.plan(operation, play.clone());
            let begun = Instant::now();
            let refused = send(&app, request("store", "")).await;
            refused.is(503, "unavailable");
            // By the clock of the test, which moves only as far as it has to.
            assert!(begun.elapsed() < Duration::from_secs(6), "{operation:?} {play:?}");
            assert_eq!(refused.headers["retry-after"], "1");
            assert_eq!(counted.runs(), 0, "{operation:?} {play:?}");
            // A claim whose reply was lost is removed, so that it does not look unfinished.
            assert!(store.answers.is_empty(), "{operation:?} {play:?}");
            assert_eq!(send(&app, request("store", "")).await.status, 201);
            assert!(test.nodes()[0].is_empty());
        }
    }
}

/// The next request must not find a claim of finished work.
#[tokio::test]
async fn an_answer_is_stored_by_a_later_attempt_after_its_store_has_failed() {
    for plays in [
        vec![Play::Fail; 3],
        // The answer is there already.
        vec![Play::Lose],
        vec![Play::Hang, Play::Fail],
    ] {
        let (test, store, counted) = (TestLocks::new(1), Played::default(), Counted::default());
        let app = route(counted.handler(), IdempotencyLayer::new(&test.manager(), store.clone()));
        for play in &plays {
            store.plan(Operation::Store, play.clone());
        }
        assert_eq!(send(&app, request("later", "")).await.body, "payment 1");
        let replay = send(&app, request("later", "")).await;
        assert!(replay.is_replayed() && replay.body == "payment 1", "{plays:?} {replay:?}");
    }
}

/// Otherwise the next request would find a claim without an answer.
#[tokio::test]
async fn the_lock_is_held_until_the_answer_is_stored() {
    let (test, store, counted) = (TestLocks::new(1), Played::default(), Counted::default());
    let app = route(counted.handler(), IdempotencyLayer::new(&test.manager(), store.clone()));
    let (begun, permits) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    store.plan(Operation::Store, Play::Wait(Arc::clone(&begun), Arc::clone(&permits)));
    let sent = tokio::spawn(async move { send(&app, request("held", "")).await });
    begun.notified().await;
    assert!(!test.nodes()[0].is_empty());
    permits.add_permits(1);
    assert_eq!(sent.await.unwrap().status, 201);
    assert!(test.nodes()[0].is_empty());
}

/// A repetition gets a stored answer without the lock, and needs the lock if none is stored.
#[tokio::test]
async fn a_client_waits_for_the_end_of_the_lock_only_if_its_answer_is_not_stored() {
    for (status, by_handler) in [
        (StatusCode::CREATED, false),
        (StatusCode::CREATED, true),
        (StatusCode::BAD_GATEWAY, false),
    ] {
        let (test, store) = (TestLocks::new(1), Played::default());
        let (locks, node, answers) =
            (test.manager(), test.nodes()[0].clone(), store.answers.clone());
        let handler = post(async move |idempotency: Idempotency| {
            // It replies to no release.
            node.freeze();
            if by_handler {
                let (row, answer) = (idempotency.row(), StoredAnswer::new(status, ""));
                let id = AnswerId::new(row.scope, row.key);
                assert!(answers.store(&id, row.number, answer.to_bytes(), KEEP).await.unwrap());
            }
            status
        });
        let layer = IdempotencyLayer::new(&locks, store);
        let app = route(handler, if by_handler { layer.stored_by_handler() } else { layer });
        let begun = Instant::now();
        assert_eq!(send(&app, request("frozen", "")).await.status, status.as_u16());
        // By the clock of the test, which moves only as far as it has to.
        let is_stored = status == StatusCode::CREATED;
        assert_eq!(begun.elapsed().is_zero(), is_stored, "{status} {by_handler}");
        test.nodes()[0].recover();
        locks.shutdown().await;
        assert!(test.nodes()[0].is_empty(), "{status} {by_handler}");
    }
}

/// Lets the lock of a request run out.
async fn lose_lock(test: &TestLocks, after: Duration) {
    test.nodes()[0].fail();
    test.clock().advance(after).await;
    test.nodes()[0].recover();
    test.nodes()[0].forget();
}

#[tokio::test]
async fn a_handler_does_not_begin_if_the_lock_is_lost_while_the_key_is_claimed() {
    let (test, store, counted) = (TestLocks::new(1), Played::default(), Counted::default());
    // Shorter than the five seconds after which a claim is given up.
    let locks = test.builder().expire(Duration::from_secs(3)).connect().await.unwrap();
    let layer = IdempotencyLayer::new(&locks, store.clone()).unfinished(Unfinished::Refuse);
    let app = route(counted.handler(), layer);
    let (begun, permits) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    store.plan(Operation::Claim, Play::Wait(Arc::clone(&begun), Arc::clone(&permits)));
    let sent = {
        let app = app.clone();
        tokio::spawn(async move { send(&app, request("lost", "")).await })
    };
    begun.notified().await;
    lose_lock(&test, Duration::from_secs(4)).await;
    permits.add_permits(1);
    sent.await.unwrap().is(503, "unavailable");
    assert_eq!(counted.runs(), 0);
    assert!(store.answers.is_empty(), "the next request finds no claim");
    assert_eq!(send(&app, request("lost", "")).await.body, "payment 1");
}

/// A service that becomes ready with a permit, and may fail at its first call.
#[derive(Clone)]
struct Inner {
    counted: Counted,
    waits: Arc<Notify>,
    permits: PollSemaphore,
    fails: bool,
}

impl Inner {
    fn new(permits: &Arc<Semaphore>, fails: bool) -> Self {
        let permits = PollSemaphore::new(Arc::clone(permits));
        Self { counted: Counted::default(), waits: Arc::new(Notify::new()), permits, fails }
    }

    fn app(&self, locks: &LockManager, store: &Played) -> IdempotencyService<Self> {
        let layer = IdempotencyLayer::new(locks, store.clone()).unfinished(Unfinished::Refuse);
        layer.shared_scope().unwrap().layer(self.clone())
    }
}

impl Service<Request<Body>> for Inner {
    type Response = Response;
    type Error = &'static str;
    type Future = Ready<Result<Response, &'static str>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let permit = self.permits.poll_acquire(cx);
        if permit.is_pending() {
            self.waits.notify_one();
        }
        permit.map(|permit| {
            permit.unwrap().forget();
            Ok(())
        })
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let run = self.counted.run();
        ready(if self.fails && run == 1 {
            Err("broken")
        } else {
            Ok(format!("payment {run}").into_response())
        })
    }
}

#[tokio::test]
async fn a_key_is_not_claimed_if_the_lock_is_lost_before_the_service_is_ready() {
    let (test, store, permits) =
        (TestLocks::new(1), Played::default(), Arc::new(Semaphore::new(0)));
    let inner = Inner::new(&permits, false);
    let sent = tokio::spawn(inner.app(&test.manager(), &store).oneshot(request("unready", "")));
    inner.waits.notified().await;
    lose_lock(&test, Duration::from_secs(60)).await;
    // A claim would fail: a request that has lost its lock does not come that far.
    store.plan(Operation::Claim, Play::Hang);
    permits.add_permits(1);
    assert_eq!(sent.await.unwrap().unwrap().status(), 503);
    assert_eq!(inner.counted.runs(), 0);
    assert_eq!(store.planned(), 1, "no claim");
}

#[tokio::test]
async fn a_request_whose_service_has_failed_runs_again() {
    let (test, store, permits) =
        (TestLocks::new(1), Played::default(), Arc::new(Semaphore::new(2)));
    let app = Inner::new(&permits, true).app(&test.manager(), &store);
    assert_eq!(app.clone().oneshot(request("fails", "")).await.unwrap_err(), "broken");
    assert!(store.answers.is_empty());
    assert_eq!(app.oneshot(request("fails", "")).await.unwrap().status(), 200);
}

/// A holder that has lost its lock must not send what the next one has stored as its own answer.
#[tokio::test]
async fn the_answer_of_a_later_holder_is_not_taken_for_that_of_the_handler() {
    let (test, store) = (TestLocks::new(1), Played::default());
    let answers = store.answers.clone();
    let handler = post(async move |idempotency: Idempotency| {
        let row = idempotency.row();
        let (id, number) = (AnswerId::new(row.scope, row.key), row.number + 1);
        let claim = AnswerClaim::new(number, idempotency.fingerprint(), KEEP);
        assert_eq!(answers.claim(&id, claim).await.unwrap(), ClaimResult::Claimed);
        let later = StoredAnswer::new(StatusCode::CREATED, "payment 2");
        assert!(answers.store(&id, number, later.to_bytes(), KEEP).await.unwrap());
        "payment 1"
    });
    let layer = IdempotencyLayer::new(&test.manager(), store.clone()).stored_by_handler();
    let app = route(handler, layer);
    let answer = send(&app, request("later", "")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "payment 1"));
    assert_eq!(send(&app, request("later", "")).await.body, "payment 2");
}

/// The handler has stored its answer in its transaction, and the layer cannot read it.
#[tokio::test]
async fn an_answer_that_its_handler_has_stored_is_not_replaced_if_it_cannot_be_read() {
    let (test, store) = (TestLocks::new(1), Played::default());
    let answers = store.clone();
    let handler = post(async move |idempotency: Idempotency| {
        let row = idempotency.row();
        let stored = StoredAnswer::new(StatusCode::CREATED, "stored");
        let id = AnswerId::new(row.scope, row.key);
        assert!(answers.answers.store(&id, row.number, stored.to_bytes(), KEEP).await.unwrap());
        answers.plan(Operation::Load, Play::Fail);
        "returned"
    });
    let layer = IdempotencyLayer::new(&test.manager(), store.clone()).stored_by_handler();
    let app = route(handler, layer);
    assert_eq!(send(&app, request("unread", "")).await.body, "returned");
    let replay = send(&app, request("unread", "")).await;
    assert!(replay.is_replayed() && replay.body == "stored", "{replay:?}");
}

/// A slow client does not delay the stop of the service.
#[tokio::test]
async fn a_request_whose_body_arrives_during_a_drain_is_refused() {
    let (test, store, counted) = (TestLocks::new(1), Played::default(), Counted::default());
    let locks = test.manager();
    let app = route(counted.handler(), IdempotencyLayer::new(&locks, store.clone()));
    let polled = Arc::new(Notify::new());
    let reads = Arc::clone(&polled);
    let endless = poll_fn(move |_| {
        reads.notify_one();
        Poll::<Result<&str, Infallible>>::Pending
    });
    let mut slow = request("slow", "");
    *slow.body_mut() = Body::from_stream(futures_util::stream::once(endless));
    let sent = tokio::spawn(app.clone().oneshot(slow));
    polled.notified().await;
    locks.drain().await;
    assert_eq!(sent.await.unwrap().unwrap().status(), 503);
    assert_eq!(counted.runs(), 0);
    assert!(store.answers.is_empty());
}
