//! Floods of keys and of waiters: they leave nothing behind. Each test runs equal floods on one thread, and counts what
//! the last ones allocate and do not free.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::routing::post;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use redlock_axum::{LockLayer, LockPolicy};
use redlock_core::test_util::TestLocks;
use redlock_core::{KeyTemplate, LockError, LockManager};
use redlock_tests::{Nodes, eventually};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
/// The number of requests of a flood.
const MANY: usize = 2_000;
/// The bytes that floods may leave in tables and buffers, whose size depends on how many callers wait at once. If each of
/// 2,000 requests leaves its key behind, five floods leave six times as much.
const MOST: i64 = 256 * 1024;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs the flood until tables and buffers have their size, and then for `further` times. These may leave [`MOST`] bytes.
/// A busy machine can make a table grow once more, so one of five tries counts.
fn leaves_nothing(runtime: &Runtime, further: usize, mut flood: impl AsyncFnMut()) {
    let tasks = || runtime.metrics().num_alive_tasks();
    let before = tasks();
    let mut flood = || {
        runtime.block_on(async {
            flood().await;
            eventually("no task is left", SOON, async || (tasks() <= before).then_some(())).await;
        });
    };
    (0..2).for_each(|_| flood());
    let mut tries = (0..5).map(|_| {
        let allocated = allocation_counter::measure(|| (0..further).for_each(|_| flood()));
        let left = allocated.bytes_current;
        println!("{left} of {} bytes are left after {further} more floods", allocated.bytes_total);
        left
    });
    assert!(tries.any(|left| left <= MOST), "more than {MOST} bytes are left after each try");
}

/// Starts a node in memory, and this number of nodes over servers. With all kinds, also over
/// PostgreSQL and ZooKeeper.
fn kinds(runtime: &Runtime, count: usize) -> Vec<Nodes> {
    let mut kinds = vec![Nodes::memory(1), runtime.block_on(Nodes::redis(count))];
    if Nodes::all_kinds() {
        kinds.push(runtime.block_on(Nodes::postgres(count, 0)));
        kinds.push(runtime.block_on(Nodes::zookeeper()));
    }
    kinds.retain(|nodes| !nodes.is_empty());
    kinds
}

/// A key near the maximum length. No key comes twice.
fn key(flood: usize, number: usize) -> String {
    format!("flood:{flood}:{number}:{}", "x".repeat(150))
}

#[test]
fn locking_distinct_keys_one_after_another_leaks_nothing() {
    let runtime = runtime();
    let nodes = Nodes::memory(1);
    let locks = runtime.block_on(nodes.manager());
    let mut floods = 0;
    leaves_nothing(&runtime, 5, async || {
        floods += 1;
        for number in 0..MANY {
            let request = locks.lock(key(floods, number)).expire(LONG);
            request.wait_time(LONG).acquire().await.unwrap().release().await.unwrap();
        }
        assert_eq!(nodes.locks().await, 0);
    });
}

#[test]
fn locking_distinct_keys_at_once_leaks_nothing() {
    let runtime = runtime();
    for nodes in kinds(&runtime, 1) {
        let locks = runtime.block_on(nodes.builder().node_timeout(SOON / 6).connect()).unwrap();
        let mut floods = 0;
        leaves_nothing(&runtime, 5, async || {
            floods += 1;
            let acquire = |number| locks.lock(key(floods, number)).renew(true).try_acquire();
            let guards = join_all((0..MANY).map(acquire)).await;
            assert!(guards.iter().all(Result::is_ok));
            assert_eq!(nodes.locks().await, MANY);
            drop(guards);
            nodes.become_empty().await;
        });
    }
}

/// The holder never releases these locks, and no caller asks for them again. The node removes them when it has twice as
/// many locks as after the last removal.
#[test]
fn kept_locks_leak_nothing_after_their_lease() {
    let runtime = runtime();
    let test = runtime.block_on(async { TestLocks::new(1) });
    let mut floods = 0;
    leaves_nothing(&runtime, 20, async || {
        floods += 1;
        for number in 0..MANY / 10 {
            let request = test.manager().lock(key(floods, number)).expire(Duration::from_secs(1));
            request.try_acquire().await.unwrap().keep_until_expiry();
        }
        test.clock().advance(Duration::from_secs(2)).await;
    });
}

#[test]
fn at_most_max_waiters_callers_wait_for_one_key() {
    const MAX_WAITERS: usize = 100;
    let runtime = runtime();
    for nodes in kinds(&runtime, 3) {
        let holder = runtime.block_on(nodes.manager());
        let locks = nodes.builder().max_waiters(MAX_WAITERS);
        let locks = runtime.block_on(locks.connect()).unwrap();
        leaves_nothing(&runtime, 5, async || {
            let guard = holder.lock("hot").expire(LONG).try_acquire().await.unwrap();
            let request = locks.lock("hot").expire(LONG).wait_time(LONG);
            let callers: Vec<_> = (0..MANY)
                .map(|_| {
                    let acquire = request.clone().acquire();
                    tokio::spawn(async { acquire.await.map(drop) })
                })
                .collect();
            let refused = || callers.iter().filter(|caller| caller.is_finished()).count();
            eventually("the other callers are refused", SOON, async || {
                (refused() == MANY - MAX_WAITERS).then_some(())
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
        });
    }
}

/// Each key needs a subscription of its own.
#[test]
fn waiters_for_many_keys_leak_nothing() {
    waiters_for_many_keys_leave_nothing(&runtime(), &Nodes::memory(1));
}

mod thorough {
    use super::*;

    #[test]
    fn waiters_for_many_keys_of_servers_leak_nothing() {
        let runtime = runtime();
        for nodes in kinds(&runtime, 1) {
            waiters_for_many_keys_leave_nothing(&runtime, &nodes);
        }
    }
}

fn waiters_for_many_keys_leave_nothing(runtime: &Runtime, nodes: &Nodes) {
    let keys = MANY / 10;
    let shows_subscribers = runtime.block_on(nodes[0].subscribers("any")).is_some();
    let connect = || nodes.builder().node_timeout(SOON / 6).connect();
    let holder = runtime.block_on(connect()).unwrap();
    let locks = runtime.block_on(connect()).unwrap();
    let mut floods = 0;
    leaves_nothing(runtime, 15, async || {
        floods += 1;
        let hold = |number| holder.lock(key(floods, number)).expire(LONG).try_acquire();
        let guards = join_all((0..keys).map(hold)).await;
        let wait = |number| {
            let acquire = locks.lock(key(floods, number)).expire(LONG).wait_time(LONG).acquire();
            tokio::spawn(async { acquire.await.map(drop) })
        };
        let waiting: Vec<_> = (0..keys).map(wait).collect();
        // Otherwise some callers get their locks before they subscribe.
        eventually("all waiters have subscribed", SOON, async || {
            (!shows_subscribers || nodes.leftovers().await.len() == keys).then_some(())
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
            nodes.leftovers().await.is_empty().then_some(())
        })
        .await;
    });
}

#[test]
fn a_flood_of_requests_is_served_or_refused_and_leaks_nothing() {
    let runtime = runtime();
    let nodes = Nodes::memory(1);
    let locks = runtime.block_on(nodes.builder().max_waiters(10).connect()).unwrap();
    let policy = LockPolicy::new("order:{id}").wait_time(LONG);
    let app = Router::new()
        .route("/orders/{id}", post(tokio::task::yield_now))
        .route_layer(LockLayer::new(&locks, policy).unwrap());
    let send = |path: String| {
        let request = Request::post(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request);
        async { response.await.unwrap() }
    };
    let mut floods = 0;
    leaves_nothing(&runtime, 5, async || {
        floods += 1;
        let distinct = (0..MANY).map(|id| send(format!("/orders/{}", key(floods, id))));
        let served = stream::iter(distinct).buffer_unordered(500);
        assert!(served.all(|response| async move { response.status() == 200 }).await);

        let guard = locks.lock("order:hot").expire(LONG).try_acquire().await.unwrap();
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
    });
}

/// A long value is shortened in its key, so a held lock does not keep the whole value.
#[test]
fn locks_keep_little_memory_of_megabyte_values() {
    let runtime = runtime();
    let locks = LockManager::in_memory();
    let template = KeyTemplate::new("named:{name}").unwrap();
    let mut guards = Vec::new();
    let allocated = allocation_counter::measure(|| {
        runtime.block_on(async {
            for number in 0..3 {
                let name = format!("{}%{number}", "x".repeat(1024 * 1024));
                let key = template.render([("name", name.as_str())]).unwrap();
                guards.push(locks.lock(key).expire(LONG).try_acquire().await.unwrap());
            }
        });
    });
    println!("{} bytes for three locks", allocated.bytes_current);
    assert!(allocated.bytes_current <= MOST, "{}", allocated.bytes_current);
}
