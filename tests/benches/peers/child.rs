//! Child processes of the benchmark: this program in another role.

use std::io::BufRead;
use std::process::Command;

use redlock_tests::Peer;

const ROLE: &str = "PEERS_ROLE";

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

/// Returns the URLs of the servers, from the environment variable `REDIS_URLS`.
pub(crate) fn urls() -> Vec<String> {
    let urls = std::env::var("REDIS_URLS").expect("REDIS_URLS is set");
    urls.split(',').map(str::to_owned).collect()
}
