//! Folders that run out of numbers: from ZooKeeper 3.6 on, all children have the last number then, and in 3.5 numbers below
//! zero.

use std::process::Command;
use std::time::Duration;

use redlock_core::{FencingToken, LockManager};
use redlock_tests::{Peer, ZookeeperClient, ZookeeperError, ZookeeperKind, eventually, java, skip};

use crate::{KEY, LONG, SOON, connect};

const FOLDER: &str = "/locks/order:42";
/// The last number of a child that can hold the lock.
const LAST: u32 = 2_147_483_646;

/// A server that counts on from any number.
struct CountingServer {
    server: Peer,
    port: u16,
    _data: tempfile::TempDir,
}

impl CountingServer {
    /// Starts the class `ServerPeer`, with the folder `/locks`. Skips the test if there is no ZooKeeper.
    async fn start(java: Result<Command, String>) -> Option<Self> {
        let mut java = java.inspect_err(|why| skip(why)).ok()?;
        java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off").arg("-Dzookeeper.forceSync=no");
        let data = tempfile::tempdir().unwrap();
        let mut server = Peer::start(java.arg("ServerPeer").arg(data.path()));
        let port = server.answer().parse().unwrap();
        let server = Self { server, port, _data: data };
        let mut client = server.client().await;
        client.create("/locks", b"", ZookeeperKind::Persistent).await.unwrap();
        Some(server)
    }

    async fn client(&self) -> ZookeeperClient {
        ZookeeperClient::connect(self.port, LONG).await.unwrap()
    }

    async fn manager(&self) -> LockManager {
        connect(&format!("zookeeper://127.0.0.1:{}/locks?acl=open&session_timeout=10m", self.port))
            .await
    }

    /// The next child of the folder gets this number.
    fn count_from(&mut self, number: u32) {
        assert_eq!(self.server.ask(&format!("number {FOLDER} {number}")), "numbers");
    }

    async fn children(&self) -> usize {
        self.client().await.children(FOLDER).await.unwrap().0.len()
    }
}

async fn number(locks: &LockManager) -> i64 {
    let guard = locks.lock(KEY).fenced(true).expire(LONG).try_acquire().await.unwrap();
    let number = guard.fencing_token().map(FencingToken::number).unwrap();
    guard.release().await.unwrap();
    number
}

async fn reason(locks: &LockManager) -> String {
    let refused = locks.lock(KEY).expire(LONG).try_acquire().await;
    refused.unwrap_err().diagnostics().to_string()
}

/// Checks that locks exclude and wake each other, and that nobody gets a lock whose folder has no numbers left.
async fn locks_end_with_the_numbers(mut server: CountingServer) {
    let (one, other) = (server.manager().await, server.manager().await);
    let before = number(&one).await;

    server.count_from(LAST - 1);
    let held = one.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    eventually("the waiter has the last number", SOON, async || {
        (server.children().await == 2).then_some(())
    })
    .await;
    // The next child has no place in the order any more. The holder and the waiter keep theirs.
    let refused = one.lock("other").expire(LONG).try_acquire().await;
    refused.unwrap().release().await.unwrap();
    held.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    assert!(one.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    held.extend(LONG).await.unwrap();
    held.release().await.unwrap();

    for _ in 0..3 {
        for locks in [&one, &other] {
            let reason = reason(locks).await;
            assert!(reason.contains("/locks/order:42 has numbered 2147483647"), "{reason}");
        }
    }
    let mut client = server.client().await;
    eventually("the folder is empty, and was deleted", SOON, async || {
        match client.delete(FOLDER).await {
            Ok(()) => Some(()),
            Err(ZookeeperError::Code(-111)) => None,
            Err(error) => panic!("{error:?}"),
        }
    })
    .await;
    assert!(number(&one).await > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_a_lock_whose_folder_has_no_numbers_left() {
    let Some(server) = CountingServer::start(java("curator")).await else { return };
    locks_end_with_the_numbers(server).await;
}

/// The holder with the last number in order keeps the folder, and so its own lock: the remedy makes no second holder.
#[tokio::test]
async fn a_folder_with_a_holder_is_not_deleted() {
    let Some(mut server) = CountingServer::start(java("curator")).await else { return };
    let locks = server.manager().await;
    number(&locks).await;
    server.count_from(LAST);
    let held = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let error = server.client().await.delete(FOLDER).await.unwrap_err();
    assert!(error.is(-111), "not empty: {error:?}");
    assert!(held.is_valid());
    held.release().await.unwrap();
    assert!(reason(&locks).await.contains("has numbered"));
}

mod thorough {
    use redlock_tests::java_with;

    use super::*;

    /// The other versions of the page about ZooKeeper. The tests run on 3.9.3.
    const VERSIONS: [&str; 5] = ["3.5.10", "3.6.4", "3.7.2", "3.8.4", "3.9.4"];

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn locks_of_every_version_end_with_the_numbers() {
        for version in VERSIONS {
            println!("ZooKeeper {version}");
            let Some(server) = CountingServer::start(java_with("curator", version)).await else {
                return;
            };
            let locks = server.manager().await;
            let (first, second) = (number(&locks).await, number(&locks).await);
            assert!(first < second);
            let guard = locks.lock(KEY).expire(Duration::from_secs(1)).try_acquire().await.unwrap();
            let next = server.manager().await.lock(KEY).expire(LONG).wait_time(LONG).acquire();
            next.await.unwrap().release().await.unwrap();
            assert!(!guard.is_valid());
            locks_end_with_the_numbers(server).await;
        }
    }
}
