//! Changes of the servers while two generations of a service run, as the page about production describes them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redlock_core::LockManager;
use redlock_tests::{Logs, Proxy, RedisServer, Servers, connect, eventually};

const SOON: Duration = Duration::from_secs(120);

/// Returns a manager on the servers whose numbers are in the list.
async fn manager(servers: &Servers, list: &[usize]) -> LockManager {
    connect(list.iter().map(|&index| servers[index].url())).await
}

/// Lets each manager lock one resource several times, and returns how often two of them had it.
async fn contend(managers: &[LockManager]) -> usize {
    let (inside, overlaps) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = async |locks: &LockManager| {
        for _ in 0..8 {
            let guard = locks.lock("order:42").wait_time(SOON).acquire().await.unwrap();
            overlaps.fetch_add(inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        }
    };
    join_all(managers.iter().map(work)).await;
    overlaps.into_inner()
}

#[tokio::test]
async fn each_recipe_has_one_holder_while_two_generations_run() {
    let servers = Servers::start(5).await;
    let recipes: [&[&[usize]]; 5] = [
        &[&[0], &[0, 1], &[0, 1, 2]],
        &[&[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 2, 3, 4]],
        &[&[0, 1, 2, 3, 4], &[0, 1, 2, 3], &[0, 1, 2]],
        &[&[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 3]],
        &[&[0], &[0, 1], &[1]],
    ];
    for recipe in recipes {
        let mut running =
            vec![manager(&servers, recipe[0]).await, manager(&servers, recipe[0]).await];
        for list in &recipe[1..] {
            let next = [manager(&servers, list).await, manager(&servers, list).await];
            running.extend(next);
            assert_eq!(contend(&running).await, 0, "{recipe:?}");
            // No process of the former generation runs, and no lock of it is left.
            for former in running.drain(..2) {
                former.shutdown().await;
            }
        }
        assert_eq!(servers.keys().await, Vec::<String>::new(), "{recipe:?}");
    }
}

/// The unit tests of the core have every arrangement of servers that are down.
#[tokio::test]
async fn without_the_recipe_two_generations_hold_one_lock() {
    let mut servers = Servers::start(5).await;
    for (old, new, is_down) in [
        (&[0][..], &[0, 1, 2][..], false),
        (&[0, 1, 2], &[0, 3, 4], false),
        // A server is down while the holder gets its lock.
        (&[0, 1, 2], &[0, 1, 2, 3, 4], true),
    ] {
        let old = manager(&servers, old).await;
        if is_down {
            servers[0].kill();
        }
        let lock = || old.lock("order:42").wait_time(SOON).acquire();
        let holder = lock().await.unwrap();
        if is_down {
            servers[0].restart().await;
        }
        let new = manager(&servers, new).await;
        let second = new.lock("order:42").try_acquire().await.unwrap();
        assert!(holder.is_valid() && second.is_valid(), "{old:?} {new:?}");
        drop((holder, second));
        old.shutdown().await;
        new.shutdown().await;
    }
}

/// A name that moves, played by a proxy.
#[tokio::test]
async fn a_name_moves_safely_after_its_server_was_stopped_for_a_lease() {
    const LEASE: Duration = Duration::from_millis(500);
    let (mut former, present) = (RedisServer::start().await, RedisServer::start().await);
    let name = Proxy::to(&former).await;
    let old = connect([name.url()]).await;
    let lock = async |locks: &LockManager| {
        locks.lock("order:42").expire(LEASE).wait_time(SOON).acquire().await.unwrap()
    };
    // Without the recipe.
    let held = old.lock("order:41").try_acquire().await.unwrap();
    name.lead_to(&present);
    let new = connect([name.url()]).await;
    let second = new.lock("order:41").try_acquire().await.unwrap();
    assert!(held.is_valid() && second.is_valid());
    drop((held, second));
    name.lead_to(&former);
    // With it.
    let holder = lock(&old).await;
    former.kill();
    tokio::time::sleep(LEASE).await;
    name.lead_to(&present);
    let next = connect([name.url()]).await;
    let second = lock(&next).await;
    assert!(!holder.is_valid());
    drop(second);
    for locks in [old, new, next] {
        locks.shutdown().await;
    }
}

/// A proxy leads the connections of one name to two servers in turn.
#[tokio::test]
async fn two_servers_behind_one_name_are_a_warning() {
    let logs = Logs::collect();
    let (one, other) = (RedisServer::start().await, RedisServer::start().await);
    let name = Proxy::to(&one).await;
    let locks = connect([format!("redis://localhost:{}", name.port())]).await;
    name.lead_to(&other);
    eventually("the warning", SOON, async || {
        (logs.count("WARN", "leads to several servers") == 1).then_some(())
    })
    .await;
    locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
    locks.shutdown().await;
}

/// `localhost` may have two addresses of the server, and a proxy is in front of it.
#[tokio::test]
async fn one_server_behind_a_name_is_no_warning() {
    let logs = Logs::collect();
    let server = RedisServer::start().await;
    let name = Proxy::to(&server).await;
    let locks = connect([format!("redis://localhost:{}", name.port())]).await;
    // The first connection is that of the node. The second one compares the servers.
    eventually("the comparison", SOON, async || (name.accepted() > 1).then_some(())).await;
    eventually("its end", SOON, async || (name.connections().len() == 1).then_some(())).await;
    assert_eq!(logs.count("WARN", "leads to"), 0, "{:?}", logs.lines());
    locks.shutdown().await;
}
