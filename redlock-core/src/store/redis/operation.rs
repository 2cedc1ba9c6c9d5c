//! Encodes the operations for a server.
//!
//! The dialects and the modes differ in the type of the key, the proof of ownership, and the channel of the releases.
//! Their [scripts](Script) hide these differences, so that one function encodes all operations, on one key or on several.
//! The exception is the first unfenced acquisition of an exclusive lock of one key in the plain dialect, which needs no
//! script: a string with a random token, as in the Redis documentation and in the lock libraries of other languages.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::Cmd;

use super::encode::{self, CommandForm, NativeCommand};
use super::script::Script;
use super::server::connection::Connection;
use super::{channel, fencing};
use crate::lock::{Dialect, Mark, Mode};
use crate::node::{Action, Op};
use crate::validity;

/// Returns for how long after its start a refused acquisition may look up the remaining lease. A vote counts only
/// until the round ends: after `node_timeout`, or earlier if the lease is short.
pub(super) fn look_up_time(lease: Duration, node_timeout: Duration) -> Duration {
    node_timeout.min(validity::remaining(lease, Duration::ZERO)) * 4 / 5
}

/// Encodes the look-up of a lock that was refused.
pub(super) fn encode_look_up(connection: &Connection, op: &Op) -> Arc<[u8]> {
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(connection.sha(Script::Acquire)).arg(1).arg(op.spec.name());
    command.arg(op.token.text().as_bytes()).arg("").arg(1).arg("").arg("");
    encode::packed(&command)
}

/// Encodes the command of an operation. `sha` names its script; `None` for an acquisition without a script. With
/// `is_tracked`, an extension reads the keys behind its change.
pub(super) fn encode(op: &Op, sha: Option<&str>, is_tracked: bool) -> Arc<[u8]> {
    let form = if is_tracked { CommandForm::Tracked } else { CommandForm::Usual };
    encode::last_or_new(op, form, |command| {
        let (keys, token) = (op.spec.keys(), op.token.text());
        let token = token.as_bytes();
        let Some(sha) = sha else {
            command.arg("SET").arg(op.spec.name()).arg(token).arg("NX");
            if let Action::Acquire { lease, .. } = op.action {
                command.arg("PX").number(encode::millis(lease));
            }
            return;
        };
        let counts =
            matches!(op.action, Action::Acquire { fenced: true, .. } | Action::Confirm { .. });
        let counters = if counts { fencing::counters(keys) } else { Vec::new() };
        command.arg("EVALSHA").arg(sha).number((keys.len() + counters.len()) as u64);
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
            Action::Acquire { lease, ask, .. } => match op.spec.mode() {
                Mode::Shared { permits } => {
                    let permits = permits.map_or(0, NonZeroU32::get);
                    command.arg(kind).number(encode::millis(lease)).number(u64::from(permits));
                }
                Mode::Exclusive => {
                    command.number(encode::millis(lease));
                    if is_plain {
                        command.number(keys.len() as u64);
                        // A waiting writer sets its mark, with a time to live.
                        match ask.mark {
                            Some(mark) => command
                                .arg(mark.to_string())
                                .number(encode::millis(Mark::LIFE_TIME)),
                            None => command.arg("").arg(""),
                        };
                    }
                }
            },
            Action::Extend { lease } => {
                is_plain.then(|| command.arg(kind));
                command.number(encode::millis(lease));
                is_tracked.then(|| command.number(1));
            }
            Action::Confirm { number } => {
                command.arg(number.to_string());
                is_plain.then(|| command.number(keys.len() as u64));
            }
            Action::Release { min_hold } => {
                let rest = min_hold.map(encode::millis);
                if is_plain && (rest.is_some() || op.spec.mode().is_shared()) {
                    command.arg(kind);
                }
                if let Some(rest) = rest {
                    command.number(rest);
                }
                if !is_plain {
                    command.arg(&*channel::of(&op.spec));
                }
            }
            Action::Downgrade | Action::Withdraw { .. } => {}
        }
    })
}

/// Encodes the commands of a newer server for a plain lock: the release of an exclusive lock of one key, with the message to its
/// waiters behind it, or the acquisition of several keys.
pub(super) fn encode_native(op: &Op, by: NativeCommand) -> Arc<[u8]> {
    encode::last_or_new(op, CommandForm::Native(by), |command| {
        let token = op.token.text();
        let token = token.as_bytes();
        match by {
            NativeCommand::DelIfEq => _ = command.arg("DELIFEQ").arg(op.spec.name()).arg(token),
            NativeCommand::DelEx => {
                command.arg("DELEX").arg(op.spec.name()).arg("IFEQ").arg(token);
            }
            NativeCommand::MSetEx => {
                command.arg("MSETEX").number(op.spec.keys().len() as u64);
                for name in op.spec.names() {
                    command.arg(name).arg(token);
                }
                command.arg("NX");
                if let Action::Acquire { lease, .. } = op.action {
                    command.arg("PX").number(encode::millis(lease));
                }
                return;
            }
        }
        command.second(3).arg("PUBLISH").arg(&*channel::of(&op.spec)).arg("0");
    })
}

/// Encodes the script that gives readers their turn after the release of a lock.
pub(super) fn encode_turn(connection: &Connection, op: &Op) -> Arc<[u8]> {
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(connection.sha(Script::Turn)).arg(1).arg(op.spec.name());
    encode::packed(&command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::lock::{LockSpec, Token};
    use crate::node::Ask;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn acquire_is_one_set_with_a_time_to_live() {
        let key = LockKey::new("order:42").unwrap().with_prefix("shop:");
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
        let acquire = Action::Acquire { lease: LEASE, fenced: false, ask: Ask::FIRST };
        let op = Op::new(&spec, Token::random(Dialect::Plain), acquire);
        let packed = encode(&op, None, false).to_vec();
        let expected = format!(
            "*6\r\n$3\r\nSET\r\n$13\r\nshop:order:42\r\n$32\r\n{}\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n",
            &*op.token.text()
        );
        assert_eq!(String::from_utf8(packed).unwrap(), expected);
    }
}
