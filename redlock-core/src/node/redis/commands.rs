//! What is said to a server.

use std::time::Duration;

use bb8_redis::redis::Cmd;

use super::script::Script;

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

/// Whole milliseconds, rounded up: a server must not forget a lock before its holder does.
pub(super) fn millis(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), "11");
        assert_eq!(millis(Duration::from_millis(10)), "10");
    }
}
