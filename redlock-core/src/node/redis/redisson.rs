//! The lock of Redisson's `RLock`: a hash from the owner to how often it holds.
//!
//! Ours is always held once: re-entry is counted in this process.

use std::sync::Arc;

use bb8_redis::redis::{RedisError, Value};

use super::commands::millis;
use super::fencing::{confirm, count};
use super::link::Link;
use super::script::{Script, announce};
use crate::node::{Claim, LockName};

/// Asks whether the owner is in the hash. What else than the type may be wrong with that question
/// (a right that is missing) is answered as it is.
macro_rules! owned {
    ($($then:expr),+) => {
        concat!(
            "\
local owned = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(owned) == 'table' then
  if string.find(owned.err, 'WRONGTYPE', 1, true) then return -3 end
  return owned
end
",
            $($then),+
        )
    };
}

/// Continues where the lock is ours.
macro_rules! if_owned {
    ($($then:expr),+) => {
        owned!("if owned ~= 1 then return 0 end\n", $($then),+)
    };
}

macro_rules! set {
    ($before:expr, $answer:literal) => {
        owned!(
            "\
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end
if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIRE', KEYS[1], ARGV[2]) then
  return redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
end
",
            $before,
            "\
redis.call('HSET', KEYS[1], ARGV[1], '1')
local deadline = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if type(deadline) == 'table' then
  redis.call('DEL', KEYS[1])
  return deadline
end
",
            $answer
        )
    };
}

/// Sets the lock, to the milliseconds that are the second argument, and answers OK; or answers the
/// time to live of what is there already, -1 for none, -3 for a key of another type.
///
/// What a script has done so far stays when it fails, and there is no lock without a deadline
/// (invariant 4). So nothing is set where PEXPIRE is not permitted, which the server says since Redis
/// 7.0; to Redis 6.2 it is an error afterwards, and the hash is removed again, as far as DEL is
/// permitted. To try a PEXPIRE before would not do: after the first write of a script Redis does not
/// refuse any for want of memory.
pub(super) const ACQUIRE: &str = set!("", "return redis.status_reply('OK')");

/// As [`ACQUIRE`], but numbers the lock, and answers the number as text.
pub(super) const FENCED: &str = set!(count!(), "return number");

pub(super) const CONFIRM: &str = if_owned!(confirm!());

pub(super) const EXTEND: &str = if_owned!(
    "\
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1"
);

pub(super) const RELEASE: &str = if_owned!("redis.call('DEL', KEYS[1])\n", announce!("ARGV[2]"));

pub(super) const SHORTEN: &str = if_owned!(
    "\
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
",
    announce!("ARGV[3]")
);

/// Where releases are announced: the name in braces, so that it lies in the same slot of a cluster
/// as the key, unless the name has braces of its own.
pub(super) fn channel(name: &LockName) -> Arc<str> {
    let name = name.as_str();
    if name.contains('{') {
        format!("redisson_lock__channel:{name}").into()
    } else {
        format!("redisson_lock__channel:{{{name}}}").into()
    }
}

/// Removes the lock, or shortens its time to live where it has to stay.
pub(super) async fn release(link: &Link, claim: &Claim) -> Result<Value, RedisError> {
    let (name, token) = (claim.name().as_str(), claim.token().as_bytes());
    let channel = channel(claim.name());
    match claim.stays_for().map(millis) {
        None => link.run(Script::RedissonRelease, &[name], &[token, channel.as_bytes()]).await,
        Some(stays) => {
            let arguments = [token, stays.as_bytes(), channel.as_bytes()];
            link.run(Script::RedissonShorten, &[name], &arguments).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::node::Dialect;

    /// As Redisson 3.50 does, seen by MONITOR.
    #[test]
    fn the_channel_is_that_of_redisson() {
        for (key, expected) in [
            ("order:42", "redisson_lock__channel:{shop:order:42}"),
            ("a{b}c", "redisson_lock__channel:shop:a{b}c"),
            ("a{b", "redisson_lock__channel:shop:a{b"),
        ] {
            let key = LockKey::new(key).unwrap();
            assert_eq!(&*channel(&LockName::new("shop:", &key, Dialect::Redisson)), expected);
        }
    }
}
