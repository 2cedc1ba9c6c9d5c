//! The plain lock: a string with a random token, as in the Redis documentation and in the lock libraries of
//! other languages.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::error::Vote;
use crate::lock::LockName;
use crate::node::redis::connection::Connection;
use crate::node::redis::decode;
use crate::node::redis::script;
use crate::node::{Op, Reply};

/// Returns the channel of the releases, which has the name of the lock.
pub(super) fn channel(name: &LockName) -> Arc<str> {
    name.as_str().into()
}

/// Returns the reply of a server that has refused the lock. Looks up the remaining time to live, but only until
/// `until`, so that the vote is not late.
pub(super) async fn refused(connection: &Connection, op: &Op, until: Instant) -> Reply {
    // An attempt that was dropped outside of a runtime is polled there, and there are no timers.
    if Handle::try_current().is_err() {
        return Vote::Held { remaining: None }.into();
    }
    let keys = [op.spec.name().as_str()];
    match timeout_at(until, connection.run(script::PLAIN_INSPECT, &keys)).await {
        Ok(reply) => decode::refused(&reply),
        Err(_) => Vote::Held { remaining: None }.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::super::{begun, execute};
    use super::*;
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockSpec, Mode, Token};
    use crate::node::Action;
    use crate::node::redis::connection::played_server::{played_connection, serve};

    const LEASE: Duration = Duration::from_secs(5);

    fn op(lookup: bool) -> Op {
        let name = LockName::new("", &LockKey::new("order:42").unwrap());
        let spec = LockSpec::new(name, Mode::Exclusive, Dialect::Plain);
        let acquire =
            Action::Acquire { lease: LEASE, fenced: false, lookup, met_shared: false, mark: None };
        Op::new(&spec, Token::random(Dialect::Plain), acquire)
    }

    /// After a published release, waiters that were woken in vain must not delay the new holder
    /// with look-ups.
    #[tokio::test]
    async fn the_ttl_after_a_refusal_is_looked_up_only_on_request() {
        let (connection, mut server) = played_connection().await;
        let refuse = serve(&mut server, "SET", "_\r\n", || {});
        let op_without = op(false);
        let acquire = execute(&connection, &op_without, begun(&op_without.action), LEASE);
        let (reply, ()) = tokio::join!(acquire, refuse);
        assert_eq!(reply.vote, Vote::Held { remaining: None });

        let look_up = async {
            serve(&mut server, "SET", "_\r\n", || {}).await;
            serve(&mut server, "plain/inspect", ":1500\r\n", || {}).await;
        };
        let op_with = op(true);
        let acquire = execute(&connection, &op_with, begun(&op_with.action), LEASE);
        let (reply, ()) = tokio::join!(acquire, look_up);
        assert_eq!(reply.vote, Vote::Held { remaining: Some(Duration::from_millis(1500)) });
    }

    /// An acquisition that was dropped outside of a runtime is polled there to its end.
    #[test]
    fn outside_of_a_runtime_the_ttl_is_not_looked_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (connection, _server) = runtime.block_on(played_connection());
        let reply = refused(&connection, &op(true), Instant::now() + LEASE).now_or_never();
        assert_eq!(reply.unwrap().vote, Vote::Held { remaining: None });
    }
}
