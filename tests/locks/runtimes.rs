//! Several runtimes use one manager, one after another or side by side. The runtime that runs the background
//! work of the manager may end, or no longer be driven, at any time.

use std::time::Duration;

use redlock_core::{LockGuard, LockManager, LockState};
use redlock_tests::{Nodes, Servers, connect, eventually};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

const SOON: Duration = Duration::from_secs(30);
/// Much longer than the background work needs to move to another runtime, even on a busy machine.
const LEASE: Duration = Duration::from_secs(3);
/// So long that a test fails before an unreleased lock expires.
const LONG: Duration = Duration::from_secs(600);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// How a runtime goes away.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Away {
    Ends,
    /// The runtime exists, but no thread drives it.
    StandsStill,
}

impl Away {
    const ALL: [Self; 2] = [Self::Ends, Self::StandsStill];

    /// Ends the runtime, or returns it undriven. The caller keeps the result until the end of the test.
    fn leave(self, runtime: Runtime) -> Option<Runtime> {
        (self == Self::StandsStill).then_some(runtime)
    }
}

async fn nodes(kind: &str) -> Nodes {
    match kind {
        "memory" => Nodes::memory(1),
        "one" => Nodes::redis(1).await,
        _ => Nodes::redis(3).await,
    }
}

async fn renewed(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).acquire().await.unwrap()
}

/// Runs a test for all kinds of nodes and both values of [`Away`], in parallel.
fn on_all_nodes(test: impl Fn(&str, &Runtime, Away) + Sync) {
    std::thread::scope(|scope| {
        for kind in ["memory", "one", "three"] {
            for away in Away::ALL {
                let test = &test;
                // The servers belong to a runtime of their own.
                scope.spawn(move || test(kind, &multi_thread(), away));
            }
        }
    });
}

/// The holders make no call while the leases would end: only the background work can renew them.
#[test]
fn locks_are_renewed_after_the_first_runtime_has_gone() {
    on_all_nodes(|kind, servers, away| {
        let nodes = servers.block_on(nodes(kind));
        let (first, second) = (runtime(), runtime());
        let (locks, former) = first.block_on(async {
            let locks = nodes.builder().connect().await.unwrap();
            let guard = renewed(&locks, "former").await;
            (locks, guard)
        });
        let guard = second.block_on(renewed(&locks, "next"));
        let first = away.leave(first);
        second.block_on(async {
            sleep(LEASE * 3).await;
            for guard in [guard, former] {
                assert_eq!(guard.state(), LockState::Held, "{kind}, {away:?}: {guard:?}");
                guard.release().await.unwrap();
            }
        });
        drop(first);
    });
}

/// This is how several `#[tokio::test]`s use a `static` manager.
#[test]
fn a_manager_locks_in_one_runtime_after_another() {
    on_all_nodes(|kind, servers, away| {
        let nodes = servers.block_on(nodes(kind));
        let mut locks = None;
        let mut left = Vec::new();
        for round in 0..5 {
            let runtime = runtime();
            runtime.block_on(async {
                if locks.is_none() {
                    locks = Some(nodes.builder().connect().await.unwrap());
                }
                let locks = locks.as_ref().unwrap();
                let guard = locks.lock("a").expire(LONG).try_acquire().await;
                let guard = guard.unwrap_or_else(|error| panic!("{kind}, {round}: {error}"));
                assert!(locks.lock("a").try_acquire().await.unwrap_err().is_contended());
                guard.extend(LONG).await.unwrap();
                guard.release().await.unwrap();
            });
            left.push(away.leave(runtime));
        }
        servers.block_on(nodes.become_empty());
    });
}

/// A connection drops a command whose reply can no longer be received, but the release must reach the server.
#[test]
fn a_guard_that_is_dropped_right_before_its_runtime_ends_is_released() {
    let home = multi_thread();
    for count in [1, 3] {
        let servers = home.block_on(Servers::start(count));
        let locks = home.block_on(connect(servers.urls()));
        for round in 0..30 {
            let key = format!("lock:{round}");
            let runtime = runtime();
            let guard = runtime.block_on(locks.lock(&key).expire(LONG).try_acquire()).unwrap();
            runtime.block_on(async { drop(guard) });
            drop(runtime);
            home.block_on(free(&servers, &key));
        }
    }
}

async fn free(servers: &Servers, key: &str) {
    eventually(&format!("{key} is released"), SOON, async || {
        // `Servers::keys` prefixes each key with the port of its server.
        let keys = servers.keys().await;
        (!keys.iter().any(|held| held.ends_with(&format!("/{key}")))).then_some(())
    })
    .await;
}

/// The connections end with the first runtime. Another runtime that uses the manager repeats the release.
#[test]
fn a_guard_that_is_dropped_right_before_the_first_runtime_goes_is_released() {
    let other = multi_thread();
    for away in Away::ALL {
        for round in 0..5 {
            let servers = other.block_on(Servers::start(1));
            let home = runtime();
            let (locks, guard) = home.block_on(async {
                let locks = connect(servers.urls()).await;
                let guard = locks.lock("a").expire(LONG).try_acquire().await.unwrap();
                (locks, guard)
            });
            let used = other.block_on(locks.lock("b").expire(LONG).try_acquire()).unwrap();
            other.block_on(used.release()).unwrap();
            home.block_on(async { drop(guard) });
            let home = away.leave(home);
            println!("{away:?}, round {round}");
            other.block_on(free(&servers, "a"));
            drop((home, locks));
        }
    }
}

/// A guard may outlive the runtime that it was acquired in.
#[test]
fn a_guard_is_released_and_extended_after_the_first_runtime_has_gone() {
    for away in Away::ALL {
        let other = multi_thread();
        let servers = other.block_on(Servers::start(3));
        let home = runtime();
        let (locks, guards) = home.block_on(async {
            let locks = connect(servers.urls()).await;
            let mut guards = Vec::new();
            for key in ["dropped", "extended", "kept", "released"] {
                guards.push(locks.lock(key).expire(LONG).try_acquire().await.unwrap());
            }
            (locks, guards)
        });
        let home = away.leave(home);
        let [dropped, extended, kept, released] = <[_; 4]>::try_from(guards).unwrap();
        other.block_on(async {
            released.release().await.unwrap();
            extended.extend(LONG).await.unwrap();
            drop(dropped);
            free(&servers, "released").await;
            free(&servers, "dropped").await;
            timeout(SOON, locks.shutdown()).await.unwrap();
            free(&servers, "extended").await;
            free(&servers, "kept").await;
            assert_eq!(kept.state(), LockState::Lost);
        });
        drop(home);
    }
}

/// The waiter is woken over the connections of its own runtime.
#[test]
fn a_waiter_gets_the_lock_after_the_first_runtime_has_gone() {
    for away in Away::ALL {
        let other = multi_thread();
        let servers = other.block_on(Servers::start(1));
        let holder = other.block_on(async {
            let locks = connect(servers.urls()).await;
            locks.lock("a").expire(LONG).try_acquire().await.unwrap()
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let home = runtime();
        let locks = home.block_on(connect(servers.urls()));
        let home = std::thread::spawn(move || {
            let _ = home.block_on(stopped);
            home
        });
        let waiting = other.spawn(locks.lock("a").expire(LONG).wait_time(SOON).acquire());
        other.block_on(eventually("the caller waits", SOON, async || {
            let calls = servers[0].probe().await.calls().await;
            calls.contains_key("subscribe").then_some(())
        }));
        drop(stop);
        let home = home.join().unwrap();
        let home = away.leave(home);
        other.block_on(async {
            holder.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
        });
        drop(home);
    }
}

/// The release must be repeated over the next connection, and only its own task still knows about it.
#[tokio::test]
async fn a_release_continues_after_its_manager_was_dropped() {
    let servers = Servers::start(1).await;
    for _ in 0..5 {
        let locks = connect(servers.urls()).await;
        let guard = locks.lock("a").expire(LONG).try_acquire().await.unwrap();
        drop(locks);
        servers[0].probe().await.disconnect_others().await;
        drop(guard);
        free(&servers, "a").await;
    }
}
