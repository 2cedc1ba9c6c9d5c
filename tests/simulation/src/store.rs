//! The data of a simulated server, and its replies to commands.
//!
//! The store supports the commands that redlock-core sends, and a few more for the
//! [cases](super::cases). It recognizes a script by its text, and executes it completely or not at
//! all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::resp::Reply;
use super::script;

/// Identifies a connection of a server.
pub(super) type ConnectionId = u64;

/// The messages to send and their connections, in order.
pub(super) type Outgoing = Vec<(ConnectionId, Reply)>;

/// The data of a server from one start to the next.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) keys: BTreeMap<Vec<u8>, Entry>,
    /// The loaded scripts: SHA-1 and name.
    scripts: BTreeMap<&'static [u8], &'static str>,
    subscribers: BTreeMap<Vec<u8>, BTreeSet<ConnectionId>>,
    run_id: String,
    /// The time of the last start, on the server's clock.
    started: Duration,
    /// The current time on the server's clock.
    pub(super) now: Duration,
    outgoing: Outgoing,
}

#[derive(Debug, Clone)]
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
    pub(super) fn new(run_id: String, now: Duration) -> Self {
        Self {
            keys: BTreeMap::new(),
            scripts: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            run_id,
            started: now,
            now,
            outgoing: Vec::new(),
        }
    }

    /// Returns the data after a restart that keeps the keys.
    pub(super) fn restarted(&self, run_id: String, now: Duration) -> Self {
        Self { keys: self.keys.clone(), ..Self::new(run_id, now) }
    }

    /// Executes a command.
    pub(super) fn execute(
        &mut self,
        from: ConnectionId,
        now: Duration,
        request: &[Vec<u8>],
    ) -> Outgoing {
        self.now = now;
        self.expire();
        let words: Vec<&[u8]> = request.iter().map(|word| &word[..]).collect();
        let command = String::from_utf8_lossy(words[0]).to_ascii_uppercase();
        match self.reply(from, &command, &words[1..]) {
            Ok(Some(reply)) | Err(reply) => self.outgoing.push((from, reply)),
            Ok(None) => {}
        }
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
    }

    fn reply(
        &mut self,
        from: ConnectionId,
        command: &str,
        words: &[&[u8]],
    ) -> Result<Option<Reply>, Reply> {
        let reply = match (command, words) {
            ("PING", []) => Reply::Simple("PONG"),
            ("HELLO", [b"3", ..]) => {
                Reply::Map(vec![(Reply::bulk("server"), Reply::bulk("redis"))])
            }
            ("CLIENT", [b"SETINFO" | b"SETNAME", ..]) => Reply::Simple("OK"),
            ("TIME", []) => {
                let parts = [self.now.as_secs(), u64::from(self.now.subsec_micros())];
                Reply::Array(parts.map(|part| Reply::bulk(part.to_string())).to_vec())
            }
            ("INFO", [section]) => self.info(section),
            ("GET", [key]) => self.text(key)?.map_or(Reply::Null, Reply::bulk),
            ("SET", [key, value]) => self.set(key, value, None),
            ("SET", [key, value, b"PX", millis]) => self.set(key, value, Some(int(millis)?)),
            ("SET", [key, value, b"NX", b"PX", millis]) => {
                let millis = int(millis)?;
                if self.keys.contains_key(*key) {
                    Reply::Null
                } else {
                    self.set(key, value, Some(millis))
                }
            }
            ("HSET", [key, pairs @ ..]) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let mut added = 0;
                for pair in pairs.chunks(2) {
                    added += self.put(key, pair[0], pair[1])?;
                }
                Reply::Int(added)
            }
            ("HGET", [key, field]) => {
                let value = self.hash(key)?.and_then(|hash| hash.get(*field));
                value.map_or(Reply::Null, Reply::bulk)
            }
            ("HLEN", [key]) => Reply::Int(count(self.hash(key)?.map_or(0, Hash::len))),
            ("DEL", [key]) => Reply::Int(i64::from(self.keys.remove(*key).is_some())),
            ("PTTL", [key]) => Reply::Int(self.time_to_live(key)),
            ("PEXPIRE", [key, millis]) => {
                let millis = int(millis)?;
                Reply::Int(self.expire_in(key, millis))
            }
            ("PEXPIREAT", [key, until]) => {
                let until = int(until)?;
                Reply::Int(self.expire_at(key, until))
            }
            ("PUBLISH", [channel, message]) => Reply::Int(self.publish(channel, message)),
            ("SUBSCRIBE", channels) => return Ok(self.subscribe(from, channels)),
            ("UNSUBSCRIBE", channels) => return Ok(self.unsubscribe(from, channels)),
            ("SCRIPT", [b"LOAD", source]) => self.load(source)?,
            ("SCRIPT", [b"FLUSH"]) => {
                self.forget_scripts();
                Reply::Simple("OK")
            }
            ("EVALSHA", [sha, count, rest @ ..]) => {
                let Some(name) = self.scripts.get(*sha) else {
                    return Err(error("NOSCRIPT No matching script."));
                };
                let count = usize::try_from(int(count)?).map_err(|_| error("ERR negative"))?;
                let (keys, arguments) = rest.split_at(count);
                script::run(self, name, keys, arguments)?
            }
            _ => return Err(error(&format!("ERR unknown command '{command}'"))),
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
                format!("# Server\r\nrun_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n")
            }
            _ => "# Memory\r\nmaxmemory_policy:noeviction\r\n".to_owned(),
        })
    }

    pub(super) fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, Reply> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Content::Text(text)) => Ok(Some(text)),
            Some(_) => Err(wrong_type()),
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> Result<Option<&Hash>, Reply> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Content::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(wrong_type()),
        }
    }

    pub(super) fn sorted(&self, key: &[u8]) -> Result<Option<&Sorted>, Reply> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Content::Sorted(members)) => Ok(Some(members)),
            Some(_) => Err(wrong_type()),
        }
    }

    /// Sets the members of a sorted set, and, unless it is `None`, the last millisecond in which it exists.
    pub(super) fn set_sorted(&mut self, key: &[u8], members: Sorted, until: Option<i64>) {
        let before = self.keys.get(key).and_then(|entry| entry.until);
        let entry = Entry { value: Content::Sorted(members), until: until.or(before) };
        self.keys.insert(key.to_vec(), entry);
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8], millis: Option<i64>) -> Reply {
        if millis.is_some_and(|millis| millis <= 0) {
            return error("ERR invalid expire time in 'set' command");
        }
        let until = millis.map(|millis| self.millis() + millis);
        self.keys.insert(key.to_vec(), Entry { value: Content::Text(value.to_vec()), until });
        Reply::Simple("OK")
    }

    /// Sets a field of a hash. Returns the number of added fields.
    pub(super) fn put(&mut self, key: &[u8], field: &[u8], value: &[u8]) -> Result<i64, Reply> {
        self.hash(key)?;
        let empty = || Entry { value: Content::Hash(BTreeMap::new()), until: None };
        let entry = self.keys.entry(key.to_vec()).or_insert_with(empty);
        let Content::Hash(hash) = &mut entry.value else { return Err(wrong_type()) };
        let added = hash.insert(field.to_vec(), value.to_vec()).is_none();
        Ok(i64::from(added))
    }

    /// Removes a field of a hash, and the hash with its last field.
    pub(super) fn remove_field(&mut self, key: &[u8], field: &[u8]) {
        let Some(Content::Hash(hash)) = self.keys.get_mut(key).map(|entry| &mut entry.value) else {
            return;
        };
        hash.remove(field);
        if hash.is_empty() {
            self.keys.remove(key);
        }
    }

    pub(super) fn time_to_live(&self, key: &[u8]) -> i64 {
        match self.keys.get(key) {
            None => -2,
            Some(Entry { until: None, .. }) => -1,
            Some(Entry { until: Some(until), .. }) => until - self.millis(),
        }
    }

    pub(super) fn expire_in(&mut self, key: &[u8], millis: i64) -> i64 {
        self.expire_at(key, self.millis() + millis)
    }

    /// Sets the last millisecond in which the key exists. A key whose last millisecond is the present one ends at once.
    pub(super) fn expire_at(&mut self, key: &[u8], until: i64) -> i64 {
        let now = self.millis();
        let Some(entry) = self.keys.get_mut(key) else { return 0 };
        entry.until = Some(until);
        if until <= now {
            self.keys.remove(key);
        }
        1
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
        let script = script::by_source(source).ok_or_else(|| error("ERR unknown script"))?;
        self.scripts.insert(script.sha.as_bytes(), &script.name);
        Ok(Reply::bulk(&script.sha))
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).expect("a count that fits into an i64")
}

pub(super) fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

fn wrong_type() -> Reply {
    error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

pub(super) fn int(text: &[u8]) -> Result<i64, Reply> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| error("ERR value is not an integer or out of range"))
}
