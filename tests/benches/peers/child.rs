//! Child processes of the benchmark: this program in another role.

use std::process::Command;

use redlock_tests::Peer;

use crate::comparison::Side;

/// The first argument of a child.
const CHILD: &str = "child";

/// Returns the role of this process and its further arguments; `None` in the process that measures.
pub(crate) fn role() -> Option<(String, [String; 2])> {
    let mut arguments = std::env::args().skip(1);
    arguments.next().filter(|first| first == CHILD)?;
    let mut argument = || arguments.next();
    Some((argument()?, [argument()?, argument()?]))
}

/// Starts this program in another role, for one side of a comparison on a server.
pub(crate) fn start(role: &str, side: Side, url: &str) -> Peer {
    start_with(role, [side.name(), url])
}

/// Starts this program in another role. The child reads one order per line of its standard input.
pub(crate) fn start_with(role: &str, arguments: [&str; 2]) -> Peer {
    let program = std::env::current_exe().expect("the path of this program");
    Peer::start(Command::new(program).args([CHILD, role]).args(arguments))
}

/// Reads the next order; `None` when standard input has ended.
pub(crate) fn order() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    matches!(read, Ok(1..)).then(|| line.trim().to_owned())
}
