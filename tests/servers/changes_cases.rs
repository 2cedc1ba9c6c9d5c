//! Deployments that change the list of servers by the steps of the guide, and lists that only look different.

use std::time::Duration;

use redlock_core::{ConnectError, LockError, LockGuard, LockManager};
use redlock_tests::{Logs, RedisServer, Servers, connect, eventually};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::SOON;

const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(3);

type Waiter = JoinHandle<Result<LockGuard, LockError>>;

async fn deploy(servers: &Servers, list: &[usize]) -> LockManager {
    connect(list.iter().map(|server| servers[*server].url())).await
}

async fn hold(locks: &LockManager) -> LockGuard {
    locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap()
}

/// Starts a caller that waits without a limit, and has subscribed on all servers of its list.
async fn wait(servers: &Servers, list: &[usize], locks: &LockManager) -> Waiter {
    let subscribed = async || {
        let mut subscribers = Vec::new();
        for server in list {
            let mut probe = servers[*server].probe().await;
            let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
            subscribers.push(channels.len());
        }
        subscribers
    };
    let waiter = tokio::spawn(locks.lock(KEY).expire(LEASE).renew(true).wait_forever().acquire());
    eventually("the waiter has subscribed", SOON, async || {
        subscribed().await.iter().all(|channels| *channels > 0).then_some(())
    })
    .await;
    waiter
}

async fn refused(locks: &LockManager, holder: &LockGuard) {
    for _ in 0..20 {
        let refused = locks.lock(KEY).expire(LEASE).try_acquire().await;
        assert!(holder.is_valid());
        let error = refused.unwrap_err();
        // The waiter asks at the same moment, and may have the vote of a server that the holder's list lacks.
        assert!(error.is_contended() || matches!(error, LockError::Split { .. }), "{error:?}");
    }
}

/// Waits for the next renewal, which asks all servers of the holder's list.
async fn renewed(holder: &LockGuard) {
    let mut before = holder.remaining();
    eventually("the renewal", SOON, async || {
        let now = holder.remaining();
        (now > std::mem::replace(&mut before, now)).then_some(())
    })
    .await;
}

/// Runs one generation after another. The holder of each renews its lock beside the callers of the next one, which gets
/// the lock when the former one stops.
async fn deployments(servers: &Servers, lists: &[&[usize]]) {
    let mut locks = deploy(servers, lists[0]).await;
    let mut holder = hold(&locks).await;
    for list in &lists[1..] {
        let next = deploy(servers, list).await;
        let waiter = wait(servers, list, &next).await;
        renewed(&holder).await;
        refused(&next, &holder).await;
        holder.extend(LEASE).await.unwrap();
        refused(&next, &holder).await;
        assert!(!waiter.is_finished());
        holder.release().await.unwrap();
        holder = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
        // The last callers of the former list come while the next one already works.
        refused(&locks, &holder).await;
        locks.shutdown().await;
        locks = next;
    }
    assert!(holder.is_valid());
    holder.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_renewed_throughout_has_one_holder_from_three_servers_to_five_and_back() {
    let servers = Servers::start(5).await;
    let lists: [&[usize]; 5] =
        [&[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 2, 3, 4], &[1, 2, 3, 4], &[2, 3, 4]];
    deployments(&servers, &lists).await;
}

/// The replaced server ends while a generation without it waits for a holder that still has it in its list.
#[tokio::test]
async fn a_waiter_outlasts_the_replacement_of_one_of_three_servers() {
    let mut servers = Servers::start(4).await;
    deployments(&servers, &[&[0, 1, 2], &[0, 1, 2, 3]]).await;
    let former = deploy(&servers, &[0, 1, 2, 3]).await;
    let holder = hold(&former).await;
    let next = deploy(&servers, &[0, 1, 3]).await;
    let waiter = wait(&servers, &[0, 1, 3], &next).await;
    servers[2].kill();
    holder.extend(LEASE).await.unwrap();
    refused(&next, &holder).await;
    assert!(!waiter.is_finished());
    holder.release().await.unwrap();
    let guard = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    refused(&former, &guard).await;
    guard.release().await.unwrap();
}

/// A process may list the servers in another order and by other names. Its locks exclude those of the others, and the log
/// has no warning. One server by two names in one list is a mistake.
#[tokio::test]
async fn another_order_and_other_names_exclude_and_a_duplicate_by_another_name_is_refused() {
    let logs = Logs::collect();
    let servers = Servers::start(3).await;
    let by = |host: &str, list: [usize; 3]| list.map(|server| servers[server].url_at(host));
    let one = connect(by("127.0.0.1", [0, 1, 2])).await;
    let two = connect(by("localhost", [2, 0, 1])).await;
    for _ in 0..5 {
        for (holding, asking) in [(&one, &two), (&two, &one)] {
            let holder = hold(holding).await;
            refused(asking, &holder).await;
            holder.release().await.unwrap();
        }
    }
    assert_eq!(logs.count("WARN", ""), 0, "{:?}", logs.lines());
    let again: [&RedisServer; 3] = [&servers[0], &servers[1], &servers[0]];
    let urls = ["127.0.0.1", "127.0.0.1", "localhost"];
    let urls = again.iter().zip(urls).map(|(server, host)| server.url_at(host));
    let refused: Result<LockManager, ConnectError> = redlock_tests::builder(urls).connect().await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("localhost"), "{error}");
}
