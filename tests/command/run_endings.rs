//! The ends of `redlock run` and of its command: signals, a lost lock, a kill.

use std::path::PathBuf;
use std::time::Instant;

use redlock_core::LockManager;
use redlock_tests::{Proxy, RedisServer, Running, Traffic, Welcome, builder, connect, eventually};
use rustix::process::{Pid, Signal, test_kill_process};
use tempfile::TempDir;

use super::{KEY, SOON};

/// A command that writes into a file what happens to it.
struct Job {
    dir: TempDir,
    server: RedisServer,
}

impl Job {
    async fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), server: RedisServer::start().await }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("events")
    }

    fn events(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// Starts a command that ends 5 at SIGTERM and 6 at SIGINT, and otherwise never. `deaf`: it ignores SIGTERM.
    async fn start(&self, url: String, arguments: &[&str], deaf: bool) -> Running {
        let on_term = if deaf { ":" } else { "echo term; exit 5" };
        let script = format!(
            "exec >>'{}'; trap '{on_term}' TERM; trap 'echo int; exit 6' INT; echo $$; while :; do sleep 0.02; done",
            self.file().display()
        );
        let run = [&["run", KEY][..], arguments, &["--", "/bin/sh", "-c", &script]].concat();
        let running = Running::start(&[url], &run);
        eventually("the command runs", SOON, async || self.events().contains('\n').then_some(()))
            .await;
        running
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.events().lines().next().unwrap().parse().unwrap()).unwrap()
    }

    /// Waits until the command has ended.
    async fn gone(&self) -> Instant {
        let pid = self.pid();
        eventually("the command has ended", SOON, async || {
            test_kill_process(pid).is_err().then(Instant::now)
        })
        .await
    }

    async fn connect(&self) -> LockManager {
        connect([self.server.url()]).await
    }
}

#[tokio::test]
async fn signals_are_passed_on_to_the_command_and_its_status_is_returned() {
    for (signal, word, status) in [(Signal::TERM, "term", 5), (Signal::INT, "int", 6)] {
        let job = Job::new().await;
        let mut running = job.start(job.server.url(), &[], false).await;
        running.signal(signal);
        assert_eq!(running.ended().await.code(), Some(status), "{}", running.log());
        assert!(job.events().ends_with(&format!("{word}\n")), "{}", job.events());
        assert_eq!(job.server.probe().await.get(KEY).await, None, "the lock is left");
    }
}

/// The process group has all processes of a script.
#[tokio::test]
async fn a_signal_reaches_the_children_of_the_command() {
    let job = Job::new().await;
    let script = "sleep 300 & echo $! > \"$0\"; wait";
    let file = job.file().display().to_string();
    let mut running =
        Running::start(&[job.server.url()], &["run", KEY, "--", "/bin/sh", "-c", script, &file]);
    eventually("the command runs", SOON, async || job.events().contains('\n').then_some(())).await;
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await.code(), Some(128 + 15));
    job.gone().await;
}

#[tokio::test]
async fn a_signal_while_it_waits_ends_it_and_leaves_nothing() {
    let job = Job::new().await;
    let locks = job.connect().await;
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut waits =
            Running::start(&[job.server.url()], &["run", KEY, "--wait", "1h", "--", "true"]);
        let mut probe = job.server.probe().await;
        eventually("it waits", SOON, async || {
            let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
            (!channels.is_empty()).then_some(())
        })
        .await;
        waits.signal(signal);
        assert_eq!(waits.ended().await.code(), Some(status), "{}", waits.log());
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert_eq!(job.server.probe().await.get(KEY).await, None);
}

/// The command must end before the lease does, because the next holder begins then.
#[tokio::test]
async fn a_cut_off_command_gets_sigterm_and_sigkill_before_the_validity_ends() {
    for deaf in [false, true] {
        let job = Job::new().await;
        let proxy = Proxy::to(&job.server).await;
        let arguments = ["--expire", "4s", "--grace", "1s"];
        let mut running = job.start(proxy.url(), &arguments, deaf).await;
        proxy.welcome(Welcome::Silence);
        proxy.set_both(Traffic::Hold);
        // The next holder waits on a connection of its own.
        let next = builder([job.server.url()]).connect().await.unwrap();
        let next = next.lock(KEY).expire(super::LONG).wait_time(SOON);
        let next = tokio::spawn(async move {
            let guard = next.acquire().await.unwrap();
            (guard, Instant::now())
        });
        let ended = job.gone().await;
        let (guard, begun) = next.await.unwrap();
        assert!(ended < begun, "the command worked beside the next holder, deaf: {deaf}");
        assert_eq!(job.events().contains("term"), !deaf);
        let status = if deaf { 128 + 9 } else { 5 };
        assert_eq!(running.ended().await.code(), Some(status), "{}", running.log());
        assert!(running.log().contains("SIGTERM"), "{}", running.log());
        drop(guard);
    }
}

#[tokio::test]
async fn a_broken_lock_ends_the_command() {
    let job = Job::new().await;
    let mut running = job.start(job.server.url(), &["--expire", "3s"], false).await;
    let locks = job.connect().await;
    let status = locks.status(KEY).await.unwrap();
    locks.break_lock(KEY, &status.holders()[0]).await.unwrap();
    assert_eq!(running.ended().await.code(), Some(5), "{}", running.log());
    assert!(running.log().contains("the lock is lost"), "{}", running.log());
}

/// A loss is never silent: the status of the command alone would be that of a success.
#[tokio::test]
async fn a_command_that_ends_well_without_its_lock_is_no_success() {
    let job = Job::new().await;
    let script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let arguments = ["run", KEY, "--expire", "3s", "--", "/bin/sh", "-c", script];
    let mut running = Running::start(&[job.server.url()], &arguments);
    let is_ready = async || running.log().contains("ready").then_some(());
    eventually("the shell has set its trap", SOON, is_ready).await;
    job.server.probe().await.command::<()>(["DEL", KEY]).await;
    assert_eq!(running.ended().await.code(), Some(75), "{}", running.log());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_killed_run_takes_its_command_along() {
    let job = Job::new().await;
    let running = job.start(job.server.url(), &[], false).await;
    running.kill();
    job.gone().await;
    assert!(!job.events().contains("term"));
    assert!(job.server.probe().await.get(KEY).await.is_some(), "the lease ends by itself");
}

/// A command that was stopped takes SIGKILL all the same.
#[tokio::test]
async fn a_stopped_command_ends_with_its_lock() {
    let job = Job::new().await;
    let mut running = job.start(job.server.url(), &["--expire", "3s", "--grace", "0"], false).await;
    rustix::process::kill_process(job.pid(), Signal::STOP).unwrap();
    job.server.probe().await.command::<()>(["DEL", KEY]).await;
    let status = running.ended().await.code();
    assert!([Some(5), Some(128 + 9)].contains(&status), "{status:?}");
    job.gone().await;
}
