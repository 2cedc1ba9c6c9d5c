//! The rows of the table of losses in `redlock-axum/docs/guarantees.md`, on one server and on five: when does the holder know it,
//! and when does another caller have the lock. `tests/sentinel` has the failover.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::Dialect;
use redlock_tests::{
    Proxy, RedisServer, Servers, Traffic, Welcome, builder, connect, eventually, held_briefly,
};

use super::{Cause, KEY, LONG, SOON, is_lost, reset, start, tracked};

/// Before the first extension and behind the third one.
async fn a_holder_learns_of(cause: Cause, count: usize) {
    let (servers, locks) = start(count).await;
    for (dialect, extensions) in [(Dialect::Plain, 0), (Dialect::Plain, 3), (Dialect::Redisson, 3)]
    {
        let what = format!("{count} servers, {cause:?}, {dialect:?}, {extensions}");
        for server in servers.iter() {
            server.probe().await.command::<()>(["FLUSHALL"]).await;
        }
        let request = locks.lock(KEY).expire(LONG).dialect(dialect);
        let guard = request.try_acquire().await.unwrap();
        reset(&servers).await;
        let lost = guard.lost();
        tracked(&servers, 1).await;
        for _ in 0..extensions {
            guard.extend(2 * LONG).await.unwrap();
        }
        tracked(&servers, 1 + extensions).await;
        cause.happen(&servers).await;
        drop(lost);
        is_lost(&guard, &what).await;
    }
}

/// The lock is lost between its acquisition and the first call.
async fn a_loss_before_the_first_call(count: usize) {
    let (servers, locks) = start(count).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    Cause::Deleted.happen(&servers).await;
    is_lost(&guard, "before the call").await;
}

/// The votes decide: a minority that has lost the lock gets it again, and the hints go on for the restored lock.
#[tokio::test]
async fn a_minority_that_has_lost_the_lock_gets_it_again_at_once() {
    let (servers, locks) = start(5).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    reset(&servers).await;
    let _lost = guard.lost();
    tracked(&servers, 1).await;
    for round in 0..3 {
        for server in &servers[..2] {
            server.probe().await.command::<()>(["DEL", KEY]).await;
        }
        for server in &servers[..2] {
            let mut probe = server.probe().await;
            eventually("the lock is set again", SOON, async || probe.get(KEY).await).await;
        }
        assert!(guard.is_valid(), "round {round}");
    }
    Cause::Flushed.happen(&servers).await;
    is_lost(&guard, "after the restore").await;
}

/// The servers have forgotten all locks. The holder knows it when it is connected again.
async fn a_restart(count: usize) {
    let (mut servers, locks) = start(count).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let lost = guard.lost();
    servers.iter_mut().for_each(RedisServer::kill);
    join_all(servers.iter_mut().map(RedisServer::restart)).await;
    drop(lost);
    is_lost(&guard, "after a restart").await;
}

/// No hint arrives from a frozen server. The holder knows by its clock that its lease ends, before the server can end it.
async fn frozen_renewals(count: usize) {
    const LEASE: Duration = Duration::from_secs(3);
    let mut servers = Servers::start(count).await;
    let locks = builder(servers.urls()).node_timeout(LEASE / 6).connect().await.unwrap();
    let request = || locks.lock(KEY).expire(LEASE).renew(true);
    let guard = held_briefly(async || request().try_acquire().await).await;
    let lost = guard.lost();
    servers.iter_mut().for_each(RedisServer::freeze);
    // Each server has the lock for longer than the holder relies on it.
    assert!(guard.remaining() < LEASE, "{:?}", guard.remaining());
    lost.await;
    assert!(!guard.is_valid());
    servers.iter_mut().for_each(RedisServer::thaw);
    // Whether a renewal that was on its way prolongs the key or not: nobody else had the lock before the loss.
    let other = connect(servers.urls()).await;
    let next = other.lock(KEY).expire(LEASE).wait_time(LONG).acquire().await.unwrap();
    assert!(!guard.is_valid() && next.is_valid());
    next.release().await.unwrap();
}

/// Twelve holders are cut off from a majority of the servers, and a rival of each waits on connections of its own.
async fn a_partition(count: usize) {
    const LEASE: Duration = Duration::from_secs(3);
    const HOLDERS: usize = 12;
    let servers = Servers::start(count).await;
    let cut_off = join_all(servers[..=count / 2].iter().map(Proxy::to)).await;
    let urls = cut_off.iter().map(Proxy::url).chain(servers.urls().split_off(count / 2 + 1));
    let locks = builder(urls).node_timeout(LEASE / 6).connect().await.unwrap();
    let rivals = connect(servers.urls()).await;
    let keys = (0..HOLDERS).map(|number| format!("order:{number}"));
    let keys: Vec<_> = keys.collect();
    let request = &|key: &String| locks.lock(key).expire(LEASE).renew(true);
    let acquire =
        keys.iter().map(|key| held_briefly(async move || request(key).try_acquire().await));
    let guards = join_all(acquire).await;
    let lost: Vec<_> = guards.iter().map(|guard| tokio::spawn(guard.lost())).collect();

    for proxy in &cut_off {
        proxy.welcome(Welcome::Silence);
        proxy.set_both(Traffic::Hold);
    }
    let begun = Instant::now();
    let waiting = keys.iter().zip(&guards).map(|(key, guard)| {
        let (request, holder) = (rivals.lock(key).expire(LONG).wait_time(LONG), guard.handle());
        tokio::spawn(async move {
            let rival = request.acquire().await.unwrap();
            (holder.is_valid(), begun.elapsed(), rival)
        })
    });
    let waiting: Vec<_> = waiting.collect();
    let losses = lost.into_iter().map(async |lost| {
        lost.await.unwrap();
        begun.elapsed()
    });
    let (mut known, had) = tokio::join!(join_all(losses), join_all(waiting));
    let had: Vec<_> = had.into_iter().map(Result::unwrap).collect();
    let beside = had.iter().filter(|(is_valid, ..)| *is_valid).count();
    assert_eq!(beside, 0, "{count} servers: {beside} of {HOLDERS} rivals beside the holder");
    let mut rival: Vec<_> = had.iter().map(|(_, after, _)| *after).collect();
    known.sort();
    rival.sort();
    println!(
        "{count} servers, lease {LEASE:?}: known after {:?} to {:?}, a rival had the lock after {:?} to {:?}",
        known[0],
        known[HOLDERS - 1],
        rival[0],
        rival[HOLDERS - 1]
    );
}

macro_rules! a_holder_learns_of {
    ($count:literal: $($name:ident: $cause:ident,)+) => {
        use super::*;

        $(#[tokio::test]
        async fn $name() {
            a_holder_learns_of(Cause::$cause, $count).await;
        })+

        #[tokio::test]
        async fn a_loss_before_the_first_call_is_found_by_it() {
            a_loss_before_the_first_call($count).await;
        }

        #[tokio::test]
        async fn a_restart() {
            super::a_restart($count).await;
        }

        #[tokio::test]
        async fn frozen_renewals_before_the_servers_end_its_lease() {
            frozen_renewals($count).await;
        }

        #[tokio::test]
        async fn a_partition_before_a_rival_has_its_lock() {
            a_partition($count).await;
        }
    };
    ($count:literal) => {
        a_holder_learns_of! {
            $count:
            a_deletion: Deleted,
            another_value: Replaced,
            a_value_of_another_type: OfAnotherType,
            a_flush: Flushed,
            a_break: Broken,
            an_eviction: Evicted,
        }
    };
}

mod one_server {
    a_holder_learns_of! { 1 }
}

mod five_servers {
    a_holder_learns_of! { 5 }
}
