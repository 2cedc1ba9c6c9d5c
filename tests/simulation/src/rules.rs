//! Rules of the scripts that no test with callers reaches: commands that come twice or late, and what others have left.

use std::time::Duration;

use redlock_core::HolderId;

use super::lua::{self, SCRIPTS};
use super::plan::{Plan, Weakness};
use super::resp::Reply;
use super::store::Store;
use super::world::run_plan;

/// A server with a clock that the test sets.
struct Server(Store);

impl Server {
    fn new() -> Self {
        Self(Store::new("run".to_owned(), Duration::from_secs(1_790_000_000), true, true))
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

    /// Acquires the key `a` for a reader.
    fn share(&mut self, token: &str, lease: &str) -> String {
        self.run("share", &["a"], &[token, "r", lease, "0"])
    }

    fn release_reader(&mut self, token: &str) -> String {
        self.run("release", &["a"], &[token, "r"])
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

/// The reader removes the mark, and with it the key.
#[test]
fn a_mark_from_before_a_step_of_the_clock_ends_at_once() {
    let mut server = Server::new();
    server.share("reader", "5000");
    server.run("acquire", &["a"], &["writer", "5000", "1", "mark", "1000"]);
    assert_eq!(server.release_reader("reader"), Reply::Int(1).shown());
    assert!(server.share("another", "5000").contains('0'), "the mark refuses it");
    server.0.now -= Duration::from_secs(3600);
    assert_eq!(server.share("another", "5000"), Reply::Simple("OK").shown());
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

/// The manager sets a lock again on a server that may have it, with a longer lease.
#[test]
fn an_acquisition_that_comes_again_never_shortens_the_lease() {
    let mut server = Server::new();
    for (held, lease, left) in [("5000", "1000", 5000), ("1000", "5000", 5000)] {
        server.command(&format!("SET a one PX {held}"));
        server.run("acquire", &["a", "b"], &["one", lease, "2", "", ""]);
        assert_eq!(server.0.time_to_live(b"a"), left);
        assert_eq!(server.0.time_to_live(b"b"), left);
        server.command("DEL b");
    }
}

/// The rules of shared locks: the text of the scripts that has the rule, and the text without it. The turn of the readers
/// is missed by `tests/locks/starvation.rs`, the end of each reader by the test below.
const RULES: [(&str, &str, &str); 9] = [
    ("holders refuse a writer", "last == 0 then", "true then"),
    (
        "a mark refuses readers, also after the last reader",
        "if mark > 0 and not",
        "if false and not",
    ),
    (
        "marks alone refuse no writer",
        "local last = math.max(holder,",
        "local last = math.max(mark_end(key), holder,",
    ),
    ("the key ends with its last entry", "last, holder)\n    expire(key)\n", "last, holder)\n"),
    (
        "each reader has an entry of its own",
        "local key, own = KEYS[1], ARGV[2] .. ':' .. ARGV[1]",
        "local key, own = KEYS[1], ARGV[2] .. ':'",
    ),
    ("permits are counted", "local _, taken = member(key, -ARGV[4])", "local taken = 0"),
    ("permits are counted beside others", "and (ARGV[4] == '0' or", "and (true or"),
    (
        "a reader that joins never shortens the life of the key",
        "if tonumber(ARGV[3]) < left then",
        "if false then",
    ),
    (
        "the key ends with the last of the holders that remain",
        "if tonumber(last) ~= now + left then",
        "if false then",
    ),
];

#[test]
fn the_simulation_finds_each_rule_of_shared_locks_that_is_missing() {
    const TRIES: u64 = 20;
    for (rule, text, without) in RULES {
        let found = lua::changed(text, without, || {
            (0..TRIES).find_map(|seed| {
                let plans = [
                    Plan::calm(seed),
                    Plan::calm_readers(seed),
                    Plan::from_seed(seed, Weakness::None),
                ];
                let violation = |plan| run_plan(plan, false).violations.into_iter().next();
                plans.into_iter().find_map(violation).map(|violation| (seed, violation))
            })
        });
        // The rest of a violation has the tokens at the key.
        let words = found.as_ref().map(|(seed, words)| (seed, words.split(": ").next()));
        println!("without \"{rule}\": {words:?}");
        assert!(found.is_some(), "the simulation does not notice that a rule is missing: {rule}");
    }
}

/// Otherwise each release would wake the writer, which would ask in vain.
#[test]
fn only_the_release_of_the_last_holder_wakes_a_waiting_writer() {
    let mut server = Server::new();
    server.0.execute(1, server.0.now, &[b"SUBSCRIBE".to_vec(), b"a".to_vec()]);
    let mut wakes = |lease: [&str; 3], order: [usize; 3]| {
        let tokens = ["one", "two", "three"];
        for (token, lease) in tokens.iter().zip(lease) {
            server.run("share", &["a"], &[token, "r", lease, "0"]);
        }
        server.run("acquire", &["a"], &["writer", "5000", "1", "mark", "1000"]);
        let woken = order.map(|reader| server.run("release", &["a"], &[tokens[reader], "r"]));
        server.run("withdraw", &["a"], &["mark"]);
        woken.map(|reply| reply == Reply::Int(2).shown())
    };
    assert_eq!(wakes(["1000", "2000", "3000"], [0, 1, 2]), [false, false, true]);
    // The writer sleeps until the end of the holder that is the last one now.
    assert_eq!(wakes(["1000", "2000", "3000"], [2, 1, 0]), [true, true, true]);
}

/// Each entry ends by itself, although others prolong the life of the key.
#[test]
fn a_reader_that_has_ended_keeps_nobody_out() {
    let mut server = Server::new();
    for (token, lease) in [("dead", "100"), ("living", "5000")] {
        server.share(token, lease);
    }
    server.advance(Duration::from_millis(200));
    server.run("extend", &["a"], &["living", "r", "9000"]);
    assert_eq!(server.run("extend", &["a"], &["dead", "r", "9000"]), Reply::Int(0).shown());
    assert_eq!(server.run("release", &["a"], &["dead", "r"]), Reply::Int(0).shown());
    server.run("release", &["a"], &["living", "r"]);
    assert_eq!(server.command("EXISTS a"), Reply::Int(0).shown());
}

/// Otherwise the entries of crashed readers would stay as long as other readers come and go.
#[test]
fn an_acquisition_and_a_release_remove_the_entries_that_have_ended() {
    for (script, token, reply) in [
        ("share", "new", Reply::Simple("OK")),
        ("release", "living", Reply::Int(1)),
        ("release", "dead", Reply::Int(0)),
    ] {
        let mut server = Server::new();
        for (token, lease) in [("dead", "100"), ("living", "5000"), ("other", "5000")] {
            server.share(token, lease);
        }
        server.advance(Duration::from_millis(200));
        assert_eq!(
            server.run(
                script,
                &["a"],
                &[token, "r", "5000", "0"][..if script == "share" { 4 } else { 2 }]
            ),
            reply.shown()
        );
        assert_eq!(server.command("ZSCORE a r:dead"), Reply::Null.shown());
    }
}

/// Also after others have changed the life time of the key.
#[test]
fn a_key_lives_as_long_as_its_last_reader() {
    let mut server = Server::new();
    for (token, lease, left) in
        [("one", "5000", 5000), ("two", "2000", 5000), ("three", "9000", 9000)]
    {
        server.share(token, lease);
        assert_eq!(server.0.time_to_live(b"a"), left, "{token}");
    }
    // The manager may send an acquisition twice, so the second one has the same token.
    for (token, lease) in [("one", "9000"), ("one", "1000"), ("three", "1000")] {
        server.share(token, lease);
        assert_eq!(
            server.command(&format!("ZSCORE a r:{token}")),
            Reply::bulk("1790000009000").shown()
        );
    }
    for (others, lease, left) in [
        ("PEXPIRE a 60000", "1000", 9000),
        ("PEXPIRE a 60000", "20000", 20000),
        ("PEXPIRE a 3000", "1000", 9000),
    ] {
        server.command(others);
        server.share("four", lease);
        assert_eq!(server.0.time_to_live(b"a"), left, "{others}");
        server.command(others);
        server.release_reader("four");
        assert_eq!(server.0.time_to_live(b"a"), 9000, "{others}");
    }
    server.run("extend", &["a"], &["two", "r", "7000"]);
    for (token, left) in [("three", 9000), ("one", 7000), ("two", -2)] {
        assert_eq!(server.release_reader(token), Reply::Int(1).shown());
        assert_eq!(server.0.time_to_live(b"a"), left, "{token}");
    }
}

/// A waiter for a permit asks again as soon as a permit is free. An exclusive caller would ask in vain.
#[test]
fn the_release_of_one_of_several_permits_notifies_the_callers_for_permits() {
    for (kind, permits, notified) in [("p", "2", 1), ("r", "0", 0)] {
        let mut server = Server::new();
        server.0.execute(1, server.0.now, &[b"SUBSCRIBE".to_vec(), b"a".to_vec()]);
        for token in ["one", "two"] {
            server.run("share", &["a"], &[token, kind, "5000", permits]);
        }
        let other =
            if kind == "p" { ["three", "r", "5000", "0"] } else { ["three", "p", "5000", "9"] };
        for refused in [["three", "p", "5000", "2"], other] {
            let reply = server.run("share", &["a"], &refused);
            // These holders have no label.
            let none = || Reply::Bulk(Vec::new());
            let refusal = vec![Reply::Int(0), Reply::Int(5000), none(), none()];
            assert_eq!(reply, Reply::Array(refusal).shown());
        }
        // A token that has a permit already needs no further one.
        assert_eq!(
            server.run("share", &["a"], &["two", kind, "5000", permits]),
            Reply::Simple("OK").shown()
        );
        assert_eq!(server.run("release", &["a"], &["three", kind]), Reply::Int(0).shown());
        for (token, notified) in [("one", notified), ("two", 1)] {
            let reply = server.run("release", &["a"], &[token, kind]);
            assert_eq!(reply, Reply::Int(1 + notified).shown(), "{kind} {token}");
        }
    }
}

/// Redis keeps the writes of a script that fails. Redis 6.2 cannot check a permission before a script writes.
#[test]
fn a_reader_that_may_not_set_a_deadline_leaves_no_key() {
    const CHECK: &str = "redis.acl_check_cmd and";
    for (check, denied) in [(CHECK, &["PEXPIREAT", "DEL"][..]), ("false and", &["PEXPIREAT"])] {
        lua::changed(CHECK, check, || {
            let mut server = Server::new();
            server.0.denied = denied;
            let reply = server.run("share", &["a"], &["one", "r", "1000", "0"]);
            assert!(reply.contains("NOPERM"), "{reply}");
            assert!(server.0.keys.is_empty(), "{:?}", server.0.keys);
        });
    }
}

/// Others may remove the deadline, or the member that marks the set as a shared lock.
#[test]
fn a_reader_neither_releases_nor_joins_a_foreign_key() {
    for (is_persisted, readers, reply) in
        [(true, 1, -1), (false, 1, -3), (true, 2, -1), (false, 2, -3)]
    {
        let mut server = Server::new();
        for token in &["one", "two"][..readers] {
            server.share(token, "1000");
        }
        if is_persisted {
            server.0.keys.get_mut(&b"a"[..]).expect("a lock").until = None;
        } else {
            server.command("ZREM a shared");
            server.command("ZADD a 0 other");
        }
        let refused = Reply::Array(vec![Reply::Int(0), Reply::Int(reply)]);
        assert_eq!(server.share("three", "1000"), refused.shown());
        assert_eq!(server.release_reader("one"), Reply::Int(reply).shown());
        assert_eq!(server.command("ZSCORE a r:one"), Reply::bulk("1790000001000").shown());
    }
}

#[test]
fn a_reader_does_not_join_a_set_with_another_score_of_the_member_shared() {
    let mut server = Server::new();
    server.share("one", "1000");
    server.command("ZADD a 1 shared");
    let refused = Reply::Array(vec![Reply::Int(0), Reply::Int(-3)]);
    assert_eq!(server.share("two", "1000"), refused.shown());
}

/// A holder that has changed since the status survives, and so do the other holders of a shared lock.
#[test]
fn a_break_removes_the_holder_with_its_id_and_no_other() {
    const MOST: &str = "1001";
    let [one, two] = ["1", "2"].map(|digit| format!("{}@shop/1790000000", digit.repeat(32)));
    let id = |owner: &str| HolderId::of(owner).to_string();
    let shown = |items: Vec<Reply>| Reply::Array(items).shown();
    let described = |owner: &str, left: i64| {
        [Reply::bulk(id(owner)), Reply::bulk("shop"), Reply::bulk("1790000000"), Reply::Int(left)]
    };
    let mut server = Server::new();
    let free = shown(vec![Reply::Int(0)]);
    assert_eq!(server.run("look", &["a"], &[MOST]), free);
    assert_eq!(server.run("break", &["a"], &[&id(&one), MOST]), free);

    server.command(&format!("SET a {one} PX 5000"));
    let [name, label, since, left] = described(&one, 5000);
    let exclusive = shown(vec![Reply::Int(1), name, label, since, left]);
    assert_eq!(server.run("look", &["a"], &[MOST]), exclusive);
    assert_eq!(server.run("break", &["a"], &[&id(&two), MOST]), free, "another holder");
    server.advance(Duration::from_secs(1));
    let removed = shown(vec![Reply::Int(1), Reply::Int(4000)]);
    assert_eq!(server.run("break", &["a"], &[&id(&one), MOST]), removed);
    assert_eq!(server.run("look", &["a"], &[MOST]), free);

    server.share(&one, "5000");
    server.share(&two, "9000");
    let removed = shown(vec![Reply::Int(1), Reply::Int(5000)]);
    assert_eq!(server.run("break", &["a"], &[&id(&one), MOST]), removed);
    let shared = Reply::Array(described(&two, 9000).into());
    let shared = shown(vec![Reply::Int(2), Reply::Int(0), shared]);
    assert_eq!(server.run("look", &["a"], &[MOST]), shared);
    server.release_reader(&two);
    assert_eq!(server.run("look", &["a"], &[MOST]), free);
}
