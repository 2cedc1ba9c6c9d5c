//! Child processes of the benchmark: this program in another role.

use std::io::BufRead;
use std::process::Command;

use redlock_tests::Peer;

use crate::comparison::Side;

const ROLE: &str = "PEERS_ROLE";
const SIDE: &str = "PEERS_SIDE";
const URLS: &str = "REDIS_URLS";

/// Returns the role of this process; `None` in the process that measures.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Starts this program in another role. The child reads one order per line of its standard input.
pub(crate) fn start(role: &str, environment: &[(&str, &str)]) -> Peer {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    command.env(ROLE, role).envs(environment.iter().copied());
    Peer::start(&mut command)
}

/// Starts this program in another role, for one side of a comparison on these servers.
pub(crate) fn start_side(role: &str, side: Side, urls: &[String]) -> Peer {
    start(role, &[(SIDE, side.name()), (URLS, &urls.join(","))])
}

/// Runs this program in another role until it ends. The child writes to the same standard output.
pub(crate) fn run(role: &str, environment: &[(&str, &str)]) {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    let status = command.env(ROLE, role).envs(environment.iter().copied()).status();
    assert!(status.expect("the end of the child").success(), "the child {role} has failed");
}

/// Reads the next order; `None` when standard input has ended.
pub(crate) fn order() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    matches!(read, Ok(1..)).then(|| line.trim().to_owned())
}

/// Waits until standard input ends, which it does when the parent ends.
pub(crate) fn wait_for_end_of_input() {
    while order().is_some() {}
}

/// Returns the side of this process.
pub(crate) fn side() -> Side {
    let name = std::env::var(SIDE).expect("PEERS_SIDE is set");
    Side::ALL.into_iter().find(|side| side.name() == name).expect("a side")
}

/// Returns the URLs of the servers of this process.
pub(crate) fn urls() -> Vec<String> {
    let urls = std::env::var(URLS).expect("REDIS_URLS is set");
    urls.split(',').map(str::to_owned).collect()
}
