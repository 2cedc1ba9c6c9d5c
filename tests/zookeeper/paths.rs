//! Names of locks, and paths that something else has taken.

use redlock_core::{LockError, LockManager};
use redlock_tests::{ZookeeperKind, ZookeeperServer};

use crate::{KEY, LONG, connect, no_lock_is_left, start};

async fn scene() -> Option<(ZookeeperServer, LockManager)> {
    let server = start(ZookeeperServer::options()).await?;
    let locks = connect(&server.url()).await;
    Some((server, locks))
}

/// Each of them is one segment of a path, and different names are different locks.
#[tokio::test]
async fn any_key_is_a_lock_of_its_own() {
    let Some((server, locks)) = scene().await else { return };
    // A key of more than 200 bytes is shortened.
    let long = "ä".repeat(100);
    let longer = "ä".repeat(150);
    let keys = [
        ".",
        "..",
        "...",
        "zookeeper",
        "a/b",
        "a%2Fb",
        "/",
        "//",
        "%",
        "a b",
        "🔒",
        "\u{e000}",
        "\u{fff0}",
        &long,
    ];
    let mut guards = Vec::new();
    for key in keys {
        let guard = locks.lock(key).expire(LONG).try_acquire().await;
        guards.push(guard.unwrap_or_else(|error| panic!("{key}: {error}")));
        assert_eq!(server.queue(key).await.len(), 1, "{key}");
    }
    guards.push(locks.lock(&longer).expire(LONG).try_acquire().await.unwrap());
    assert_eq!(server.locks_count().await, (keys.len() + 1, 0));
    for guard in guards {
        guard.release().await.unwrap();
    }
    no_lock_is_left(&server).await;
}

/// The recipes of others, such as kazoo and Curator's `ReadWriteLock`, name their children otherwise.
#[tokio::test]
async fn a_child_of_another_recipe_is_reported_and_stays() {
    let Some((server, locks)) = scene().await else { return };
    let mut client = server.admin().await;
    let folder = server.path(KEY);
    client.create(&folder, b"", ZookeeperKind::Persistent).await.unwrap();
    for name in ["9d0e__lock__", "_c_f-__READ__"] {
        let path = format!("{folder}/{name}");
        let path = client.create(&path, b"", ZookeeperKind::EphemeralSequential).await.unwrap();
        for wait in [std::time::Duration::ZERO, LONG] {
            let error = locks.lock(KEY).wait_time(wait).acquire().await.unwrap_err();
            assert!(matches!(error, LockError::ForeignKey { .. }), "{name}: {error:?}");
        }
        assert_eq!(client.children(&folder).await.unwrap().0.len(), 1);
        client.delete(&path).await.unwrap();
    }
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// The data of a child belongs to its program.
#[tokio::test]
async fn the_data_of_a_neighbour_is_no_lease_that_breaks_a_waiter() {
    let Some((server, locks)) = scene().await else { return };
    let mut client = server.admin().await;
    let folder = server.path(KEY);
    client.create(&folder, b"", ZookeeperKind::Persistent).await.unwrap();
    for data in [&b""[..], b"10.0.0.1", b"-1", b"0", b"18446744073709551615", b"\xff"] {
        let path = format!("{folder}/_c_neighbour-lock-");
        let path = client.create(&path, data, ZookeeperKind::EphemeralSequential).await.unwrap();
        assert!(locks.lock(KEY).try_acquire().await.unwrap_err().is_contended(), "{data:?}");
        let waiter = tokio::spawn(locks.lock(KEY).wait_time(LONG).acquire());
        crate::are_queued(&server, KEY, 2).await;
        client.delete(&path).await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        no_lock_is_left(&server).await;
    }
}

/// An ephemeral path has no children.
#[tokio::test]
async fn a_path_that_cannot_have_children_is_reported_and_stays() {
    let Some((server, locks)) = scene().await else { return };
    let mut client = server.admin().await;
    let path = server.path(KEY);
    client.create(&path, b"taken", ZookeeperKind::Ephemeral).await.unwrap();
    let error = locks.lock(KEY).try_acquire().await.unwrap_err();
    println!("{}", error.diagnostics());
    assert!(!error.is_contended(), "{error:?}");
    assert_eq!(client.get(&path).await.unwrap().0, b"taken");
    client.delete(&path).await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// A service may keep its locks in a folder that an operator has made, and the server deletes containers at any time.
#[tokio::test]
async fn containers_may_be_deleted_at_any_time() {
    let options = ZookeeperServer::options().property("znode.container.checkIntervalMs", "20");
    let Some(server) = start(options).await else { return };
    let locks = connect(&server.url()).await;
    for round in 0..50 {
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await;
        guard.unwrap_or_else(|error| panic!("{round}: {error}")).release().await.unwrap();
        // The server deletes an empty container at its next check.
        tokio::time::sleep(std::time::Duration::from_millis(round % 30)).await;
    }
    let chroot = server.chroot().to_owned();
    redlock_tests::eventually("the empty folder is gone", crate::SOON, async || {
        server.admin().await.children(&chroot).await.unwrap().0.is_empty().then_some(())
    })
    .await;
}
