//! Processes that use the locks of other libraries.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The longest time for an answer. The first answer includes the start of the program.
const ANSWER: Duration = Duration::from_secs(60);

/// A program that reads one order per line and answers each order with one line. It ends when its standard
/// input ends, so also when this process is killed.
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
    /// If the program cannot be started.
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

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has ended by itself. Blocks the thread.
    ///
    /// # Panics
    ///
    /// If the program cannot be waited for.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the program's exit status")
    }

    /// Sends an order without waiting for its answer.
    ///
    /// # Panics
    ///
    /// If the program has ended.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("a program that runs");
    }

    /// Waits for the next answer. Blocks the thread.
    ///
    /// # Panics
    ///
    /// If no answer arrives within a minute.
    pub fn answer(&mut self) -> String {
        self.answers.recv_timeout(ANSWER).expect("an answer")
    }

    /// Sends an order and waits for its answer.
    ///
    /// # Panics
    ///
    /// As [`answer`](Self::answer).
    pub fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
