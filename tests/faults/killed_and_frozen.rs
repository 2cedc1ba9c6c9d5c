//! Killed and frozen servers that come back, with response times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redlock_core::{LockError, LockManager, ReleaseError};
use redlock_tests::{Logs, Nodes, Servers, eventually};
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

/// The default node timeout with several nodes.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);

/// These tests measure times, so they run one at a time.
static QUIET: Mutex<()> = Mutex::const_new(());

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Freeze,
}

impl Fault {
    fn apply(self, servers: &mut Servers, count: usize) {
        for server in &mut servers[..count] {
            match self {
                Self::Kill => server.kill(),
                Self::Freeze => server.freeze(),
            }
        }
    }
}

/// Acquires and releases the lock. Returns how long both took together.
async fn pair(locks: &LockManager, key: &str) -> Duration {
    let begun = Instant::now();
    let guard = locks.lock(key).expire(LONG).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    begun.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The time that the fastest tenth of the requests keeps.
fn fastest_tenth(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 10]
}

/// Serves the same requests on five healthy nodes and on five of which some have the fault, in
/// turns, so that both see the same noise.
///
/// A fault costs nothing if no request waits for the faulty nodes. On a busy machine the slowest of the
/// three healthy nodes that are left is still slower than the third of five, because the processes take
/// turns. So the fastest tenth of the requests is compared strictly, and the median with room for the scheduler.
async fn served_as_fast_as_healthy(fault: Fault, count: usize) {
    const REQUESTS: usize = 400;
    let _quiet = QUIET.lock().await;
    let (healthy, mut faulty) = tokio::join!(Servers::start(5), Servers::start(5));
    let on_healthy = LockManager::connect(healthy.urls()).await.unwrap();
    let on_faulty = LockManager::connect(faulty.urls()).await.unwrap();
    for _ in 0..20 {
        pair(&on_healthy, KEY).await;
        pair(&on_faulty, KEY).await;
    }
    fault.apply(&mut faulty, count);

    let (mut with, mut without) = (Vec::new(), Vec::new());
    for request in 0..REQUESTS {
        let key = format!("order:{request}");
        // Every request is served, from the first one on: otherwise `pair` panics.
        with.push(pair(&on_faulty, &key).await);
        without.push(pair(&on_healthy, &key).await);
    }
    let fastest = (fastest_tenth(with.clone()), fastest_tenth(without.clone()));
    assert!(fastest.0 <= fastest.1.mul_f64(1.5), "{:?}, healthy {:?}", fastest.0, fastest.1);
    let (with, without) = (median(with), median(without));
    let allowed = without.mul_f64(1.5) + NODE_TIMEOUT / 20;
    assert!(with <= allowed, "{with:?}, healthy {without:?}");
}

#[tokio::test]
async fn one_killed_node_of_five_costs_nothing() {
    served_as_fast_as_healthy(Fault::Kill, 1).await;
}

#[tokio::test]
async fn two_killed_nodes_of_five_cost_nothing() {
    served_as_fast_as_healthy(Fault::Kill, 2).await;
}

#[tokio::test]
async fn one_frozen_node_of_five_costs_nothing() {
    served_as_fast_as_healthy(Fault::Freeze, 1).await;
}

#[tokio::test]
async fn two_frozen_nodes_of_five_cost_nothing() {
    served_as_fast_as_healthy(Fault::Freeze, 2).await;
}

/// With three of five nodes down, requests are refused within the node timeout, and served again soon after
/// the nodes are back.
async fn requests_are_refused_until_the_nodes_are_back(fault: Fault) {
    let _quiet = QUIET.lock().await;
    let mut servers = Servers::start(5).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    pair(&locks, KEY).await;
    fault.apply(&mut servers, 3);

    let mut times = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let error = locks.lock(KEY).wait_time(LONG).acquire().await.unwrap_err();
        times.push(begun.elapsed());
        let LockError::Unavailable { votes, .. } = &error else { panic!("{error}") };
        assert_eq!(votes.len(), 5);
        let diagnostics = error.diagnostics().to_string();
        for server in &servers[..3] {
            let node = format!("127.0.0.1:{}", server.port());
            assert!(diagnostics.contains(&node), "{diagnostics}");
        }
    }
    assert!(*times.iter().max().unwrap() < SOON, "{times:?}");
    // Leaves room for the timer and for a late scheduler.
    assert!(median(times) < NODE_TIMEOUT + Duration::from_millis(30));

    for server in &mut servers[..3] {
        match fault {
            Fault::Kill => server.restart().await,
            Fault::Freeze => server.thaw(),
        }
    }
    let back = Instant::now();
    let guard = eventually("requests are served again", SOON, async || {
        locks.lock(KEY).expire(LONG).try_acquire().await.ok()
    });
    let guard = guard.await;
    assert!(back.elapsed() < Duration::from_secs(1), "{:?}", back.elapsed());
    guard.release().await.unwrap();
    eventually("no key is left of the attempts", SOON, async || {
        servers.keys().await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn with_three_of_five_nodes_killed_requests_are_refused_in_time() {
    requests_are_refused_until_the_nodes_are_back(Fault::Kill).await;
}

#[tokio::test]
async fn with_three_of_five_nodes_frozen_requests_are_refused_in_time() {
    requests_are_refused_until_the_nodes_are_back(Fault::Freeze).await;
}

/// Measures how late this process runs in total, by a task that should wake every few milliseconds.
#[derive(Clone, Default)]
struct Lateness(Arc<AtomicU64>);

impl Lateness {
    fn watch() -> (Self, AbortOnDropHandle<()>) {
        const TICK: Duration = Duration::from_millis(5);
        let lateness = Self::default();
        let total = Arc::clone(&lateness.0);
        let watch = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(TICK).await;
                let late = begun.elapsed().saturating_sub(TICK);
                total.fetch_add(u64::try_from(late.as_micros()).unwrap(), Ordering::Relaxed);
            }
        });
        (lateness, AbortOnDropHandle::new(watch))
    }

    fn so_far(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Freezes servers while callers lock and release without a pause, so that some replies are queued behind
/// other replies. Each of these callers is refused in time, and so is each later request. The time that this
/// process was late does not count.
async fn a_freeze_is_noticed(servers: usize, frozen: usize, within: Duration) {
    const CALLERS: usize = 32;
    let _quiet = QUIET.lock().await;
    let (lateness, _watch) = Lateness::watch();
    for round in 0..5 {
        let mut servers = Servers::start(servers).await;
        let locks = LockManager::connect(servers.urls()).await.unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (locks, lateness, served) =
                    (locks.clone(), lateness.clone(), Arc::clone(&served));
                tokio::spawn(async move {
                    let key = format!("order:{caller}");
                    loop {
                        let (begun, late) = (Instant::now(), lateness.so_far());
                        let error = match locks.lock(&key).expire(LONG).try_acquire().await {
                            Ok(guard) => {
                                served.fetch_add(1, Ordering::Relaxed);
                                drop(guard);
                                continue;
                            }
                            // The release of the previous guard is still pending.
                            Err(LockError::Contended { .. }) => continue,
                            Err(error) => error,
                        };
                        let took =
                            begun.elapsed().saturating_sub(lateness.so_far().saturating_sub(late));
                        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
                        break took;
                    }
                })
            })
            .collect();
        // Each round freezes the servers at another moment.
        eventually("the callers are served", SOON, async || {
            (served.load(Ordering::Relaxed) > 500 + 37 * round).then_some(())
        })
        .await;
        for server in &mut servers[..frozen] {
            server.freeze();
        }
        for caller in callers {
            let took = tokio::time::timeout(SOON, caller).await.unwrap().unwrap();
            assert!(took < within, "round {round}: a caller was refused after {took:?}");
        }
        let (begun, late) = (Instant::now(), lateness.so_far());
        let refused = locks.lock(KEY).try_acquire().await.unwrap_err();
        let took = begun.elapsed().saturating_sub(lateness.so_far().saturating_sub(late));
        assert!(matches!(refused, LockError::Unavailable { .. }), "{refused}");
        assert!(took < within, "round {round}: a later request was refused after {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_of_five_nodes_frozen_each_caller_is_refused_within_300_ms() {
    // The default of 200 ms plus a quarter, with room for the last reply.
    a_freeze_is_noticed(5, 3, Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_only_node_frozen_each_caller_is_refused_within_1500_ms() {
    a_freeze_is_noticed(1, 1, Duration::from_millis(1500)).await;
}

/// The server is back at its port at once, but the connection pool does not know yet.
#[tokio::test]
async fn a_restarted_server_is_used_within_half_a_second() {
    let _quiet = QUIET.lock().await;
    let mut servers = Servers::start(1).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..5 {
        pair(&locks, KEY).await;
        servers[0].restart().await;
        let back = Instant::now();
        let guard = eventually("requests are served again", SOON, async || {
            locks.lock(KEY).expire(LONG).try_acquire().await.ok()
        });
        guard.await.release().await.unwrap();
        times.push(back.elapsed());
    }
    assert!(median(times.clone()) < Duration::from_millis(500), "{times:?}");
}

/// A node that thaws may execute commands that were sent long ago. The clean-up must not have overtaken them.
#[tokio::test]
async fn an_abandoned_attempt_on_a_frozen_node_is_cleaned_up_after_it_thaws() {
    let _quiet = QUIET.lock().await;
    let mut servers = Servers::start(5).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    for round in 0..10 {
        let (abandoned, granted) = (format!("abandoned:{round}"), format!("granted:{round}"));
        for server in &mut servers[..3] {
            server.freeze();
        }
        locks.lock(&abandoned).expire(LONG).try_acquire().await.unwrap_err();
        // The other two nodes thaw only after this lock was granted.
        servers[0].thaw();
        let guard = eventually("a quorum is back", SOON, async || {
            locks.lock(&granted).expire(LONG).try_acquire().await.ok()
        });
        drop(guard.await);
        for server in &mut servers[1..3] {
            server.thaw();
        }
        eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
            .await;
    }
}

/// A future that is dropped while its nodes are frozen is cleaned up when they thaw.
#[tokio::test]
async fn a_future_dropped_while_nodes_are_frozen_leaves_nothing_when_they_thaw() {
    let _quiet = QUIET.lock().await;
    let mut servers = Servers::start(3).await;
    let builder = LockManager::builder().urls(servers.urls()).node_timeout(SOON);
    let locks = builder.connect().await.unwrap();
    for server in servers.iter_mut() {
        server.freeze();
    }
    let attempt = locks.lock(KEY).expire(LONG).try_acquire();
    let cancelled = tokio::time::timeout(Duration::from_millis(20), attempt).await;
    assert!(cancelled.is_err());
    for server in servers.iter_mut() {
        server.thaw();
    }
    let guard = eventually("the next caller gets the lock", SOON, async || {
        locks.lock(KEY).expire(LONG).try_acquire().await.ok()
    });
    guard.await.release().await.unwrap();
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// A holder without its majority cannot renew, and must learn of the loss by its deadline. Redisson's renewal
/// ends silently.
#[tokio::test]
async fn a_holder_whose_quorum_is_gone_loses_the_lock_at_its_deadline() {
    let _quiet = QUIET.lock().await;
    let mut servers = Servers::start(3).await;
    let expire = Duration::from_millis(1_200);
    let builder = LockManager::builder().urls(servers.urls()).expire(expire);
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    for server in &mut servers[..2] {
        server.freeze();
    }
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    assert!(guard.remaining().is_zero());
}

/// While validity is left, a failed extension changes nothing (a failed extension is not a release).
#[tokio::test]
async fn a_renewal_survives_a_short_loss_of_the_quorum() {
    let _quiet = QUIET.lock().await;
    let mut servers = Servers::start(3).await;
    let expire = Duration::from_secs(3);
    let builder = LockManager::builder().urls(servers.urls()).expire(expire);
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    for server in &mut servers[..2] {
        server.freeze();
    }
    // The first renewal, after a third of the lease, fails.
    eventually("more than a third of the lease is over", SOON, async || {
        (guard.remaining() < expire / 2).then_some(())
    })
    .await;
    for server in &mut servers[..2] {
        server.thaw();
    }
    eventually("the lease is renewed", SOON, async || {
        assert!(guard.is_valid(), "lost, although it could have been renewed in time");
        (guard.remaining() > expire * 2 / 3).then_some(())
    })
    .await;
    guard.release().await.unwrap();
}

/// The lock must not stay on a node that was frozen during the release.
#[tokio::test]
async fn a_release_reaches_a_node_that_was_frozen_meanwhile() {
    let _quiet = QUIET.lock().await;
    let nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    nodes.all_hold(KEY).await;
    let Nodes::Redis(mut servers) = nodes else { unreachable!() };
    servers[2].freeze();
    guard.release().await.unwrap();
    servers[2].thaw();
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn a_release_without_a_quorum_fails_in_time_and_continues_in_the_background() {
    let _quiet = QUIET.lock().await;
    let logs = Logs::collect();
    let mut servers = Servers::start(3).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    for server in &mut servers[..2] {
        server.freeze();
    }
    let begun = Instant::now();
    let error = guard.release().await.unwrap_err();
    assert!(begun.elapsed() < SOON);
    assert!(matches!(error, ReleaseError::Unavailable { .. }), "{error}\n{:#?}", logs.lines());
    for server in &mut servers[..2] {
        server.thaw();
    }
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// Without `shutdown`, the locks of a process that ends would stay until their leases end (dropping is always
/// safe).
#[tokio::test]
async fn shutdown_waits_for_pending_releases() {
    let _quiet = QUIET.lock().await;
    let nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let held = locks.lock("held").expire(LONG).try_acquire().await.unwrap();
    let dropped = locks.lock("dropped").expire(LONG).try_acquire().await.unwrap();
    let Nodes::Redis(mut servers) = nodes else { unreachable!() };
    for server in servers.iter_mut() {
        server.freeze();
    }
    drop(dropped);
    let mut shutdown = tokio::spawn(async move { locks.shutdown().await });
    let early = tokio::time::timeout(Duration::from_millis(200), &mut shutdown).await;
    assert!(early.is_err(), "shutdown did not wait");
    for server in servers.iter_mut() {
        server.thaw();
    }
    tokio::time::timeout(SOON, shutdown).await.unwrap().unwrap();
    assert_eq!(servers.keys().await, [""; 0]);
    assert!(!held.is_valid());
}

/// A server counts leases by the wall clock, which continues while the process is stopped.
#[tokio::test]
async fn a_lock_that_expires_on_a_stopped_server_is_free_when_it_continues() {
    const LEASE: Duration = Duration::from_secs(2);
    let _quiet = QUIET.lock().await;
    let mut servers = Servers::start(1).await;
    let builder = || LockManager::builder().urls(servers.urls()).node_timeout(SOON);
    let (first, second) = (builder().connect().await.unwrap(), builder().connect().await.unwrap());
    let guard = first.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let granted = Instant::now();
    // Only the end of the lease may free the lock.
    guard.keep_until_expiry();
    servers[0].freeze();
    assert!(granted.elapsed() < LEASE, "the server was stopped too late");
    eventually("the lease is over", SOON, async || {
        (granted.elapsed() > LEASE.mul_f64(1.1)).then_some(())
    })
    .await;
    servers[0].thaw();
    let guard = second.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(servers.keys().await, [""; 0]);
}
