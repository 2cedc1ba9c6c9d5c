//! What is said to a server.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bb8_redis::redis::Cmd;
use parking_lot::Mutex;

use super::script::Script;

/// The command that several servers are asked with at the same time: made by the first that is asked,
/// kept for as long as one of them owes the answer.
#[derive(Default)]
pub(crate) struct SharedCommand(Mutex<Weak<(Purpose, Cmd)>>);

/// What a shared command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To set the lock with this time to live.
    Acquire(Duration),
    Release,
}

impl SharedCommand {
    pub(super) fn get(
        &self,
        purpose: Purpose,
        encode: impl FnOnce() -> Cmd,
    ) -> Arc<(Purpose, Cmd)> {
        let mut shared = self.0.lock();
        if let Some(made) = shared.upgrade().filter(|made| made.0 == purpose) {
            return made;
        }
        let made = Arc::new((purpose, encode()));
        *shared = Arc::downgrade(&made);
        made
    }

    /// Keeps no memory for a command that nobody needs any more.
    pub(crate) fn forget(&self) {
        *self.0.lock() = Weak::new();
    }
}

impl fmt::Debug for SharedCommand {
    /// It contains the token (invariant 12).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedCommand(..)")
    }
}

/// `EVALSHA sha count keys.. arguments..`.
pub(super) fn run(sha: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    let bytes: usize = keys.iter().map(|key| key.len()).sum();
    let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), bytes + 160);
    command.arg("EVALSHA").arg(sha).arg(keys.len());
    for key in keys {
        command.arg(key);
    }
    for argument in arguments {
        command.arg(argument);
    }
    command
}

pub(super) fn load(script: Script) -> Cmd {
    let mut command = Cmd::new();
    command.arg("SCRIPT").arg("LOAD").arg(script.source());
    command
}

/// What the server's wall clock shows.
pub(super) fn time() -> Cmd {
    let mut command = Cmd::new();
    command.arg("TIME");
    command
}

/// Whole milliseconds, rounded up: a server must not forget a lock before its holder does.
pub(super) fn millis(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_made_once_for_those_who_need_it_at_the_same_time() {
        let shared = SharedCommand::default();
        let made = |text: &'static str| move || bb8_redis::redis::cmd(text);
        let (one, other) = (Purpose::Acquire(Duration::from_secs(1)), Purpose::Release);
        let first = shared.get(one, made("first"));
        assert!(Arc::ptr_eq(&first, &shared.get(one, made("again"))));
        assert!(!Arc::ptr_eq(&first, &shared.get(other, made("other"))));
        let lease = Purpose::Acquire(Duration::from_secs(2));
        assert_eq!(shared.get(lease, made("lease")).0, lease);
        let anew = shared.get(lease, made("anew"));
        assert_eq!(anew.1.get_packed_command(), b"*1\r\n$4\r\nanew\r\n", "nobody had it any more");
    }

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), "11");
        assert_eq!(millis(Duration::from_millis(10)), "10");
    }
}
