//! Runs the trials of README.md with this library and others, each in a process of its own, and prints their table.
#![allow(clippy::unwrap_used, reason = "a trial that cannot continue must stop")]

#[cfg(feature = "sqlx")]
mod advisory;
mod holder;
mod server;

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::sleep;

use server::Server;

const LIBRARIES: &[&str] = &[
    "this library",
    "rslock",
    "redsync",
    #[cfg(feature = "sqlx")]
    "`PgAdvisoryLock`",
    "`SET NX`",
];
/// Short, for the trial of a renewal. Renewals of a busy machine come within it.
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(12);
/// What comes within this time does not come by the end of a long lease.
pub const SOON: Duration = Duration::from_secs(6);

/// A process with a lock.
struct Holder {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(library: &str, url: &str, work: &str, lease: Duration) -> Self {
        let lease = lease.as_millis().to_string();
        let program = match library {
            "redsync" => std::env::var("REDSYNC_TRIAL").unwrap(),
            _ => std::env::current_exe().unwrap().to_str().unwrap().to_owned(),
        };
        let mut command = Command::new(program);
        command.args([library, url, work, &lease]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn says(&mut self, word: &str) {
        let line = self.lines.next_line().await.unwrap();
        assert_eq!(line.as_deref(), Some(word));
    }
}

const TRIALS: [&str; 5] = [
    "the work takes three leases, and stays locked",
    "the lock is taken away: the holder is told",
    "the caller leaves while it acquires: the lock is free at once",
    "the guard is dropped: the lock is free at once",
    "the holder is killed: the lock is free",
];

async fn trial(number: usize, library: &str) -> &'static str {
    let yes = |held| if held { "yes" } else { "no" };
    let server = Server::start(library).await;
    let url = server.url();
    match number {
        0 => {
            let mut holder = Holder::start(library, &url, "hold", SHORT).await;
            holder.says("held").await;
            sleep(SHORT * 3).await;
            yes(server.is_locked().await)
        }
        1 => {
            let mut holder = Holder::start(library, &url, "hold", LONG).await;
            holder.says("held").await;
            server.take_away().await;
            match tokio::time::timeout(SOON, holder.says("lost")).await {
                Ok(()) => "at once",
                Err(_) => match tokio::time::timeout(LONG, holder.says("lost")).await {
                    Ok(()) => "at the next renewal",
                    Err(_) => "no",
                },
            }
        }
        2 => {
            let delay = server.delay().await;
            let mut holder = Holder::start(library, &url, "cancel", LONG).await;
            holder.says("cancelled").await;
            delay.end().await;
            yes(server.is_free_soon().await)
        }
        3 => {
            let mut holder = Holder::start(library, &url, "drop", LONG).await;
            holder.says("dropped").await;
            yes(server.is_free_soon().await)
        }
        _ => {
            let mut holder = Holder::start(library, &url, "hold", LONG).await;
            holder.says("held").await;
            holder.child.kill().await.unwrap();
            if server.is_free_soon().await { "at once" } else { "when the lease ends" }
        }
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let [library, url, work, lease] = &*words {
        return holder::run(library, url, work, Duration::from_millis(lease.parse().unwrap()))
            .await;
    }
    println!("| trial | {} |\n|---{}|", LIBRARIES.join(" | "), "|---".repeat(LIBRARIES.len()));
    for (number, name) in TRIALS.iter().enumerate() {
        let mut row = format!("| {name} |");
        for library in LIBRARIES {
            row += &format!(" {} |", trial(number, library).await);
        }
        println!("{row}");
    }
}
