//! Executes operations on a server, in the dialect of the lock.
//!
//! The dialects differ in the type of the key, the proof of ownership, and the channel of the releases.
//! Their [scripts](Scripts) and tokens hide these differences, so that one function per operation serves
//! all dialects. The exception is an unfenced acquisition in the plain dialect: it needs no script.

mod plain;
mod redisson;

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::Cmd;
use tokio::time::Instant;

use super::connection::Connection;
use super::decode;
use super::encode::{Purpose, millis, shared_command};
use super::fencing;
use super::script::Scripts;
use crate::error::{NodeError, Vote};
use crate::lock::{Dialect, LockSpec};
use crate::node::{Action, Op, Reply};

/// The parameters of an acquisition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireParams {
    pub(crate) lease: Duration,
    pub(crate) fenced: bool,
    /// The time until which an acquisition may look up the remaining lease after a refusal. `None` if it
    /// does not look it up.
    pub(crate) look_up_until: Option<Instant>,
}

/// Returns the channel on which the releases of a lock are published.
pub(crate) fn channel(spec: &LockSpec) -> Arc<str> {
    match spec.dialect() {
        Dialect::Plain => plain::channel(spec.name()),
        Dialect::Redisson => redisson::channel(spec.name()),
    }
}

/// Executes an operation. One future for all operations, so that its memory serves the next one, whatever that
/// is.
pub(crate) async fn execute(
    connection: &Connection,
    op: &Op,
    look_up_until: Option<Instant>,
) -> Reply {
    match op.action {
        Action::Acquire { lease, fenced, .. } => {
            set_lock(connection, op, AcquireParams { lease, fenced, look_up_until }).await
        }
        Action::Extend { lease } => extend(connection, op, lease).await,
        Action::Confirm { number } => confirm(connection, op, number).await,
        Action::Release { min_hold } => {
            connection.acquisitions.release(&op.token);
            release(connection, op, min_hold).await
        }
    }
}

/// Sets the lock. A grant does not count if the server is quarantined before the reply arrives: its wall
/// clock may have been stepped before it received the command.
pub(crate) async fn set_lock(
    connection: &Connection,
    op: &Op,
    acquisition: AcquireParams,
) -> Reply {
    let reply = match op.spec.dialect() {
        Dialect::Plain if !acquisition.fenced => {
            plain::set_by_command(connection, op, acquisition).await.into()
        }
        _ => set_by_script(connection, op, acquisition).await,
    };
    match connection.may_grant() {
        Err(reason) if reply.vote == Vote::Granted => Vote::Failed(reason).into(),
        _ => reply,
    }
}

async fn set_by_script(connection: &Connection, op: &Op, acquisition: AcquireParams) -> Reply {
    let AcquireParams { lease, fenced, .. } = acquisition;
    let (name, millis) = (op.spec.name(), millis(lease).to_string());
    let scripts = Scripts::of(op.spec.dialect());
    let counter = fenced.then(|| fencing::counter(name));
    let (script, keys) = match (&counter, scripts.acquire) {
        (None, Some(script)) => (script, &[name.as_str()][..]),
        (counter, _) => {
            (scripts.acquire_fenced, &[name.as_str(), counter.as_deref().unwrap_or_default()][..])
        }
    };
    // A server that has forgotten the script receives the command twice. The second command must not
    // follow a release (an abandoned attempt leaves nothing behind).
    let attempt = connection.acquisitions.begin(op.token);
    let arguments = [op.token.as_str().as_bytes(), millis.as_bytes()];
    let reply = match connection.run_if(|| !attempt.is_released(), script, keys, &arguments).await {
        Some(reply) => decode::acquired_by_script(&reply, fenced),
        None => Vote::Failed(NodeError::Server("the attempt was abandoned".into())).into(),
    };
    if reply.vote == Vote::Granted && attempt.is_released() {
        let _ = release(connection, op, None).await;
    }
    reply
}

/// Extends the lease.
pub(crate) async fn extend(connection: &Connection, op: &Op, lease: Duration) -> Reply {
    let millis = millis(lease).to_string();
    let arguments = [op.token.as_str().as_bytes(), millis.as_bytes()];
    let script = Scripts::of(op.spec.dialect()).extend;
    decode::owned(&connection.run(script, &[op.spec.name().as_str()], &arguments).await).into()
}

/// Raises the fencing counter.
pub(crate) async fn confirm(connection: &Connection, op: &Op, number: i64) -> Reply {
    let (number, counter) = (number.to_string(), fencing::counter(op.spec.name()));
    let arguments = [op.token.as_str().as_bytes(), number.as_bytes()];
    let script = Scripts::of(op.spec.dialect()).confirm;
    let keys = [op.spec.name().as_str(), &counter];
    decode::owned(&connection.run(script, &keys, &arguments).await).into()
}

/// Removes the lock, or shortens its time to live to `min_hold`.
pub(crate) async fn release(connection: &Connection, op: &Op, min_hold: Option<Duration>) -> Reply {
    let (name, token) = (op.spec.name().as_str(), op.token.as_str().as_bytes());
    let scripts = Scripts::of(op.spec.dialect());
    // A plain lock publishes on the channel that has the name of its key.
    let channel = match op.spec.dialect() {
        Dialect::Plain => None,
        Dialect::Redisson => Some(channel(&op.spec)),
    };
    let channel = channel.as_deref().map(str::as_bytes);
    let reply = match min_hold.map(|time| millis(time).to_string()) {
        None => {
            let arguments = [Some(token), channel];
            let arguments = arguments.iter().flatten().copied();
            let encode = |command: &mut Cmd| {
                connection.write_command(command, scripts.release, &[name], arguments);
            };
            let command = shared_command(op.token, Purpose::Release, encode);
            connection.run_command(scripts.release, &command).await
        }
        Some(stays) => {
            let arguments = [Some(token), Some(stays.as_bytes()), channel];
            let arguments = arguments.iter().flatten().copied();
            let command = connection.command(scripts.shorten, &[name], arguments);
            connection.run_command(scripts.shorten, &command).await
        }
    };
    decode::released(&reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::lock::{LockName, Mode, Token};
    use crate::node::Action;
    use crate::node::redis::connection::played_server::{played_connection, serve};

    const LEASE: Duration = Duration::from_secs(30);
    const NO_SCRIPT: &str = "-NOSCRIPT No matching script.\r\n";
    const ACQUISITION: AcquireParams =
        AcquireParams { lease: LEASE, fenced: false, look_up_until: None };

    fn op() -> Op {
        let name = LockName::new("", &LockKey::new("order:42").unwrap());
        let spec = Arc::new(LockSpec::new(name, Mode::Exclusive, Dialect::Redisson));
        let acquire = Action::Acquire { lease: LEASE, fenced: false, lookup: true };
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
            reply = set_lock(&connection, &op, ACQUISITION) => {
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
        let both = async { tokio::join!(set_lock(&connection, &op, ACQUISITION), server) };
        tokio::time::timeout(LEASE, both).await.expect("the lock is released again");
    }
}
