//! The commands that read and write the data of a simulated server.

use std::collections::BTreeMap;

use super::resp::Reply;
use super::store::{Content, Entry, Hash, Sorted, Store, count, error, int};

impl Store {
    /// Executes a command that redlock-core or one of its scripts sends.
    pub(super) fn command(&mut self, words: &[&[u8]]) -> Result<Reply, Reply> {
        let name = words.first().copied().unwrap_or_default();
        self.check_permission(name)?;
        if let [b"ACL", b"DRYRUN", _user, other, ..] = words {
            self.check_permission(other)?;
            return Ok(Reply::Simple("OK"));
        }
        let key = words.get(1).copied().unwrap_or_default();
        let before = self.keys.get(key).cloned();
        let reply = self.permitted(name, words.get(1..).unwrap_or_default());
        let has_changed = self.keys.get(key) != before.as_ref();
        self.tracking.note(words, has_changed);
        reply
    }

    /// Returns an error if the user may not run this command.
    fn check_permission(&self, name: &[u8]) -> Result<(), Reply> {
        let Some(name) = self.denied.iter().find(|denied| denied.as_bytes() == name) else {
            return Ok(());
        };
        Err(error(&format!("NOPERM this user has no permissions to run the '{name}' command")))
    }

    fn permitted(&mut self, name: &[u8], arguments: &[&[u8]]) -> Result<Reply, Reply> {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        Ok(match (&*name, arguments) {
            ("TIME", []) => {
                let parts = [self.now.as_secs(), u64::from(self.now.subsec_micros())];
                Reply::Array(parts.map(|part| Reply::bulk(part.to_string())).to_vec())
            }
            ("PUBLISH", [channel, message]) => Reply::Int(self.publish(channel, message)),

            ("GET", [key]) => self.text(key)?.map_or(Reply::Null, Reply::bulk),
            ("SET", [key, value]) => self.set(key, value, None)?,
            ("SET", [key, value, b"PX", millis]) => self.set(key, value, Some(int(millis)?))?,
            ("SET", [key, value, b"NX", b"PX", millis]) => {
                let millis = int(millis)?;
                let exists = self.keys.contains_key(*key);
                if exists { Reply::Null } else { self.set(key, value, Some(millis))? }
            }
            // A key that does not exist is not set.
            ("SET", [key, _, b"XX", b"PX", _]) if !self.keys.contains_key(*key) => Reply::Null,
            ("DEL", keys @ [_, ..]) => {
                let removed = keys.iter().filter(|key| self.keys.remove(**key).is_some());
                Reply::Int(count(removed.count()))
            }
            ("EXISTS", [key]) => Reply::Int(i64::from(self.keys.contains_key(*key))),
            ("PTTL", [key]) => Reply::Int(self.time_to_live(key)),
            ("PEXPIRE", [key, millis]) => {
                Reply::Int(self.expire_at(key, self.millis() + int(millis)?))
            }
            ("PEXPIREAT", [key, until]) => Reply::Int(self.expire_at(key, int(until)?)),

            ("HEXISTS", [key, field]) => {
                let hash = self.hash(key)?;
                Reply::Int(i64::from(hash.is_some_and(|hash| hash.contains_key(*field))))
            }
            // A small hash is read in one step.
            ("HSCAN", [key, b"0"]) => {
                let pairs = self.hash(key)?.into_iter().flatten();
                let texts = pairs.flat_map(|(field, value)| [field, value]).map(Reply::bulk);
                Reply::Array(vec![Reply::bulk("0"), Reply::Array(texts.collect())])
            }
            ("HSET", [key, pairs @ ..]) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let hash = self.hash_mut(key)?;
                let pairs = pairs.chunks(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec()));
                let added = pairs
                    .filter(|(field, value)| hash.insert(field.clone(), value.clone()).is_none());
                Reply::Int(count(added.count()))
            }
            ("HSET", [_, _, _, _, ..]) => {
                return Err(error("ERR wrong number of arguments for 'hset' command"));
            }
            ("ZADD", [key, b"NX", score, member]) => {
                let score = int(score)?;
                let sorted = self.sorted_mut(key)?;
                let is_new = !sorted.contains_key(*member);
                sorted.entry(member.to_vec()).or_insert(score);
                Reply::Int(i64::from(is_new))
            }
            ("ZADD", [key, b"GT", score, member]) => {
                let score = int(score)?;
                let sorted = self.sorted_mut(key)?;
                let old = sorted.get(*member).copied();
                sorted.insert(member.to_vec(), old.map_or(score, |old| old.max(score)));
                Reply::Int(i64::from(old.is_none()))
            }
            ("ZADD", [key, pairs @ ..]) if !pairs.is_empty() && pairs.len() % 2 == 0 => {
                let mut added = 0;
                for pair in pairs.chunks(2) {
                    let score = int(pair[0])?;
                    let sorted = self.sorted_mut(key)?;
                    added += usize::from(sorted.insert(pair[1].to_vec(), score).is_none());
                }
                Reply::Int(count(added))
            }
            ("ZREM", [key, members @ ..]) if !members.is_empty() => {
                let sorted = self.sorted_mut(key)?;
                let removed = members.iter().filter(|one| sorted.remove(**one).is_some()).count();
                self.remove_if_empty(key);
                Reply::Int(count(removed))
            }
            ("ZSCORE", [key, member]) => {
                let score = self.sorted(key)?.and_then(|sorted| sorted.get(*member));
                score.map_or(Reply::Null, |score| Reply::bulk(score.to_string()))
            }
            ("ZREMRANGEBYSCORE", [key, from, to]) => {
                let removed = self.range(key, from, to)?;
                for (_, member) in &removed {
                    self.sorted_mut(key)?.remove(member);
                }
                self.remove_if_empty(key);
                Reply::Int(count(removed.len()))
            }
            ("ZRANGE", [key, from, to]) => members(between(self.all(key)?, from, to)?),
            ("ZRANGE", [key, from, to, b"WITHSCORES"]) => {
                let between = between(self.all(key)?, from, to)?.into_iter();
                let pairs = between.flat_map(|(score, member)| [member, score.to_string().into()]);
                Reply::Array(pairs.map(Reply::bulk).collect())
            }
            ("ZRANGEBYSCORE", [key, from, to]) => members(self.range(key, from, to)?),
            ("ZRANGEBYSCORE", [key, from, to, b"LIMIT", b"0", most]) => {
                let mut all = self.range(key, from, to)?;
                all.truncate(usize::try_from(int(most)?).unwrap_or(usize::MAX));
                members(all)
            }
            _ => return self.newer(&name, arguments),
        })
    }

    /// Executes a command that only newer servers have.
    fn newer(&mut self, name: &str, arguments: &[&[u8]]) -> Result<Reply, Reply> {
        let unknown = error(&format!("ERR unknown command '{name}'"));
        match (name, arguments) {
            _ if !self.is_newer => Err(unknown),
            ("DELIFEQ", [key, value]) => {
                let is_equal = self.text(key)? == Some(*value);
                if is_equal {
                    self.keys.remove(*key);
                }
                Ok(Reply::Int(i64::from(is_equal)))
            }
            ("MSETEX", [_, pairs @ .., b"NX", b"PX", millis]) => {
                let millis = int(millis)?;
                let is_free = pairs.chunks(2).all(|pair| !self.keys.contains_key(pair[0]));
                for pair in pairs.chunks(2).filter(|_| is_free) {
                    self.set(pair[0], pair[1], Some(millis))?;
                }
                Ok(Reply::Int(i64::from(is_free)))
            }
            // A key that does not exist is not set.
            ("MSETEX", [b"1", key, _, b"XX", b"PX", _]) if !self.keys.contains_key(*key) => {
                Ok(Reply::Int(0))
            }
            _ => Err(unknown),
        }
    }

    fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, Reply> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Content::Text(text)) => Ok(Some(text)),
            Some(_) => Err(wrong_type()),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], millis: Option<i64>) -> Result<Reply, Reply> {
        if millis.is_some_and(|millis| millis <= 0) {
            return Err(error("ERR invalid expire time in 'set' command"));
        }
        let until = millis.map(|millis| self.millis() + millis);
        self.keys.insert(key.to_vec(), Entry { value: Content::Text(value.to_vec()), until });
        Ok(Reply::Simple("OK"))
    }

    fn hash(&self, key: &[u8]) -> Result<Option<&Hash>, Reply> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Content::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(wrong_type()),
        }
    }

    fn sorted(&self, key: &[u8]) -> Result<Option<&Sorted>, Reply> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Content::Sorted(members)) => Ok(Some(members)),
            Some(_) => Err(wrong_type()),
        }
    }

    fn hash_mut(&mut self, key: &[u8]) -> Result<&mut Hash, Reply> {
        match self.value_mut(key, Content::Hash(BTreeMap::new())) {
            Content::Hash(hash) => Ok(hash),
            _ => Err(wrong_type()),
        }
    }

    fn sorted_mut(&mut self, key: &[u8]) -> Result<&mut Sorted, Reply> {
        match self.value_mut(key, Content::Sorted(BTreeMap::new())) {
            Content::Sorted(members) => Ok(members),
            _ => Err(wrong_type()),
        }
    }

    fn value_mut(&mut self, key: &[u8], empty: Content) -> &mut Content {
        let entry = || Entry { value: empty, until: None };
        &mut self.keys.entry(key.to_vec()).or_insert_with(entry).value
    }

    fn remove_if_empty(&mut self, key: &[u8]) {
        let is_empty = match self.keys.get(key).map(|entry| &entry.value) {
            Some(Content::Hash(hash)) => hash.is_empty(),
            Some(Content::Sorted(members)) => members.is_empty(),
            _ => false,
        };
        if is_empty {
            self.keys.remove(key);
        }
    }

    /// Returns all members with their scores, in their order.
    fn all(&self, key: &[u8]) -> Result<Members, Reply> {
        self.range(key, b"-inf", b"+inf")
    }

    /// Returns the members with these scores, in their order.
    fn range(&self, key: &[u8], from: &[u8], to: &[u8]) -> Result<Members, Reply> {
        let ((from, without_from), (to, without_to)) = (bound(from)?, bound(to)?);
        let members = self.sorted(key)?.into_iter().flatten();
        let mut members: Members = members
            .map(|(member, score)| (*score, member.clone()))
            .filter(|(score, _)| *score > from || *score == from && !without_from)
            .filter(|(score, _)| *score < to || *score == to && !without_to)
            .collect();
        members.sort_unstable();
        Ok(members)
    }

    /// Returns the rest of the life of a key in milliseconds: -2 for no key, -1 for one without an end.
    pub(super) fn time_to_live(&self, key: &[u8]) -> i64 {
        match self.keys.get(key) {
            None => -2,
            Some(Entry { until: None, .. }) => -1,
            Some(Entry { until: Some(until), .. }) => until - self.millis(),
        }
    }

    /// Sets the last millisecond in which the key exists. A key whose last millisecond is the present one ends at once.
    fn expire_at(&mut self, key: &[u8], until: i64) -> i64 {
        let now = self.millis();
        let Some(entry) = self.keys.get_mut(key) else { return 0 };
        entry.until = Some(until);
        if until <= now {
            self.keys.remove(key);
        }
        1
    }
}

/// Members of a sorted set, each with its score before it.
type Members = Vec<(i64, Vec<u8>)>;

fn members(members: Members) -> Reply {
    Reply::Array(members.into_iter().map(|(_, member)| Reply::bulk(member)).collect())
}

/// Returns the members from one index to another, which is included. A negative index counts from the end.
fn between(mut members: Members, from: &[u8], to: &[u8]) -> Result<Members, Reply> {
    let length = count(members.len());
    let index = |text| {
        let index = int(text)?;
        Ok(if index < 0 { index + length } else { index })
    };
    let from = usize::try_from(index(from)?).unwrap_or(0);
    let to: i64 = index(to)?;
    members.truncate(usize::try_from(to + 1).unwrap_or(0));
    members.drain(..from.min(members.len()));
    Ok(members)
}

/// Returns a bound of scores, and whether the bound itself is outside.
fn bound(text: &[u8]) -> Result<(i64, bool), Reply> {
    Ok(match text {
        b"-inf" => (i64::MIN, false),
        b"+inf" => (i64::MAX, false),
        [b'(', text @ ..] => (int(text)?, true),
        text => (int(text)?, false),
    })
}

fn wrong_type() -> Reply {
    error("WRONGTYPE Operation against a key holding the wrong kind of value")
}
