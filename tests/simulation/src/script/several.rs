//! The scripts of locks of several keys, which are plain and exclusive.

use super::{Call, count_all, counted, plain};
use crate::resp::Reply;
use crate::store::{Content, Store, int};

/// The value at one of the keys, compared with the token of the call.
enum Value {
    /// No lock, or a shared one without living holders.
    Free,
    Own,
    /// Another token holds the key.
    Other,
    /// Others share the key, or it is their turn, for this time.
    Shared(i64),
    Foreign,
}

fn value(store: &Store, key: &[u8], token: &[u8]) -> Value {
    match store.keys.get(key).map(|entry| &entry.value) {
        None => Value::Free,
        Some(Content::Text(holder)) if holder == token => Value::Own,
        Some(Content::Text(_)) => Value::Other,
        Some(Content::Hash(hash)) if plain::is_shared_lock(hash) => {
            let mut last = None;
            for (field, end) in hash.iter().filter(|(field, _)| &field[..] != b"mode") {
                let is_entry = field == b"t" || matches!(field[..], [b'r' | b'p' | b'w', b':', ..]);
                let Some(end) = int(end).ok().filter(|_| is_entry) else { return Value::Foreign };
                if end >= store.millis() && field[0] != b'w' {
                    last = last.max(Some(end - store.millis()));
                }
            }
            last.map_or(Value::Free, Value::Shared)
        }
        Some(Content::Hash(_) | Content::Sorted(_)) => Value::Foreign,
    }
}

pub(super) fn run(mut call: Call<'_>, operation: &str) -> Result<Reply, Reply> {
    let has_count = operation.starts_with("acquire") || operation == "confirm";
    let all = call.keys;
    let count = if has_count { usize::try_from(call.number(2)?).unwrap() } else { all.len() };
    let (keys, counters) = all.split_at(count);
    let token = call.arguments[0];
    if operation.starts_with("acquire") {
        return acquire(&mut call, keys, counters, operation == "acquire_fenced");
    }
    let values = keys.iter().map(|key| value(call.store, key, token));
    let (mut lost, mut owned) = (None, Vec::new());
    for (key, value) in keys.iter().zip(values) {
        match value {
            Value::Own => owned.push(*key),
            Value::Foreign => lost = lost.or(Some(-3)),
            Value::Free | Value::Other | Value::Shared(_) => lost = lost.or(Some(0)),
        }
    }
    if let (Some(lost), "extend" | "confirm") = (lost, operation) {
        return Ok(Reply::Int(lost));
    }
    let mut most = 0;
    match operation {
        "extend" => {
            let lease = call.number(1)?;
            for key in keys {
                of_key(&mut call, key).extend(lease);
            }
        }
        "confirm" => {
            for counter in counters {
                counted(call.store, counter)?;
            }
            for counter in counters {
                if counted(call.store, counter)? < call.number(1)? {
                    call.store.set(counter, call.arguments[1], None);
                }
            }
        }
        "release" | "shorten" => {
            for key in &owned {
                if operation == "release" {
                    call.store.keys.remove(*key);
                } else {
                    let time = call.number(1)?;
                    of_key(&mut call, key).shorten(time);
                }
            }
            let notified: Vec<_> = owned.iter().map(|key| call.store.publish(key, b"0")).collect();
            most = notified.iter().copied().max().unwrap_or_default();
            for (key, subscribers) in owned.iter().zip(notified).filter(|_| operation == "release")
            {
                plain::give_turn(call.store, key, subscribers);
            }
            if let Some(lost) = lost {
                return Ok(Reply::Int(lost));
            }
        }
        _ => return Err(super::unknown(operation)),
    }
    Ok(Reply::Int(1 + most))
}

/// Returns the same call for one of the keys.
fn of_key<'a>(call: &'a mut Call<'_>, key: &'a &[u8]) -> Call<'a> {
    Call { store: call.store, keys: std::slice::from_ref(key), arguments: call.arguments }
}

fn acquire(
    call: &mut Call<'_>,
    keys: &[&[u8]],
    counters: &[&[u8]],
    fenced: bool,
) -> Result<Reply, Reply> {
    let (token, lease) = (call.arguments[0], call.number(1)?);
    let list =
        |numbers: &[i64]| Ok(Reply::Array(numbers.iter().map(|it| Reply::Int(*it)).collect()));
    let (mut owned, mut refused, mut shared) = (0, None, Vec::new());
    for (index, key) in (0..).zip(keys) {
        let left = call.store.time_to_live(key);
        match value(call.store, key, token) {
            Value::Free => {}
            Value::Own => {
                owned += 1;
                if owned == keys.len() {
                    return list(&[0, left]);
                }
            }
            Value::Other => return list(&[index, left]),
            Value::Foreign => return list(&[index, -3]),
            Value::Shared(rest) => {
                refused = refused.or(Some([index, rest, 1]));
                shared.push(*key);
            }
        }
    }
    if let Some(refused) = refused {
        let mark = call.arguments[3];
        for key in shared.into_iter().filter(|_| !mark.is_empty()) {
            let life = call.number(4)?;
            let field = [b"w:", mark].concat();
            let before = call.store.hash(key)?.and_then(|hash| hash.get(&field[..]));
            let before = before.map_or(Ok(0), |end| int(end))?;
            let end = before.max(call.store.millis() + life).to_string();
            call.store.put(key, &field, end.as_bytes())?;
            if call.store.time_to_live(key) < life {
                call.store.expire_in(key, life);
            }
        }
        return list(&refused);
    }
    let reply =
        if fenced { Reply::bulk(count_all(call.store, counters)?) } else { Reply::Simple("OK") };
    for key in keys {
        call.store.set(key, token, Some(lease));
    }
    Ok(reply)
}
