//! Floods of keys and of callers: memory stays within bounds, and nothing of them stays. Memory is
//! compared between equal floods, the second of which must not need more than the first has left.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::routing::post;
use axum::{Extension, Router};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use redlock_axum::LockLayer;
use redlock_core::{KeyTemplate, LockError, LockManager, MemoryNode};
use redlock_tests::{Nodes, Servers, eventually};
use tokio::runtime::Builder;
use tower::ServiceExt;

/// Longer than any test: what is gone before was released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
const MIB: u64 = 1024 * 1024;

/// One after another: they measure the memory of the whole process.
fn alone(test: impl Future<Output = ()>) {
    alone_on(Builder::new_current_thread(), test);
}

fn alone_on(mut runtime: Builder, test: impl Future<Output = ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    runtime.enable_all().build().unwrap().block_on(test);
}

/// The memory that is in use, from the kernel: in bytes, resident.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Runs the flood until memory has found its level, and compares that with one more.
async fn needs_no_more_each_time(limit: u64, mut flood: impl AsyncFnMut()) {
    if resident().is_none() {
        println!("skipped: this system does not tell how much memory is in use");
        assert!(std::env::var("CI").is_err(), "in CI that is a failure");
    }
    flood().await;
    flood().await;
    let before = resident().unwrap_or_default();
    flood().await;
    let more = resident().unwrap_or_default().saturating_sub(before);
    println!("{} KiB more after one more flood", more / 1024);
    assert!(more < limit, "{more} bytes more after one more flood");
}

/// A name as long as a client can make it, so that one that is left somewhere weighs something.
fn key(flood: usize, number: usize) -> String {
    format!("flood:{flood}:{number}:{}", "x".repeat(150))
}

#[test]
fn of_distinct_keys_one_after_another_nothing_stays() {
    alone(async {
        let node = MemoryNode::new();
        let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
        let mut floods = 0;
        needs_no_more_each_time(4 * MIB, async || {
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
fn of_distinct_keys_at_once_nothing_stays() {
    alone(async {
        for nodes in [Nodes::memory(1), Nodes::redis(1).await] {
            let builder = nodes.builder().node_timeout(SOON / 6);
            let locks = builder.connect().await.unwrap();
            let mut floods = 0;
            needs_no_more_each_time(3 * MIB, async || {
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

/// Nobody gives them back, and nobody asks for them again.
#[test]
fn of_locks_that_are_kept_nothing_stays_when_their_time_is_over() {
    alone(async {
        let node = MemoryNode::new();
        let locks = LockManager::builder().memory_node(&node).node_timeout(SOON / 6000);
        let locks = locks.connect().await.unwrap();
        let mut floods = 0;
        needs_no_more_each_time(3 * MIB, async || {
            floods += 1;
            for number in 0..20_000 {
                let request = locks.lock(key(floods, number)).expire(Duration::from_millis(20));
                // It may be over before it was to be had.
                if let Ok(guard) = request.try_acquire().await {
                    guard.keep_until_expiry();
                }
            }
            eventually("they have run out", SOON, async || node.is_empty().then_some(())).await;
        })
        .await;
    });
}

#[test]
fn of_waiters_for_one_key_only_so_many_wait() {
    const PLACES: usize = 100;
    alone(async {
        for nodes in [Nodes::memory(1), Nodes::redis(3).await] {
            let holder = nodes.manager().await;
            let locks = nodes.builder().max_waiters(PLACES).connect().await.unwrap();
            needs_no_more_each_time(MIB, async || {
                let guard = holder.lock("hot").expire(LONG).acquire().await.unwrap();
                let request = locks.lock("hot").expire(LONG).wait_time(LONG);
                let callers: Vec<_> = (0..5_000)
                    .map(|_| {
                        let acquire = request.clone().acquire();
                        tokio::spawn(async { acquire.await.map(drop) })
                    })
                    .collect();
                let refused = || callers.iter().filter(|caller| caller.is_finished()).count();
                eventually("the rest is refused", SOON, async || {
                    (refused() == 5_000 - PLACES).then_some(())
                })
                .await;
                guard.release().await.unwrap();
                let mut served = 0;
                for caller in callers {
                    match caller.await.unwrap() {
                        Ok(()) => served += 1,
                        Err(LockError::TooManyWaiters { limit: PLACES, .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                assert_eq!(served, PLACES);
                nodes.become_empty().await;
            })
            .await;
        }
    });
}

/// One subscription for each.
#[test]
fn of_waiters_for_many_keys_nothing_stays() {
    const KEYS: usize = 1_000;
    alone(async {
        let nodes = Nodes::redis(1).await;
        let mut probe = nodes.servers().unwrap()[0].probe().await;
        let builder = || nodes.builder().node_timeout(SOON / 6);
        let holder = builder().connect().await.unwrap();
        let locks = builder().connect().await.unwrap();
        let mut floods = 0;
        needs_no_more_each_time(MIB, async || {
            floods += 1;
            let hold = |number| holder.lock(key(floods, number)).expire(LONG).acquire();
            let guards = join_all((0..KEYS).map(hold)).await;
            let wait = |number| {
                let acquire =
                    locks.lock(key(floods, number)).expire(LONG).wait_time(LONG).acquire();
                tokio::spawn(async { acquire.await.map(drop) })
            };
            let waiting: Vec<_> = (0..KEYS).map(wait).collect();
            eventually("all of them listen", SOON, async || {
                let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
                (channels.len() == KEYS).then_some(())
            })
            .await;
            // Half of them get what they wait for, half lose their patience.
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
            eventually("nobody listens", SOON, async || {
                let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
                channels.is_empty().then_some(())
            })
            .await;
        })
        .await;
    });
}

#[test]
fn a_flood_of_requests_is_served_or_refused_and_nothing_of_it_stays() {
    alone(async {
        let nodes = Nodes::memory(1);
        let locks = nodes.builder().max_waiters(10).connect().await.unwrap();
        let layer = LockLayer::new("order:{id}").wait_time(LONG);
        let app = Router::new()
            .route("/orders/{id}", post(tokio::task::yield_now).route_layer(layer))
            .layer(Extension(locks.clone()));
        let send = |path: String| {
            let request = Request::post(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request);
            async { response.await.unwrap() }
        };
        let mut floods = 0;
        needs_no_more_each_time(2 * MIB, async || {
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

/// Their keys are short.
#[test]
fn of_values_of_a_megabyte_little_stays_while_they_are_locked() {
    alone(async {
        let locks = LockManager::in_memory();
        let template = KeyTemplate::new("named:{name}").unwrap();
        let mut guards = Vec::new();
        needs_no_more_each_time(8 * MIB, async || {
            for _ in 0..10 {
                let name = format!("{}%{}", "x".repeat(1024 * 1024), guards.len());
                let key = template.render([("name", name.as_str())]);
                guards.push(locks.lock(key).expire(LONG).try_acquire().await.unwrap());
            }
        })
        .await;
        assert_eq!(guards.len(), 30);
    });
}

/// More at once than the nodes answer in time: some attempts are given up, and commands queue. None
/// may be overtaken by the release that follows it.
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
