//! Rules of the scripts that no test with callers reaches: commands that come twice or late, and what others have left.

use std::time::Duration;

use super::lua::{self, SCRIPTS};
use super::resp::Reply;
use super::store::Store;

/// A server with a clock that the test sets.
struct Server(Store);

impl Server {
    fn new() -> Self {
        Self(Store::new("run".to_owned(), Duration::from_secs(1_790_000_000)))
    }

    fn advance(&mut self, time: Duration) {
        self.0.now += time;
    }

    fn run(&mut self, script: &str, keys: &[&str], arguments: &[&str]) -> String {
        let script = SCRIPTS.iter().find(|other| other.name == script).expect("a script");
        let bytes = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        let (keys, arguments): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (bytes(keys), bytes(arguments));
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        lua::run(&mut self.0, script, &keys, &arguments).shown()
    }

    fn command(&mut self, words: &str) -> String {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        let (Ok(reply) | Err(reply)): Result<Reply, Reply> = self.0.command(&words);
        reply.shown()
    }
}

const PRESENCE: &str = "3000000";

fn enter(server: &mut Server, process: &str, ticket: &str) -> String {
    server.run("fair", &["queue"], &[process, PRESENCE, "enter", ticket, "0"])
}

#[test]
fn a_confirmation_of_several_keys_never_lowers_a_counter() {
    let mut server = Server::new();
    for words in ["SET a one", "SET b one", "SET low 5", "SET high 900"] {
        server.command(words);
    }
    let keys = ["a", "b", "low", "high"];
    server.run("confirm", &keys, &["one", "70", "2"]);
    assert_eq!(server.command("GET low"), Reply::bulk("70").shown());
    assert_eq!(server.command("GET high"), Reply::bulk("900").shown());
    server.run("confirm", &keys, &["another", "1000", "2"]);
    assert_eq!(server.command("GET high"), Reply::bulk("900").shown(), "the owner is not compared");
}

/// The process does not know whether its first command has arrived.
#[test]
fn a_ticket_that_is_entered_again_keeps_its_place() {
    let mut server = Server::new();
    for (process, ticket) in [("one", "1"), ("two", "2"), ("one", "1")] {
        let reply = enter(&mut server, process, ticket);
        assert!(reply.contains("one:1"), "{reply}");
        server.advance(Duration::from_millis(10));
    }
}

/// Its processes may all be killed.
#[test]
fn every_queue_has_a_deadline() {
    let mut server = Server::new();
    enter(&mut server, "one", "1");
    assert!((2990..=3000).contains(&server.0.time_to_live(b"queue")));
    server.advance(Duration::from_secs(1));
    server.run("fair", &["queue"], &["one", PRESENCE, "refresh"]);
    assert!((2990..=3000).contains(&server.0.time_to_live(b"queue")));
}

/// The clock was stepped back while a process waited that is dead now.
#[test]
fn a_presence_from_before_a_step_of_the_clock_ends_at_once() {
    let mut server = Server::new();
    enter(&mut server, "dead", "1");
    server.0.now -= Duration::from_secs(3600);
    let reply = enter(&mut server, "one", "2");
    assert!(reply.contains("one:2"), "{reply}");
}

/// A downgrade that arrives twice, or late, never shares the exclusive lock of another token.
#[test]
fn a_downgrade_compares_the_token() {
    let mut server = Server::new();
    server.command("SET a other PX 5000");
    assert_eq!(server.run("downgrade", &["a"], &["one"]), Reply::Int(0).shown());
    assert_eq!(server.command("GET a"), Reply::bulk("other").shown());
    server.command("SET a one PX 5000");
    for _ in 0..2 {
        assert_eq!(server.run("downgrade", &["a"], &["one"]), Reply::Int(1).shown());
        assert_eq!(server.0.time_to_live(b"a"), 5000);
    }
}
