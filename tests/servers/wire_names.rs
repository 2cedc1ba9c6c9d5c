//! The table of `redlock-core/src/wire.md`, compared with what servers see.
//!
//! # New names
//!
//! * A new kind of lock is another value at the key `<prefix><key>`. An older version then reports the lock as held or as a
//!   foreign key, and never takes it.
//! * Any other key is `<prefix>redlock:<purpose>:{<tag>}`, or `<prefix>redlock:<purpose>` where the prefix has a hash tag. The
//!   purpose is one word in lower case. A name for each lock ends with `:<key>`. So a permission for `<prefix>*` covers the
//!   name, and it is never the key of a lock.
//! * Any other channel is named in the same way, except those of Redisson and `<prefix><key>:readers`.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_core::{Dialect, LockManager, LockRequest, OwnerLabel};
use redlock_tests::{Monitor, Probe, Servers, eventually};

use super::{LONG, SOON, builder};

const KEY: &str = "order:42";
const DIALECTS: [Dialect; 2] = [Dialect::Plain, Dialect::Redisson];
/// Ends the lines of a `MONITOR`. No script contains it.
const LAST_WORDS: &str = "no command follows";
const PAGE: &str = include_str!("../../redlock-core/src/wire.md");

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    is_channel: bool,
    pattern: &'static str,
}

fn rows() -> Vec<Row> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let (pattern, rest) = row.split_once("` | ").unwrap();
        let (what, _) = rest.split_once(" | ").unwrap();
        Row { is_channel: what.contains("channel"), pattern }
    });
    rows.collect()
}

impl Row {
    /// Whether the row is about locks with this prefix and key: some rows name conditions.
    fn applies_to(&self, prefix: &str, key: &str) -> bool {
        let has_key = self.pattern.contains("<key>");
        let has_brace = prefix.contains('{') || (has_key && key.contains('{'));
        match self.pattern {
            pattern if pattern.contains("channel:{") => !has_brace,
            pattern if pattern.contains("channel:") => has_brace,
            pattern if pattern.contains("{<tag>}") => !prefix.contains('{'),
            pattern if pattern.contains("redlock:") && (has_key || !self.is_channel) => {
                prefix.contains('{')
            }
            _ => true,
        }
    }

    fn describes(&self, prefix: &str, key: &str, name: &Name) -> bool {
        let pattern = self.pattern.replace("<prefix>", prefix).replace("<key>", key);
        let is_number = |text: &str| text.parse().is_ok_and(|tag: u32| tag.to_string() == text);
        let (text, pattern) = match pattern.strip_suffix(":<process>") {
            None => (&*name.text, &*pattern),
            Some(pattern) => {
                let is_process = |text: &str| {
                    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
                };
                let parts = name.text.rsplit_once(':');
                match parts.filter(|(_, process)| is_process(process)) {
                    Some((text, _)) => (text, pattern),
                    None => return false,
                }
            }
        };
        let fits = match pattern.split_once("<tag>") {
            None => text == pattern,
            Some((before, after)) => {
                let tag = text.strip_prefix(before);
                tag.and_then(|rest| rest.strip_suffix(after)).is_some_and(is_number)
            }
        };
        fits && name.is_channel == self.is_channel && self.applies_to(prefix, key)
    }
}

/// A key or a channel that a server was asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    is_channel: bool,
    text: String,
}

/// The words of a command as `MONITOR` shows it.
fn words(line: &str) -> Vec<String> {
    let (_, mut rest) = line.split_once("] ").unwrap();
    let mut words = Vec::new();
    while let Some((_, quoted)) = rest.split_once('"') {
        let mut word = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next().unwrap() {
                (end, '"') => break end,
                (_, '\\') => word.push(characters.next().unwrap().1),
                (_, character) => word.push(character),
            }
        };
        words.push(word);
        rest = &quoted[end + 1..];
    }
    words
}

/// The keys and channels of a command. Which of its words are keys, the server itself says.
async fn names(probe: &mut Probe, words: &[String]) -> Vec<Name> {
    let channels = match words[0].to_ascii_lowercase().as_str() {
        "publish" => &words[1..2],
        command if command.ends_with("subscribe") => &words[1..],
        _ => &[],
    };
    if !channels.is_empty() {
        let channels = channels.iter().cloned();
        return channels.map(|text| Name { is_channel: true, text }).collect();
    }
    // A word alone has no keys, and the server takes no question about one. Redis 6.2 takes none about a script without keys.
    if words.len() == 1 || (words[0].eq_ignore_ascii_case("evalsha") && words[2] == "0") {
        return Vec::new();
    }
    let question = ["COMMAND", "GETKEYS"].into_iter().chain(words.iter().map(String::as_str));
    match probe.try_command::<Vec<String>>(question.collect::<Vec<_>>()).await {
        Ok(keys) => keys.into_iter().map(|text| Name { is_channel: false, text }).collect(),
        Err(error) => {
            assert!(error.to_string().contains("no key arguments"), "{words:?}: {error}");
            Vec::new()
        }
    }
}

async fn manager(servers: &Servers, prefix: &str) -> LockManager {
    builder(servers.urls()).prefix(prefix).connect().await.unwrap()
}

/// Waits until `count` returns more than zero for each server.
async fn on_each(servers: &Servers, what: &str, count: impl AsyncFn(&mut Probe) -> u64) {
    for server in servers.iter() {
        let mut probe = server.probe().await;
        eventually(what, SOON, async || (count(&mut probe).await > 0).then_some(())).await;
    }
}

/// Acquires, extends, renews and releases locks of every kind, with a waiter.
async fn use_every_kind(servers: &Servers, prefix: &str, key: &str) {
    let (one, other) = (manager(servers, prefix).await, manager(servers, prefix).await);
    for dialect in DIALECTS {
        // A new connection checks the names of its manager's dialect.
        builder(servers.urls()).prefix(prefix).dialect(dialect).connect().await.unwrap();
        let request = |locks: &LockManager| locks.lock(key).expire(LONG).dialect(dialect);
        // The second release meets a known waiter.
        for _ in 0..2 {
            let held = request(&one).try_acquire().await.unwrap();
            held.extend(LONG * 2).await.unwrap();
            assert!(request(&other).try_acquire().await.unwrap_err().is_contended());
            let waiter = tokio::spawn(request(&other).wait_time(LONG).acquire());
            on_each(servers, "the waiter subscribes", async |probe| {
                probe.command::<Vec<String>>(["PUBSUB", "CHANNELS"]).await.len() as u64
            })
            .await;
            held.release().await.unwrap();
            let next = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
            let status = one.status(key).dialect(dialect).await.unwrap();
            other.break_lock(key, &status.holders()[0]).await.unwrap();
            assert!(next.release().await.is_err());
        }

        let fenced = request(&one).fenced(true).try_acquire().await.unwrap();
        fenced.extend(LONG * 2).await.unwrap();
        assert!(request(&other).fenced(true).try_acquire().await.unwrap_err().is_contended());
        fenced.release().await.unwrap();

        let held = request(&one).try_acquire().await.unwrap();
        let wait =
            |locks: &LockManager| tokio::spawn(request(locks).fair(true).wait_forever().acquire());
        let mut waiters = Vec::new();
        for (locks, tickets) in [(&other, 1), (&one, 2)] {
            waiters.push(wait(locks));
            let mut probe = servers[0].probe().await;
            eventually(
                "the caller waits, and a process that is not first subscribes",
                SOON,
                async || {
                    let keys = probe.keys().await;
                    let queue = keys.iter().find(|key| key.contains("redlock:fair"))?;
                    let count: usize = probe.command(["ZCOUNT", queue, "0", "+inf"]).await;
                    let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
                    let subscribed = channels.iter().any(|name| name.contains("redlock:fair"));
                    (count == tickets && (subscribed || tickets == 1)).then_some(())
                },
            )
            .await;
        }
        held.release().await.unwrap();
        for waiter in waiters {
            let next = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
            next.release().await.unwrap();
        }

        for server in servers.iter() {
            server.probe().await.reset_calls().await;
        }
        let renewed = request(&one).expire(Duration::from_secs(3)).renew(true);
        let renewed = renewed.try_acquire().await.unwrap();
        on_each(servers, "the lease is renewed", async |probe| {
            // The dialect of Redisson sets the first lease by this command, too.
            let calls = probe.calls().await.get("pexpire").copied().unwrap_or_default();
            calls.saturating_sub(u64::from(dialect == Dialect::Redisson))
        })
        .await;
        renewed.release().await.unwrap();

        let staying: [fn(LockRequest) -> LockRequest; 2] =
            [|request| request.min_hold(LONG / 2), |request| request.keep(true)];
        for stays in staying {
            let guard = stays(request(&one)).try_acquire().await.unwrap();
            on_each(servers, "each node has the lock", async |probe| {
                let keys = probe.keys().await;
                keys.iter().filter(|key| !key.contains("redlock:fencing")).count() as u64
            })
            .await;
            guard.release().await.unwrap();
            // Names no key, because the servers are watched.
            for server in servers.iter() {
                server.probe().await.command::<()>(["FLUSHALL"]).await;
            }
        }
    }
    share(servers, prefix, key, &one, &other).await;
    one.shutdown().await;
    other.shutdown().await;
}

/// Reads, waits for readers, and changes the mode.
async fn share(servers: &Servers, prefix: &str, key: &str, one: &LockManager, other: &LockManager) {
    let request = |locks: &LockManager| locks.lock(key).expire(LONG);
    let reader = request(one).shared(true).try_acquire().await.unwrap();
    reader.extend(LONG * 2).await.unwrap();
    let writer = tokio::spawn(request(other).wait_time(LONG).acquire());
    on_each(servers, "the writer waits", async |probe| {
        let key = format!("{prefix}{key}");
        let members = probe.command::<Vec<String>>(["ZRANGE", &key, "0", "-1"]).await;
        u64::from(members.iter().any(|member| member.starts_with("w:")))
    })
    .await;
    reader.release().await.unwrap();
    let writer = tokio::time::timeout(SOON, writer).await.unwrap().unwrap().unwrap();

    writer.release().await.unwrap();
    if servers.iter().count() == 1 {
        let permit = request(one).permits(2).try_acquire().await.unwrap();
        permit.release().await.unwrap();
    }
}

/// The wire is final from the first release on: a new name needs a row of the table.
#[tokio::test]
async fn the_table_lists_every_key_and_channel_that_a_server_sees() {
    let mut unseen: BTreeSet<Row> = rows().into_iter().collect();
    for count in [1, 3] {
        for (prefix, key) in [("shop:", KEY), ("{locks}:", KEY), ("", "{cart}:7")] {
            let servers = Servers::start(count).await;
            let mut monitors = Vec::new();
            for server in servers.iter() {
                monitors.push(Monitor::connect(&server.url()).await.unwrap());
            }
            use_every_kind(&servers, prefix, key).await;
            for (server, monitor) in servers.iter().zip(&mut monitors) {
                let mut probe = server.probe().await;
                probe.command::<()>(["ECHO", LAST_WORDS]).await;
                let lines = monitor.until(|line| line.contains(LAST_WORDS)).await;
                let commands: BTreeSet<_> = lines.iter().map(|line| words(line)).collect();
                for command in commands {
                    for name in names(&mut probe, &command).await {
                        let row = rows().into_iter().find(|row| row.describes(prefix, key, &name));
                        let row =
                            row.unwrap_or_else(|| panic!("{name:?} of {} has no row", command[0]));
                        unseen.remove(&row);
                    }
                }
            }
        }
    }
    assert!(unseen.is_empty(), "no server sees {unseen:#?}");
}

fn is_hex(text: &str, length: usize) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == length && text.bytes().all(is_digit)
}

/// Whether the text is that of a token with a label, whose attempt began a moment ago.
fn is_labelled(text: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let parts = || {
        let (token, rest) = text.split_once('@')?;
        let (label, since) = rest.rsplit_once('/')?;
        Some((token, OwnerLabel::new(label).ok()?, since))
    };
    parts().is_some_and(|(token, label, since)| {
        let seconds = since.parse::<u64>();
        is_hex(token, 32)
            && label.as_str().ends_with(&format!(":{}", std::process::id()))
            && since.len() == 10
            && seconds.is_ok_and(|seconds| seconds <= now && seconds + SOON.as_secs() > now)
    })
}

/// Returns the owner in the value of a lock, which is fresh for every attempt: Redisson would take a reused one for a
/// re-entrant acquisition.
async fn owner(probe: &mut Probe, name: &str, dialect: Dialect) -> String {
    if dialect == Dialect::Redisson {
        let mut fields: HashMap<String, String> = probe.command(["HGETALL", name]).await;
        assert_eq!(fields.remove("mode").as_deref(), Some("exclusive"));
        let [(owner, count)] = fields.iter().collect::<Vec<_>>()[..] else {
            panic!("{} owners", fields.len())
        };
        let uuid = owner.strip_suffix(":1").unwrap();
        assert_eq!((uuid.len(), count.as_str()), (36, "1"));
        assert!(is_hex(&uuid.replace('-', ""), 32));
        owner.clone()
    } else {
        let token = String::from_utf8(probe.get(name).await.unwrap()).unwrap();
        assert!(is_labelled(&token), "{} bytes", token.len());
        token
    }
}

/// Other libraries and the tools of operators rely on the forms of the values.
#[tokio::test]
async fn values_and_times_to_live_are_those_of_the_table() {
    let (name, counter) = ("shop:order:42", "shop:redlock:fencing:{9208}");
    let servers = Servers::start(1).await;
    let (locks, mut probe) = (manager(&servers, "shop:").await, servers[0].probe().await);
    let mut monitor = Monitor::connect(&servers[0].url()).await.unwrap();
    let mut last = 0;
    let mut owners = BTreeSet::new();
    for dialect in DIALECTS {
        // A lock that is released before its minimum hold time stays for it, and wakes the waiters too.
        for min_hold in [Duration::ZERO, LONG / 2] {
            let request = locks.lock(KEY).expire(LONG).min_hold(min_hold).dialect(dialect);
            let guard = request.fenced(true).try_acquire().await.unwrap();
            let held = owner(&mut probe, name, dialect).await;
            let left = probe.time_to_live(name).await.unwrap();
            assert!(left <= LONG && left + SOON > LONG, "{left:?}");

            let number: i64 = probe.command(["GET", counter]).await;
            assert_eq!(i128::from(number), i128::from(guard.fencing_token().unwrap().number()));
            let time: (i64, i64) = probe.command(["TIME"]).await;
            let micros = time.0 * 1_000_000 + time.1;
            assert!(number > last && number < (1 << 53), "{number} {last}");
            assert!((micros - number).unsigned_abs() < 60_000_000, "{number} {micros}");
            last = number;
            let lives_for_ever: i64 = probe.command(["PTTL", counter]).await;
            assert_eq!(lives_for_ever, -1);
            guard.release().await.unwrap();
            if !min_hold.is_zero() {
                assert_eq!(owner(&mut probe, name, dialect).await, held);
                let left = probe.time_to_live(name).await.unwrap();
                assert!(left <= min_hold && left + SOON > min_hold, "{left:?}");
                probe.command::<()>(["DEL", name]).await;
            }
            assert_eq!(probe.keys().await, [counter]);
            owners.insert(held);
        }
    }
    assert_eq!(owners.len(), 4, "an owner was used twice");
    probe.command::<()>(["ECHO", LAST_WORDS]).await;
    let lines = monitor.until(|line| line.contains(LAST_WORDS)).await;
    let published: Vec<_> =
        lines.iter().map(|line| words(line)).filter(|words| words[0] == "PUBLISH").collect();
    let message = |channel: &str| ["PUBLISH", channel, "0"].map(str::to_owned).to_vec();
    let plain = message(name);
    let redisson = message("redisson_lock__channel:{shop:order:42}");
    assert_eq!(published, [plain.clone(), plain, redisson.clone(), redisson]);
}

#[tokio::test]
async fn the_entries_of_a_shared_lock_are_those_of_the_page() {
    let servers = Servers::start(1).await;
    let (one, other) = (manager(&servers, "").await, manager(&servers, "").await);
    let mut probe = servers[0].probe().await;
    let request = |locks: &LockManager| locks.lock(KEY).expire(LONG);
    for (kind, lock) in [("r:", request(&one).shared(true)), ("p:", request(&one).permits(2))] {
        let guard = lock.try_acquire().await.unwrap();
        let writer = tokio::spawn(request(&other).wait_time(LONG).acquire());
        let entries = eventually("the writer has left its mark", SOON, async || {
            let entries: HashMap<String, i64> =
                servers[0].probe().await.command(["ZRANGE", KEY, "0", "-1", "WITHSCORES"]).await;
            (entries.len() == 3).then_some(entries)
        });
        let entries = entries.await;
        assert_eq!(entries["shared"], 0);
        let time: (i64, i64) = probe.command(["TIME"]).await;
        let now = time.0 * 1000 + time.1 / 1000;
        for (entry, score) in entries.iter().filter(|(entry, _)| *entry != "shared") {
            if let Some(mark) = entry.strip_prefix("w:") {
                // The mark may have ended by now.
                assert!(is_hex(mark, 16) && -score - now <= 1000, "{entry} {score}");
            } else {
                let token = entry.strip_prefix(kind).unwrap();
                let left = Duration::from_millis(u64::try_from(score - now).unwrap());
                assert!(is_labelled(token), "{} bytes", token.len());
                assert!(left <= LONG && left + SOON > LONG, "{left:?}");
            }
        }
        assert!(probe.time_to_live(KEY).await.unwrap() > LONG / 2);
        guard.release().await.unwrap();
        writer.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(probe.keys().await, [""; 0]);
}

/// Old and new copies of a service must shorten a long key in the same way.
#[tokio::test]
async fn a_long_key_is_its_beginning_and_a_digest() {
    let servers = Servers::start(1).await;
    let (locks, mut probe) = (manager(&servers, "shop:").await, servers[0].probe().await);
    let guard = locks.lock("k".repeat(201)).expire(LONG).try_acquire().await.unwrap();
    // The output of sha256sum.
    let digest = "ebf0ead0a3b837bc388d6a36c93833fff64a0a8bc8198fc0f1b7b5031dddd254";
    assert_eq!(probe.keys().await, [format!("shop:{}%#{digest}", "k".repeat(128))]);
    guard.release().await.unwrap();
    let longest = "k".repeat(200);
    let _guard = locks.lock(&longest).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(probe.keys().await, [format!("shop:{longest}")]);
}
