//! The runtime that runs the background work of a manager may end, or no longer be driven, while other runtimes use the
//! manager.

use std::time::Duration;

use redlock_core::{LockError, LockManager, LockState, NodeError, ReleaseError, Vote};
use redlock_tests::{Logs, Nodes, Servers, builder, connect, eventually};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::fair::tickets;

const SOON: Duration = Duration::from_secs(120);
/// How long an outage may last until a waiter fails.
const GRACE: Duration = Duration::from_millis(1200);
const LEASE: Duration = Duration::from_secs(2);
/// So long that a test fails before an unreleased lock expires.
const LONG: Duration = Duration::from_secs(600);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Runs a test for each kind of nodes, which belong to another runtime than the manager.
fn on_all_nodes(test: impl Fn(&Runtime, Nodes)) {
    let other = multi_thread();
    test(&other, Nodes::memory(1));
    for count in [1, 3] {
        let nodes = other.block_on(Nodes::redis(count));
        test(&other, nodes);
    }
}

/// Nothing hangs, and nothing is lost silently.
#[test]
fn requests_fail_and_locks_are_lost_when_the_runtime_has_ended() {
    on_all_nodes(|other, nodes| {
        let home = runtime();
        let locks = home.block_on(nodes.manager());
        let request = |key: &str| locks.lock(key).expire(LONG).renew(true);
        let acquire = |key| home.block_on(request(key).try_acquire()).unwrap();
        let [held, dropped, released] = ["held", "dropped", "released"].map(acquire);
        let waiters = [request("held"), request("held").shared(true), request("held").fair(true)];
        let waiters = waiters.map(|waiter| other.spawn(waiter.wait_forever().acquire()));
        let lost = other.spawn(held.lost());
        // A waiter that makes one more attempt beside them needs the home.
        home.block_on(async {
            let waits = locks.lock("held").wait_time(Duration::from_millis(100)).acquire();
            assert!(waits.await.unwrap_err().is_contended());
        });
        let logs = Logs::collect();
        drop(home);
        other.block_on(async { timeout(SOON, lost).await.unwrap().unwrap() });
        assert_eq!(held.state(), LockState::Lost);
        assert!(logs.count("WARN", "the Tokio runtime of its manager has ended") > 0);
        other.block_on(async {
            for waiter in waiters {
                let error = timeout(SOON, waiter).await.unwrap().unwrap().unwrap_err();
                assert!(matches!(error, LockError::RuntimeEnded), "{error:?}");
            }
            for request in
                [request("new"), request("new").wait_forever(), request("new").fair(true)]
            {
                let error = timeout(SOON, request.acquire()).await.unwrap().unwrap_err();
                assert!(matches!(error, LockError::RuntimeEnded), "{error:?}");
                assert!(error.to_string().contains("one manager for each runtime"), "{error}");
            }
            timeout(SOON, held.extend(LONG)).await.unwrap().unwrap_err();
            let release = timeout(SOON, released.release()).await.unwrap();
            assert!(matches!(release, Ok(()) | Err(ReleaseError::Unavailable { .. })));
            drop((held, dropped));
            timeout(SOON, locks.shutdown()).await.unwrap();
        });
    });
}

/// A guard that is dropped cannot be released, which the log says.
#[test]
fn a_guard_that_is_dropped_after_its_runtime_has_ended_is_logged() {
    let other = multi_thread();
    let servers = other.block_on(Servers::start(1));
    let home = runtime();
    let locks = home.block_on(connect(servers.urls()));
    let guard = home.block_on(locks.lock("a").expire(LONG).try_acquire()).unwrap();
    drop(home);
    let logs = Logs::collect();
    drop(guard);
    assert_eq!(logs.count("WARN", "it ends with its lease"), 1);
    assert_eq!(other.block_on(servers.keys()).len(), 1);
}

/// The connections stand still, but callers of other runtimes do not: each waiter ends, without waiting for the others.
#[test]
fn requests_and_guards_end_while_the_runtime_is_not_driven() {
    let other = multi_thread();
    for count in [1, 3] {
        let nodes = other.block_on(Nodes::redis(count));
        let home = runtime();
        let manager = nodes.builder().node_timeout(GRACE / 3).outage_grace(GRACE);
        let locks: LockManager = home.block_on(manager.connect()).unwrap();
        let request = |key: &str| locks.lock(key).expire(LEASE).renew(true);
        let logs = Logs::collect();
        let [held, kept] =
            ["held", "kept"].map(|key| home.block_on(request(key).try_acquire()).unwrap());
        other.block_on(async {
            let fair = request("fair").fair(true);
            let short = request("new").expire(GRACE / 6);
            let requests = [
                request("new"),
                request("held").wait_time(LONG),
                fair.clone().wait_time(LONG),
                fair,
                short,
            ];
            let waiters = (0..400).map(|_| request("held").wait_time(LONG));
            let waiters: Vec<_> = waiters.map(|waiter| other.spawn(waiter.acquire())).collect();
            for request in requests {
                let error = timeout(SOON, request.acquire()).await.unwrap().unwrap_err();
                let is_named = error.diagnostics().to_string().contains("runtime");
                assert!(matches!(error, LockError::Unavailable { .. }) && is_named, "{error:?}");
                let votes = error.votes().unwrap();
                let idle = Vote::Failed(NodeError::RuntimeIdle);
                assert!(votes.iter().any(|(_, vote)| vote == Some(&idle)), "{votes}");
            }
            for waiter in waiters {
                timeout(SOON, waiter).await.unwrap().unwrap().unwrap_err();
            }
            eventually("the guard ends", SOON, async || (!held.is_valid()).then_some(())).await;
            drop(held);
        });
        // The runtime is driven again.
        home.block_on(async {
            timeout(SOON, kept.lost()).await.unwrap();
            drop(kept);
            for key in ["held", "kept", "new", "fair"] {
                let request = request(key).wait_forever().acquire();
                timeout(SOON, request).await.unwrap().unwrap().release().await.unwrap();
            }
        });
        // The runtime was not driven, but the first node has kept the order.
        assert_eq!(logs.count("WARN", "another node keeps the order"), 0);
        other.block_on(nodes.become_empty());
    }
}

/// The waiter has entered its ticket, and does not take it for a sign of life later.
#[test]
fn a_fair_waiter_behind_another_process_fails_while_the_runtime_is_not_driven() {
    let other = multi_thread();
    for count in [1, 3] {
        let servers = other.block_on(Servers::start(count));
        let home = runtime();
        let manager = builder(servers.urls()).node_timeout(GRACE / 3).outage_grace(GRACE);
        let locks = home.block_on(manager.connect()).unwrap();
        let another = other.block_on(connect(servers.urls()));
        let holder = other.block_on(another.lock("fair").expire(LONG).try_acquire()).unwrap();
        let wait = |locks: &LockManager| {
            let request = locks.lock("fair").expire(LONG).fair(true).wait_time(LONG);
            other.spawn(request.acquire())
        };
        let first = wait(&another);
        other.block_on(tickets(&servers[0], 1));
        let waiter = wait(&locks);
        home.block_on(async {
            tickets(&servers[0], 2).await;
            // The home has read the reply to the ticket when it has read a later one.
            locks.lock("later").try_acquire().await.unwrap().release().await.unwrap();
        });
        other.block_on(async {
            let error = timeout(SOON, waiter).await.unwrap().unwrap().unwrap_err();
            assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
            holder.release().await.unwrap();
            timeout(SOON, first).await.unwrap().unwrap().unwrap().release().await.unwrap();
        });
    }
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
