//! What is said to a server.

use std::time::Duration;

use bb8_redis::redis::Cmd;

use super::script::Script;

/// `EVALSHA sha 1 name arguments..`.
pub(super) fn run(sha: &str, name: &str, arguments: &[&[u8]]) -> Cmd {
    let mut command = Cmd::with_capacity(4 + arguments.len(), name.len() + 160);
    command.arg("EVALSHA").arg(sha).arg(1).arg(name);
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
