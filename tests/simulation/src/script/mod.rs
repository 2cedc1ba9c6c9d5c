//! The scripts of redlock-core, executed without Lua.

mod plain;
mod redisson;
mod several;
mod shared;

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

/// The call of a script.
struct Call<'a> {
    store: &'a mut Store,
    keys: &'a [&'a [u8]],
    arguments: &'a [&'a [u8]],
}

/// Executes a script. A script that fails has changed nothing.
pub(super) fn run(
    store: &mut Store,
    name: &str,
    keys: &[&[u8]],
    arguments: &[&[u8]],
) -> Result<Reply, Reply> {
    let call = Call { store, keys, arguments };
    match name.split_once('/') {
        Some(("plain", operation @ ("take" | "take_fenced")) | ("shared", operation)) => {
            shared::run(call, operation)
        }
        Some(("plain", operation)) => plain::run(call, operation),
        Some(("several", operation)) => several::run(call, operation),
        Some(("fair", operation)) => fair::run(call.store, operation, keys[0], arguments),
        Some(("redisson", operation)) => redisson::run(call, operation),
        _ => Err(unknown(name)),
    }
}

fn unknown(operation: &str) -> Reply {
    error(&format!("ERR the simulation does not know {operation}"))
}

impl Call<'_> {
    /// Returns the key of the lock.
    fn key(&self) -> &[u8] {
        self.keys[0]
    }

    fn number(&self, argument: usize) -> Result<i64, Reply> {
        self.arguments
            .get(argument)
            .ok_or_else(|| error("ERR an argument is missing"))
            .and_then(|text| int(text))
    }

    /// Returns the time to live of the lock.
    fn time_to_live(&self) -> Reply {
        Reply::Int(self.store.time_to_live(self.key()))
    }

    /// Prolongs the life of the key to `millis`, and never shortens it.
    fn extend(&mut self, millis: i64) {
        if self.store.time_to_live(self.keys[0]) < millis {
            self.store.expire_in(self.keys[0], millis);
        }
    }

    /// Shortens the life of the key to `millis`, and never prolongs it.
    fn shorten(&mut self, millis: i64) {
        if self.store.time_to_live(self.keys[0]) > millis {
            self.store.expire_in(self.keys[0], millis);
        }
    }

    /// Executes the operations that are the same for every exclusive lock, once the caller is known to own it.
    fn run_as_owner(&mut self, operation: &str) -> Result<Reply, Reply> {
        let number = self.number(1)?;
        match operation {
            "extend" => self.extend(number),
            "confirm" => {
                if self.counted()? < number {
                    self.store.set(self.keys[1], self.arguments[1], None);
                }
            }
            _ => return Err(unknown(operation)),
        }
        Ok(Reply::Int(1))
    }

    fn counted(&self) -> Result<i64, Reply> {
        counted(self.store, self.keys[1])
    }

    /// Returns the next fencing number.
    fn count(&mut self) -> Result<String, Reply> {
        count_all(self.store, &self.keys[1..])
    }
}

fn counted(store: &Store, counter: &[u8]) -> Result<i64, Reply> {
    let not_a_number = |_| error("ERR the fencing counter is not a number");
    store.text(counter)?.map_or(Ok(0), |text| int(text).map_err(not_a_number))
}

/// Returns the next number of all of these counters, and sets them to it.
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
