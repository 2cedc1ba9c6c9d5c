//! The lock of Redisson's `RLock`: a hash from the owner to how often it holds.
//!
//! Ours is always held once: re-entry is counted in this process.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{RedisError, Value};

use super::commands::millis;
use super::link::Link;
use super::reply;
use super::script::{Script, announce};
use crate::error::{NodeError, Vote};
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

/// Sets the lock, to the milliseconds that are the second argument, and answers OK; or answers the
/// time to live of what is there already, -1 for none, -3 for a key of another type.
///
/// Where PEXPIRE is not permitted, the hash is removed again: what a script has done so far stays
/// when it fails, and there is no lock without a deadline (invariant 4). To try a PEXPIRE before
/// would not do: after the first write of a script Redis 7.0 does not refuse any for want of memory.
pub(super) const ACQUIRE: &str = owned!(
    "\
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[1], '1')
local deadline = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if type(deadline) == 'table' then
  redis.call('DEL', KEYS[1])
  return deadline
end
return redis.status_reply('OK')"
);

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

pub(super) async fn acquire(link: &Link, claim: &Claim, expire: Duration) -> Vote {
    let name = claim.name().as_str();
    let millis = millis(expire);
    let arguments = [claim.token().as_bytes(), millis.as_bytes()];
    let wanted = || !claim.is_given_up();
    let reply = link.run_if(wanted, Script::RedissonAcquire, name, &arguments).await;
    let vote = match reply {
        Some(reply) => reply::acquired_or_holder(&reply),
        None => Vote::Failed(NodeError::Server("the attempt was given up".into())),
    };
    // A server that had forgotten the script was asked twice, and the release may have overtaken
    // the second question (invariant 6).
    if vote == Vote::Granted && claim.is_given_up() {
        let _ = release(link, claim).await;
    }
    vote
}

/// Removes the lock, or shortens its time to live where it has to stay.
pub(super) async fn release(link: &Link, claim: &Claim) -> Result<Value, RedisError> {
    let (name, token) = (claim.name().as_str(), claim.token().as_bytes());
    let channel = channel(claim.name());
    match claim.stays_for().map(millis) {
        None => link.run(Script::RedissonRelease, name, &[token, channel.as_bytes()]).await,
        Some(stays) => {
            let arguments = [token, stays.as_bytes(), channel.as_bytes()];
            link.run(Script::RedissonShorten, name, &arguments).await
        }
    }
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::aio::MultiplexedConnection;
    use bb8_redis::redis::{AsyncConnectionConfig, RedisConnectionInfo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::super::link::Identity;
    use super::*;
    use crate::key::LockKey;
    use crate::node::Dialect;

    const EXPIRE: Duration = Duration::from_secs(30);

    fn claim() -> Claim {
        let key = LockKey::new("order:42").unwrap();
        Claim::new(LockName::new("", &key, Dialect::Redisson), key)
    }

    /// A connection to a test that plays the server. The scripts are called by their names.
    async fn link() -> (Link, DuplexStream) {
        let (client, server) = tokio::io::duplex(4096);
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = MultiplexedConnection::new_with_config(&info, client, config).await;
        let (handle, driver) = connection.unwrap();
        tokio::spawn(driver);
        let names = Script::ALL.map(|script| format!("{script:?}"));
        (Link::new(handle, Arc::default(), names, Identity::default()), server)
    }

    /// Takes the next command, which has to contain `word`, and answers it; before that, does
    /// `meanwhile`.
    async fn serve(server: &mut DuplexStream, word: &str, reply: &str, meanwhile: impl Fn()) {
        let mut buffer = [0; 4096];
        let count = server.read(&mut buffer).await.unwrap();
        let command = String::from_utf8_lossy(&buffer[..count]);
        assert!(command.contains(word), "{command}");
        meanwhile();
        server.write_all(reply.as_bytes()).await.unwrap();
    }

    const NO_SCRIPT: &str = "-NOSCRIPT No matching script.\r\n";

    /// Invariant 6: what cleans up behind it is on its way already, and would be overtaken.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_given_up_is_not_asked_for_again() {
        let (link, mut server) = link().await;
        let claim = claim();
        let server = async {
            serve(&mut server, "RedissonAcquire", NO_SCRIPT, || {}).await;
            serve(&mut server, "LOAD", "+sha\r\n", || claim.give_up()).await;
            // A question after these would be answered by nobody.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            vote = acquire(&link, &claim, EXPIRE) => {
                assert!(matches!(vote, Vote::Failed(_)), "{vote}");
            }
            () = server => unreachable!(),
            () = tokio::time::sleep(EXPIRE) => panic!("it was asked again"),
        }
    }

    /// Invariant 6, the other order.
    #[tokio::test(start_paused = true)]
    async fn what_is_granted_after_it_was_given_up_is_released() {
        let (link, mut server) = link().await;
        let claim = claim();
        let server = async {
            serve(&mut server, "RedissonAcquire", NO_SCRIPT, || {}).await;
            serve(&mut server, "LOAD", "+sha\r\n", || {}).await;
            serve(&mut server, "RedissonAcquire", "+OK\r\n", || claim.give_up()).await;
            serve(&mut server, "RedissonRelease", ":1\r\n", || {}).await;
        };
        let asked = async { tokio::join!(acquire(&link, &claim, EXPIRE), server) };
        tokio::time::timeout(EXPIRE, asked).await.expect("it was released");
    }

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
