//! Waits without a limit, and leaders, in outages that begin before them, that end one server after another, or that leave
//! nothing of the servers' data.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redlock_core::{Credentials, FencingToken, LockError, LockManager, LockManagerBuilder};
use redlock_tests::{RedisServer, Servers, builder, eventually};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);
/// Short, so that a wait that keeps to it ends within the test.
const GRACE: Duration = Duration::from_millis(100);

fn impatient(servers: &Servers) -> LockManagerBuilder {
    builder(servers.urls()).outage_grace(GRACE)
}

/// Waits until a caller with a limit gets no answer of a quorum.
async fn a_bounded_wait_fails(locks: &LockManager) {
    eventually("a bounded wait fails", SOON, async || {
        let bounded = locks.lock("bounded").wait_time(Duration::from_millis(300)).acquire().await;
        matches!(bounded, Err(LockError::Unavailable { .. })).then_some(())
    })
    .await;
}

/// Two of the three servers are down when the callers begin, and the third ends while they wait.
#[tokio::test]
async fn a_wait_without_a_limit_goes_on_until_enough_servers_are_back_one_by_one() {
    let mut servers = Servers::start(3).await;
    let locks = impatient(&servers).connect().await.unwrap();
    servers[0].kill();
    servers[1].kill();
    a_bounded_wait_fails(&locks).await;
    let waiters: Vec<_> = ["a", "a", "b"]
        .map(|key| tokio::spawn(locks.lock(key).wait_forever().acquire()))
        .into_iter()
        .collect();
    a_bounded_wait_fails(&locks).await;
    servers[2].kill();
    a_bounded_wait_fails(&locks).await;
    servers[0].restart().await;
    // One server is no quorum.
    a_bounded_wait_fails(&locks).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    servers[1].restart().await;
    for waiter in waiters {
        let guard = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    servers[2].restart().await;
    eventually("all servers vote again", SOON, async || {
        let guard = locks.lock("c").try_acquire().await.ok()?;
        let keys = servers.keys().await.len();
        guard.release().await.ok()?;
        (keys == 3).then_some(())
    })
    .await;
}

/// Counts the terms that run, and keeps the numbers of all terms in the order of their beginnings.
#[derive(Default)]
struct Terms {
    running: AtomicUsize,
    begun: std::sync::Mutex<Vec<FencingToken>>,
}

/// Ends its term when the work is dropped.
struct Term(Arc<Terms>);

impl Drop for Term {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Terms {
    fn begun(&self) -> Vec<FencingToken> {
        self.begun.lock().unwrap().clone()
    }

    /// Starts a copy of the service, which leads for as long as it may.
    fn lead(self: &Arc<Self>, locks: &LockManager) -> JoinHandle<Result<(), LockError>> {
        let lead = locks.lead("reminders").expire(Duration::from_secs(2));
        let terms = Arc::clone(self);
        tokio::spawn(lead.run(async move |leader| {
            terms.running.fetch_add(1, Ordering::SeqCst);
            let _term = Term(Arc::clone(&terms));
            terms.begun.lock().unwrap().push(leader.fencing_token());
            std::future::pending::<()>().await;
        }))
    }

    /// Waits until exactly one copy leads, in a term after the first `before` ones.
    async fn one_leads(&self, before: usize) {
        eventually("one copy leads", SOON, async || {
            let running = self.running.load(Ordering::SeqCst);
            (running == 1 && self.begun().len() > before).then_some(())
        })
        .await;
    }
}

/// The servers forget the lock and its numbers. Nobody leads while they are away, one copy leads when they are back, and
/// each term has a greater number than those before, so that a late step of the former leader is refused.
#[tokio::test]
async fn one_copy_leads_with_a_greater_number_after_all_servers_came_back_empty() {
    let mut servers = Servers::start(3).await;
    let copies = [0; 3].map(|_| impatient(&servers).connect());
    let copies: Vec<_> = join_all(copies).await.into_iter().map(Result::unwrap).collect();
    let terms = Arc::new(Terms::default());
    let tasks: Vec<_> = copies.iter().map(|locks| terms.lead(locks)).collect();
    terms.one_leads(0).await;
    let before = terms.begun().len();
    for server in servers.iter_mut() {
        server.kill();
    }
    eventually("nobody leads", SOON, async || {
        (terms.running.load(Ordering::SeqCst) == 0).then_some(())
    })
    .await;
    for server in servers.iter_mut() {
        server.restart().await;
    }
    terms.one_leads(before).await;
    let begun = terms.begun();
    assert!(begun.is_sorted_by(|earlier, later| earlier < later), "{begun:?}");
    assert!(tasks.iter().all(|task| !task.is_finished()));
    for locks in &copies {
        drop(locks.drain());
    }
    for task in tasks {
        let ended = timeout(SOON, task).await.unwrap().unwrap();
        assert!(matches!(ended, Err(LockError::Draining)), "{ended:?}");
    }
}

/// The page lists what ends such a wait. An outage delays none of it.
#[tokio::test]
async fn a_wait_without_a_limit_that_began_in_an_outage_ends_by_a_drain_and_a_shutdown() {
    let mut servers = Servers::start(3).await;
    let connect = async || impatient(&servers).connect().await.unwrap();
    let (drained, shut_down) = (connect().await, connect().await);
    servers[0].kill();
    servers[1].kill();
    let mut waiters = Vec::new();
    for locks in [&drained, &shut_down] {
        a_bounded_wait_fails(locks).await;
        waiters.push(tokio::spawn(locks.lock("a").wait_forever().acquire()));
        a_bounded_wait_fails(locks).await;
    }
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    drop(drained.drain());
    let stopping = tokio::spawn(async move { shut_down.shutdown().await });
    let mut ends = Vec::new();
    for waiter in waiters {
        ends.push(timeout(SOON, waiter).await.unwrap().unwrap().unwrap_err());
    }
    assert!(matches!(ends[..], [LockError::Draining, LockError::ShutDown]), "{ends:?}");
    stopping.await.unwrap();
}

mod thorough {
    use super::*;

    /// The password changes on the server, and the source of the service's credentials learns of it later.
    #[tokio::test]
    async fn a_leader_and_a_waiter_go_on_when_the_source_of_passwords_has_the_new_one() {
        let server = RedisServer::options().user("app", "swordfish-old").start().await;
        let new = "swordfish-new";
        let knows = Arc::new(AtomicBool::new(false));
        let source = Arc::clone(&knows);
        let credentials = move |_: Arc<str>| {
            let password = if source.load(Ordering::SeqCst) { new } else { "swordfish-old" };
            let credentials = Credentials::new(password).username("app");
            async move { Ok::<_, io::Error>(credentials) }
        };
        let locks = builder([format!("redis://127.0.0.1:{}", server.port())])
            .credentials(credentials)
            .outage_grace(GRACE)
            .connect()
            .await
            .unwrap();
        let terms = Arc::new(Terms::default());
        let leader = terms.lead(&locks);
        terms.one_leads(0).await;
        let mut probe = server.probe().await;
        probe.command::<()>(["ACL", "SETUSER", "app", "resetpass", ">swordfish-new"]).await;
        probe.command::<i64>(["CLIENT", "KILL", "USER", "app"]).await;
        eventually("the password is refused", SOON, async || {
            let error = locks.lock("b").try_acquire().await.err()?;
            error.diagnostics().to_string().contains("WRONGPASS").then_some(())
        })
        .await;
        let waiter = tokio::spawn(locks.lock("b").wait_forever().acquire());
        eventually("nobody leads", SOON, async || {
            (terms.running.load(Ordering::SeqCst) == 0).then_some(())
        })
        .await;
        assert!(!waiter.is_finished() && !leader.is_finished());
        knows.store(true, Ordering::SeqCst);
        terms.one_leads(1).await;
        let guard = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
        drop(locks.drain());
        let ended = timeout(SOON, leader).await.unwrap().unwrap();
        assert!(matches!(ended, Err(LockError::Draining)), "{ended:?}");
    }
}
