//! Compares the replies of the simulated server with those of a real server.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bb8_redis::redis::{Value, parse_redis_value};
use redlock_core::simulation::scripts;

use super::cases::CASES;
use super::real::RealServer;
use super::resp::{Request, show};
use super::shared_cases::SHARED_CASES;
use super::store::Store;

/// The number of attempts of a case against a real server, until one is not late.
const ATTEMPTS: u64 = 500;

/// A server that the cases test.
pub(super) trait Subject {
    /// Removes all keys, scripts and connections.
    fn begin(&mut self);
    fn send(&mut self, connection: char, request: &Request);
    /// Returns the next message that the server sends over a connection.
    fn receive(&mut self, connection: char) -> Value;
    fn wait(&mut self, duration: Duration);
    /// Returns the time since 1970 on the server's clock.
    fn now(&self) -> Duration;
}

/// Runs the lines of a case. The error names the line whose reply differs.
fn check(subject: &mut impl Subject, lines: &str) -> Result<(), String> {
    subject.begin();
    let mut shas = load(subject)?;
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line == "load" {
            shas = load(subject)?;
            continue;
        }
        if let Some(millis) = pause(line) {
            subject.wait(Duration::from_millis(millis));
            continue;
        }
        let (request, expected) = line.split_once("=>").expect("an expected reply");
        let (connection, request) = request.split_once('>').expect("a connection");
        let connection = connection.chars().next().expect("its letter");
        let now = subject.now();
        let word = |word: &str| match word.strip_prefix('@') {
            _ if word == "_" => String::new(),
            Some(millis) => (whole_millis(now) + parsed(millis)).to_string(),
            None => shas.get(word).map_or(word, String::as_str).to_owned(),
        };
        let words = request.split_whitespace();
        let request: Request = words.map(|each| word(each).into_bytes()).collect();
        if !request.is_empty() {
            subject.send(connection, &request);
        }
        let reply = subject.receive(connection);
        if !matches(&reply, expected.trim(), subject.now()) {
            return Err(format!("{line}, but the reply was {}", show(&reply)));
        }
    }
    Ok(())
}

/// Returns the milliseconds of a line that waits.
fn pause(line: &str) -> Option<u64> {
    let millis = line.trim().strip_prefix("wait ")?;
    Some(millis.parse().expect("milliseconds"))
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

fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("a time that fits into an i64")
}

fn parsed(millis: &str) -> i64 {
    millis.parse().expect("milliseconds")
}

fn matches(reply: &Value, expected: &str, now: Duration) -> bool {
    let shown = show(reply);
    // A slow machine may take up to 450 ms between the requests.
    let is_about = |millis: &str, value: i64| {
        let millis = parsed(millis);
        (millis - 450..=millis).contains(&value)
    };
    if let (Some(millis), Value::Int(value)) = (expected.strip_prefix('~'), reply) {
        return is_about(millis, *value);
    }
    if let (Some(millis), Value::BulkString(_)) = (expected.strip_prefix('@'), reply) {
        let till = shown.trim_matches('"').parse::<i64>();
        return till.is_ok_and(|till| is_about(millis, till - whole_millis(now)));
    }
    if let (Some(item), Value::Array(items)) = (expected.strip_prefix('['), reply) {
        let item = item.trim_end_matches(']');
        return matches!(&items[..], [only] if matches(only, item, now));
    }
    if let Some((key, left)) =
        expected.strip_prefix("refused at ").and_then(|at| at.split_once(' '))
    {
        let Value::Array(parts) = reply else { return false };
        let (left, is_shared) =
            left.strip_suffix(" by readers").map_or((left, false), |left| (left, true));
        let [at, rest, shared @ ..] = &parts[..] else { return false };
        return matches(at, key, now)
            && matches(rest, left, now)
            && shared.len() == usize::from(is_shared);
    }
    if expected == "a number from the clock" {
        let number = shown.trim_matches('"').parse::<i64>();
        return number.is_ok_and(|number| (1_700_000_000_000_000..1 << 53).contains(&number));
    }
    if expected == "seconds and microseconds" {
        let Value::Array(parts) = reply else { return false };
        let [Value::BulkString(seconds), Value::BulkString(micros)] = &parts[..] else {
            return false;
        };
        let number = |text: &[u8]| String::from_utf8_lossy(text).parse::<u64>().unwrap_or(u64::MAX);
        return (1_700_000_000..1 << 33).contains(&number(seconds)) && number(micros) < 1_000_000;
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

    fn now(&self) -> Duration {
        self.now
    }
}

fn all_cases() -> impl Iterator<Item = (&'static str, &'static str)> {
    CASES.iter().chain(SHARED_CASES).copied()
}

#[test]
fn the_simulated_server_gives_the_expected_replies() {
    for (name, lines) in all_cases() {
        check(&mut Simulated::new(), lines).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_real_server_gives_the_expected_replies() {
    let Some(mut server) = RealServer::start() else { return };
    for (name, lines) in all_cases() {
        // The shortest key lives for 20 ms. On a busy machine it may expire before the next request, so a wrong reply
        // counts only in an attempt that was not late.
        let pauses: u64 = lines.lines().filter_map(pause).sum();
        let mut attempts = (0..ATTEMPTS).map(|_| {
            let begun = Instant::now();
            (
                check(&mut server, lines),
                begun.elapsed().saturating_sub(Duration::from_millis(pauses)),
            )
        });
        let conclusive = |(result, late): &(Result<_, _>, Duration)| {
            result.is_ok() || *late < Duration::from_millis(20)
        };
        let (result, _) = attempts.find(conclusive).expect("an attempt that was not late");
        result.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn an_unexpected_reply_fails_the_comparison() {
    let wrong = [
        "nil",
        "1",
        "\"OK\"",
        "-ERR",
        "~1000",
        "@1000",
        "[~1000]",
        "has x",
        "a number from the clock",
        "seconds and microseconds",
    ];
    for expected in wrong {
        let lines = format!("a> SET k t NX PX 1000 => {expected}");
        assert!(check(&mut Simulated::new(), &lines).is_err(), "{expected}");
    }
    assert!(check(&mut Simulated::new(), "a> PTTL k => ~1000").is_err());
    assert!(check(&mut Simulated::new(), "a> GET k => -2").is_err());
    let entry = "a> HSET k r:one @1000 => 1\na> HGET k r:one => ";
    for (expected, is_met) in [("@1000", true), ("@1400", true), ("@999", false), ("@1451", false)]
    {
        let lines = format!("{entry}{expected}");
        assert_eq!(check(&mut Simulated::new(), &lines).is_ok(), is_met, "{expected}");
    }
}
