//! Executes operations on a server, in the dialect of the lock.
//!
//! The dialects and the modes differ in the type of the key, the proof of ownership, and the channel of the releases.
//! Their [scripts](Script) and tokens hide these differences, so that one function executes all operations. The
//! exception is the first unfenced acquisition of an exclusive lock in the plain dialect: it needs no script.

mod plain;
mod redisson;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, ErrorKind};
use tokio::time::Instant;

use super::connection::Connection;
use super::connection::pending_acquisitions::PendingAcquisition;
use super::script::Script;
use super::{decode, encode, fencing};
use crate::error::Vote;
use crate::lock::{Dialect, LockSpec, Mode, WriterMark};
use crate::node::{Action, Op, Reply};
use crate::validity;

/// Returns the channel on which the releases of a lock are published.
pub(crate) fn channel(spec: &LockSpec) -> Arc<str> {
    match spec.dialect() {
        Dialect::Plain => plain::channel(spec.name()),
        Dialect::Redisson => redisson::channel(spec.name()),
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
/// `begun` there is no look-up.
///
/// The futures of rare cases are boxed, because they would enlarge the future of every operation.
pub(crate) async fn execute(
    connection: &Connection,
    op: &Op,
    begun: Option<Instant>,
    node_timeout: Duration,
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
    let sha = script.map(|script| connection.sha(script));
    let command = encode::shared(op, |command| encode_operation(command, op, sha));
    let reply = match (script, connection.send(&command).await) {
        (Some(script), Err(error)) => {
            let resend = async {
                if is_released() {
                    Err((ErrorKind::Client, "the attempt was abandoned").into())
                } else {
                    is_sent_again = true;
                    connection.send_boxed(&command).await
                }
            };
            Box::pin(connection.recover(script, error, resend)).await
        }
        (_, reply) => reply,
    };
    drop(command);

    let reply = match (&op.action, script) {
        (Action::Acquire { lease, .. }, None) => match (decode::acquired(&reply), begun) {
            (Some(vote), _) => vote.into(),
            (None, Some(begun)) => {
                let until = begun + look_up_time(*lease, node_timeout);
                Box::pin(plain::refused(connection, op, until)).await
            }
            (None, None) => Vote::Held { remaining: None }.into(),
        },
        (action, _) => decode::reply_of_script(&reply, action),
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

/// Executes an operation on a server of a cluster to which the slot of the lock is moving. Does not look up the
/// remaining lease.
pub(crate) async fn execute_asking(connection: &Connection, op: &Op) -> Reply {
    let script = Script::of(op);
    let mut command = Cmd::new();
    encode_operation(&mut command, op, script.map(|script| connection.sha(script)));
    let reply = connection.send_asking(&command).await;
    let reply = match (script, reply) {
        (Some(script), Err(error)) => {
            connection.recover(script, error, connection.send_asking(&command)).await
        }
        (_, reply) => reply,
    };
    let reply = match (&op.action, script) {
        (Action::Acquire { .. }, None) => {
            decode::acquired(&reply).unwrap_or(Vote::Held { remaining: None }).into()
        }
        (action, _) => decode::reply_of_script(&reply, action),
    };
    let grants = matches!(op.action, Action::Acquire { .. });
    match connection.may_grant() {
        Err(reason) if grants && reply.vote == Vote::Granted => Vote::Failed(reason).into(),
        _ => reply,
    }
}

/// Releases a lock that was granted after its release.
async fn undo(connection: &Connection, release: &Op) {
    let Some(script) = Script::of(release) else { return };
    let mut command = Cmd::new();
    encode_operation(&mut command, release, Some(connection.sha(script)));
    let _ = connection.send_script(script, &command).await;
}

/// Returns for how long after its start a refused acquisition may look up the remaining lease. A vote counts only
/// until the round ends: after `node_timeout`, or earlier if the lease is short.
fn look_up_time(lease: Duration, node_timeout: Duration) -> Duration {
    node_timeout.min(validity::remaining(lease, Duration::ZERO)) * 4 / 5
}

/// Encodes the command of an operation. `sha` names its script; `None` for an acquisition without a script.
fn encode_operation(command: &mut Cmd, op: &Op, sha: Option<&str>) {
    let (name, token) = (op.spec.name(), op.token.as_bytes());
    let Some(sha) = sha else {
        command.arg("SET").arg(name.as_str()).arg(token).arg("NX");
        if let Action::Acquire { lease, .. } = op.action {
            command.arg("PX").arg(encode::millis(lease));
        }
        return;
    };
    let counts = matches!(op.action, Action::Acquire { fenced: true, .. } | Action::Confirm { .. });
    if op.spec.has_several_keys() {
        return encode_several(command, op, sha, counts);
    }
    command.arg("EVALSHA").arg(sha).arg(1 + usize::from(counts)).arg(name.as_str());
    if counts {
        command.arg(fencing::counter(name));
    }
    if let Action::Withdraw { mark } = op.action {
        command.arg(mark.to_string());
        return;
    }
    command.arg(token);
    match op.action {
        Action::Acquire { lease, mark, .. } => {
            command.arg(encode::millis(lease));
            encode_mode(command, &op.spec, mark);
        }
        Action::Extend { lease } => {
            command.arg(encode::millis(lease));
        }
        Action::Confirm { number } => {
            command.arg(number);
        }
        Action::Release { min_hold } => {
            if let Some(time) = min_hold {
                command.arg(encode::millis(time));
            }
            // A plain lock publishes on the channel that has the name of its key.
            if op.spec.dialect() == Dialect::Redisson {
                command.arg(&*channel(&op.spec));
            }
        }
        Action::Downgrade | Action::Withdraw { .. } => {}
    }
}

/// Encodes the arguments of an acquisition that depend on the mode of the lock.
fn encode_mode(command: &mut Cmd, spec: &LockSpec, mark: Option<WriterMark>) {
    match (spec.dialect(), spec.mode()) {
        (Dialect::Redisson, _) => {}
        (Dialect::Plain, Mode::Shared { permits }) => {
            command.arg(permits.map_or(0, NonZeroU32::get));
        }
        (Dialect::Plain, Mode::Exclusive) => encode_mark(command, mark),
    }
}

/// Encodes the mark of a waiting writer and its time to live.
fn encode_mark(command: &mut Cmd, mark: Option<WriterMark>) {
    match mark {
        Some(mark) => command.arg(mark.to_string()).arg(encode::millis(WriterMark::LIFE_TIME)),
        None => command.arg("").arg(""),
    };
}

/// Encodes the command of an operation on a lock of several keys, which is always a script. Its releases are
/// published on the channels that have the names of the keys.
fn encode_several(command: &mut Cmd, op: &Op, sha: &str, counts: bool) {
    let names = op.spec.keys();
    let counters = if counts { fencing::counters(names) } else { Vec::new() };
    command.arg("EVALSHA").arg(sha).arg(names.len() + counters.len());
    for name in names {
        command.arg(name.as_str());
    }
    command.arg(counters).arg(op.token.as_bytes());
    match op.action {
        Action::Acquire { lease, mark, .. } => {
            command.arg(encode::millis(lease)).arg(names.len());
            encode_mark(command, mark);
        }
        Action::Extend { lease } => {
            command.arg(encode::millis(lease));
        }
        Action::Confirm { number } => {
            command.arg(number).arg(names.len());
        }
        Action::Release { min_hold } => {
            min_hold.map(|time| command.arg(encode::millis(time)));
        }
        // The modes of a lock of several keys do not change, and its mark is withdrawn from each key by itself.
        Action::Downgrade | Action::Withdraw { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::lock::{LockName, Token};
    use crate::node::redis::connection::played_server::{played_connection, serve};

    const LEASE: Duration = Duration::from_secs(30);
    const NO_SCRIPT: &str = "-NOSCRIPT No matching script.\r\n";

    fn op() -> Op {
        let name = LockName::new("", &LockKey::new("order:42").unwrap());
        let spec = LockSpec::new(name, Mode::Exclusive, Dialect::Redisson);
        let acquire = Action::Acquire {
            lease: LEASE,
            fenced: false,
            lookup: true,
            met_shared: false,
            mark: None,
        };
        Op::new(&spec, Token::random(Dialect::Redisson), acquire)
    }

    /// The clean-up of this attempt is already on its way. A second acquisition would arrive after
    /// it.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_released_is_not_sent_again() {
        let (connection, mut server) = played_connection().await;
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
            reply = execute(&connection, &op, begun(&op.action), LEASE) => {
                assert!(matches!(reply.vote, Vote::Failed(_)), "{reply:?}");
            }
            () = server => unreachable!(),
            () = tokio::time::sleep(LEASE) => panic!("the acquisition was sent again"),
        }
    }

    /// The attempt is released while the acquisition is on its way, so the grant comes too late.
    #[tokio::test(start_paused = true)]
    async fn a_grant_that_comes_after_its_release_is_released_again() {
        let (connection, mut server) = played_connection().await;
        let op = op();
        let server = async {
            serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
            serve(&mut server, "LOAD", "+sha\r\n", || {}).await;
            let release = || connection.acquisitions.release(&op.token);
            serve(&mut server, "redisson/acquire", "+OK\r\n", release).await;
            serve(&mut server, "redisson/release", ":1\r\n", || {}).await;
        };
        let both =
            async { tokio::join!(execute(&connection, &op, begun(&op.action), LEASE), server) };
        tokio::time::timeout(LEASE, both).await.expect("the lock is released again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_acquisition_that_was_sent_once_is_released_once() {
        let (connection, mut server) = played_connection().await;
        let op = op();
        let release = || connection.acquisitions.release(&op.token);
        let server = serve(&mut server, "redisson/acquire", "+OK\r\n", release);
        let both =
            async { tokio::join!(execute(&connection, &op, begun(&op.action), LEASE), server) };
        // The server would never reply to a second release.
        let (reply, ()) = tokio::time::timeout(LEASE, both).await.unwrap();
        assert_eq!(reply.vote, Vote::Granted);
    }

    #[test]
    fn acquire_is_one_set_with_a_time_to_live() {
        let name = LockName::new("shop:", &LockKey::new("order:42").unwrap());
        let spec = LockSpec::new(name, Mode::Exclusive, Dialect::Plain);
        let acquire = Action::Acquire {
            lease: LEASE,
            fenced: false,
            lookup: true,
            met_shared: false,
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
}
