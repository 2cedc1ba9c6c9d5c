//! Encodes the commands for a server.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bb8_redis::redis::Cmd;

use super::script::Script;
use crate::lock::Token;

/// The purpose of a shared command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Sets the lock with this time to live.
    Acquire(Duration),
    Release,
}

/// A command, with the token that it contains and its purpose.
#[derive(Clone)]
struct EncodedCommand {
    token: Token,
    purpose: Purpose,
    command: Cmd,
}

/// The shared commands of one thread.
struct SharedCommands {
    /// The command that was encoded last.
    last: Weak<EncodedCommand>,
    /// Commands that no server needs any more. The next commands use their memory.
    spare: Vec<Arc<EncodedCommand>>,
}

/// The highest number of spare commands of a thread.
const MAX_SPARE: usize = 64;

thread_local! {
    static SHARED: RefCell<SharedCommands> =
        const { RefCell::new(SharedCommands { last: Weak::new(), spare: Vec::new() }) };
}

/// Returns a command for several servers. A round sends the command to one server after another on the same
/// thread, so the call for the first server encodes it for all.
pub(super) fn shared_command(
    token: Token,
    purpose: Purpose,
    encode: impl FnOnce(&mut Cmd),
) -> SharedCommand {
    SHARED.with_borrow_mut(|SharedCommands { last, spare }| {
        let matches = |encoded: &Arc<EncodedCommand>| {
            encoded.token == token && encoded.purpose == purpose
        };
        if let Some(encoded) = last.upgrade().filter(matches) {
            return SharedCommand(encoded);
        }
        // The weak reference would keep the spare command from being changed in its place.
        *last = Weak::new();
        let mut encoded = spare.pop().unwrap_or_else(|| {
            let command = Cmd::with_capacity(8, 256);
            Arc::new(EncodedCommand { token, purpose, command })
        });
        let changed = Arc::make_mut(&mut encoded);
        (changed.token, changed.purpose) = (token, purpose);
        changed.command.clear();
        encode(&mut changed.command);
        *last = Arc::downgrade(&encoded);
        SharedCommand(encoded)
    })
}

/// A command for several servers.
pub(super) struct SharedCommand(Arc<EncodedCommand>);

impl Deref for SharedCommand {
    type Target = Cmd;

    fn deref(&self) -> &Cmd {
        &self.0.command
    }
}

impl Drop for SharedCommand {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            return;
        }
        // At the end of a thread there are no spare commands any more.
        let _ = SHARED.try_with(|shared| {
            let spare = &mut shared.borrow_mut().spare;
            if spare.len() < MAX_SPARE {
                spare.push(Arc::clone(&self.0));
            }
        });
    }
}

/// Encodes `EVALSHA sha count keys.. arguments..`.
pub(super) fn run<'a>(
    sha: &str,
    keys: &[&str],
    arguments: impl IntoIterator<Item = &'a [u8]>,
) -> Cmd {
    const ARGUMENTS: usize = 3;
    let bytes: usize = keys.iter().map(|key| key.len()).sum();
    let mut command = Cmd::with_capacity(3 + keys.len() + ARGUMENTS, bytes + 160);
    write_run(&mut command, sha, keys, arguments);
    command
}

/// Writes `EVALSHA sha count keys.. arguments..` into an empty command.
pub(super) fn write_run<'a>(
    command: &mut Cmd,
    sha: &str,
    keys: &[&str],
    arguments: impl IntoIterator<Item = &'a [u8]>,
) {
    command.arg("EVALSHA").arg(sha).arg(keys.len());
    for key in keys {
        command.arg(key);
    }
    for argument in arguments {
        command.arg(argument);
    }
}

pub(super) fn load(script: Script) -> Cmd {
    let mut command = Cmd::new();
    command.arg("SCRIPT").arg("LOAD").arg(script.source());
    command
}

/// Encodes `TIME`, which returns the time on the server's wall clock.
pub(super) fn time() -> Cmd {
    let mut command = Cmd::new();
    command.arg("TIME");
    command
}

/// Formats a duration in whole milliseconds, rounded up: a server must not forget a lock before its holder
/// does.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Dialect;

    #[test]
    fn a_command_in_use_is_encoded_only_once() {
        let token = Token::random(Dialect::Plain);
        let encode = |token, purpose, text: &'static str| {
            shared_command(token, purpose, |command| {
                command.arg(text);
            })
        };
        let lease = |seconds| Purpose::Acquire(Duration::from_secs(seconds));
        let first = encode(token, lease(1), "first");
        assert!(Arc::ptr_eq(&first.0, &encode(token, lease(1), "again").0));
        let others = [
            encode(token, lease(2), "other"),
            encode(token, Purpose::Release, "other"),
            encode(Token::random(Dialect::Plain), Purpose::Release, "other"),
        ];
        for other in &others {
            assert_eq!(other.get_packed_command(), b"*1\r\n$5\r\nother\r\n");
        }
        drop(others);
        let anew = encode(token, Purpose::Release, "anew");
        assert_eq!(
            anew.get_packed_command(),
            b"*1\r\n$4\r\nanew\r\n",
            "the command was not in use any more"
        );
    }

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), 11);
        assert_eq!(millis(Duration::from_millis(10)), 10);
    }
}
