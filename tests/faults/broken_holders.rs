//! Breaks on real servers: behind a network that is cut, of leaders, of detached work, of a frozen process, beside a frozen
//! server.

use std::future::pending;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum::{Extension, Router};
use futures_util::future::join_all;
use redlock_axum::redis_lock;
use redlock_core::{BreakError, Broken, LockManager, LockStatus, OnLost, OwnerLabel, Vote, Votes};
use redlock_tests::{Peer, Proxy, Servers, Traffic, Welcome, builder, eventually};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tower::ServiceExt;

const KEY: &str = "order:42";
const LEASE: Duration = Duration::from_secs(18);
/// A holder is lost at its next renewal, after a third of its lease. Long before its lease is over, although the machine is busy.
const NOTICED: Duration = Duration::from_secs(12);
/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);
/// Long enough for a busy machine, short enough for a test to wait for it.
const BRIEF: Duration = Duration::from_secs(2);

async fn manager(servers: &Servers, label: &str) -> LockManager {
    builder(servers.urls()).owner_label(label).connect().await.unwrap()
}

/// Returns what each server has at the key.
async fn values(servers: &Servers) -> Vec<Option<Vec<u8>>> {
    join_all(servers.iter().map(async |server| server.probe().await.get(KEY).await)).await
}

/// Waits until each server has this lock.
async fn all_have(servers: &Servers, token: Option<&Vec<u8>>) {
    eventually("each server has the lock", SOON, async || {
        values(servers).await.iter().all(|value| value.as_ref() == token).then_some(())
    })
    .await;
}

/// Waits until no server has a lock. Fencing counters stay.
async fn no_lock_is_left(servers: &Servers) {
    all_have(servers, None).await;
}

/// Waits until each server has the only holder.
async fn seen_on_all(ops: &LockManager, servers: &Servers) -> LockStatus {
    eventually("each server has the lock", SOON, async || {
        let seen = ops.status(KEY).await.ok()?;
        let [holder] = seen.holders() else { return None };
        (holder.nodes() == servers.len()).then_some(seen)
    })
    .await
}

/// Breaks the only holder.
async fn break_only(ops: &LockManager) -> Broken {
    let seen = ops.status(KEY).await.unwrap();
    let [holder] = seen.holders() else { panic!("{seen:?}") };
    ops.break_lock(KEY, holder).await.unwrap()
}

fn agreed(votes: &Votes) -> usize {
    votes.iter().filter(|(_, vote)| *vote == Some(&Vote::Agreed)).count()
}

/// The holder sets its lock again on the servers that have lost it. So a break that reaches a minority has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_break_that_reaches_two_of_five_servers_has_no_effect() {
    for is_silent in [false, true] {
        let servers = Servers::start(5).await;
        let proxies = join_all(servers[2..].iter().map(Proxy::to)).await;
        let urls = servers.urls().into_iter().take(2).chain(proxies.iter().map(Proxy::url));
        let ops = builder(urls).node_timeout(BRIEF).connect().await.unwrap();
        let shop = manager(&servers, "shop").await;
        let request = shop.lock(KEY).expire(LEASE).renew(true);
        let guard = request.try_acquire().await.unwrap();
        let seen = seen_on_all(&ops, &servers).await;
        let token = values(&servers).await.remove(0);

        for proxy in &proxies {
            if is_silent {
                proxy.set_both(Traffic::Hold);
            } else {
                proxy.welcome(Welcome::Close);
                proxy.reset();
            }
        }
        let result = ops.break_lock(KEY, &seen.holders()[0]).await;
        let Err(BreakError::Unavailable { votes, .. }) = &result else { panic!("{result:?}") };
        assert_eq!(agreed(votes), 2, "{votes}");
        // The requests that are held back never arrive.
        proxies.iter().for_each(Proxy::reset);
        all_have(&servers, token.as_ref()).await;
        assert!(guard.is_valid(), "silent: {is_silent}");

        for proxy in &proxies {
            proxy.welcome(Welcome::Forward);
            proxy.set_both(Traffic::Pass);
        }
        // The servers come back one after another. Two attempts that reach some of them each may have removed the holder
        // from a quorum together.
        eventually("the operator reaches a quorum", SOON, async || {
            match ops.break_lock(KEY, &seen.holders()[0]).await {
                Ok(_) | Err(BreakError::NotHeld { .. }) => Some(()),
                Err(_) => None,
            }
        })
        .await;
        tokio::time::timeout(NOTICED, guard.lost()).await.unwrap();
        drop(guard);
        no_lock_is_left(&servers).await;
    }
}

/// What work reports to its test, with the name of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The work has begun, with this fencing number.
    Began(i64),
    /// The work has been told that its lock is lost.
    Lost,
    /// The work was dropped, or has returned.
    Ended,
}

type Sender = UnboundedSender<(&'static str, Event)>;
type Receiver = UnboundedReceiver<(&'static str, Event)>;

/// Reports the end of work.
struct Work(&'static str, Sender);

impl Work {
    fn report(&self, event: Event) {
        // The test may have ended.
        let _ = self.1.send((self.0, event));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.report(Event::Ended);
    }
}

/// Returns the next event.
async fn next(events: &mut Receiver) -> (&'static str, Event) {
    tokio::time::timeout(NOTICED, events.recv()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_broken_stops_and_another_process_leads() {
    for count in [1, 5] {
        let servers = Servers::start(count).await;
        let (ops, (sender, mut events)) = (manager(&servers, "ops").await, unbounded_channel());
        let mut leading = JoinSet::new();
        for name in ["first", "second"] {
            let (locks, sender) = (manager(&servers, name).await, sender.clone());
            leading.spawn(async move {
                let lead = locks.lead(KEY).expire(LEASE);
                lead.run(async move |leader| {
                    let work = Work(name, sender);
                    work.report(Event::Began(leader.fencing_token().number()));
                    pending::<()>().await;
                })
                .await
            });
        }
        let (mut leading_now, Event::Began(mut number)) = next(&mut events).await else { panic!() };
        // The former leader is told of its loss when the other process is told that the lock is free, and may be faster.
        eventually("another process leads", SOON, async || {
            let former = leading_now;
            let seen = seen_on_all(&ops, &servers).await;
            assert_eq!(seen.holders()[0].label().map(OwnerLabel::as_str), Some(former));
            break_only(&ops).await;
            let mut both = [next(&mut events).await, next(&mut events).await];
            both.sort_by_key(|(_, event)| *event == Event::Ended);
            let [(latter, Event::Began(greater)), ended] = both else { panic!("{both:?}") };
            assert_eq!(ended, (former, Event::Ended));
            assert!(greater > number, "{latter}: {greater} after {number}");
            (leading_now, number) = (latter, greater);
            (latter != former).then_some(())
        })
        .await;
        let seen = seen_on_all(&ops, &servers).await;
        assert_eq!(seen.holders()[0].label().map(OwnerLabel::as_str), Some(leading_now));
        leading.shutdown().await;
        no_lock_is_left(&servers).await;
    }
}

/// The caller has left, so only the task of the work has the guard.
#[tokio::test(flavor = "multi_thread")]
async fn detached_work_that_is_broken_stops_or_learns_of_its_loss() {
    for on_lost in [OnLost::Abort, OnLost::KeepGoing] {
        let servers = Servers::start(3).await;
        let (shop, ops) = (manager(&servers, "shop").await, manager(&servers, "ops").await);
        let (sender, mut events) = unbounded_channel();
        let request = shop.lock(KEY).expire(LEASE).renew(true).fenced(true).on_lost(on_lost);
        let work = request.run_detached(move |handle| async move {
            let work = Work("shop", sender);
            work.report(Event::Began(handle.fencing_token().unwrap().number()));
            if on_lost == OnLost::Abort {
                pending::<()>().await;
            }
            handle.lost().await;
            work.report(Event::Lost);
        });
        let caller = tokio::spawn(work);
        let (_, Event::Began(number)) = next(&mut events).await else { panic!() };
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        seen_on_all(&ops, &servers).await;
        break_only(&ops).await;
        let after = ops.lock(KEY).expire(LONG).fenced(true).try_acquire().await.unwrap();
        assert!(after.fencing_token().unwrap().number() > number);
        if on_lost == OnLost::KeepGoing {
            assert_eq!(next(&mut events).await, ("shop", Event::Lost));
        }
        assert_eq!(next(&mut events).await, ("shop", Event::Ended));
        // The clean-up of the former holder leaves the lock alone.
        shop.shutdown().await;
        after.extend(LONG).await.unwrap();
        after.release().await.unwrap();
        no_lock_is_left(&servers).await;
    }
}

#[redis_lock(key = "order:42", expire = "18s", renew, detached, on_lost = abort)]
async fn pay(Extension(sender): Extension<Sender>) -> StatusCode {
    let work = Work("handler", sender);
    work.report(Event::Began(0));
    pending().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_handler_that_is_broken_answers_503() {
    let servers = Servers::start(1).await;
    let (shop, ops) = (manager(&servers, "shop").await, manager(&servers, "ops").await);
    let (sender, mut events) = unbounded_channel();
    let app = Router::new().route("/", post(pay)).layer(Extension(sender)).with_state(shop);
    let request = Request::post("/").body(Body::empty()).unwrap();
    let answer = tokio::spawn(app.oneshot(request));
    assert_eq!(next(&mut events).await, ("handler", Event::Began(0)));
    break_only(&ops).await;
    assert_eq!(next(&mut events).await, ("handler", Event::Ended));
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    no_lock_is_left(&servers).await;
}

/// Nothing can be told to a frozen process. The next holder has the lock before the lease of the frozen one is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_process_that_is_broken_finds_its_loss_after_the_thaw() {
    for count in [1, 3] {
        let servers = Servers::start(count).await;
        let ops = manager(&servers, "ops").await;
        let mut holder = Peer::start(
            Command::new(env!("CARGO_BIN_EXE_holder"))
                .env("LOCKS_URLS", servers.urls().join(","))
                .env("KEY", KEY)
                .env("EXPIRE_MS", LEASE.as_millis().to_string()),
        );
        assert_eq!(holder.answer(), "held");
        seen_on_all(&ops, &servers).await;
        let id = Pid::from_raw(holder.id().cast_signed()).unwrap();
        kill_process(id, Signal::STOP).unwrap();
        let seen = ops.status(KEY).await.unwrap();
        let label = seen.holders()[0].label().unwrap().as_str().to_owned();
        assert!(label.ends_with(&format!(":{}", holder.id())), "{label}");
        let (broken, begun) = (break_only(&ops).await, Instant::now());
        assert!(broken.may_be_valid_for().is_some_and(|rest| !rest.is_zero()), "{broken:?}");
        let next = ops.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let token = values(&servers).await.remove(0);

        holder.order("look");
        kill_process(id, Signal::CONT).unwrap();
        // Its lease may not be over yet.
        assert!(holder.answer().starts_with("valid: "));
        assert_eq!([holder.answer(), holder.answer()], ["lost", "lost"]);
        assert!(begun.elapsed() < NOTICED, "after {:?}", begun.elapsed());
        assert!(holder.wait().success());
        all_have(&servers, token.as_ref()).await;
        next.extend(LONG).await.unwrap();
        next.release().await.unwrap();
        no_lock_is_left(&servers).await;
    }
}

/// The frozen server executes the removal, the renewals of the former holder and the acquisition of the next one after the
/// thaw.
#[tokio::test(flavor = "multi_thread")]
async fn a_break_beside_a_frozen_server_spares_the_next_holder() {
    let mut servers = Servers::start(5).await;
    let [shop, ops] = [(); 2].map(|()| builder(servers.urls()).node_timeout(BRIEF));
    let (shop, ops) = (shop.connect().await.unwrap(), ops.connect().await.unwrap());
    let guard = shop.lock(KEY).expire(LEASE).renew(true).try_acquire().await.unwrap();
    seen_on_all(&ops, &servers).await;
    servers[4].freeze();
    let broken = break_only(&ops).await;
    assert_eq!(agreed(broken.votes()), 4, "{}", broken.votes());
    let next = ops.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    tokio::time::timeout(NOTICED, guard.lost()).await.unwrap();
    drop(guard);
    let token = servers[0].probe().await.get(KEY).await;

    servers[4].thaw();
    eventually("each server has the next lock", SOON, async || {
        next.extend(LONG).await.unwrap();
        values(&servers).await.iter().all(|value| *value == token).then_some(())
    })
    .await;
    // Waits for the clean-up of the former holder.
    shop.shutdown().await;
    all_have(&servers, token.as_ref()).await;
    assert!(next.is_valid());
    next.release().await.unwrap();
    no_lock_is_left(&servers).await;
}
