//! Other libraries' locks, in processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long an answer may take; the first one takes as long as the program needs to start.
const ANSWER: Duration = Duration::from_secs(60);

/// A program that does what it is told, line by line, and answers each line with one. It ends when
/// its standard input does, so also when this process is killed.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Peer {
    /// Starts the program.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(program: &mut Command) -> Self {
        let mut child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that starts");
        let orders = child.stdin.take().expect("its standard input");
        let output = child.stdout.take().expect("its standard output");
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, orders, answers }
    }

    /// Gives an order without waiting for its answer.
    ///
    /// # Panics
    ///
    /// When the program has ended.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("a program that runs");
    }

    /// Waits for the next answer. Blocks the thread.
    ///
    /// # Panics
    ///
    /// When there is none within a minute.
    pub fn answer(&mut self) -> String {
        self.answers.recv_timeout(ANSWER).expect("an answer")
    }

    /// Gives an order and waits for its answer.
    ///
    /// # Panics
    ///
    /// As [`answer`](Self::answer).
    pub fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Says aloud that a test was skipped.
    ///
    /// # Panics
    ///
    /// In CI (`CI=true`), where that is a failure.
    pub fn skip(why: &str) {
        let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
        assert!(!in_ci, "{why}, which is a failure in CI");
        // Not by a macro, whose output the test runner would keep to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED a test: {why}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
