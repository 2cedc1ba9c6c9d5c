//! Fair queues on a server.
//!
//! A queue lies in the slot of its lock, under a name of its own that begins with the prefix of the lock. Its members
//! and its channels are described in the scripts and in the wire format of this crate. They must not change.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, FromRedisValue, RedisError, Value};

use super::error::node_error;
use super::fencing;
use crate::error::NodeError;
use crate::lock::{Dialect, LockSpec};
use crate::node::{FirstTicket, ProcessId, QueueAction, QueueOp, QueueReply};

/// Returns the name of the fair queue of a lock.
pub(super) fn queue(spec: &LockSpec) -> String {
    let kind = match spec.dialect() {
        Dialect::Plain => "fair",
        // Callers of two dialects do not wait for each other.
        Dialect::Redisson => "fairrlock",
    };
    format!("{}:{}", fencing::beside(spec.key(), kind), spec.key())
}

/// Returns the channel on which a process is notified that it has the first ticket.
pub(super) fn channel(spec: &LockSpec, process: ProcessId) -> Arc<str> {
    format!("{}:{process}", queue(spec)).into()
}

pub(super) fn encode(op: &QueueOp, sha: &str) -> Cmd {
    let QueueOp { spec, process, presence, action } = op;
    let mut command = Cmd::new();
    command.arg("EVALSHA").arg(sha).arg(1).arg(queue(spec));
    command.arg(process.to_string()).arg(micros(*presence));
    command.arg(match action {
        QueueAction::Enter { .. } => "enter",
        QueueAction::Refresh => "refresh",
        QueueAction::Leave { .. } => "leave",
        QueueAction::Inspect => "inspect",
    });
    match action {
        QueueAction::Enter { tickets } => {
            for ticket in &**tickets {
                command.arg(ticket_text(ticket.number)).arg(micros(ticket.waited));
            }
        }
        QueueAction::Leave { numbers } => {
            for number in &**numbers {
                command.arg(ticket_text(*number));
            }
        }
        QueueAction::Refresh | QueueAction::Inspect => {}
    }
    command
}

/// Returns the text of a ticket. The server orders tickets with the same arrival by their texts, so that all of them
/// have the same length.
fn ticket_text(number: u64) -> String {
    format!("{number:016x}")
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn decode(reply: &Result<Value, RedisError>) -> Result<QueueReply, NodeError> {
    let unexpected = || NodeError::UnexpectedReply;
    let reply = reply.as_ref().map_err(node_error)?;
    let reply = <(u64, i64, String, i64)>::from_redis_value_ref(reply);
    let (time, was_present, first, left) = reply.map_err(|_| unexpected())?;
    let reply = QueueReply::new(Duration::from_micros(time), was_present == 1);
    if first.is_empty() {
        return Ok(reply);
    }
    let (process, number) = first.split_once(':').ok_or_else(unexpected)?;
    let process = ProcessId::parse(process).ok_or_else(unexpected)?;
    let number = u64::from_str_radix(number, 16).map_err(|_| unexpected())?;
    let present_for = Duration::from_micros(u64::try_from(left).unwrap_or_default());
    Ok(reply.with_first(FirstTicket { process, number, present_for }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::lock::Mode;
    use crate::node::Ticket;

    fn spec(prefix: &str, dialect: Dialect) -> LockSpec {
        let key = LockKey::new("order:42").unwrap().with_prefix(prefix);
        LockSpec::new(key, Mode::Exclusive, dialect)
    }

    /// Existing deployments have these names on their servers and in their permissions.
    #[test]
    fn the_names_of_queues_and_channels_do_not_change() {
        for (prefix, dialect, expected) in [
            ("shop:", Dialect::Plain, "shop:redlock:fair:{9208}:order:42"),
            ("shop:", Dialect::Redisson, "shop:redlock:fairrlock:{9208}:order:42"),
            ("{locks}:", Dialect::Plain, "{locks}:redlock:fair:order:42"),
        ] {
            let spec = spec(prefix, dialect);
            assert_eq!(queue(&spec), expected);
            let process = ProcessId::parse("00000000000000ff").unwrap();
            assert_eq!(*channel(&spec, process), format!("{expected}:00000000000000ff"));
        }
    }

    #[test]
    fn tickets_have_the_same_length_and_times_are_in_microseconds() {
        let spec = spec("", Dialect::Plain);
        let process = ProcessId::parse("a").unwrap();
        let tickets = [Ticket::new(1, Duration::from_millis(2)), Ticket::new(255, Duration::ZERO)];
        let op = QueueOp::new(&spec, process, QueueAction::Enter { tickets: tickets.into() });
        let command = encode(&op, "sha");
        let mut expected = Cmd::new();
        expected.arg("EVALSHA").arg("sha").arg(1).arg(queue(&spec));
        expected.arg("000000000000000a").arg(3_000_000).arg("enter");
        expected.arg("0000000000000001").arg(2000).arg("00000000000000ff").arg(0);
        assert_eq!(command.get_packed_command(), expected.get_packed_command());
    }

    #[test]
    fn only_a_complete_reply_is_understood() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let reply = |first: &str| {
            Ok(Value::Array(vec![bulk("7000000"), Value::Int(1), bulk(first), Value::Int(1500)]))
        };
        let at = Duration::from_secs(7);
        assert_eq!(decode(&reply("")), Ok(QueueReply::new(at, true)));
        let first = FirstTicket {
            process: ProcessId::parse("a").unwrap(),
            number: 16,
            present_for: Duration::from_micros(1500),
        };
        let expected = QueueReply::new(at, true).with_first(first);
        assert_eq!(decode(&reply("000000000000000a:0000000000000010")), Ok(expected));
        for wrong in ["a", "x:1", "1:x", ":"] {
            assert_eq!(decode(&reply(wrong)), Err(NodeError::UnexpectedReply), "{wrong}");
        }
        for wrong in [Value::Int(1), Value::Array(vec![]), Value::Okay] {
            assert_eq!(decode(&Ok(wrong)), Err(NodeError::UnexpectedReply));
        }
    }
}
