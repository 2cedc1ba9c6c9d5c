//! Processes that hold locks.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::{After, LIMIT};

/// The time between two attempts of a rival.
const PAUSE: Duration = Duration::from_millis(5);

/// The program of a holder.
pub(crate) enum Program {
    /// This program, with the name of a side.
    This(&'static str),
    /// A program in another language.
    Other(PathBuf),
}

/// A process that executes an order in each line of its input, and answers with a line: `try NAME` with `held` or `refused`,
/// `abandon NAME` with `abandoned`, and `watch` with `watching`. Then it writes `lost` when its library says that the lock is
/// lost. It ends with its input.
pub(crate) struct Holder {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    pub(crate) async fn start(program: &Program, url: &str) -> Self {
        let mut command = match program {
            Program::This(side) => {
                let mut command =
                    Command::new(std::env::current_exe().expect("the path of this program"));
                command.arg(side);
                command
            }
            Program::Other(path) => Command::new(path),
        };
        let mut process = command
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a program that starts");
        let orders = process.stdin.take().expect("its input");
        let output = process.stdout.take().expect("its output");
        Self { process, orders, answers: BufReader::new(output).lines() }
    }

    async fn order(&mut self, order: &str) -> String {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.expect("a program that runs");
        self.answers.next_line().await.expect("a line").expect("an answer")
    }

    /// Makes one attempt. Returns whether the process has the lock.
    pub(crate) async fn tries(&mut self, name: &str) -> bool {
        match &*self.order(&format!("try {name}")).await {
            "held" => true,
            "refused" => false,
            other => panic!("{other}"),
        }
    }

    /// Tries until the process has the lock, and returns how long that took.
    pub(crate) async fn gets(&mut self, name: &str) -> After {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if self.tries(name).await {
                return After(Some(begun.elapsed()));
            }
            tokio::time::sleep(PAUSE).await;
        }
        After(None)
    }

    /// Begins an attempt, and stops to wait for it.
    pub(crate) async fn abandons(&mut self, name: &str) {
        assert_eq!(self.order(&format!("abandon {name}")).await, "abandoned");
    }

    /// Lets the process report the loss of its lock.
    pub(crate) async fn watch(&mut self) {
        assert_eq!(self.order("watch").await, "watching");
    }

    /// Waits until the process reports the loss of its lock.
    pub(crate) async fn learns(&mut self) -> After {
        let begun = Instant::now();
        match tokio::time::timeout(LIMIT, self.answers.next_line()).await {
            Ok(line) => {
                assert_eq!(line.expect("a line").as_deref(), Some("lost"));
                After(Some(begun.elapsed()))
            }
            Err(_) => After(None),
        }
    }

    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("an end");
    }
}
