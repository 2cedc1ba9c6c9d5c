//! `redlock run`: a command under a lock.

use std::time::Duration;

use redlock_core::LockManager;
use redlock_tests::{
    Nodes, RedisServer, Running, connect, eventually, on_each_kind_of_nodes, redlock,
};
use tempfile::TempDir;

use super::{KEY, SOON, done, finish, held, labelled};

async fn a_command_runs_under_a_renewed_lock_and_gives_its_exit_status(nodes: Nodes) {
    let urls = nodes.urls();
    let script = "echo \"$LOCK_KEY $LOCK_FENCING_TOKEN\"; exit 7";
    let first = done(&urls, &["run", KEY, "--", "/bin/sh", "-c", script]).await;
    assert_eq!((first.status, &*first.err), (7, ""), "{first:?}");
    let second = done(&urls, &["run", KEY, "--", "/bin/sh", "-c", script]).await;
    let token = |done: &super::Done| {
        let (key, token) = done.out.trim().split_once(' ').unwrap();
        assert_eq!(key, KEY);
        token.parse::<i64>().unwrap()
    };
    assert!(token(&second) > token(&first), "{first:?} {second:?}");
    assert_eq!(done(&urls, &["status", KEY]).await.status, 0, "the lock was released");

    let locks = labelled(&urls, "shop-7f9c").await;
    let guard = held(&locks, KEY).await;
    let refused = done(&urls, &["run", KEY, "--", "echo", "it runs"]).await;
    assert_eq!((refused.status, &*refused.out), (75, ""));
    assert!(refused.err.contains("shop-7f9c"), "{refused:?}");
    let refused = done(&urls, &["run", KEY, "--wait", "300ms", "--", "echo", "it runs"]).await;
    assert_eq!((refused.status, &*refused.out), (75, ""));
    let waits = done(&urls, &["run", KEY, "--wait", "1m", "--", "echo", "it runs"]);
    let (waited, ()) = tokio::join!(waits, async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        guard.release().await.unwrap();
    });
    assert_eq!((waited.status, &*waited.out), (0, "it runs\n"), "{waited:?}");
}

/// A command that works until the test ends it.
struct Work {
    dir: TempDir,
    running: Running,
}

impl Work {
    fn start(urls: &[String], arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("end").display().to_string();
        let script = "while [ ! -e \"$0\" ]; do sleep 0.02; done";
        let run = [&["run", KEY][..], arguments, &["--", "/bin/sh", "-c", script, &file]].concat();
        Self { running: Running::start(urls, &run), dir }
    }

    /// Ends the command, which succeeds.
    async fn succeeds(mut self) {
        std::fs::write(self.dir.path().join("end"), "").unwrap();
        assert_eq!(self.running.ended().await.code(), Some(0), "{}", self.running.log());
    }
}

/// Waits until the rest of the lease has grown, which it does only by an extension. The holder stays the same.
async fn is_extended(locks: &LockManager) {
    let holder = async || {
        let status = locks.status(KEY).await.unwrap();
        let holder = status.holders().first()?;
        Some((holder.id(), holder.remaining()?))
    };
    let (id, mut least) = eventually("the command has its lock", SOON, &holder).await;
    eventually("the lease is extended", SOON, async || {
        let (present, rest) = holder().await.expect("a holder");
        assert_eq!(present, id);
        let is_longer = rest > least + Duration::from_millis(100);
        least = least.min(rest);
        is_longer.then_some(())
    })
    .await;
}

async fn the_lease_is_renewed_while_the_command_runs(nodes: Nodes) {
    let urls = nodes.urls();
    let locks = connect(&urls).await;
    let work = Work::start(&urls, &["--expire", "6s", "--grace", "100ms"]);
    is_extended(&locks).await;
    work.succeeds().await;
}

on_each_kind_of_nodes! {
    [
        redis: Nodes::redis(1).await,
        postgres: Nodes::postgres(1, 0).await,
        zookeeper: Nodes::zookeeper().await,
    ]
    if_all_kinds [redis_x5: Nodes::redis(5).await,]
    [a_command_runs_under_a_renewed_lock_and_gives_its_exit_status,]
}

mod renewal {
    use super::*;

    // A server of ZooKeeper shows no rest: the session has it.
    on_each_kind_of_nodes! {
        [
            redis: Nodes::redis(1).await,
            postgres: Nodes::postgres(1, 0).await,
        ]
        if_all_kinds [redis_x5: Nodes::redis(5).await,]
        [the_lease_is_renewed_while_the_command_runs,]
    }
}

#[tokio::test]
async fn a_lock_that_is_kept_admits_one_run_in_all_copies() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
    let run = async || done(&urls, &["run", "nightly", "--keep", "1h", "--", "echo", "done"]).await;
    let (one, two, three) = tokio::join!(run(), run(), run());
    let mut statuses = [one.status, two.status, three.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [0, 75, 75], "{one:?} {two:?} {three:?}");
    let rest = server.probe().await.time_to_live("nightly").await.unwrap();
    assert!(rest > Duration::from_secs(3500), "{rest:?}");
}

/// Another holder has the lock: nothing is printed, so that cron sends no mail. Any other failure is one.
#[tokio::test]
async fn a_run_that_may_be_skipped_is_silent_only_if_another_holder_has_the_lock() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
    let run = async |more: &[&str]| {
        done(&urls, &[&["run", KEY, "--skip"][..], more, &["--", "echo", "it runs"]].concat()).await
    };
    let free = run(&[]).await;
    assert_eq!((free.status, &*free.out), (0, "it runs\n"), "{free:?}");
    let locks = connect(&urls).await;
    let guard = held(&locks, KEY).await;
    for more in [&[][..], &["--wait", "300ms"], &["--keep", "1h"]] {
        let skipped = run(more).await;
        assert_eq!((skipped.status, &*skipped.out, &*skipped.err), (0, "", ""), "{more:?}");
    }
    guard.release().await.unwrap();
    drop(server);
    let unavailable = run(&[]).await;
    assert_eq!((unavailable.status, &*unavailable.out), (75, ""), "{unavailable:?}");
    assert!(!unavailable.err.is_empty());
}

/// The time for which the lock is kept is over, and the command still runs.
#[tokio::test]
async fn a_command_that_takes_longer_than_its_lock_is_kept_still_has_it() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
    let locks = connect(&urls).await;
    let work = Work::start(&urls, &["--keep", "4s", "--grace", "100ms"]);
    is_extended(&locks).await;
    work.succeeds().await;
}

#[tokio::test]
async fn a_lock_in_zookeeper_cannot_be_kept() {
    let nodes = Nodes::zookeeper().await;
    if nodes.is_empty() {
        return;
    }
    let refused = done(&nodes.urls(), &["run", KEY, "--keep", "2s", "--", "echo", "it runs"]).await;
    assert_eq!((refused.status, &*refused.out), (2, ""), "{refused:?}");
    assert!(refused.err.contains("ZooKeeper ends with its session"), "{refused:?}");
}

#[tokio::test]
async fn a_command_that_cannot_be_executed_gives_the_status_of_a_shell_and_leaves_no_lock() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
    for (program, status, words) in
        [("/no/such", 127, "No such file"), ("/etc", 126, "Permission denied")]
    {
        let failed = done(&urls, &["run", KEY, "--", program]).await;
        assert_eq!(failed.status, status, "{failed:?}");
        assert!(failed.err.contains(program) && failed.err.contains(words), "{failed:?}");
        // A typo must not cost the next period.
        let kept = done(&urls, &["run", KEY, "--keep", "1h", "--", program]).await;
        assert_eq!(kept.status, status, "{kept:?}");
        assert_eq!(server.probe().await.get(KEY).await, None, "{program}");
    }
    let by_signal = done(&urls, &["run", KEY, "--", "/bin/sh", "-c", "kill -SEGV $$"]).await;
    assert_eq!(by_signal.status, 128 + 11, "{by_signal:?}");
    assert_eq!(server.probe().await.get(KEY).await, None);
}

/// The command reads what the caller gives it.
#[tokio::test]
async fn standard_input_is_that_of_the_command() {
    let server = RedisServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("input");
    std::fs::write(&file, "from the file").unwrap();
    let mut command = redlock(&[server.url()]);
    command.args(["run", KEY, "--", "cat"]).stdin(std::fs::File::open(&file).unwrap());
    assert_eq!(finish(command).await.out, "from the file");
}
