//! The plain lock: a string that only its owner knows, as the Redis documentation describes it and as
//! the lock libraries of other languages set it.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, timeout_at};

use super::commands::{Purpose, millis};
use super::fencing::{confirm, count};
use super::link::Link;
use super::reply;
use super::script::{Script, announce};
use crate::error::Vote;
use crate::node::{Claim, LockName};

/// Asks for the token. What else than the type may be wrong with that question (a right that is
/// missing) is answered as it is.
macro_rules! token {
    ($($then:expr),+) => {
        concat!(
            "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return -3 end
  return value
end
",
            $($then),+
        )
    };
}

/// Continues where the lock is ours.
macro_rules! if_owned {
    ($($then:expr),+) => {
        token!("if value ~= ARGV[1] then return 0 end\n", $($then),+)
    };
}

/// Answers the time to live in milliseconds; -1 for none, -2 for no key, -3 for a key of another
/// type. The token does not leave the server.
pub(super) const INSPECT: &str = token!("return redis.call('PTTL', KEYS[1])");

/// Numbers and sets the lock, to the milliseconds that are the second argument, and answers the number
/// as text; or answers as [`INSPECT`] does what is there already.
pub(super) const FENCED: &str = token!(
    "if value then return redis.call('PTTL', KEYS[1]) end\n",
    count!(),
    "\
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return number"
);

pub(super) const CONFIRM: &str = if_owned!(confirm!());

pub(super) const EXTEND: &str = if_owned!(
    "\
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1"
);

pub(super) const RELEASE: &str = if_owned!("redis.call('DEL', KEYS[1])\n", announce!("KEYS[1]"));

pub(super) const SHORTEN: &str = if_owned!(
    "\
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
",
    announce!("KEYS[1]")
);

/// Releases are announced on the channel of the lock's name.
pub(super) fn channel(name: &LockName) -> Arc<str> {
    Arc::clone(name.as_shared())
}

/// One command: no script on the way of a lock that is free.
///
/// A refusal is looked into, until `look_until`: that it is held is certain, for how long is worth a
/// part of the ballot's time, but not that the vote comes too late.
pub(super) async fn acquire(
    link: &Link,
    claim: &Claim,
    expire: Duration,
    look_until: Instant,
) -> Vote {
    let command = claim.command().get(Purpose::Acquire(expire), || set(claim, expire));
    let reply = link.ask(&command.1).await;
    drop(command);
    if let Some(vote) = reply::acquired(&reply) {
        return vote;
    }
    if claim.skips_ttl_lookup() {
        return Vote::Held { remaining: None };
    }
    let keys = [claim.name().as_str()];
    let inspection = link.run(Script::PlainInspect, &keys, &[]);
    match timeout_at(look_until, inspection).await {
        Ok(reply) => reply::holder(&reply),
        Err(_) => Vote::Held { remaining: None },
    }
}

/// Removes the lock, or shortens its time to live where it has to stay.
pub(super) async fn release(link: &Link, claim: &Claim) -> Result<Value, RedisError> {
    let (name, token) = (claim.name().as_str(), claim.token().as_bytes());
    match claim.stays_for().map(millis) {
        None => {
            let script = Script::PlainRelease;
            let make = || link.command(script, &[name], &[token]);
            let command = claim.command().get(Purpose::Release, make);
            link.run_command(script, &command.1).await
        }
        Some(stays) => link.run(Script::PlainShorten, &[name], &[token, stays.as_bytes()]).await,
    }
}

fn set(claim: &Claim, expire: Duration) -> Cmd {
    let name = claim.name().as_str();
    let mut command = Cmd::with_capacity(6, name.len() + 96);
    command.arg("SET").arg(name).arg(claim.token()).arg("NX").arg("PX");
    command.arg(millis(expire).as_str());
    command
}

#[cfg(test)]
mod tests {
    use super::super::scripted::tests::{link, serve};
    use super::*;
    use crate::key::LockKey;
    use crate::node::Dialect;

    #[test]
    fn acquire_is_one_set_with_a_time_to_live() {
        let key = LockKey::new("order:42").unwrap();
        let claim = Claim::new(LockName::new("shop:", &key, Dialect::Plain), key);
        let packed = set(&claim, Duration::from_secs(5)).get_packed_command();
        let expected = format!(
            "*6\r\n$3\r\nSET\r\n$13\r\nshop:order:42\r\n$32\r\n{}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n5000\r\n",
            claim.token()
        );
        assert_eq!(String::from_utf8(packed).unwrap(), expected);
    }

    /// Those that an announcement has woken in vain would hold up the one who got the lock.
    #[tokio::test]
    async fn a_refusal_without_ttl_lookup_costs_one_command() {
        let key = LockKey::new("order:42").unwrap();
        let claim = || Claim::new(LockName::new("", &key, Dialect::Plain), key.clone());
        let lease = Duration::from_secs(5);
        let look_until = Instant::now() + lease;
        let (link, mut server) = link().await;
        let without_lookup = claim().skip_ttl_lookup();
        let refuse = serve(&mut server, "SET", "_\r\n", || {});
        let (vote, ()) = tokio::join!(acquire(&link, &without_lookup, lease, look_until), refuse);
        assert_eq!(vote, Vote::Held { remaining: None });

        let other = claim();
        let look_into = async {
            serve(&mut server, "SET", "_\r\n", || {}).await;
            serve(&mut server, "PlainInspect", ":1500\r\n", || {}).await;
        };
        let (vote, ()) = tokio::join!(acquire(&link, &other, lease, look_until), look_into);
        assert_eq!(vote, Vote::Held { remaining: Some(Duration::from_millis(1500)) });
    }
}
