//! The plain lock: a string that only its owner knows, as the Redis documentation describes it and as
//! the lock libraries of other languages set it.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, timeout_at};

use crate::error::Vote;
use crate::node::redis::connection::Connection;
use crate::node::redis::decode;
use crate::node::redis::encode::{Purpose, millis};
use crate::node::redis::script::Scripts;
use crate::node::{Claim, LockName};

/// Releases are announced on the channel of the lock's name.
pub(crate) fn channel(name: &LockName) -> Arc<str> {
    Arc::clone(name.as_shared())
}

/// One command: no script on the way of a lock that is free.
///
/// A refusal is looked into, until `look_until`: that it is held is certain, for how long is worth a
/// part of the ballot's time, but not that the vote comes too late.
pub(crate) async fn acquire(
    link: &Connection,
    claim: &Claim,
    expire: Duration,
    look_until: Instant,
) -> Vote {
    let command = claim.command().get(Purpose::Acquire(expire), || set(claim, expire));
    let reply = link.ask(&command.1).await;
    drop(command);
    if let Some(vote) = decode::acquired(&reply) {
        return vote;
    }
    if claim.is_hurried() {
        return Vote::Held { remaining: None };
    }
    let keys = [claim.name().as_str()];
    let Some(script) = Scripts::of(claim.dialect()).inspect else {
        return Vote::Held { remaining: None };
    };
    let inspection = link.run(script, &keys, &[]);
    match timeout_at(look_until, inspection).await {
        Ok(reply) => decode::holder(&reply),
        Err(_) => Vote::Held { remaining: None },
    }
}

/// Removes the lock, or shortens its time to live where it has to stay.
pub(crate) async fn release(link: &Connection, claim: &Claim) -> Result<Value, RedisError> {
    let (name, token) = (claim.name().as_str(), claim.token().as_bytes());
    let scripts = Scripts::of(claim.dialect());
    match claim.stays_for().map(millis) {
        None => {
            let script = scripts.release;
            let make = || link.command(script, &[name], &[token]);
            let command = claim.command().get(Purpose::Release, make);
            link.run_command(script, &command.1).await
        }
        Some(stays) => link.run(scripts.shorten, &[name], &[token, stays.as_bytes()]).await,
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
    use super::*;
    use crate::key::LockKey;
    use crate::node::Dialect;
    use crate::node::redis::dialect::scripted::tests::{link, serve};

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
    async fn a_hurried_refusal_is_not_looked_into() {
        let key = LockKey::new("order:42").unwrap();
        let claim = || Claim::new(LockName::new("", &key, Dialect::Plain), key.clone());
        let lease = Duration::from_secs(5);
        let look_until = Instant::now() + lease;
        let (link, mut server) = link().await;
        let hurried = claim().hurried();
        let refuse = serve(&mut server, "SET", "_\r\n", || {});
        let (vote, ()) = tokio::join!(acquire(&link, &hurried, lease, look_until), refuse);
        assert_eq!(vote, Vote::Held { remaining: None });

        let other = claim();
        let look_into = async {
            serve(&mut server, "SET", "_\r\n", || {}).await;
            serve(&mut server, "plain/inspect", ":1500\r\n", || {}).await;
        };
        let (vote, ()) = tokio::join!(acquire(&link, &other, lease, look_until), look_into);
        assert_eq!(vote, Vote::Held { remaining: Some(Duration::from_millis(1500)) });
    }
}
