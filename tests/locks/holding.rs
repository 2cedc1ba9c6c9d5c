//! Held locks on real servers: many renewals, a stopped process, frozen nodes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockManager, LockState};
use redlock_tests::{Logs, RedisServer, Servers, eventually};
use rustix::process::{Pid, Signal, kill_process};

const SOON: Duration = Duration::from_secs(20);

/// Returns the CPU time (user and system) and the resident memory of this process.
#[cfg(target_os = "linux")]
fn usage() -> (Duration, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (Duration::from_millis(ticks * 10), kib * 1024)
}

/// Also prints the memory and processor time that the locks need.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn each_of_ten_thousand_locks_is_renewed_every_third_of_its_lease() {
    const LOCKS: usize = 10_000;
    const LEASE: Duration = Duration::from_secs(15);
    const RENEWALS: u32 = 5;
    let time = LEASE / 3 * RENEWALS;

    let servers = Servers::start(1).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    let (_, before) = usage();
    let mut guards = Vec::with_capacity(LOCKS);
    for number in 0..LOCKS {
        let request = locks.lock(format!("lock:{number}")).expire(LEASE).renew(true);
        guards.push(request.try_acquire().await.unwrap());
    }
    let (cpu_before, held) = usage();
    let mut probe = servers[0].probe().await;
    probe.reset_calls().await;
    tokio::time::sleep(time).await;
    let renewals = probe.calls().await["evalsha"];
    let (cpu, _) = usage();
    println!(
        "{LOCKS} locks: {} bytes resident each, {:.1} % of a core, {} commands a second",
        (held - before) / LOCKS as u64,
        cpu.saturating_sub(cpu_before).as_secs_f64() * 100.0 / time.as_secs_f64(),
        renewals / time.as_secs(),
    );
    assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
    let each = u64::from(RENEWALS);
    let expected = (each - 1) * LOCKS as u64..=(each + 1) * LOCKS as u64;
    assert!(expected.contains(&renewals), "{renewals} renewals");

    drop(guards);
    eventually("the locks are released", SOON, async || {
        servers.keys().await.is_empty().then_some(())
    })
    .await;
    probe.reset_calls().await;
    tokio::time::sleep(LEASE / 3 + Duration::from_secs(1)).await;
    assert_eq!(probe.calls().await.get("evalsha"), None, "renewal continues without a guard");
}

/// A process that holds a lock. It is killed when dropped.
struct Holder {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn start(servers: &Servers, key: &str, expire: Duration) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holder"))
            .env("REDIS_URLS", servers.urls().join(","))
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

/// A flag set by a task would still say "held" right after the process continues.
#[tokio::test]
async fn a_process_stopped_past_its_lease_sees_the_loss_at_its_first_check() {
    let servers = Servers::start(3).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    for _ in 0..5 {
        let mut holder = Holder::start(&servers, "a", Duration::from_millis(600));
        holder.signal(Signal::STOP);
        let request = locks.lock("a").expire(Duration::from_secs(30));
        let next = request.wait_time(SOON).acquire().await.unwrap();
        // The command is in the pipe before the process continues.
        holder.child.stdin.take().unwrap().write_all(b"look\n").unwrap();
        holder.signal(Signal::CONT);
        assert_eq!(holder.line(), "valid: false");
        assert_eq!(holder.line(), "lost");
        assert_eq!(holder.line(), "expired");
        assert!(holder.child.wait().unwrap().success());
        assert_eq!(
            servers.keys().await.len(),
            3,
            "the late release removed the next holder's lock"
        );
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_survives_a_short_freeze_of_a_majority() {
    let mut servers = Servers::start(3).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    let lease = Duration::from_secs(3);
    let guard = locks.lock("a").expire(lease).renew(true).try_acquire().await.unwrap();
    servers[..2].iter_mut().for_each(redlock_tests::RedisServer::freeze);
    eventually("a renewal fails", SOON, async || {
        (guard.state() == LockState::Suspect).then_some(())
    })
    .await;
    servers[..2].iter_mut().for_each(redlock_tests::RedisServer::thaw);
    eventually("a renewal succeeds", SOON, async || {
        (guard.state() == LockState::Held).then_some(())
    })
    .await;
    assert!(guard.remaining() > lease / 2);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_freeze_of_a_majority_past_the_lease_reports_one_loss() {
    let logs = Logs::collect();
    let mut servers = Servers::start(3).await;
    let locks = LockManager::connect(servers.urls()).await.unwrap();
    let request = locks.lock("a").expire(Duration::from_millis(900)).renew(true);
    let guard = request.try_acquire().await.unwrap();
    servers[..2].iter_mut().for_each(redlock_tests::RedisServer::freeze);
    let frozen = Instant::now();
    let listeners = (0..10).map(|_| guard.lost());
    join_all(listeners).await;
    assert!(frozen.elapsed() < Duration::from_millis(900), "{:?}", frozen.elapsed());
    servers[..2].iter_mut().for_each(redlock_tests::RedisServer::thaw);
    assert!(!guard.is_valid());
    drop(guard);
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
    let lost: Vec<_> =
        logs.lines().into_iter().filter(|line| line.contains("a lock was lost")).collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
}

/// Runs `commands`, after which the only server closes the holder's connection and refuses a new one. The
/// lock becomes suspect, and is lost at its deadline.
async fn is_lost_at_its_deadline_after(commands: &[&[&str]]) {
    let lease = Duration::from_secs(3);
    let server = RedisServer::options().user("app", "out-in-the-cold").start().await;
    let locks = LockManager::connect([server.url_at("app:out-in-the-cold@127.0.0.1")]);
    let locks = locks.await.unwrap();
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
    assert!(begun.elapsed() < remaining + Duration::from_secs(1), "lost too late");
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
