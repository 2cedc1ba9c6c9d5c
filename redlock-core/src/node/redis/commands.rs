//! What is said to a server.

use std::time::Duration;

use bb8_redis::redis::Cmd;

use crate::node::Claim;

/// The operations that are more than one command. A script runs as one: nothing comes in between
/// (Redis documentation, "Scripting with Lua"). The texts are constant, data travels in KEYS and
/// ARGV, so that each is compiled once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// Who holds the lock that was refused?
    Inspect,
    /// Lengthen, if it is ours.
    Extend,
    /// Remove, if it is ours, and tell those who wait.
    Release,
    /// Let it run out sooner, if it is ours, and tell those who wait.
    Shorten,
}

impl Script {
    pub(super) const ALL: [Self; 4] = [Self::Inspect, Self::Extend, Self::Release, Self::Shorten];

    /// All answer a whole number.
    ///
    /// * Inspect: the time to live in milliseconds; -1 for none, -2 for no key, -3 for a key of
    ///   another type. The token does not leave the server.
    /// * Extend: 1 if it was ours, 0 if not, -3 for a key of another type.
    /// * Release, shorten: the same, but instead of 1 one more than those who listened for it. That nobody
    ///   may be told (ACL) does not undo the release.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::Inspect => {
                "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then return -3 end
return redis.call('PTTL', KEYS[1])"
            }
            Self::Extend => {
                "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then return -3 end
if value ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1"
            }
            Self::Release => {
                "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then return -3 end
if value ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
local listeners = redis.pcall('PUBLISH', KEYS[1], '0')
if type(listeners) ~= 'number' then return 1 end
return 1 + listeners"
            }
            Self::Shorten => {
                "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then return -3 end
if value ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local listeners = redis.pcall('PUBLISH', KEYS[1], '0')
if type(listeners) ~= 'number' then return 1 end
return 1 + listeners"
            }
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

/// `SET name token NX PX expire`: the plain lock of the Redis documentation, which the lock
/// libraries of other languages set too.
pub(super) fn acquire(claim: &Claim, expire: Duration) -> Cmd {
    let mut command = Cmd::with_capacity(6, claim.name().len() + 96);
    command.arg("SET").arg(&**claim.name()).arg(claim.token()).arg("NX").arg("PX");
    command.arg(millis(expire).as_str());
    command
}

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
    use crate::key::LockKey;

    #[test]
    fn acquire_is_one_set_with_a_time_to_live() {
        let claim = Claim::new("shop:", LockKey::new("order:42").unwrap());
        let packed = acquire(&claim, Duration::from_secs(5)).get_packed_command();
        let expected = format!(
            "*6\r\n$3\r\nSET\r\n$13\r\nshop:order:42\r\n$32\r\n{}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n5000\r\n",
            claim.token()
        );
        assert_eq!(String::from_utf8(packed).unwrap(), expected);
    }

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), "11");
        assert_eq!(millis(Duration::from_millis(10)), "10");
    }

    /// Invariant 2: no script removes or lengthens anything without the comparison.
    #[test]
    fn every_script_that_changes_something_compares_first() {
        for script in [Script::Extend, Script::Release, Script::Shorten] {
            let source = script.source();
            let compare = source.find("~= ARGV[1] then return 0").unwrap();
            for change in ["'DEL'", "'PEXPIRE'"] {
                assert!(source.find(change).is_none_or(|at| at > compare));
            }
        }
    }
}
