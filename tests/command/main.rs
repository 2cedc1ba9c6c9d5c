//! The command `redlock` over every kind of node, in processes of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod mistakes;
mod nodes;
mod page;
mod run;
mod run_endings;
mod status_and_break;
mod storm;
mod terminal;
mod watch;

use std::process::{Command, Output};
use std::time::Duration;

use redlock_core::{LockGuard, LockManager};
use redlock_tests::{builder, find_secret, redlock};
use serde_json::Value;

const KEY: &str = "order:42";
/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
/// Deadline for what takes no time, or a lease of some seconds, on an idle machine.
const SOON: Duration = Duration::from_secs(120);

/// What a command has printed, and its exit status.
#[derive(Debug)]
struct Done {
    status: i32,
    out: String,
    err: String,
}

impl Done {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs the command with these nodes and arguments until it ends.
async fn done(urls: &[String], arguments: &[&str]) -> Done {
    let mut command = redlock(urls);
    command.args(arguments);
    finish(command).await
}

/// Runs a command until it ends. It prints no secret.
async fn finish(mut command: Command) -> Done {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let Output { status, stdout, stderr } = output;
    let done = Done {
        status: status.code().unwrap_or(-1),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    };
    for text in [&done.out, &done.err] {
        assert!(find_secret(text).is_none(), "a secret: {text}");
    }
    done
}

/// Connects a manager with this label, whose lock the command shows.
async fn labelled(urls: &[String], label: &str) -> LockManager {
    builder(urls).owner_label(label).connect().await.unwrap()
}

/// Acquires the lock of the tests. ZooKeeper grants no lease as long as this, so it has the manager's.
async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).try_acquire().await.unwrap()
}
