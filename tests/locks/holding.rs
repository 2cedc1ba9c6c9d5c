//! Held locks on real servers: many renewals, a stopped process, frozen nodes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use redlock_core::LockState;
use redlock_core::test_util::node_tests::StoreFault;
use redlock_tests::{
    Logs, Nodes, RedisServer, Servers, ZookeeperServer, builder, eventually, held_briefly,
    on_each_kind_of_nodes,
};
use rustix::process::{Pid, Signal, kill_process};

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(120);

/// A process that holds a lock. It is killed when dropped.
struct Holder {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn start(nodes: &Nodes, key: &str, expire: Duration) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holder"))
            .env("LOCKS_URLS", nodes.urls().join(","))
            .env("KEY", key)
            .env("EXPIRE_MS", expire.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Self { child, output };
        assert_eq!(holder.line(), "held");
        holder
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

on_each_kind_of_nodes! {
    [redis_x3: Nodes::redis(3).await,]
    [
        a_process_stopped_past_its_lease_sees_the_loss_at_its_first_check,
        a_lock_survives_a_short_freeze_of_a_majority,
        a_freeze_of_a_majority_past_the_lease_reports_one_loss,
    ]
}

mod thorough {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_of_ten_thousand_locks_is_renewed_again_and_again() {
        const LOCKS: usize = 10_000;
        const LEASE: Duration = Duration::from_secs(30);
        // The last of these comes after the first lease, so a lock that is not renewed is lost by then.
        const RENEWALS: u64 = 4;

        let servers = Servers::start(1).await;
        let locks = builder(servers.urls()).node_timeout(LEASE / 3).connect().await.unwrap();
        let acquire = |number| {
            let request = locks.lock(format!("lock:{number}")).expire(LEASE).renew(true);
            async { request.try_acquire().await.unwrap() }
        };
        let guards: Vec<_> = stream::iter((0..LOCKS).map(acquire)).buffered(100).collect().await;
        let mut probe = servers[0].probe().await;
        probe.reset_calls().await;
        eventually("the locks are renewed", SOON * 6, async || {
            let renewals = probe.calls().await.get("evalsha").copied().unwrap_or_default();
            (renewals >= RENEWALS * LOCKS as u64).then_some(())
        })
        .await;
        assert!(guards.iter().all(|guard| guard.state() == LockState::Held));

        drop(guards);
        eventually("the locks are released", SOON * 3, async || {
            servers.keys().await.is_empty().then_some(())
        })
        .await;
        eventually("no lock is renewed without its guard", SOON * 3, async || {
            probe.reset_calls().await;
            tokio::time::sleep(LEASE / 3 + Duration::from_secs(1)).await;
            (!probe.calls().await.contains_key("evalsha")).then_some(())
        })
        .await;
    }

    on_each_kind_of_nodes! {
        [
            postgres_x3: Nodes::postgres(3, 0).await,
            postgres_beside_two_redis: Nodes::postgres(1, 2).await,
        ]
        [
            a_process_stopped_past_its_lease_sees_the_loss_at_its_first_check,
            a_lock_survives_a_short_freeze_of_a_majority,
            a_freeze_of_a_majority_past_the_lease_reports_one_loss,
        ]
    }

    on_each_kind_of_nodes! {
        [zookeeper_alone: Nodes::zookeeper_with(ZookeeperServer::options().independent()).await,]
        [
            a_lock_survives_a_short_freeze_of_a_majority,
            a_freeze_of_a_majority_past_the_lease_reports_one_loss,
        ]
    }
}

/// A flag set by a task would still say "held" right after the process continues.
async fn a_process_stopped_past_its_lease_sees_the_loss_at_its_first_check(nodes: Nodes) {
    const EXPIRE: Duration = Duration::from_millis(600);
    let locks = nodes.manager().await;
    for _ in 0..3 {
        let mut holder = Holder::start(&nodes, "a", EXPIRE);
        holder.signal(Signal::STOP);
        let next = locks.lock("a").expire(LONG).wait_time(SOON).acquire().await.unwrap();
        // A server that had the former lock for longer has refused the next one. `extend` adds it there.
        eventually("each server has the next lock", SOON, async || {
            next.extend(LONG).await.unwrap();
            nodes.remaining("a").await.iter().all(|left| *left > Some(EXPIRE)).then_some(())
        })
        .await;
        // The command is in the pipe before the process continues.
        holder.child.stdin.take().unwrap().write_all(b"look\n").unwrap();
        holder.signal(Signal::CONT);
        assert_eq!(holder.line(), "valid: false");
        assert_eq!(holder.line(), "lost");
        assert_eq!(holder.line(), "lost");
        assert!(holder.child.wait().unwrap().success());
        assert_eq!(nodes.locks().await, 3, "the late release removed the next holder's lock");
        next.release().await.unwrap();
    }
}

/// Makes a fault of two of three stores, or of the only one.
async fn strike_majority(nodes: &mut Nodes, fault: StoreFault) {
    let majority = nodes.len() / 2 + 1;
    for store in &mut nodes[..majority] {
        assert!(store.fault(fault).await);
    }
}

async fn a_lock_survives_a_short_freeze_of_a_majority(mut nodes: Nodes) {
    let lease = Duration::from_secs(6);
    let locks = nodes.builder().node_timeout(lease / 12).connect().await.unwrap();
    let guard = locks.lock("a").expire(lease).renew(true).try_acquire().await.unwrap();
    strike_majority(&mut nodes, StoreFault::Freeze).await;
    eventually("a renewal fails", SOON, async || {
        (guard.state() == LockState::Suspect).then_some(())
    })
    .await;
    strike_majority(&mut nodes, StoreFault::Thaw).await;
    eventually("a renewal succeeds", SOON, async || {
        (guard.state() == LockState::Held).then_some(())
    })
    .await;
    assert!(guard.remaining() > lease / 2);
    guard.release().await.unwrap();
}

async fn a_freeze_of_a_majority_past_the_lease_reports_one_loss(mut nodes: Nodes) {
    let logs = Logs::collect();
    let lease = Duration::from_millis(900);
    let locks = nodes.builder().node_timeout(lease / 3).connect().await.unwrap();
    let acquire = || locks.lock("a").expire(lease).renew(true).try_acquire();
    let guard = held_briefly(acquire).await;
    strike_majority(&mut nodes, StoreFault::Freeze).await;
    let listeners = (0..10).map(|_| guard.lost());
    tokio::time::timeout(SOON, join_all(listeners)).await.unwrap();
    strike_majority(&mut nodes, StoreFault::Thaw).await;
    assert!(!guard.is_valid());
    drop(guard);
    nodes.become_empty().await;
    let lost: Vec<_> =
        logs.lines().into_iter().filter(|line| line.contains("a lock was lost")).collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
}

/// Runs `commands`, after which the only server closes the holder's connection and refuses a new one. The
/// lock becomes suspect, and is lost at its deadline.
async fn is_lost_at_its_deadline_after(commands: &[&[&str]]) {
    let lease = Duration::from_secs(3);
    let server = RedisServer::options().user("app", "out-in-the-cold").start().await;
    let builder = builder([server.url_at("app:out-in-the-cold@127.0.0.1")]);
    let locks = builder.node_timeout(lease / 6).connect().await.unwrap();
    let guard = locks.lock("a").expire(lease).renew(true).try_acquire().await.unwrap();
    assert_eq!(guard.state(), LockState::Held);
    let mut probe = server.probe().await;
    for command in commands {
        probe.command::<redis::Value>(command).await;
    }
    eventually("the lock is suspect", SOON, async || {
        assert!(guard.is_valid(), "lost without being suspect first");
        (guard.state() == LockState::Suspect).then_some(())
    })
    .await;
    let begun = Instant::now();
    let remaining = guard.remaining();
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(begun.elapsed() >= remaining, "lost too early");
    assert_eq!(guard.state(), LockState::Lost);
    assert!(!guard.is_valid());
    guard.release().await.unwrap_err();
}

#[tokio::test]
async fn a_holder_whose_user_is_deleted_is_suspect_and_loses_the_lock_at_its_deadline() {
    is_lost_at_its_deadline_after(&[&["ACL", "DELUSER", "app"]]).await;
}

#[tokio::test]
async fn a_holder_whose_connection_is_killed_is_suspect_and_loses_the_lock_at_its_deadline() {
    let kill: &[&str] = &["CLIENT", "KILL", "USER", "app"];
    is_lost_at_its_deadline_after(&[&["ACL", "SETUSER", "app", "off"], kill]).await;
}
