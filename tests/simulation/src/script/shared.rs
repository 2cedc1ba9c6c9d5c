//! The scripts of shared locks, and the acquisition of an exclusive lock beside a shared one.

use std::collections::BTreeMap;

use super::{Call, plain};
use crate::resp::Reply;
use crate::store::Content;

/// A key, as a script has read it.
struct SharedLock<'a> {
    call: Call<'a>,
    /// The token of an exclusive holder.
    value: Option<Vec<u8>>,
    /// The entries of a shared lock and their ends.
    ends: BTreeMap<Vec<u8>, i64>,
    now: i64,
}

pub(super) fn run(call: Call<'_>, operation: &str) -> Result<Reply, Reply> {
    let Some(mut lock) = SharedLock::read(call) else { return Ok(Reply::Int(-3)) };
    match operation {
        "take" | "take_fenced" => lock.take(operation == "take_fenced"),
        "acquire" => lock.acquire(),
        "extend" => lock.extend(),
        "release" => Ok(lock.release()),
        "shorten" => lock.shorten(),
        "downgrade" => Ok(lock.downgrade()),
        "upgrade" => lock.upgrade(),
        "withdraw" => Ok(lock.withdraw()),
        _ => Err(super::unknown(operation)),
    }
}

fn list(number: i64) -> Reply {
    Reply::Array(vec![Reply::Int(number)])
}

impl<'a> SharedLock<'a> {
    /// Reads the key. Returns `None` for a foreign key.
    fn read(call: Call<'a>) -> Option<Self> {
        let now = call.store.millis();
        let (mut value, mut ends) = (None, BTreeMap::new());
        match call.store.keys.get(call.key()).map(|entry| &entry.value) {
            None => {}
            Some(Content::Text(text)) => value = Some(text.clone()),
            Some(Content::Sorted(_)) => return None,
            Some(Content::Hash(hash)) => {
                if !plain::is_shared_lock(hash) {
                    return None;
                }
                for (field, end) in hash.iter().filter(|(field, _)| &field[..] != b"mode") {
                    let end: i64 = std::str::from_utf8(end).ok()?.parse().ok()?;
                    let is_entry = field == b"t"
                        || [b"r:", b"p:", b"w:"].iter().any(|kind| field.starts_with(*kind));
                    if end >= 1_000_000_000_000_000 || !is_entry {
                        return None;
                    }
                    ends.insert(field.clone(), end);
                }
            }
        }
        Some(Self { call, value, ends, now })
    }

    /// Returns the ends of the living entries of a kind.
    fn living(&self, kind: u8) -> impl Iterator<Item = i64> {
        let living = self
            .ends
            .iter()
            .filter(move |(field, end)| field.first() == Some(&kind) && **end >= self.now);
        living.map(|(_, end)| *end)
    }

    /// Returns the latest end of the living entries of a kind, or 0.
    fn last(&self, kind: u8) -> i64 {
        self.living(kind).max().unwrap_or(0)
    }

    fn settle(&mut self) {
        let Self { call, ends, now, .. } = self;
        let mut last = 0;
        for (field, end) in &*ends {
            if end < now {
                call.store.remove_field(call.keys[0], field);
            } else {
                last = last.max(*end);
            }
        }
        if last == 0 {
            call.store.keys.remove(call.keys[0]);
        } else {
            call.store.expire_at(call.keys[0], last);
        }
    }

    fn set(&mut self, field: Vec<u8>, till: i64) {
        let (store, key) = (&mut *self.call.store, self.call.keys[0]);
        for (field, value) in [(&b"mode"[..], "shared"), (&field, &till.to_string())] {
            store.put(key, field, value.as_bytes()).expect("a hash or no key");
        }
        self.ends.insert(field, till);
        self.settle();
    }

    fn remove(&mut self, field: &[u8]) {
        self.ends.remove(field);
        self.call.store.remove_field(self.call.keys[0], field);
        self.settle();
    }

    fn publish(&mut self, message: &str) -> i64 {
        self.call.store.publish(self.call.keys[0], message.as_bytes())
    }

    fn entry(&self, kind: &str) -> Vec<u8> {
        [kind.as_bytes(), b":", self.call.arguments[0]].concat()
    }

    /// Returns the entry of the token, and its end if it lives.
    fn own(&self) -> (Vec<u8>, Option<i64>) {
        let permit = self.entry("p");
        let own = if self.ends.contains_key(&permit) { permit } else { self.entry("r") };
        let till = self.ends.get(&own).copied().filter(|till| *till >= self.now);
        (own, till)
    }

    /// Returns the number of upgrades of the token's exclusive lock; `None` for another token.
    fn upgrades(&self, exclusive: &[u8]) -> Option<u32> {
        let rest = exclusive.strip_prefix(self.call.arguments[0])?;
        match rest.strip_prefix(b"#") {
            Some(number) => std::str::from_utf8(number).ok()?.parse().ok(),
            None => rest.is_empty().then_some(0),
        }
    }

    /// Returns whether the token, or an upgrade of it, has an exclusive lock.
    fn is_exclusive(&self) -> bool {
        self.value.as_ref().is_some_and(|value| self.upgrades(value).is_some())
    }

    /// Returns whether the token has an exclusive lock with at most as many upgrades as that of the second argument.
    fn is_upgraded_before(&self) -> bool {
        let upgrades = self.value.as_ref().and_then(|value| self.upgrades(value));
        upgrades.is_some() && upgrades <= self.upgrades(self.call.arguments[1])
    }

    fn take(&mut self, fenced: bool) -> Result<Reply, Reply> {
        if self.value.is_some() {
            return Ok(self.call.time_to_live());
        }
        let last = [b'r', b'p', b't'].map(|kind| self.last(kind)).into_iter().max().unwrap_or(0);
        if last > 0 {
            let mark = self.call.arguments[2];
            if !mark.is_empty() {
                self.set([b"w:", mark].concat(), self.now + self.call.number(3)?);
            }
            return Ok(list(last - self.now));
        }
        let lease = self.call.number(1)?;
        let reply = if fenced { Reply::bulk(self.call.count()?) } else { Reply::Simple("OK") };
        self.call.store.set(self.call.keys[0], self.call.arguments[0], Some(lease));
        Ok(reply)
    }

    fn acquire(&mut self) -> Result<Reply, Reply> {
        if self.value.is_some() {
            return Ok(self.call.time_to_live());
        }
        let (lease, permits) = (self.call.number(1)?, self.call.number(2)?);
        let permits = usize::try_from(permits).expect("a number of permits");
        let (own, others) = if permits > 0 { ("p", b'r') } else { ("r", b'p') };
        let own = self.entry(own);
        let till = self.ends.get(&own).copied().unwrap_or(0);
        if till < self.now {
            let mark = self.last(b'w');
            if mark > 0 && self.last(b't') == 0 {
                return Ok(Reply::Int(mark - self.now));
            }
            let others = self.last(others);
            if others > 0 {
                return Ok(Reply::Int(others - self.now));
            }
            let mut taken: Vec<i64> = self.living(b'p').collect();
            taken.sort_unstable();
            if permits > 0 && taken.len() >= permits {
                return Ok(Reply::Int(taken[taken.len() - permits] - self.now));
            }
        }
        self.set(own, till.max(self.now + lease));
        Ok(Reply::Simple("OK"))
    }

    fn extend(&mut self) -> Result<Reply, Reply> {
        let lease = self.call.number(1)?;
        if self.is_exclusive() {
            self.call.extend(lease);
            return Ok(Reply::Int(1));
        }
        let (own, Some(till)) = self.own() else { return Ok(Reply::Int(0)) };
        self.set(own, till.max(self.now + lease));
        Ok(Reply::Int(if self.last(b'w') > 0 { 2 } else { 1 }))
    }

    fn release(&mut self) -> Reply {
        if self.is_exclusive() {
            return Reply::Int(1 + self.call.release());
        }
        let (own, Some(till)) = self.own() else { return Reply::Int(0) };
        self.remove(&own);
        let [mark, last_reader, last_permit] = [b'w', b'r', b'p'].map(|kind| self.last(kind));
        let mut subscribers = 0;
        if last_permit > 0 && mark == 0 {
            subscribers = self.publish("r");
        } else if last_reader == 0 && last_permit == 0 && mark == 0 {
            subscribers = self.publish("0");
        }
        if mark > 0 && last_reader.max(last_permit) < till {
            subscribers = self.publish("w");
        }
        Reply::Int(1 + subscribers)
    }

    fn shorten(&mut self) -> Result<Reply, Reply> {
        let millis = self.call.number(1)?;
        if self.is_exclusive() {
            self.call.shorten(millis);
        } else {
            let (own, Some(till)) = self.own() else { return Ok(Reply::Int(0)) };
            if self.now + millis < till {
                self.set(own, self.now + millis);
            }
        }
        Ok(Reply::Int(1 + self.publish("0")))
    }

    fn downgrade(&mut self) -> Reply {
        if self.is_upgraded_before() {
            let rest = self.call.store.time_to_live(self.call.keys[0]);
            self.call.store.keys.remove(self.call.keys[0]);
            let kind = if self.call.arguments[2] == b"p" { "p" } else { "r" };
            self.set(self.entry(kind), self.now + rest.max(1));
            self.publish("0");
            return Reply::Int(1);
        }
        Reply::Int(i64::from(self.own().1.is_some()))
    }

    fn upgrade(&mut self) -> Result<Reply, Reply> {
        let lease = self.call.number(2)?;
        let rest = match self.own() {
            _ if self.is_upgraded_before() => self.call.store.time_to_live(self.call.keys[0]),
            (own, Some(till)) => {
                let kinds = |field: &[u8]| matches!(field.first(), Some(b'r' | b'p'));
                let others = self.ends.iter().filter(|(field, _)| kinds(field) && **field != own);
                let ends = others.map(|(_, end)| *end).filter(|end| *end >= self.now);
                if let Some(last) = ends.max() {
                    return Ok(list(last - self.now));
                }
                till - self.now
            }
            (_, None) => return Ok(Reply::Int(0)),
        };
        self.call.store.set(self.call.keys[0], self.call.arguments[1], Some(rest.max(lease)));
        Ok(Reply::Int(1))
    }

    fn withdraw(&mut self) -> Reply {
        let mark = self.entry("w");
        if self.value.is_none() && self.ends.contains_key(&mark) {
            self.remove(&mark);
            if self.last(b'w') == 0 {
                self.publish("r");
            }
        }
        Reply::Int(1)
    }
}
