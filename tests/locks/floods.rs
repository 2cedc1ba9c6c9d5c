//! Floods of keys and of waiters: memory stays bounded, and nothing is left afterwards. Each test runs equal
//! floods and measures how much memory the last ones add.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::routing::post;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use redlock_axum::{LockLayer, LocksLayer};
use redlock_core::{KeyTemplate, LockError, LockManager, MemoryNode};
use redlock_tests::{Nodes, Servers, eventually};
use tokio::runtime::Builder;
use tower::ServiceExt;

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
const MIB: u64 = 1024 * 1024;
/// The number of floods in which memory reaches its level.
const FIRST: usize = 3;
/// The number of floods after them.
const FURTHER: usize = 5;

/// Runs one test at a time, because each measures the memory of the whole process.
fn alone(test: impl Future<Output = ()>) {
    alone_on(Builder::new_current_thread(), test);
}

fn alone_on(mut runtime: Builder, test: impl Future<Output = ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    runtime.enable_all().build().unwrap().block_on(test);
}

/// Returns the resident memory of this process in bytes, as reported by the kernel.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Runs the flood until memory reaches its level. The further floods must together add less than four times `limit`
/// bytes.
///
/// A single flood shows little: a buffer may grow once more, and a leak may fit into memory that the level has left free.
async fn memory_stays_level(limit: u64, mut flood: impl AsyncFnMut()) {
    if resident().is_none() {
        println!("skipped: this system does not report its memory usage");
        assert!(std::env::var("CI").is_err(), "a skipped test is a failure in CI");
    }
    for _ in 0..FIRST {
        flood().await;
    }
    let before = resident().unwrap_or_default();
    for _ in 0..FURTHER {
        flood().await;
    }
    let more = resident().unwrap_or_default().saturating_sub(before);
    println!("{} KiB more after {FURTHER} more floods", more / 1024);
    assert!(more < 4 * limit, "{more} bytes more after {FURTHER} more floods");
}

/// A key near the maximum length, so that leaked keys show in the measured memory.
fn key(flood: usize, number: usize) -> String {
    format!("flood:{flood}:{number}:{}", "x".repeat(150))
}

#[test]
fn locking_distinct_keys_one_after_another_leaks_nothing() {
    alone(async {
        let node = MemoryNode::new();
        let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
        let mut floods = 0;
        memory_stays_level(4 * MIB, async || {
            floods += 1;
            for number in 0..50_000 {
                let request = locks.lock(key(floods, number)).expire(LONG);
                request.wait_time(LONG).acquire().await.unwrap().release().await.unwrap();
            }
            assert!(node.is_empty());
        })
        .await;
    });
}

#[test]
fn locking_distinct_keys_at_once_leaks_nothing() {
    alone(async {
        for nodes in [Nodes::memory(1), Nodes::redis(1).await] {
            let builder = nodes.builder().node_timeout(SOON / 6);
            let locks = builder.connect().await.unwrap();
            let mut floods = 0;
            memory_stays_level(3 * MIB, async || {
                floods += 1;
                let acquire = |number| locks.lock(key(floods, number)).renew(true).acquire();
                let guards = join_all((0..20_000).map(acquire)).await;
                assert!(guards.iter().all(Result::is_ok));
                assert_eq!(nodes.locks().await, 20_000);
                drop(guards);
                nodes.become_empty().await;
            })
            .await;
        }
    });
}

/// The holder never releases these locks, and no caller asks for them again.
#[test]
fn kept_locks_leak_nothing_after_their_lease() {
    alone(async {
        let node = MemoryNode::new();
        let locks = LockManager::builder().memory_node(&node).node_timeout(SOON / 6000);
        let locks = locks.connect().await.unwrap();
        let mut floods = 0;
        memory_stays_level(3 * MIB, async || {
            floods += 1;
            for number in 0..20_000 {
                let request = locks.lock(key(floods, number)).expire(Duration::from_millis(20));
                // On a busy machine the lease may end before the attempt does.
                if let Ok(guard) = request.try_acquire().await {
                    guard.keep_until_expiry();
                }
            }
            eventually("all leases have ended", SOON, async || node.is_empty().then_some(())).await;
        })
        .await;
    });
}

#[test]
fn at_most_max_waiters_callers_wait_for_one_key() {
    const MAX_WAITERS: usize = 100;
    alone(async {
        for nodes in [Nodes::memory(1), Nodes::redis(3).await] {
            let holder = nodes.manager().await;
            let locks = nodes.builder().max_waiters(MAX_WAITERS).connect().await.unwrap();
            memory_stays_level(MIB, async || {
                let guard = holder.lock("hot").expire(LONG).acquire().await.unwrap();
                let request = locks.lock("hot").expire(LONG).wait_time(LONG);
                let callers: Vec<_> = (0..5_000)
                    .map(|_| {
                        let acquire = request.clone().acquire();
                        tokio::spawn(async { acquire.await.map(drop) })
                    })
                    .collect();
                let refused = || callers.iter().filter(|caller| caller.is_finished()).count();
                eventually("the other callers are refused", SOON, async || {
                    (refused() == 5_000 - MAX_WAITERS).then_some(())
                })
                .await;
                guard.release().await.unwrap();
                let mut served = 0;
                for caller in callers {
                    match caller.await.unwrap() {
                        Ok(()) => served += 1,
                        Err(LockError::TooManyWaiters { limit: MAX_WAITERS, .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                assert_eq!(served, MAX_WAITERS);
                nodes.become_empty().await;
            })
            .await;
        }
    });
}

/// Each key needs a subscription of its own.
#[test]
fn waiters_for_many_keys_leak_nothing() {
    const KEYS: usize = 1_000;
    alone(async {
        let nodes = Nodes::redis(1).await;
        let mut probe = nodes.servers().unwrap()[0].probe().await;
        let builder = || nodes.builder().node_timeout(SOON / 6);
        let holder = builder().connect().await.unwrap();
        let locks = builder().connect().await.unwrap();
        let mut floods = 0;
        memory_stays_level(MIB, async || {
            floods += 1;
            let hold = |number| holder.lock(key(floods, number)).expire(LONG).acquire();
            let guards = join_all((0..KEYS).map(hold)).await;
            let wait = |number| {
                let acquire =
                    locks.lock(key(floods, number)).expire(LONG).wait_time(LONG).acquire();
                tokio::spawn(async { acquire.await.map(drop) })
            };
            let waiting: Vec<_> = (0..KEYS).map(wait).collect();
            eventually("all waiters have subscribed", SOON, async || {
                let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
                (channels.len() == KEYS).then_some(())
            })
            .await;
            // Half of the waiters get their lock, the other half are aborted.
            for (number, (guard, waiting)) in guards.into_iter().zip(waiting).enumerate() {
                if number % 2 == 0 {
                    waiting.abort();
                    assert!(waiting.await.unwrap_err().is_cancelled());
                    drop(guard.unwrap());
                } else {
                    guard.unwrap().release().await.unwrap();
                    waiting.await.unwrap().unwrap();
                }
            }
            nodes.become_empty().await;
            eventually("no subscription is left", SOON, async || {
                let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
                channels.is_empty().then_some(())
            })
            .await;
        })
        .await;
    });
}

#[test]
fn a_flood_of_requests_is_served_or_refused_and_leaks_nothing() {
    alone(async {
        let nodes = Nodes::memory(1);
        let locks = nodes.builder().max_waiters(10).connect().await.unwrap();
        let layer = LockLayer::new("order:{id}").wait_time(LONG);
        let app = Router::new()
            .route("/orders/{id}", post(tokio::task::yield_now).route_layer(layer))
            .layer(LocksLayer::new(&locks));
        let send = |path: String| {
            let request = Request::post(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request);
            async { response.await.unwrap() }
        };
        let mut floods = 0;
        memory_stays_level(2 * MIB, async || {
            floods += 1;
            let distinct = (0..5_000).map(|id| send(format!("/orders/{}", key(floods, id))));
            let served = stream::iter(distinct).buffer_unordered(500);
            assert!(served.all(|response| async move { response.status() == 200 }).await);

            let guard = locks.lock("order:hot").expire(LONG).acquire().await.unwrap();
            let release = async {
                tokio::task::yield_now().await;
                guard.release().await.unwrap();
            };
            let hot = join_all((0..500).map(|_| send("/orders/hot".to_owned())));
            let (hot, ()) = tokio::join!(hot, release);
            let (served, refused): (Vec<_>, Vec<_>) =
                hot.into_iter().partition(|response| response.status() == StatusCode::OK);
            assert_eq!(served.len(), 10);
            for response in refused {
                assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
                assert!(response.headers().contains_key(header::RETRY_AFTER));
            }
            assert_eq!(nodes.locks().await, 0);
        })
        .await;
    });
}

/// A long value is shortened in its key, so a held lock does not keep the whole value.
#[test]
fn locks_keep_little_memory_of_megabyte_values() {
    alone(async {
        let locks = LockManager::in_memory();
        let template = KeyTemplate::new("named:{name}").unwrap();
        let mut guards = Vec::new();
        memory_stays_level(8 * MIB, async || {
            for _ in 0..10 {
                let name = format!("{}%{}", "x".repeat(1024 * 1024), guards.len());
                let key = template.render([("name", name.as_str())]);
                guards.push(locks.lock(key).expire(LONG).try_acquire().await.unwrap());
            }
        })
        .await;
        assert_eq!(guards.len(), 10 * (FIRST + FURTHER));
    });
}

/// The callers ask for more locks than the nodes can answer in time, so attempts are abandoned and commands
/// queue up. A release must not overtake its own acquisition.
#[test]
fn an_overload_leaves_no_key() {
    alone_on(Builder::new_multi_thread(), async {
        let servers = Servers::start(3).await;
        let locks = LockManager::connect(servers.urls()).await.unwrap();
        let end = Instant::now() + Duration::from_secs(2);
        let callers: Vec<_> = (0..64)
            .map(|caller| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let mut granted = 0_u32;
                    while Instant::now() < end {
                        let key = format!("caller:{caller}:{granted}");
                        let request = locks.lock(key).expire(LONG);
                        if let Ok(guard) = request.try_acquire().await {
                            granted += 1;
                            let _ = guard.release().await;
                        }
                    }
                    granted
                })
            })
            .collect();
        let mut granted = 0;
        for caller in callers {
            granted += caller.await.unwrap();
        }
        assert!(granted > 100, "{granted}");
        locks.shutdown().await;
        assert_eq!(servers.keys().await, [""; 0]);
    });
}
