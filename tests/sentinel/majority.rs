//! Sentinels that disagree about the master.
//!
//! The sentinels are real, but do not know each other, and never fail over. The test sends them the messages from which
//! they learn of a failover.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockError, LockManager, NodeError, Vote};
use redlock_tests::{Logs, RedisServer, Sentinel, eventually};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::{KEY, SOON, builder, refused};

const PASSWORD: &str = "Hw94serverpass";
/// The longest lease with the restart guard.
const LEASE: Duration = Duration::from_secs(2);

/// Two servers that are both able to be the master, and three sentinels.
struct Disagreeing {
    servers: [RedisServer; 2],
    sentinels: Vec<Sentinel>,
}

impl Disagreeing {
    /// Starts sentinels that all name the first server.
    async fn start() -> Self {
        let options = RedisServer::options().password(PASSWORD);
        let servers = [options.clone().start().await, options.start().await];
        for server in &servers {
            let user = ["ACL", "SETUSER", "watcher", "on", ">Hw94watcherpass", "~*", "&*", "+@all"];
            // Sentinels find each other by messages that they publish on the master, and make a former master a replica.
            let rule = [&user[..], &["-publish", "-replicaof", "-slaveof"]].concat();
            server.probe().await.command::<()>(rule).await;
        }
        let sentinels = (0..3).map(|_| sentinel(servers[0].port(), 1));
        let sentinels = join_all(sentinels).await;
        Self { servers, sentinels }
    }

    /// Makes a sentinel learn that a failover has promoted the server at this port.
    async fn learns(&self, sentinel: usize, port: u16, epoch: u64) {
        let sentinel = &self.sentinels[sentinel];
        let id = "f".repeat(40);
        let hello = format!("127.0.0.1,1,{id},{epoch},shop,127.0.0.1,{port},{epoch}");
        sentinel.probe().await.command::<()>(["PUBLISH", "__sentinel__:hello", &hello]).await;
        eventually("the sentinel names the other master", SOON, async || {
            let mut probe = sentinel.probe().await;
            let named: (String, u16) =
                probe.command(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop"]).await;
            (named.1 == port).then_some(())
        })
        .await;
    }

    fn url(&self) -> String {
        let hosts = self.sentinels.iter();
        let hosts: Vec<_> = hosts.map(|host| format!("127.0.0.1:{}", host.port())).collect();
        format!("redis+sentinel://:{PASSWORD}@{}/shop", hosts.join(","))
    }
}

/// Starts a sentinel that names this server by this failover.
async fn sentinel(port: u16, epoch: u64) -> Sentinel {
    let configuration = format!(
        "sentinel monitor shop 127.0.0.1 {port} 9\nsentinel config-epoch shop {epoch}\n\
         sentinel auth-user shop watcher\nsentinel auth-pass shop Hw94watcherpass\n"
    );
    Sentinel::start(&configuration, None).await
}

/// Acquires and releases a lock. Returns whether this server has granted it.
async fn is_granted_by(server: &RedisServer, locks: &LockManager) -> Result<bool, LockError> {
    let guard = locks.lock("free").expire(LEASE).try_acquire().await?;
    let has = server.probe().await.get("free").await.is_some();
    guard.release().await.unwrap();
    Ok(has)
}

fn is_disputed(error: &LockError) -> bool {
    let is_disputed = |(_, vote)| matches!(vote, Some(&Vote::Failed(NodeError::Disputed(_))));
    error.votes().is_some_and(|votes| votes.iter().any(is_disputed))
}

/// The locks outlive their sentinels. But a manager that connects cannot know the master.
#[tokio::test]
async fn two_of_three_sentinels_that_are_down_stop_only_a_start() {
    let logs = Logs::collect();
    let mut group = Disagreeing::start().await;
    let locks = builder(&group.url()).connect().await.unwrap();
    group.sentinels[0].kill();
    group.sentinels[1].kill();
    let kept = || logs.count("WARN", "no majority of the sentinels names the master");
    eventually("the log says why the master is kept", SOON, async || (kept() > 0).then_some(()))
        .await;
    assert!(is_granted_by(&group.servers[0], &locks).await.unwrap());
    // The third sentinel alone promotes no server.
    let other = group.servers[1].port();
    group.learns(2, other, 2).await;
    let disputed = || logs.count("WARN", "it grants no locks until the majority decides");
    eventually("the third sentinel is heard", SOON, async || (disputed() > 0).then_some(())).await;
    assert!(is_granted_by(&group.servers[0], &locks).await.unwrap());
    let error = refused(&group.url()).await.to_string();
    assert!(error.contains("no majority of the sentinels names a master"), "{error}");
    assert!(error.contains(&format!("names 127.0.0.1:{other}")), "{error}");
    let down = format!("sentinel 127.0.0.1:{}: not connected", group.sentinels[0].port());
    assert!(error.contains(&down), "{error}");
    assert_eq!((kept(), disputed()), (1, 1));
}

/// The former master may be promoted already, and would not know locks that the present one grants.
#[tokio::test]
async fn with_the_guard_a_master_grants_nothing_while_two_sentinels_learn_late() {
    let group = Disagreeing::start().await;
    let [present, next] = &group.servers;
    let guarded = builder(&group.url()).expire(LEASE).restart_guard(LEASE);
    let locks = guarded.failover_margin(Duration::ZERO).connect().await.unwrap();
    eventually("the quarantine at the start ends", SOON, async || {
        is_granted_by(present, &locks).await.ok()
    })
    .await;
    let held = locks.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
    group.learns(0, next.port(), 2).await;
    eventually("the present master grants no locks", SOON, async || {
        match is_granted_by(present, &locks).await {
            Ok(by_the_present) => (!by_the_present).then_some(()),
            Err(error) => is_disputed(&error).then_some(()),
        }
    })
    .await;
    // Extensions and releases go on.
    held.extend(LEASE).await.unwrap();
    assert!(present.probe().await.get(KEY).await.is_some());
    held.release().await.unwrap();
    assert!(present.probe().await.get(KEY).await.is_none());
    let error = is_granted_by(present, &locks).await.unwrap_err();
    assert!(is_disputed(&error), "{error}: {}", error.diagnostics());
    group.learns(1, next.port(), 2).await;
    eventually("the node moves", SOON, async || {
        is_granted_by(next, &locks).await.ok().filter(|by_the_next| *by_the_next)
    })
    .await;
}

/// Nobody tells that the master was a replica in between. Its former master may still grant locks.
#[tokio::test]
async fn without_a_majority_a_master_that_was_a_replica_counts_as_promoted() {
    const MARGIN: Duration = Duration::from_secs(2);
    let mut group = Disagreeing::start().await;
    let guarded = builder(&group.url()).expire(LEASE).restart_guard(LEASE);
    let locks = guarded.failover_margin(MARGIN).connect().await.unwrap();
    let granted = async || is_granted_by(&group.servers[0], &locks).await.ok();
    eventually("the quarantine at the start ends", 2 * SOON, granted).await;
    let logs = Logs::collect();
    group.sentinels[0].kill();
    group.sentinels[1].kill();
    eventually("the master is kept", SOON, async || {
        (logs.count("WARN", "no majority of the sentinels names the master") > 0).then_some(())
    })
    .await;
    let mut probe = group.servers[0].probe().await;
    probe.command::<()>(["REPLICAOF", "127.0.0.1", "1"]).await;
    probe.command::<()>(["REPLICAOF", "NO", "ONE"]).await;
    let promoted = Instant::now();
    probe.disconnect_others().await;
    let granted = async || is_granted_by(&group.servers[0], &locks).await.ok();
    eventually("the master grants locks again", 2 * SOON, granted).await;
    assert!(promoted.elapsed() >= LEASE + MARGIN, "{:?}", promoted.elapsed());
}

/// Returns the port of a listener, and the bytes that it has received.
async fn stranger() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let received = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let heard = Arc::clone(&heard);
            tokio::spawn(async move {
                let mut bytes = [0; 1024];
                while let Ok(count @ 1..) = client.read(&mut bytes).await {
                    heard.lock().unwrap().extend(&bytes[..count]);
                }
            });
        }
    });
    (port, received)
}

/// Finding: one sentinel with a higher epoch and the same service name led the manager to another server, and the
/// password of the servers was sent there.
#[tokio::test]
async fn a_stray_sentinel_gets_neither_the_locks_nor_the_password() {
    let logs = Logs::collect();
    let mut group = Disagreeing::start().await;
    let (port, received) = stranger().await;
    group.sentinels[0] = sentinel(port, 99).await;
    let early = builder(&group.url()).connect().await.unwrap();
    let disputes = || logs.count("WARN", "the node keeps the master");
    eventually("the stray sentinel is heard", SOON, async || (disputes() > 0).then_some(())).await;
    let late = builder(&group.url()).connect().await.unwrap();
    for locks in [early, late] {
        assert!(is_granted_by(&group.servers[0], &locks).await.unwrap());
    }
    let received = received.lock().unwrap();
    let received = String::from_utf8_lossy(&received);
    // The stray sentinel itself connects.
    assert!(!received.contains(PASSWORD), "{received}");
}

/// Finding: the error asked whether Redis runs at the sentinels, and did not name the server that was not reached.
#[tokio::test]
async fn the_error_names_the_server_that_was_tried_and_the_sentinels_that_announced_it() {
    let group = Disagreeing::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap().port();
    drop(listener);
    for sentinel in 0..2 {
        group.learns(sentinel, closed, 2).await;
    }
    let error = refused(&group.url()).await.to_string();
    assert!(!error.contains("is Redis running"), "{error}");
    let [first, second] = [0, 1].map(|index| group.sentinels[index].port());
    let place = format!(
        "not connected: 127.0.0.1:{closed} (announced by sentinels 127.0.0.1:{first}, 127.0.0.1:{second}): "
    );
    assert!(error.starts_with(&place), "{error}");
}
