//! Waiters on real servers that are unreachable for a while: dropped connections, restarts, outages. The exact times are
//! those of the unit tests in `redlock-core/src/waiting`.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockError, LockGuard, LockManager};
use redlock_tests::{Logs, RedisServer, Servers, builder, eventually};
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

    async fn end(&mut self, fault: Fault, count: usize) {
        for server in &mut self.servers[..count] {
            match fault {
                Fault::Disconnect => {}
                Fault::Kill => server.restart().await,
                Fault::Freeze => server.thaw(),
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
    held.end(fault, struck).await;
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
        let not_waiting = here.lock(key).try_acquire().await;
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

/// The callers are standbys of a leader, one of which begins to wait in the outage. Callers with a bounded wait give up after
/// a tenth of the time.
#[tokio::test]
async fn a_wait_without_a_limit_outlasts_an_outage_that_is_longer_than_the_grace() {
    let logs = Logs::collect();
    for count in [1, 3] {
        let mut held = Held::start(count, OUTAGE / 10).await;
        let start = |locks: &LockManager| tokio::spawn(locks.lock("a").wait_forever().acquire());
        let before = [start(&held.here), start(&held.here)];
        held.are_subscribed().await;
        let bounded = tokio::spawn(held.here.lock("b").wait_time(WAIT).acquire());
        bounded.await.unwrap().unwrap().release().await.unwrap();
        held.begin(Fault::Kill, count / 2 + 1);
        let refused = held.here.lock("b").wait_time(WAIT).acquire().await;
        assert!(matches!(refused, Err(LockError::Unavailable { .. })), "{refused:?}");
        let in_outage =
            [start(&held.here), tokio::spawn(held.here.lock("b").wait_forever().acquire())];
        sleep(OUTAGE).await;
        assert!(before.iter().chain(&in_outage).all(|waiter| !waiter.is_finished()));
        held.end(Fault::Kill, count / 2 + 1).await;
        drop(held.holder);
        for waiter in before.into_iter().chain(in_outage) {
            timeout(SOON, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
        }
    }
    assert!(logs.count("WARN", "goes on to wait until a quorum of nodes answers") >= 2);
    assert!(logs.count("INFO", "a quorum of nodes has answered a caller") >= 2);
}

#[tokio::test]
async fn a_wait_without_a_limit_ends_by_a_missing_right() {
    let server = RedisServer::options().user("app", "knock-knock").start().await;
    let url = server.url_at("app:knock-knock@127.0.0.1");
    let locks = builder([url]).connect().await.unwrap();
    let other = builder([server.url()]).connect().await.unwrap();
    let _holder = other.lock("a").expire(LEASE).try_acquire().await.unwrap();
    let mut probe = server.probe().await;
    let waiter = tokio::spawn(locks.lock("a").wait_forever().acquire());
    eventually("the waiter has subscribed", SOON, async || {
        let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
        (!channels.is_empty()).then_some(())
    })
    .await;
    probe.command::<()>(["ACL", "SETUSER", "app", "-evalsha", "-set"]).await;
    let error = timeout(SOON, waiter).await.unwrap().unwrap().unwrap_err();
    assert!(error.diagnostics().to_string().contains("not permitted"), "{error:?}");
}

mod thorough {
    use super::*;

    /// The password is changed on the server, and in the configuration of the client some time later.
    #[tokio::test]
    async fn a_wait_without_a_limit_outlasts_a_changed_password() {
        let server = RedisServer::options().user("app", "knock-knock").start().await;
        let url = server.url_at("app:knock-knock@127.0.0.1");
        let locks = builder([url]).outage_grace(Duration::ZERO).connect().await.unwrap();
        let other = builder([server.url()]).connect().await.unwrap();
        let holder = other.lock("a").expire(LEASE).try_acquire().await.unwrap();
        let mut probe = server.probe().await;
        let before = tokio::spawn(locks.lock("a").wait_forever().acquire());
        probe.command::<()>(["ACL", "SETUSER", "app", "resetpass", ">another"]).await;
        probe.command::<i64>(["CLIENT", "KILL", "USER", "app"]).await;
        eventually("the password is refused", SOON, async || {
            let error = locks.lock("b").try_acquire().await.err()?;
            error.diagnostics().to_string().contains("WRONGPASS").then_some(())
        })
        .await;
        let in_outage = tokio::spawn(locks.lock("b").wait_forever().acquire());
        sleep(OUTAGE).await;
        assert!(!before.is_finished() && !in_outage.is_finished());
        holder.release().await.unwrap();
        probe.command::<()>(["ACL", "SETUSER", "app", ">knock-knock"]).await;
        for waiter in [before, in_outage] {
            drop(timeout(SOON, waiter).await.unwrap().unwrap().unwrap());
        }
    }
}
