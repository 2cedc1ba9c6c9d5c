//! The plain lock: a string with a random token, as in the Redis documentation and in the lock libraries of
//! other languages.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::Cmd;
use tokio::time::timeout_at;

use super::AcquireParams;
use crate::error::Vote;
use crate::lock::LockName;
use crate::node::Op;
use crate::node::redis::connection::Connection;
use crate::node::redis::decode;
use crate::node::redis::encode::{Purpose, millis, shared_command};
use crate::node::redis::script::Scripts;

/// Returns the channel of the releases, which has the name of the lock.
pub(super) fn channel(name: &LockName) -> Arc<str> {
    Arc::clone(name.shared())
}

/// Sets the lock with one command. A free lock needs no script.
///
/// After a refusal, asks for the remaining time to live, but only until `look_up_until`, so that the vote
/// is not late.
pub(super) async fn set_by_command(
    connection: &Connection,
    op: &Op,
    AcquireParams { lease, look_up_until, .. }: AcquireParams,
) -> Vote {
    let command = shared_command(op.token, Purpose::Acquire(lease), |command| set(command, op, lease));
    let reply = connection.send(&command).await;
    drop(command);
    if let Some(vote) = decode::acquired(&reply) {
        return vote;
    }
    let (Some(until), Some(script)) = (look_up_until, Scripts::of(op.spec.dialect()).inspect)
    else {
        return Vote::Held { remaining: None };
    };
    let keys = [op.spec.name().as_str()];
    // Boxed, because a free lock needs no look-up and the future would enlarge the future of every attempt.
    match Box::pin(timeout_at(until, connection.run(script, &keys, &[]))).await {
        Ok(reply) => decode::refused(&reply),
        Err(_) => Vote::Held { remaining: None },
    }
}

fn set(command: &mut Cmd, op: &Op, lease: Duration) {
    command.arg("SET").arg(op.spec.name().as_str()).arg(op.token.as_str());
    command.arg("NX").arg("PX").arg(millis(lease));
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockSpec, Mode, Token};
    use crate::node::Action;
    use crate::node::redis::connection::played_server::{played_connection, serve};

    const LEASE: Duration = Duration::from_secs(5);

    fn op(prefix: &str) -> Op {
        let name = LockName::new(prefix, &LockKey::new("order:42").unwrap());
        let spec = Arc::new(LockSpec::new(name, Mode::Exclusive, Dialect::Plain));
        let acquire = Action::Acquire { lease: LEASE, fenced: false, lookup: true };
        Op::new(&spec, Token::random(Dialect::Plain), acquire)
    }

    #[test]
    fn acquire_is_one_set_with_a_time_to_live() {
        let op = op("shop:");
        let mut command = Cmd::new();
        set(&mut command, &op, LEASE);
        let packed = command.get_packed_command();
        let expected = format!(
            "*6\r\n$3\r\nSET\r\n$13\r\nshop:order:42\r\n$32\r\n{}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n5000\r\n",
            op.token.as_str()
        );
        assert_eq!(String::from_utf8(packed).unwrap(), expected);
    }

    /// After a published release, waiters that were woken in vain must not delay the new holder
    /// with look-ups.
    #[tokio::test]
    async fn the_ttl_after_a_refusal_is_looked_up_only_on_request() {
        let (connection, mut server) = played_connection().await;
        let acquisition =
            |look_up_until| AcquireParams { lease: LEASE, fenced: false, look_up_until };
        let op = op("");
        let refuse = serve(&mut server, "SET", "_\r\n", || {});
        let (vote, ()) = tokio::join!(set_by_command(&connection, &op, acquisition(None)), refuse);
        assert_eq!(vote, Vote::Held { remaining: None });

        let look_up = async {
            serve(&mut server, "SET", "_\r\n", || {}).await;
            serve(&mut server, "plain/inspect", ":1500\r\n", || {}).await;
        };
        let until = Some(Instant::now() + LEASE);
        let (vote, ()) =
            tokio::join!(set_by_command(&connection, &op, acquisition(until)), look_up);
        assert_eq!(vote, Vote::Held { remaining: Some(Duration::from_millis(1500)) });
    }
}
