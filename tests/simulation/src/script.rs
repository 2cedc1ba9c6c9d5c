//! The scripts of redlock-core, executed without Lua.

use std::sync::LazyLock;

use redlock_core::simulation::scripts;

use super::fair;
use super::resp::Reply;
use super::store::{Store, error, int};

/// A script of redlock-core.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: String,
    source: &'static str,
    /// The name that the simulated server gives to the script. It is as long as the SHA-1 of a real server.
    pub(super) sha: String,
}

pub(super) static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let script = |(index, (name, source))| Script { name, source, sha: format!("{index:040x}") };
    scripts().enumerate().map(script).collect()
});

/// Returns the script with this text.
pub(super) fn by_source(source: &[u8]) -> Option<&'static Script> {
    SCRIPTS.iter().find(|script| script.source.as_bytes() == source)
}

/// Executes a script. A script that fails has changed nothing.
pub(super) fn run(
    store: &mut Store,
    name: &str,
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Result<Reply, Reply> {
    let key = keys[0];
    if let Some(operation) = name.strip_prefix("several/") {
        return run_several(store, operation, keys, arguments);
    }
    if let Some(operation) = name.strip_prefix("fair/") {
        return fair::run(store, operation, key, arguments);
    }
    let Some(operation) = name.strip_prefix("plain/") else {
        return run_redisson(
            store,
            name.strip_prefix("redisson/").expect("a dialect"),
            keys,
            arguments,
        );
    };
    let holder = match store.text(key) {
        Ok(holder) => holder.map(<[u8]>::to_vec),
        Err(_) => return Ok(Reply::Int(-3)),
    };
    match operation {
        "inspect" => return Ok(Reply::Int(store.time_to_live(key))),
        "acquire_fenced" if holder.is_some() => return Ok(Reply::Int(store.time_to_live(key))),
        "acquire_fenced" => {
            let number = count(store, keys[1])?;
            store.set(key, arguments[0], Some(int(arguments[1])?));
            return Ok(Reply::bulk(number));
        }
        _ if holder.as_deref() != Some(arguments[0]) => return Ok(Reply::Int(0)),
        _ => {}
    }
    match operation {
        "release" => Ok(release(store, key, key)),
        "shorten" => shorten(store, key, arguments[1], key),
        _ => run_as_owner(store, operation, keys, arguments),
    }
}

fn run_redisson(
    store: &mut Store,
    operation: &str,
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Result<Reply, Reply> {
    let key = keys[0];
    let (exists, owned) = match store.hash(key) {
        Ok(hash) => (hash.is_some(), hash.is_some_and(|hash| hash.contains_key(arguments[0]))),
        Err(_) => return Ok(Reply::Int(-3)),
    };
    match operation {
        "acquire" | "acquire_fenced" if exists => return Ok(Reply::Int(store.time_to_live(key))),
        "acquire" | "acquire_fenced" => {
            let lease = int(arguments[1])?;
            let answer = match operation {
                "acquire_fenced" => Reply::bulk(count(store, keys[1])?),
                _ => Reply::Simple("OK"),
            };
            store.put(key, arguments[0], b"1")?;
            store.expire_in(key, lease);
            return Ok(answer);
        }
        _ if !owned => return Ok(Reply::Int(0)),
        _ => {}
    }
    match operation {
        "release" => Ok(release(store, key, arguments[1])),
        "shorten" => shorten(store, key, arguments[1], arguments[2]),
        _ => run_as_owner(store, operation, keys, arguments),
    }
}

/// Executes the scripts of locks of several keys.
fn run_several(
    store: &mut Store,
    operation: &str,
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Result<Reply, Reply> {
    let counts = matches!(operation, "acquire_fenced" | "confirm");
    let count = if counts { usize::try_from(int(arguments[2])?).unwrap() } else { keys.len() };
    let (keys, counters) = keys.split_at(count);
    let token = Some(arguments[0]);
    let mut owned = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let refused = match store.text(key) {
            Ok(None) => None,
            Ok(holder) if holder == token => {
                owned.push(*key);
                (owned.len() == keys.len()).then(|| (0, store.time_to_live(key)))
            }
            Ok(_) => Some((index, store.time_to_live(key))),
            Err(_) => Some((index, -3)),
        };
        if let Some((index, left)) = refused
            && operation.starts_with("acquire")
        {
            let index = i64::try_from(index).unwrap();
            return Ok(Reply::Array(vec![Reply::Int(index), Reply::Int(left)]));
        }
    }
    if operation.starts_with("acquire") {
        let lease = int(arguments[1])?;
        let answer = match operation {
            "acquire_fenced" => Reply::bulk(count_all(store, counters)?),
            _ => Reply::Simple("OK"),
        };
        for key in keys {
            store.set(key, arguments[0], Some(lease));
        }
        return Ok(answer);
    }
    let lost = keys.iter().find(|key| store.text(key) != Ok(token));
    let lost = lost.map(|key| if store.text(key).is_err() { -3 } else { 0 });
    if let (Some(lost), "extend" | "confirm") = (lost, operation) {
        return Ok(Reply::Int(lost));
    }
    let mut most = 0;
    match operation {
        "extend" => {
            for key in keys {
                run_as_owner(store, operation, &[key], arguments)?;
            }
        }
        "confirm" => {
            for counter in counters {
                counted(store, counter)?;
            }
            for counter in counters {
                run_as_owner(store, operation, &[keys[0], counter], arguments)?;
            }
        }
        "release" | "shorten" => {
            for key in owned {
                let published = match operation {
                    "release" => release(store, key, key),
                    _ => shorten(store, key, arguments[1], key)?,
                };
                let Reply::Int(published) = published else { unreachable!() };
                most = most.max(published - 1);
            }
            if let Some(lost) = lost {
                return Ok(Reply::Int(lost));
            }
        }
        _ => return Err(error(&format!("ERR the simulation does not know {operation}"))),
    }
    Ok(Reply::Int(1 + most))
}

/// Executes the operations that are the same in both dialects, once the caller is known to own the lock.
fn run_as_owner(
    store: &mut Store,
    operation: &str,
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Result<Reply, Reply> {
    let number = int(arguments[1])?;
    match operation {
        "extend" => {
            if store.time_to_live(keys[0]) < number {
                store.expire_in(keys[0], number);
            }
        }
        "confirm" => {
            if counted(store, keys[1])? < number {
                store.set(keys[1], arguments[1], None);
            }
        }
        _ => return Err(error(&format!("ERR the simulation does not know {operation}"))),
    }
    Ok(Reply::Int(1))
}

fn release(store: &mut Store, key: &[u8], channel: &[u8]) -> Reply {
    store.keys.remove(key);
    Reply::Int(1 + store.publish(channel, b"0"))
}

fn shorten(store: &mut Store, key: &[u8], to: &[u8], channel: &[u8]) -> Result<Reply, Reply> {
    let to = int(to)?;
    if store.time_to_live(key) > to {
        store.expire_in(key, to);
    }
    Ok(Reply::Int(1 + store.publish(channel, b"0")))
}

fn counted(store: &Store, counter: &[u8]) -> Result<i64, Reply> {
    let not_a_number = |_| error("ERR the fencing counter is not a number");
    store.text(counter)?.map_or(Ok(0), |text| int(text).map_err(not_a_number))
}

fn count(store: &mut Store, counter: &[u8]) -> Result<String, Reply> {
    count_all(store, &[counter])
}

fn count_all(store: &mut Store, counters: &[&[u8]]) -> Result<String, Reply> {
    let mut highest = micros(store);
    for counter in counters {
        highest = counted(store, counter)?.max(highest);
    }
    let number = (highest + 1).to_string();
    for counter in counters {
        store.set(counter, number.as_bytes(), None);
    }
    Ok(number)
}

/// Returns the time on the server's clock in microseconds.
pub(super) fn micros(store: &Store) -> i64 {
    i64::try_from(store.now.as_micros()).expect("a time that fits into an i64")
}
