//! Processes beside the one that measures: this program in another role.

use std::io::BufRead;
use std::process::Command;

use redlock_tests::Peer;

const ROLE: &str = "PEERS_ROLE";

/// What this process is for, if it is not the one that measures.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Starts this program in another role. It takes orders line by line.
pub(crate) fn start(role: &str, environment: &[(&str, &str)]) -> Peer {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.env(ROLE, role).envs(environment.iter().copied());
    Peer::start(&mut command)
}

/// The next order; `None` when nobody gives orders any more.
pub(crate) fn order() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    matches!(read, Ok(1..)).then(|| line.trim().to_owned())
}

/// Waits until nobody gives orders any more.
pub(crate) fn until_orphaned() {
    while order().is_some() {}
}

/// The URLs of the servers that a process was told of.
pub(crate) fn urls() -> Vec<String> {
    let urls = std::env::var("REDIS_URLS").expect("REDIS_URLS");
    urls.split(',').map(str::to_owned).collect()
}
