//! Executes operations on a server.
//!
//! The dialects and the modes differ in the type of the key, the proof of ownership, and the channel of the releases.
//! Their [scripts](Script) hide these differences, so that one function executes all operations, on one key or on several.
//! The exception is the first unfenced acquisition of an exclusive lock of one key in the plain dialect, which needs no
//! script: a string with a random token, as in the Redis documentation and in the lock libraries of other languages.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, ErrorKind};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::connection::pending_acquisitions::PendingAcquisition;
use super::script::{self, Script};
use super::{encode, fencing, reply};
use crate::error::Vote;
use crate::lock::{Dialect, LockSpec, Mark, Mode};
use crate::node::{Action, Op, Reply};
use crate::validity;

/// Returns the channel on which the releases of a lock are published.
pub(crate) fn channel(spec: &LockSpec) -> Arc<str> {
    match spec.dialect() {
        Dialect::Plain => spec.name().into(),
        Dialect::Redisson => redisson_channel(spec.name()),
    }
}

/// Returns the channel of the releases of a Redisson lock. It contains the name of the lock in braces, so that it lies in
/// the same slot of a cluster as the key. A name with an opening brace gets no further braces.
fn redisson_channel(name: &str) -> Arc<str> {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}").into()
    } else {
        format!("redisson_lock__channel:{{{name}}}").into()
    }
}

/// Returns the channel to which callers subscribe that ask for a turn of the shared holders.
pub(crate) fn turn_channel(spec: &LockSpec) -> Arc<str> {
    format!("{}:readers", spec.name()).into()
}

/// Returns the start of an operation that may look up the remaining lease of a refused lock. Other operations need
/// no reading of the clock.
pub(crate) fn begun(action: &Action) -> Option<Instant> {
    matches!(action, Action::Acquire { lookup: true, .. }).then(Instant::now)
}

/// Executes an operation. `begun`, see [`begun`], and `node_timeout` limit the look-up of the remaining lease. Without
/// `begun` there is no look-up. `asking` is set for a server of a cluster to which the slot of the lock is moving.
///
/// The futures of rare cases are boxed, because they would enlarge the future of every operation.
pub(crate) async fn execute(
    connection: &Connection,
    op: &Op,
    begun: Option<Instant>,
    node_timeout: Duration,
    asking: bool,
) -> Reply {
    let script = Script::of(op);
    // A server that has forgotten the script of an acquisition receives it twice. The second command must not
    // follow a release (an abandoned attempt leaves nothing behind).
    let mut attempt = None;
    match op.action {
        Action::Acquire { .. } if script.is_some() => {
            attempt = Some(connection.acquisitions.begin(op.token));
        }
        Action::Acquire { .. }
        | Action::Extend { .. }
        | Action::Confirm { .. }
        | Action::Downgrade
        | Action::Withdraw { .. } => {}
        Action::Release { .. } => connection.acquisitions.release(&op.token),
    }
    let is_released = || attempt.as_ref().is_some_and(PendingAcquisition::is_released);

    let mut is_sent_again = false;
    let send = || connection.send_packed(encode_op(connection, op), asking);
    let reply = match (script, send().await) {
        (Some(script), Err(error)) => {
            let resend = async {
                if is_released() {
                    return Err((ErrorKind::Client, "the attempt was abandoned").into());
                }
                is_sent_again = true;
                send().await
            };
            Box::pin(connection.recover(script, error, resend)).await
        }
        (_, reply) => reply,
    };

    let reply = match (&op.action, script) {
        (Action::Acquire { lease, .. }, None) => match (reply::acquired(&reply), begun) {
            (Some(vote), _) => vote.into(),
            (None, Some(begun)) => {
                let until = begun + look_up_time(*lease, node_timeout);
                Box::pin(look_up(connection, op, until)).await
            }
            (None, None) => Vote::Held { remaining: None }.into(),
        },
        (action, _) => reply::of_script(&reply, action),
    };
    let grants = matches!(op.action, Action::Acquire { .. });
    if !grants || reply.vote != Vote::Granted {
        return reply;
    }
    // A release that was sent meanwhile follows the first command, but not the second one.
    if is_sent_again && is_released() {
        let release = Action::Release { min_hold: None };
        let release = Op { action: release, ..op.clone() };
        Box::pin(undo(connection, &release)).await;
    }
    // A grant does not count if the server is quarantined before the reply arrives: its wall clock may have
    // been stepped before it received the command.
    match connection.may_grant() {
        Ok(()) => reply,
        Err(reason) => Vote::Failed(reason).into(),
    }
}

/// Releases a lock that was granted after its release.
async fn undo(connection: &Connection, release: &Op) {
    if let Some(script) = Script::of(release) {
        let command = encode_op(connection, release);
        let _ = connection.send_script(script, command, false).await;
    }
}

/// Encodes the command of an operation for the server of a connection.
fn encode_op(connection: &Connection, op: &Op) -> Arc<[u8]> {
    let sha = Script::of(op).map(|script| connection.sha(script));
    encode::shared(op, |command| encode_operation(command, op, sha))
}

/// Returns for how long after its start a refused acquisition may look up the remaining lease. A vote counts only
/// until the round ends: after `node_timeout`, or earlier if the lease is short.
fn look_up_time(lease: Duration, node_timeout: Duration) -> Duration {
    node_timeout.min(validity::remaining(lease, Duration::ZERO)) * 4 / 5
}

/// Returns the reply of a server that has refused the lock. Looks up the remaining time to live, but only until
/// `until`, so that the vote is not late. The look-up grants nothing: a grant could follow the release of the attempt.
async fn look_up(connection: &Connection, op: &Op, until: Instant) -> Reply {
    let unknown = || Vote::Held { remaining: None }.into();
    // An attempt that was dropped outside of a runtime is polled there, and there are no timers.
    if Handle::try_current().is_err() {
        return unknown();
    }
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(connection.sha(script::ACQUIRE)).arg(1).arg(op.spec.name());
    command.arg(op.token.as_bytes()).arg("").arg(1).arg("").arg("");
    match timeout_at(
        until,
        connection.send_script(script::ACQUIRE, encode::packed(&command), false),
    )
    .await
    {
        Ok(reply) => reply::looked_up(&reply),
        Err(_) => unknown(),
    }
}

/// Encodes the command of an operation. `sha` names its script; `None` for an acquisition without a script.
fn encode_operation(command: &mut Cmd, op: &Op, sha: Option<&str>) {
    let (keys, token) = (op.spec.keys(), op.token.as_bytes());
    let Some(sha) = sha else {
        command.arg("SET").arg(op.spec.name()).arg(token).arg("NX");
        if let Action::Acquire { lease, .. } = op.action {
            command.arg("PX").arg(encode::millis(lease));
        }
        return;
    };
    let counts = matches!(op.action, Action::Acquire { fenced: true, .. } | Action::Confirm { .. });
    let counters = if counts { fencing::counters(keys) } else { Vec::new() };
    command.arg("EVALSHA").arg(sha).arg(keys.len() + counters.len());
    for name in op.spec.names() {
        command.arg(name);
    }
    for counter in counters {
        command.arg(counter);
    }
    if let Action::Withdraw { mark } = op.action {
        command.arg(mark.to_string());
        return;
    }
    command.arg(token);
    let dialect = op.spec.dialect();
    // A plain lock publishes on the channel that has the name of its key, and its scripts know its mode.
    let is_plain = dialect == Dialect::Plain;
    let kind = match op.spec.mode() {
        Mode::Exclusive => "x",
        Mode::Shared { permits: None } => "r",
        Mode::Shared { permits: Some(_) } => "p",
    };
    match op.action {
        Action::Acquire { lease, mark, .. } => match op.spec.mode() {
            Mode::Shared { permits } => {
                let permits = permits.map_or(0, NonZeroU32::get);
                command.arg(kind).arg(encode::millis(lease)).arg(permits);
            }
            Mode::Exclusive => {
                command.arg(encode::millis(lease));
                if is_plain {
                    command.arg(keys.len());
                    encode_mark(command, mark);
                }
            }
        },
        Action::Extend { lease } => {
            is_plain.then(|| command.arg(kind));
            command.arg(encode::millis(lease));
        }
        Action::Confirm { number } => {
            command.arg(number);
            is_plain.then(|| command.arg(keys.len()));
        }
        Action::Release { min_hold } => {
            let rest = min_hold.map(encode::millis);
            if is_plain && (rest.is_some() || op.spec.mode().is_shared()) {
                command.arg(kind);
            }
            if let Some(rest) = rest {
                command.arg(rest);
            }
            if !is_plain {
                command.arg(&*channel(&op.spec));
            }
        }
        Action::Downgrade | Action::Withdraw { .. } => {}
    }
}

/// Encodes the mark of a waiting writer and its time to live.
fn encode_mark(command: &mut Cmd, mark: Option<Mark>) {
    match mark {
        Some(mark) => command.arg(mark.to_string()).arg(encode::millis(Mark::LIFE_TIME)),
        None => command.arg("").arg(""),
    };
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::key::LockKey;
    use crate::lock::Token;
    use crate::node::redis::connection::played_server::{played_connection, serve};

    const LEASE: Duration = Duration::from_secs(30);
    const NO_SCRIPT: &str = "-NOSCRIPT No matching script.\r\n";

    fn op() -> Op {
        let key = LockKey::new("order:42").unwrap();
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Redisson);
        let acquire = Action::Acquire {
            lease: LEASE,
            fenced: false,
            lookup: true,
            met_marks: false,
            mark: None,
        };
        Op::new(&spec, Token::random(Dialect::Redisson), acquire)
    }

    /// The clean-up of this attempt is already on its way. A second acquisition would arrive after
    /// it.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_released_is_not_sent_again() {
        let (connection, mut server) = played_connection();
        let op = op();
        let server = async {
            serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
            serve(&mut server, "LOAD", "+sha\r\n", || connection.acquisitions.release(&op.token))
                .await;
            // The server would never reply to a further command.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            reply = execute(&connection, &op, begun(&op.action), LEASE, false) => {
                assert!(matches!(reply.vote, Vote::Failed(_)), "{reply:?}");
            }
            () = server => unreachable!(),
            () = tokio::time::sleep(LEASE) => panic!("the acquisition was sent again"),
        }
    }

    /// The attempt is released while the acquisition is on its way, so the grant comes too late.
    #[tokio::test(start_paused = true)]
    async fn a_grant_that_comes_after_its_release_is_released_again() {
        let (connection, mut server) = played_connection();
        let op = op();
        let server = async {
            serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
            serve(&mut server, "LOAD", "+sha\r\n", || {}).await;
            let release = || connection.acquisitions.release(&op.token);
            serve(&mut server, "redisson/acquire", "+OK\r\n", release).await;
            serve(&mut server, "redisson/release", ":1\r\n", || {}).await;
        };
        let both = async {
            tokio::join!(execute(&connection, &op, begun(&op.action), LEASE, false), server)
        };
        tokio::time::timeout(LEASE, both).await.expect("the lock is released again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_acquisition_that_was_sent_once_is_released_once() {
        let (connection, mut server) = played_connection();
        let op = op();
        let release = || connection.acquisitions.release(&op.token);
        let server = serve(&mut server, "redisson/acquire", "+OK\r\n", release);
        let both = async {
            tokio::join!(execute(&connection, &op, begun(&op.action), LEASE, false), server)
        };
        // The server would never reply to a second release.
        let (reply, ()) = tokio::time::timeout(LEASE, both).await.unwrap();
        assert_eq!(reply.vote, Vote::Granted);
    }

    #[test]
    fn acquire_is_one_set_with_a_time_to_live() {
        let key = LockKey::new("order:42").unwrap().with_prefix("shop:");
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
        let acquire = Action::Acquire {
            lease: LEASE,
            fenced: false,
            lookup: true,
            met_marks: false,
            mark: None,
        };
        let op = Op::new(&spec, Token::random(Dialect::Plain), acquire);
        let mut command = Cmd::new();
        encode_operation(&mut command, &op, None);
        let packed = command.get_packed_command();
        let expected = format!(
            "*6\r\n$3\r\nSET\r\n$13\r\nshop:order:42\r\n$32\r\n{}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n",
            op.token.as_str()
        );
        assert_eq!(String::from_utf8(packed).unwrap(), expected);
    }

    fn plain_op(lookup: bool) -> Op {
        let key = LockKey::new("order:42").unwrap();
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
        let acquire =
            Action::Acquire { lease: LEASE, fenced: false, lookup, met_marks: false, mark: None };
        Op::new(&spec, Token::random(Dialect::Plain), acquire)
    }

    /// After a published release, waiters that were woken in vain must not delay the new holder
    /// with look-ups.
    #[tokio::test]
    async fn the_ttl_after_a_refusal_is_looked_up_only_on_request() {
        let (connection, mut server) = played_connection();
        let refuse = serve(&mut server, "SET", "_\r\n", || {});
        let op_without = plain_op(false);
        let acquire = execute(&connection, &op_without, begun(&op_without.action), LEASE, false);
        let (reply, ()) = tokio::join!(acquire, refuse);
        assert_eq!(reply.vote, Vote::Held { remaining: None });

        let look_up = async {
            serve(&mut server, "SET", "_\r\n", || {}).await;
            serve(&mut server, "acquire", "*2\r\n:0\r\n:1500\r\n", || {}).await;
        };
        let op_with = plain_op(true);
        let acquire = execute(&connection, &op_with, begun(&op_with.action), LEASE, false);
        let (reply, ()) = tokio::join!(acquire, look_up);
        assert_eq!(reply.vote, Vote::Held { remaining: Some(Duration::from_millis(1500)) });
    }

    /// An acquisition that was dropped outside of a runtime is polled there to its end.
    #[test]
    fn outside_of_a_runtime_the_ttl_is_not_looked_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (connection, _server) = runtime.block_on(async { played_connection() });
        let reply = look_up(&connection, &plain_op(true), Instant::now() + LEASE).now_or_never();
        assert_eq!(reply.unwrap().vote, Vote::Held { remaining: None });
    }

    /// The name that Redisson 3.50 uses, as `MONITOR` shows it.
    #[test]
    fn the_channel_is_that_of_redisson() {
        for (key, expected) in [
            ("order:42", "redisson_lock__channel:{shop:order:42}"),
            ("a{b}c", "redisson_lock__channel:shop:a{b}c"),
            ("a{b", "redisson_lock__channel:shop:a{b"),
        ] {
            let key = LockKey::new(key).unwrap();
            assert_eq!(&*redisson_channel(key.with_prefix("shop:").name()), expected);
        }
    }
}
