//! The data of a simulated server, and its replies to commands.
//!
//! The store supports the commands that redlock-core and its [scripts](super::lua) send.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lua::{self, Script};
use super::resp::Reply;
use super::tracking::Tracking;

/// Identifies a connection of a server.
pub(super) type ConnectionId = u64;

/// The messages to send and their connections, in order.
pub(super) type Outgoing = Vec<(ConnectionId, Reply)>;

/// The data of a server from one start to the next.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) keys: BTreeMap<Vec<u8>, Entry>,
    /// The loaded scripts, by their names on the wire.
    scripts: BTreeMap<&'static [u8], &'static Script>,
    subscribers: BTreeMap<Vec<u8>, BTreeSet<ConnectionId>>,
    pub(super) tracking: Tracking,
    pub(super) tracks: bool,
    /// Whether the server has the commands that replace scripts, as Valkey 9.1 does.
    pub(super) is_newer: bool,
    run_id: String,
    /// The time of the last start, on the server's clock.
    started: Duration,
    /// The current time on the server's clock.
    pub(super) now: Duration,
    /// The commands that the user may not run.
    pub(super) denied: &'static [&'static str],
    outgoing: Outgoing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: Content,
    /// The last millisecond in which the key exists; `None` for a key without a time to live.
    pub(super) until: Option<i64>,
}

pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;
/// The members of a sorted set with their scores.
pub(super) type Sorted = BTreeMap<Vec<u8>, i64>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Text(Vec<u8>),
    Hash(Hash),
    /// A sorted set, whose scores are whole numbers.
    Sorted(Sorted),
}

impl Content {
    /// Returns the value in a readable form.
    pub(super) fn shown(&self) -> String {
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match self {
            Self::Text(value) => text(value),
            Self::Hash(hash) => {
                let fields =
                    hash.iter().map(|(field, value)| format!("{} {}", text(field), text(value)));
                fields.collect::<Vec<_>>().join(", ")
            }
            Self::Sorted(members) => {
                let members =
                    members.iter().map(|(member, score)| format!("{} {score}", text(member)));
                members.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl Store {
    pub(super) fn new(run_id: String, now: Duration, tracks: bool, is_newer: bool) -> Self {
        Self {
            keys: BTreeMap::new(),
            scripts: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            tracking: Tracking::default(),
            tracks,
            is_newer,
            run_id,
            started: now,
            now,
            denied: &[],
            outgoing: Vec::new(),
        }
    }

    /// Returns the data after a restart that keeps the keys.
    pub(super) fn restarted(&self, run_id: String, now: Duration, is_newer: bool) -> Self {
        Self { keys: self.keys.clone(), ..Self::new(run_id, now, self.tracks, is_newer) }
    }

    /// Executes a command.
    pub(super) fn execute(
        &mut self,
        from: ConnectionId,
        now: Duration,
        request: &[Vec<u8>],
    ) -> Outgoing {
        self.now = now;
        let before = self.tracking.entries(&self.keys);
        self.expire();
        let expired = self.tracking.changed(&before, &self.keys, None);
        self.outgoing.extend(expired);
        let words: Vec<&[u8]> = request.iter().map(|word| &word[..]).collect();
        let before = self.tracking.entries(&self.keys);
        match self.reply(from, &words) {
            Ok(Some(reply)) | Err(reply) => self.outgoing.push((from, reply)),
            Ok(None) => {}
        }
        let changed = self.tracking.changed(&before, &self.keys, Some(from));
        self.outgoing.extend(changed);
        self.tracking.executed(from, &words);
        std::mem::take(&mut self.outgoing)
    }

    pub(super) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Removes the subscriptions of a connection that has ended.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.subscribers.retain(|_, subscribers| {
            subscribers.remove(&connection);
            !subscribers.is_empty()
        });
        self.tracking.forget(connection);
    }

    fn reply(&mut self, from: ConnectionId, words: &[&[u8]]) -> Result<Option<Reply>, Reply> {
        let command = String::from_utf8_lossy(words[0]).to_ascii_uppercase();
        let reply = match (&*command, &words[1..]) {
            ("PING", []) => Reply::Simple("PONG"),
            ("HELLO", [b"3", ..]) => {
                Reply::Map(vec![(Reply::bulk("server"), Reply::bulk("redis"))])
            }
            ("CLIENT", [b"SETINFO" | b"SETNAME", ..]) => Reply::Simple("OK"),
            ("CLIENT", [b"TRACKING", b"ON", b"OPTIN", b"NOLOOP"]) if self.tracks => {
                self.tracking.begin(from);
                Reply::Simple("OK")
            }
            ("CLIENT", [b"CACHING", b"YES"]) => self.tracking.cache_next(from)?,
            ("INFO", [section]) => self.info(section),
            ("SUBSCRIBE", channels) => return Ok(self.subscribe(from, channels)),
            ("UNSUBSCRIBE", channels) => return Ok(self.unsubscribe(from, channels)),
            ("SCRIPT", [b"LOAD", source]) => self.load(source)?,
            ("SCRIPT", [b"FLUSH"]) => {
                self.forget_scripts();
                Reply::Simple("OK")
            }
            ("EVALSHA", [sha, count, rest @ ..]) => {
                let Some(script) = self.scripts.get(*sha).copied() else {
                    return Err(error("NOSCRIPT No matching script."));
                };
                let count = usize::try_from(int(count)?).map_err(|_| error("ERR negative"))?;
                let (keys, arguments) = rest.split_at(count);
                lua::run(self, script, keys, arguments)
            }
            _ => self.command(words)?,
        };
        Ok(Some(reply))
    }

    /// Removes the expired keys.
    fn expire(&mut self) {
        let now = self.millis();
        self.keys.retain(|_, entry| entry.until.is_none_or(|until| now <= until));
    }

    /// Returns the time in milliseconds on the server's clock.
    pub(super) fn millis(&self) -> i64 {
        i64::try_from(self.now.as_millis()).expect("a time that fits into an i64")
    }

    fn info(&self, section: &[u8]) -> Reply {
        Reply::Verbatim(match section {
            b"server" => {
                let uptime = self.now.as_secs().saturating_sub(self.started.as_secs());
                let run_id = &self.run_id;
                format!(
                    "# Server\r\nrun_id:{run_id}\r\nredis_mode:standalone\r\nuptime_in_seconds:{uptime}\r\n"
                )
            }
            b"memory" => "# Memory\r\nmaxmemory_policy:noeviction\r\n".to_owned(),
            _ => "# Replication\r\nrole:master\r\n".to_owned(),
        })
    }

    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> i64 {
        let Some(subscribers) = self.subscribers.get(channel) else { return 0 };
        let push = ["message".as_bytes(), channel, message].map(Reply::bulk);
        let sent = subscribers.iter().map(|to| (*to, Reply::Push(push.to_vec())));
        self.outgoing.extend(sent);
        count(subscribers.len())
    }

    fn subscribe(&mut self, from: ConnectionId, channels: &[&[u8]]) -> Option<Reply> {
        for channel in channels {
            self.subscribers.entry(channel.to_vec()).or_default().insert(from);
            self.confirm_subscription(from, "subscribe", channel);
        }
        None
    }

    fn unsubscribe(&mut self, from: ConnectionId, channels: &[&[u8]]) -> Option<Reply> {
        for channel in channels {
            if let Some(subscribers) = self.subscribers.get_mut(*channel) {
                subscribers.remove(&from);
                if subscribers.is_empty() {
                    self.subscribers.remove(*channel);
                }
            }
            self.confirm_subscription(from, "unsubscribe", channel);
        }
        None
    }

    fn confirm_subscription(&mut self, from: ConnectionId, kind: &str, channel: &[u8]) {
        let channels = self.subscribers.values().filter(|all| all.contains(&from)).count();
        let channels = Reply::Int(count(channels));
        let push = Reply::Push(vec![Reply::bulk(kind), Reply::bulk(channel), channels]);
        self.outgoing.push((from, push));
    }

    fn load(&mut self, source: &[u8]) -> Result<Reply, Reply> {
        let script = lua::by_source(source).ok_or_else(|| error("ERR unknown script"))?;
        self.scripts.insert(script.sha.as_bytes(), script);
        Ok(Reply::bulk(&script.sha))
    }
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).expect("a count that fits into an i64")
}

pub(super) fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

pub(super) fn int(text: &[u8]) -> Result<i64, Reply> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| error("ERR value is not an integer or out of range"))
}
