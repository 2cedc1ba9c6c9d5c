//! A node that has lost the keys of a held lock.

use std::time::Duration;

use redlock_tests::{Nodes, Servers, eventually};

use super::kind::{ALL, KEY, Kind};
use super::{LONG, SOON, start};

/// Waits until all servers have the same values at the keys, and one at each key.
async fn have_the_same_values(servers: &Servers, kind: Kind) {
    eventually("each node has each key", SOON, async || {
        let mut all = Vec::new();
        for server in servers.iter() {
            let mut probe = server.probe().await;
            let mut dumps = Vec::new();
            for key in kind.keys() {
                dumps.push(probe.command::<Option<Vec<u8>>>(["DUMP", key]).await?);
            }
            all.push(dumps);
        }
        all.iter().all(|dumps| *dumps == all[0]).then_some(())
    })
    .await;
}

/// One of five servers has lost the lock, or one of the keys of a set. The extension finds that out, and the node gets all
/// of them again.
#[tokio::test]
async fn a_node_that_lost_keys_of_a_lock_gets_them_again() {
    let (servers, locks) = start(5).await;
    for kind in ALL {
        for lost in [&[kind.middle_key()], kind.keys()] {
            let guard = kind.acquire(&locks).await.unwrap();
            have_the_same_values(&servers, kind).await;
            servers[4].probe().await.command::<()>([&["DEL"], lost].concat()).await;
            guard.extend(LONG).await.unwrap();
            have_the_same_values(&servers, kind).await;
            guard.release().await.unwrap();
            eventually("no key is left", SOON, async || {
                let keys = servers.keys().await;
                keys.iter().all(|key| key.contains("redlock:fencing")).then_some(())
            })
            .await;
        }
    }
}

/// FLUSHALL removes the lock while it is renewed (loss is never silent).
#[tokio::test]
async fn a_renewed_lock_whose_key_was_deleted_is_lost() {
    let nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let lease = Duration::from_secs(3);
    let guard = locks.lock(KEY).expire(lease).renew(true).try_acquire().await.unwrap();
    nodes.all_hold(KEY).await;
    for server in nodes.servers() {
        server.probe().await.command::<()>(["FLUSHALL"]).await;
    }
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    nodes.become_empty().await;
}
