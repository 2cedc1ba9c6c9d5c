//! What a server answers: the same requests to a simulated server and to a real one.
//!
//! A line is the connection, `>`, a request, `=>` and the reply; without a request, what comes in by
//! itself. `EVALSHA Name` stands for the script of this name. A reply is written as
//!
//! | | |
//! |---|---|
//! | `OK`, `nil`, `7`, `"text"`, `push message k 0` | itself |
//! | `~1000` | a number of milliseconds, up to this one and not far below |
//! | `a number from the clock` | the time in microseconds or later, as text |
//! | `-NOSCRIPT` | an error that begins so |
//! | `has run_id:` | a text with this in it |

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bb8_redis::redis::{Value, parse_redis_value};

use super::real::RealServer;
use super::resp::{Request, show};
use super::store::Store;
use crate::node::redis::scripts;

const CASES: &[(&str, &str)] = &[
    (
        "a key that is free is set, one that is not is refused",
        r#"
        a> SET k t NX PX 1000 => OK
        a> SET k u NX PX 1000 => nil
        a> GET k => "t"
        a> EVALSHA PlainInspect 1 k => ~1000
        "#,
    ),
    (
        "a key runs out",
        r"
        a> SET k t NX PX 20 => OK
        wait 60
        a> GET k => nil
        a> EVALSHA PlainInspect 1 k => -2
        a> EVALSHA PlainExtend 1 k t 1000 => 0
        a> EVALSHA PlainRelease 1 k t => 0
        a> EVALSHA PlainShorten 1 k t 1 => 0
        a> SET k u NX PX 1000 => OK
        ",
    ),
    (
        "an extension lengthens the owner's key and never shortens",
        r"
        a> SET k t NX PX 1000 => OK
        a> EVALSHA PlainExtend 1 k t 5000 => 1
        a> PTTL k => ~5000
        a> EVALSHA PlainExtend 1 k t 100 => 1
        a> PTTL k => ~5000
        a> EVALSHA PlainExtend 1 k u 9000 => 0
        a> PTTL k => ~5000
        ",
    ),
    (
        "a release compares the owner",
        r#"
        a> SET k t NX PX 1000 => OK
        a> EVALSHA PlainRelease 1 k u => 0
        a> GET k => "t"
        a> EVALSHA PlainRelease 1 k t => 1
        a> GET k => nil
        a> EVALSHA PlainRelease 1 k t => 0
        "#,
    ),
    (
        "a release is announced to those who listen",
        r"
        b> SUBSCRIBE k other => push subscribe k 1
        b> => push subscribe other 2
        c> SUBSCRIBE k => push subscribe k 1
        a> SET k t NX PX 1000 => OK
        a> EVALSHA PlainRelease 1 k t => 3
        b> => push message k 0
        c> => push message k 0
        b> UNSUBSCRIBE k => push unsubscribe k 1
        a> SET k t NX PX 1000 => OK
        a> EVALSHA PlainShorten 1 k t 500 => 2
        c> => push message k 0
        a> PUBLISH other hello => 1
        b> => push message other hello
        b> UNSUBSCRIBE other => push unsubscribe other 0
        a> PUBLISH other hello => 0
        ",
    ),
    (
        "a lock that has to stay is shortened and not removed",
        r"
        a> SET k t NX PX 5000 => OK
        a> EVALSHA PlainShorten 1 k u 1000 => 0
        a> PTTL k => ~5000
        a> EVALSHA PlainShorten 1 k t 1000 => 1
        a> PTTL k => ~1000
        a> EVALSHA PlainShorten 1 k t 3000 => 1
        a> PTTL k => ~1000
        ",
    ),
    (
        "a key of another type is none of ours",
        r"
        a> HSET k f v => 1
        a> EVALSHA PlainInspect 1 k => -3
        a> SET k t NX PX 1000 => nil
        a> EVALSHA PlainFenced 2 k c t 1000 => -3
        a> EVALSHA PlainConfirm 2 k c t 7 => -3
        a> EVALSHA PlainExtend 1 k t 1000 => -3
        a> EVALSHA PlainRelease 1 k t => -3
        a> EVALSHA PlainShorten 1 k t 1 => -3
        a> PTTL k => -1
        a> GET k => -WRONGTYPE
        a> GET c => nil
        ",
    ),
    (
        "a key without a time to live is told apart",
        r"
        a> SET k v => OK
        a> EVALSHA PlainInspect 1 k => -1
        a> EVALSHA PlainFenced 2 k c t 1000 => -1
        a> EVALSHA PlainExtend 1 k v 1000 => 1
        a> PTTL k => ~1000
        ",
    ),
    (
        "a number is counted up, and never below the clock",
        r#"
        a> SET c 9000000000000000 => OK
        a> EVALSHA PlainFenced 2 k c t 1000 => "9000000000000001"
        a> PTTL k => ~1000
        a> PTTL c => -1
        a> GET k => "t"
        a> EVALSHA PlainFenced 2 k c u 1000 => ~1000
        a> GET c => "9000000000000001"
        a> DEL c => 1
        a> EVALSHA PlainFenced 2 l c t 1000 => a number from the clock
        a> GET c => a number from the clock
        "#,
    ),
    (
        "a number is written back where it is greater, by the owner",
        r#"
        a> SET k t NX PX 1000 => OK
        a> EVALSHA PlainConfirm 2 k c t 7 => 1
        a> GET c => "7"
        a> EVALSHA PlainConfirm 2 k c t 5 => 1
        a> GET c => "7"
        a> EVALSHA PlainConfirm 2 k c u 9 => 0
        a> EVALSHA PlainConfirm 2 l c t 9 => 0
        a> GET c => "7"
        "#,
    ),
    (
        "a counter that is no number is an error, and nothing is set",
        r"
        a> SET c x => OK
        a> EVALSHA PlainFenced 2 k c t 1000 => -ERR
        a> EVALSHA RedissonFenced 2 k c t 1000 => -ERR
        a> PTTL k => -2
        a> SET k t NX PX 1000 => OK
        a> EVALSHA PlainConfirm 2 k c t 7 => -ERR
        ",
    ),
    (
        "a lock of Redisson is acquired, refused, extended and released by its owner",
        r"
        b> SUBSCRIBE channel => push subscribe channel 1
        a> EVALSHA RedissonAcquire 1 k t 1000 => OK
        a> PTTL k => ~1000
        a> EVALSHA RedissonAcquire 1 k u 1000 => ~1000
        a> EVALSHA RedissonAcquire 1 k t 1000 => ~1000
        a> EVALSHA RedissonExtend 1 k u 5000 => 0
        a> EVALSHA RedissonExtend 1 k t 5000 => 1
        a> EVALSHA RedissonExtend 1 k t 100 => 1
        a> PTTL k => ~5000
        a> EVALSHA RedissonShorten 1 k u 1000 channel => 0
        a> EVALSHA RedissonShorten 1 k t 1000 channel => 2
        b> => push message channel 0
        a> PTTL k => ~1000
        a> EVALSHA RedissonRelease 1 k u channel => 0
        a> EVALSHA RedissonRelease 1 k t channel => 2
        b> => push message channel 0
        a> PTTL k => -2
        a> EVALSHA RedissonRelease 1 k t channel => 0
        ",
    ),
    (
        "a lock of Redisson is numbered",
        r#"
        a> SET c 9000000000000000 => OK
        a> EVALSHA RedissonFenced 2 k c t 1000 => "9000000000000001"
        a> PTTL k => ~1000
        a> EVALSHA RedissonFenced 2 k c u 1000 => ~1000
        a> EVALSHA RedissonConfirm 2 k c t 9000000000000007 => 1
        a> EVALSHA RedissonConfirm 2 k c t 9000000000000003 => 1
        a> EVALSHA RedissonConfirm 2 k c u 9000000000000009 => 0
        a> GET c => "9000000000000007"
        "#,
    ),
    (
        "a string is no lock of Redisson",
        r"
        a> SET k v => OK
        a> EVALSHA RedissonAcquire 1 k t 1000 => -3
        a> EVALSHA RedissonFenced 2 k c t 1000 => -3
        a> EVALSHA RedissonConfirm 2 k c t 7 => -3
        a> EVALSHA RedissonExtend 1 k t 1000 => -3
        a> EVALSHA RedissonRelease 1 k t channel => -3
        a> EVALSHA RedissonShorten 1 k t 1 channel => -3
        a> HSET k f v => -WRONGTYPE
        ",
    ),
    (
        "a script that is not known is told, until it is loaded",
        r"
        a> SCRIPT FLUSH => OK
        a> EVALSHA PlainRelease 1 k t => -NOSCRIPT
        load
        a> EVALSHA PlainRelease 1 k t => 0
        ",
    ),
    (
        "a server tells who it is",
        r"
        a> CLIENT SETNAME x => OK
        a> PING => PONG
        a> INFO server => has run_id:
        a> INFO server => has uptime_in_seconds:
        a> INFO memory => has maxmemory_policy:noeviction
        ",
    ),
    (
        "what makes no sense is an error",
        r"
        a> SET k t NX PX x => -ERR
        a> SET k t NX PX 0 => -ERR
        a> NONSENSE => -ERR
        a> GET k => nil
        ",
    ),
];

/// A server that is held to the cases.
pub(super) trait Subject {
    /// Forgets everything, and every connection.
    fn begin(&mut self);
    fn send(&mut self, connection: char, request: &Request);
    /// What comes in next over a connection.
    fn receive(&mut self, connection: char) -> Value;
    fn wait(&mut self, duration: Duration);
}

/// Goes through a case. The error says which line was answered otherwise.
fn check(subject: &mut impl Subject, lines: &str) -> Result<(), String> {
    subject.begin();
    let mut shas = load(subject)?;
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line == "load" {
            shas = load(subject)?;
            continue;
        }
        if let Some(millis) = line.strip_prefix("wait ") {
            subject.wait(Duration::from_millis(millis.parse().expect("milliseconds")));
            continue;
        }
        let (request, expected) = line.split_once("=>").expect("an expected reply");
        let (connection, request) = request.split_once('>').expect("a connection");
        let connection = connection.chars().next().expect("its letter");
        let words = request.split_whitespace();
        let request: Request = words
            .map(|word| shas.get(word).map_or(word, String::as_str).as_bytes().to_vec())
            .collect();
        if !request.is_empty() {
            subject.send(connection, &request);
        }
        let reply = subject.receive(connection);
        if !matches(&reply, expected.trim()) {
            return Err(format!("{line}, but came {}", show(&reply)));
        }
    }
    Ok(())
}

fn load(subject: &mut impl Subject) -> Result<BTreeMap<String, String>, String> {
    let mut shas = BTreeMap::new();
    for (name, source) in scripts() {
        let request = ["SCRIPT", "LOAD", source].map(|word| word.as_bytes().to_vec());
        subject.send('a', &request.to_vec());
        match subject.receive('a') {
            Value::BulkString(sha) => {
                shas.insert(name, String::from_utf8_lossy(&sha).into_owned());
            }
            other => return Err(format!("{name} could not be loaded: {}", show(&other))),
        }
    }
    Ok(shas)
}

fn matches(reply: &Value, expected: &str) -> bool {
    let shown = show(reply);
    if let (Some(millis), Value::Int(value)) = (expected.strip_prefix('~'), reply) {
        let millis: i64 = millis.parse().expect("milliseconds");
        // Ours is a slow machine, perhaps.
        return (millis - 450..=millis).contains(value);
    }
    if expected == "a number from the clock" {
        let number = shown.trim_matches('"').parse::<i64>();
        return number.is_ok_and(|number| (1_700_000_000_000_000..1 << 53).contains(&number));
    }
    if let Some(words) = expected.strip_prefix("has ") {
        return shown.contains(words);
    }
    if expected.starts_with('-') && expected.parse::<i64>().is_err() {
        return shown.starts_with(expected);
    }
    shown == expected
}

/// A simulated server without a network.
struct Simulated {
    store: Store,
    now: Duration,
    unread: BTreeMap<char, VecDeque<Vec<u8>>>,
}

impl Simulated {
    fn new() -> Self {
        let now = Duration::from_secs(1_790_000_000);
        Self { store: Store::new("life".to_owned(), now), now, unread: BTreeMap::new() }
    }
}

impl Subject for Simulated {
    fn begin(&mut self) {
        *self = Self::new();
    }

    fn send(&mut self, connection: char, request: &Request) {
        for (to, reply) in self.store.execute(u64::from(u32::from(connection)), self.now, request) {
            let to = u32::try_from(to).ok().and_then(char::from_u32).expect("a connection");
            self.unread.entry(to).or_default().push_back(reply.encoded());
        }
    }

    fn receive(&mut self, connection: char) -> Value {
        let unread = self.unread.get_mut(&connection).and_then(VecDeque::pop_front);
        parse_redis_value(&unread.expect("a reply")).expect("RESP3")
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
    }
}

#[test]
fn the_simulated_server_answers_as_the_cases_say() {
    for (name, lines) in CASES {
        check(&mut Simulated::new(), lines).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_real_server_answers_as_the_cases_say() {
    let Some(mut server) = RealServer::start() else { return };
    for (name, lines) in CASES {
        check(&mut server, lines).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn another_answer_than_the_expected_one_is_noticed() {
    let wrong = ["nil", "1", "\"OK\"", "-ERR", "~1000", "has x", "a number from the clock"];
    for expected in wrong {
        let lines = format!("a> SET k t NX PX 1000 => {expected}");
        assert!(check(&mut Simulated::new(), &lines).is_err(), "{expected}");
    }
    assert!(check(&mut Simulated::new(), "a> PTTL k => ~1000").is_err());
    assert!(check(&mut Simulated::new(), "a> GET k => -2").is_err());
}
