//! The options that say how the lock is asked for and held.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get as on_get;
use redlock_axum::{HeldLock, LockError, LockLayer, LockManager, Locks, MemoryNode, redis_lock};
use redlock_logs::Logs;
use tokio::time::timeout;

use crate::renewal;
use crate::support::{app, eventually, get, held_by_another, locks};

const LEASE: Duration = Duration::from_millis(300);

/// Longer than any test takes: whoever waits for it hangs.
const WAIT: &str = "not at once";

/// A handler that never ends, and notes that it was dropped.
#[derive(Clone, Default)]
struct Dropped(Arc<AtomicBool>);

impl Dropped {
    fn by(&self) -> impl Drop + use<> {
        struct OnDrop(Arc<AtomicBool>);

        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }

        OnDrop(Arc::clone(&self.0))
    }

    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_renewed_lease_outlives_its_first_time() {
    #[redis_lock(key = "a", expire = "300ms", renew)]
    async fn long(lock: HeldLock, State(node): State<MemoryNode>) -> String {
        tokio::time::sleep(3 * LEASE).await;
        (lock.is_valid() && node.len() == 1).to_string()
    }

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(long)).with_state(node.clone()), &locks);
    assert_eq!(get(&app, "/").await.body, "true");
    assert!(node.is_empty());
}

/// Work that hangs does not hold its lock for ever.
#[tokio::test]
async fn a_renewal_ends_with_max_hold() {
    #[redis_lock(key = "a", expire = "300ms", renew = true, max_hold = "300ms")]
    async fn hangs(State(node): State<MemoryNode>, lock: HeldLock) -> String {
        let ended = renewal::has_ended(&node, "a", LEASE).await;
        if ended != Some(false) {
            lock.lost().await;
        }
        format!("{ended:?}")
    }

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(hangs)).with_state(node.clone()), &locks);
    assert_eq!(renewal::ask(async || get(&app, "/").await.body).await, "Some(true)");
    eventually("the lease runs out", || node.is_empty()).await;
}

#[tokio::test]
async fn min_hold_keeps_the_key_for_its_time_after_the_handler() {
    #[redis_lock(key = "a", expire = 60, min_hold = 30)]
    async fn short() {}

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(short)), &locks);
    assert_eq!(get(&app, "/").await.status, StatusCode::OK);
    let left = node.time_to_live("a").unwrap();
    assert!((Duration::from_secs(20)..=Duration::from_secs(30)).contains(&left), "{left:?}");
    assert_eq!(get(&app, "/").await.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn keep_leaves_the_lock_to_run_out_however_the_handler_ends() {
    #[redis_lock(key = "returned", expire = 60, keep)]
    async fn returned() -> Result<(), StatusCode> {
        Err(StatusCode::IM_A_TEAPOT)
    }

    #[redis_lock(key = "panicked", expire = 60, keep)]
    async fn panicked(State(node): State<MemoryNode>) {
        assert!(node.is_empty(), "the panic of this test");
    }

    #[redis_lock(key = "dropped", expire = 60, keep)]
    async fn dropped() {
        pending::<()>().await;
    }

    #[redis_lock(key = "a function", expire = 60, keep, manager = locks)]
    async fn function(locks: &LockManager) -> Result<(), LockError> {
        Ok(())
    }

    let (locks, node) = locks().await;
    let router = Router::new()
        .route("/returned", on_get(returned))
        .route("/panicked", on_get(panicked))
        .route("/dropped", on_get(dropped))
        .with_state(node.clone());
    let app = app(router, &locks);
    assert_eq!(get(&app, "/returned").await.status, StatusCode::IM_A_TEAPOT);
    let panicking = app.clone();
    let panicking = tokio::spawn(async move { get(&panicking, "/panicked").await });
    assert!(panicking.await.unwrap_err().is_panic());
    assert!(timeout(Duration::from_millis(20), get(&app, "/dropped")).await.is_err());
    function(&locks).await.unwrap();

    // What is released in the background is released by then.
    locks.shutdown().await;
    for key in ["returned", "panicked", "dropped", "a function"] {
        let left = node.time_to_live(key).unwrap();
        assert!(left > Duration::from_secs(50), "{key}: {left:?}");
    }
}

/// A lock that is handed on inside the process has only a part of its lease left.
#[tokio::test]
async fn who_keeps_its_lock_gets_a_lease_of_its_own() {
    #[redis_lock(key = "a", expire = 60, wait_time = 60, keep)]
    async fn keeping() {}

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(keeping)), &locks);
    let shorter = Duration::from_secs(50);
    let guard = locks.lock("a").expire(shorter).try_acquire().await.unwrap();
    let (answer, released) = tokio::join!(get(&app, "/"), guard.release());
    released.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    let left = node.time_to_live("a").unwrap();
    assert!(left > Duration::from_secs(55), "{left:?}");
}

#[tokio::test]
async fn who_waits_for_ever_gets_the_lock_at_last() {
    #[redis_lock(key = "a", wait_time = "forever")]
    async fn patient() -> &'static str {
        "at last"
    }

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(patient)), &locks);
    let other = held_by_another(&node, "a").await;
    let waiting = get(&app, "/");
    tokio::pin!(waiting);
    assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    other.release().await.unwrap();
    assert_eq!(waiting.await.body, "at last");
}

#[tokio::test]
async fn the_attribute_inside_a_layer_with_the_same_key_fails_at_once() {
    #[redis_lock(key = "a", wait_time = "1h")]
    async fn never() {
        unreachable!("the body ran, although its lock was held");
    }

    let logs = Logs::collect();
    let (locks, node) = locks().await;
    let router = Router::new().route("/", on_get(never).route_layer(LockLayer::new("a")));
    let app = app(router, &locks);
    let answer = timeout(Duration::from_secs(5), get(&app, "/")).await.expect(WAIT);
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!answer.body.contains("reentrant"), "{}", answer.body);
    assert!(node.is_empty());
    let text = logs.lines().join("\n");
    let line = text.lines().find(|line| line.contains("the lock a is held by the same request"));
    let line = line.unwrap();
    assert!(line.contains("ERROR"), "{line}");
    assert!(line.contains("`reentrant`") && line.contains("another key"), "{line}");
}

#[tokio::test]
async fn a_reentrant_attribute_shares_the_layers_lock() {
    #[redis_lock(key = "a", expire = 1, reentrant)]
    async fn inner(lock: HeldLock, State(node): State<MemoryNode>) -> String {
        assert!(lock.is_valid());
        assert!(node.time_to_live("a").unwrap() > Duration::from_secs(50), "never shortened");
        node.len().to_string()
    }

    let (locks, node) = locks().await;
    let layer = LockLayer::new("a").expire(Duration::from_secs(60));
    let router = Router::new().route("/", on_get(inner).route_layer(layer));
    let app = app(router.with_state(node.clone()), &locks);
    let answer = get(&app, "/").await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "1"));
    assert!(node.is_empty());
}

/// A service behind the handler that locks the same thing by itself.
#[tokio::test]
async fn a_service_inside_a_handler_fails_at_once_or_shares() {
    struct Service(LockManager);

    impl Service {
        #[redis_lock(key = "a", wait_time = "forever", manager = self.0)]
        async fn strict(&self) -> Result<(), LockError> {
            unreachable!("the body ran, although its lock was held");
        }

        #[redis_lock(key = "a", wait_time = "forever", reentrant, manager = self.0)]
        async fn sharing(&self, node: &MemoryNode) -> Result<usize, LockError> {
            Ok(node.len())
        }
    }

    #[redis_lock(key = "a")]
    async fn handler(Locks(locks): Locks, State(node): State<MemoryNode>) -> String {
        let service = Service(locks);
        let refused = timeout(Duration::from_secs(5), service.strict()).await.expect(WAIT);
        assert!(matches!(refused, Err(LockError::AlreadyHeld { .. })), "{refused:?}");
        let shared = timeout(Duration::from_secs(5), service.sharing(&node)).await.expect(WAIT);
        assert_eq!(shared.unwrap(), 1);
        // The handler's lock is still there: the service was not the last to hold it.
        node.len().to_string()
    }

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(handler)).with_state(node.clone()), &locks);
    assert_eq!(get(&app, "/").await.body, "1");
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_handler_that_aborts_is_dropped_with_its_lock_and_answers_503() {
    #[redis_lock(key = "order:4711", expire = "50ms", on_lost = abort)]
    async fn stuck(State(dropped): State<Dropped>) {
        let _dropped = dropped.by();
        pending::<()>().await;
    }

    let logs = Logs::collect();
    let (locks, node) = locks().await;
    let dropped = Dropped::default();
    let app = app(Router::new().route("/", on_get(stuck)).with_state(dropped.clone()), &locks);
    let answer = get(&app, "/").await;
    assert!(dropped.is());
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers["retry-after"], "1");
    assert!(answer.body.contains("stopped half-way"), "{}", answer.body);
    assert!(!answer.body.contains("4711"), "{}", answer.body);
    assert!(node.is_empty());
    let text = logs.lines().join("\n");
    assert_eq!(text.matches("a lock was lost").count(), 1, "one event: {text}");
    assert_eq!(text.matches("a request was stopped half-way").count(), 1, "{text}");
}

/// The default, and the same said aloud.
#[tokio::test]
async fn a_handler_that_keeps_going_answers_for_itself() {
    #[redis_lock(key = "a", expire = "50ms")]
    async fn default(lock: HeldLock) -> &'static str {
        lock.lost().await;
        tokio::task::yield_now().await;
        "done"
    }

    #[redis_lock(key = "a", expire = "50ms", on_lost = keep_going)]
    async fn aloud(lock: HeldLock) -> &'static str {
        lock.lost().await;
        tokio::task::yield_now().await;
        "done"
    }

    let (locks, _) = locks().await;
    let router = Router::new().route("/default", on_get(default)).route("/aloud", on_get(aloud));
    let app = app(router, &locks);
    for path in ["/default", "/aloud"] {
        let answer = get(&app, path).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "done"));
    }
}

#[tokio::test]
async fn a_handler_that_aborts_and_keeps_its_lock_is_served_as_ever() {
    #[redis_lock(key = "a", on_lost = abort)]
    async fn quick(State(node): State<MemoryNode>) -> Result<impl IntoResponse, StatusCode> {
        tokio::task::yield_now().await;
        Ok(node.len().to_string())
    }

    let (locks, node) = locks().await;
    let app = app(Router::new().route("/", on_get(quick)).with_state(node.clone()), &locks);
    assert_eq!(get(&app, "/").await.body, "1");
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_function_that_aborts_gives_its_own_error() {
    struct Job {
        locks: LockManager,
        steps: u32,
    }

    impl Job {
        #[redis_lock(key = "job", expire = "50ms", on_lost = abort, manager = self.locks)]
        async fn run(&mut self, dropped: &Dropped) -> Result<&u32, LockError> {
            let _dropped = dropped.by();
            self.steps += 1;
            pending().await
        }

        #[redis_lock(
            key = "job", expire = "50ms", on_lost = abort, manager = self.locks, error = describe
        )]
        async fn described(&self) -> Result<(), String> {
            pending().await
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the attribute passes a value")]
    fn describe(error: LockError) -> String {
        error.to_string()
    }

    let (locks, node) = locks().await;
    let dropped = Dropped::default();
    let mut job = Job { locks, steps: 0 };
    let error = job.run(&dropped).await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
    assert!(dropped.is() && node.is_empty());
    assert_eq!(job.steps, 1);
    let text = job.described().await.unwrap_err();
    assert_eq!(text, "the lock job was lost, and the work under it was stopped");
}

/// A frozen process: the handler wakes up after its lease, and takes not one more step.
#[tokio::test]
async fn work_that_is_ready_when_its_lock_is_lost_is_not_resumed() {
    #[redis_lock(key = "a", expire = "50ms", on_lost = abort)]
    async fn frozen() {
        // Blocks the whole runtime, and its timers, past the lease.
        std::thread::sleep(Duration::from_millis(100));
        tokio::task::yield_now().await;
        unreachable!("resumed without its lock");
    }

    let (locks, _) = locks().await;
    let app = app(Router::new().route("/", on_get(frozen)), &locks);
    assert_eq!(get(&app, "/").await.status, StatusCode::SERVICE_UNAVAILABLE);
}
