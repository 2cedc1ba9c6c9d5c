//! Waiters on real servers that are unreachable for a while: dropped connections, restarts, outages. The exact times are
//! those of the unit tests in `redlock-core/src/queue`.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockError, LockGuard, LockManager};
use redlock_tests::{RedisServer, Servers, builder, eventually};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const LEASE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(20);
/// How long servers are unreachable. Longer than the node timeout and the polling interval of a sleeping waiter.
const OUTAGE: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Disconnect,
    Kill,
    Freeze,
}

/// A lock that another manager holds, and a manager whose callers wait for it.
struct Held {
    servers: Servers,
    here: LockManager,
    _there: LockManager,
    holder: LockGuard,
}

impl Held {
    /// Starts servers that keep their locks over a restart.
    async fn start(count: usize, outage_grace: Duration) -> Self {
        let options = RedisServer::options().directive("appendonly", "yes");
        let servers = Servers::start_with(&options.directive("appendfsync", "always"), count).await;
        let connect = async || {
            let builder = builder(servers.urls()).outage_grace(outage_grace);
            builder.node_timeout(Duration::from_secs(1)).connect().await.unwrap()
        };
        let (here, there) = (connect().await, connect().await);
        let holder = there.lock("a").expire(LEASE).try_acquire().await.unwrap();
        Self { servers, here, _there: there, holder }
    }

    /// Starts a caller that waits. It was refused and has subscribed on every server.
    async fn waiter(&self) -> JoinHandle<Result<LockGuard, LockError>> {
        let waiter = tokio::spawn(self.here.lock("a").expire(LEASE).wait_time(WAIT).acquire());
        self.are_subscribed().await;
        waiter
    }

    async fn are_subscribed(&self) {
        for server in self.servers.iter() {
            eventually("the waiter has subscribed", SOON, async || {
                let mut probe = server.probe().await;
                let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
                (!channels.is_empty()).then_some(())
            })
            .await;
        }
    }

    fn begin(&mut self, fault: Fault, count: usize) {
        for server in &mut self.servers[..count] {
            match fault {
                Fault::Disconnect => {}
                Fault::Kill => server.kill(),
                Fault::Freeze => server.freeze(),
            }
        }
    }
}

/// A lock whose holder releases it after the outage goes to the waiter.
async fn outlasts(fault: Fault, struck: usize, servers: usize) {
    let mut held = Held::start(servers, SOON).await;
    let waiter = held.waiter().await;
    held.begin(fault, struck);
    let begun = Instant::now();
    while begun.elapsed() < OUTAGE {
        if fault == Fault::Disconnect {
            for server in held.servers.iter() {
                server.probe().await.disconnect_others().await;
            }
        }
        sleep(Duration::from_millis(2)).await;
    }
    for server in &mut held.servers[..struck] {
        match fault {
            Fault::Disconnect => {}
            Fault::Kill => server.restart().await,
            Fault::Freeze => server.thaw(),
        }
    }
    held.are_subscribed().await;
    assert!(!waiter.is_finished(), "the lock is still held");
    // The release continues in the background if a connection is not back yet.
    drop(held.holder);
    let acquired = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    acquired.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_outlasts_a_short_outage() {
    tokio::join!(
        outlasts(Fault::Disconnect, 1, 1),
        outlasts(Fault::Disconnect, 3, 3),
        outlasts(Fault::Kill, 1, 1),
        outlasts(Fault::Kill, 2, 3),
        outlasts(Fault::Freeze, 1, 1),
    );
}

/// If each waiter had a grace of its own, one after another, they would take ten minutes.
#[tokio::test]
async fn an_outage_longer_than_the_grace_ends_the_wait_of_all() {
    const GRACE: Duration = Duration::from_secs(2);
    let ends = async |fault| {
        let mut held = Held::start(1, GRACE).await;
        let request = || held.here.lock("a").expire(LEASE).wait_time(WAIT);
        let waiters: Vec<_> = (0..300).map(|_| tokio::spawn(request().acquire())).collect();
        held.are_subscribed().await;
        let begun = Instant::now();
        held.begin(fault, 1);
        for result in timeout(SOON, join_all(waiters)).await.unwrap() {
            let result = result.unwrap();
            assert!(matches!(result, Err(LockError::Unavailable { .. })), "{fault:?}: {result:?}");
        }
        assert!(begun.elapsed() >= GRACE, "{fault:?}: {:?}", begun.elapsed());
    };
    tokio::join!(ends(Fault::Kill), ends(Fault::Freeze));
}

#[tokio::test]
async fn only_callers_that_already_wait_outlast_an_outage() {
    let mut held = Held::start(1, SOON * 3).await;
    let waiter = held.waiter().await;
    held.begin(Fault::Kill, 1);
    let here = &held.here;
    let once = async |key: &str| {
        // This request finds out that the server is down. Before that, a request would queue behind the
        // waiter.
        let not_waiting = here.lock(key).acquire().await;
        let waiting = here.lock(key).wait_time(WAIT).acquire().await;
        [not_waiting, waiting, here.lock(key).wait_forever().try_acquire().await]
    };
    let results = async { [once("a").await, once("b").await].into_iter().flatten() };
    for result in timeout(SOON, results).await.unwrap() {
        assert!(matches!(result, Err(LockError::Unavailable { .. })), "{result:?}");
    }
    // A waiter polls after half a second at the latest.
    sleep(OUTAGE).await;
    assert!(!waiter.is_finished());
    // The waiter ends at once. The shutdown itself would wait for the server until the connect timeout.
    let (ended, _) = tokio::join!(timeout(SOON, waiter), timeout(OUTAGE, here.shutdown()));
    let ended = ended.unwrap().unwrap().unwrap_err();
    assert!(matches!(ended, LockError::ShutDown), "{ended}");
}
