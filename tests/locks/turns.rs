//! Callers in several processes that acquire the same keys again and again.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redlock_tests::{History, Hold, Servers, holds, overlaps};

/// The longest time for all turns, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A worker process. It is killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes whose callers take turns.
pub(crate) struct Contention {
    pub(crate) processes: usize,
    /// The callers of each process.
    pub(crate) tasks: usize,
    /// The acquisitions of each caller.
    pub(crate) turns: usize,
    /// The keys of all sets.
    pub(crate) keys: usize,
    /// The keys of each set.
    pub(crate) size: usize,
}

impl Contention {
    /// Runs the processes. Checks that each caller had all of its turns, and no two of them had a key at the same time.
    /// Returns the time of each caller with each of its keys.
    pub(crate) async fn run(&self, servers: &Servers) -> Vec<Hold> {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path().join("history"));
        let mut workers: Vec<_> = (0..self.processes)
            .map(|seed| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_turns"));
                command
                    .env("LOCKS_URLS", servers.urls().join(","))
                    .env("SEED", seed.to_string())
                    .env("TASKS", self.tasks.to_string())
                    .env("TURNS", self.turns.to_string())
                    .env("KEYS", self.keys.to_string())
                    .env("SIZE", self.size.to_string())
                    .env("HISTORY", history.path())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped());
                Worker(command.spawn().unwrap())
            })
            .collect();
        let mut outputs: Vec<_> = workers
            .iter_mut()
            .map(|worker| BufReader::new(worker.0.stdout.take().unwrap()))
            .collect();
        for output in &mut outputs {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
        }
        for worker in &mut workers {
            worker.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        }
        // The outputs end with the processes.
        let ended = tokio::task::spawn_blocking(move || {
            for output in &mut outputs {
                output.read_to_end(&mut Vec::new()).unwrap();
            }
        });
        tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap();
        for worker in &mut workers {
            assert!(worker.0.wait().unwrap().success());
        }
        let holds = holds(&history.events().unwrap());
        assert_eq!(holds.len(), self.processes * self.tasks * self.turns * self.size);
        assert_eq!(overlaps(&holds), [], "two holders of one key at once");
        holds
    }
}

/// Returns how often the caller with the worst luck was overtaken in one of its waits: others, who had asked for one of
/// its keys later, had that key before it.
pub(crate) fn most_overtakings(holds: &[Hold]) -> usize {
    let mut by_key: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    let of_key = |holds: &Vec<&Hold>| {
        // Holds are in the order of their beginning.
        let overtaken = |(at, hold): (usize, &&Hold)| {
            holds[..at].iter().filter(|other| other.asked > hold.asked).count()
        };
        holds.iter().enumerate().map(overtaken).max()
    };
    by_key.values().filter_map(of_key).max().unwrap_or_default()
}
