//! The plain lock: a string with a random token, as in the Redis documentation and in the lock libraries of
//! other languages.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::error::Vote;
use crate::lock::LockName;
use crate::node::Op;
use crate::node::redis::connection::Connection;
use crate::node::redis::decode;
use crate::node::redis::script::Scripts;

/// Returns the channel of the releases, which has the name of the lock.
pub(super) fn channel(name: &LockName) -> Arc<str> {
    name.as_str().into()
}

/// Returns the vote of a server that has refused the lock. Looks up the remaining time to live, but only until
/// `until`, so that the vote is not late.
pub(super) async fn refused(connection: &Connection, op: &Op, until: Instant) -> Vote {
    // An attempt that was dropped outside of a runtime is polled there, and there are no timers.
    let script = Scripts::of(&op.spec).inspect;
    let (Some(script), Ok(_)) = (script, Handle::try_current()) else {
        return Vote::Held { remaining: None };
    };
    match timeout_at(until, connection.run(script, &[op.spec.name().as_str()])).await {
        Ok(reply) => decode::refused(&reply),
        Err(_) => Vote::Held { remaining: None },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::super::execute;
    use super::*;
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockSpec, Mode, Token};
    use crate::node::Action;
    use crate::node::redis::connection::played_server::{played_connection, serve};

    const LEASE: Duration = Duration::from_secs(5);

    fn op(lookup: bool) -> Op {
        let name = LockName::new("", &LockKey::new("order:42").unwrap());
        let spec = LockSpec::new(name, Mode::Exclusive, Dialect::Plain);
        let acquire = Action::Acquire { lease: LEASE, fenced: false, lookup };
        Op::new(&spec, Token::random(Dialect::Plain), acquire)
    }

    /// After a published release, waiters that were woken in vain must not delay the new holder
    /// with look-ups.
    #[tokio::test]
    async fn the_ttl_after_a_refusal_is_looked_up_only_on_request() {
        let (connection, mut server) = played_connection().await;
        let refuse = serve(&mut server, "SET", "_\r\n", || {});
        let op_without = op(false);
        let acquire = execute(&connection, &op_without, Instant::now(), LEASE);
        let (reply, ()) = tokio::join!(acquire, refuse);
        assert_eq!(reply.vote, Vote::Held { remaining: None });

        let look_up = async {
            serve(&mut server, "SET", "_\r\n", || {}).await;
            serve(&mut server, "plain/inspect", ":1500\r\n", || {}).await;
        };
        let op_with = op(true);
        let acquire = execute(&connection, &op_with, Instant::now(), LEASE);
        let (reply, ()) = tokio::join!(acquire, look_up);
        assert_eq!(reply.vote, Vote::Held { remaining: Some(Duration::from_millis(1500)) });
    }

    /// An acquisition that was dropped outside of a runtime is polled there to its end.
    #[test]
    fn outside_of_a_runtime_the_ttl_is_not_looked_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (connection, _server) = runtime.block_on(played_connection());
        let vote = refused(&connection, &op(true), Instant::now() + LEASE).now_or_never();
        assert_eq!(vote, Some(Vote::Held { remaining: None }));
    }
}
