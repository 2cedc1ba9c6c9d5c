//! A look at a lock on a server, and the removal of a holder.

use std::time::{Duration, UNIX_EPOCH};

use bb8_redis::redis::{Cmd, Value};

use super::channel;
use super::error::node_error;
use super::reply::ServerReply;
use super::script::Script;
use crate::error::{ForeignKind, NodeError};
use crate::lock::{Dialect, HolderId, LockSpec, OwnerLabel};
use crate::node::{Found, FoundHolder, MOST_HOLDERS, Removal};
use crate::validity;

/// A question about the holders of a key.
#[derive(Debug)]
pub(super) struct Inspect {
    pub(super) spec: LockSpec,
    /// The holder to remove; `None` for a look.
    pub(super) remove: Option<HolderId>,
}

impl Inspect {
    pub(super) fn script(&self) -> Script {
        match (self.spec.dialect(), self.remove) {
            (Dialect::Plain, None) => Script::Look,
            (Dialect::Plain, Some(_)) => Script::Break,
            (Dialect::Redisson, None) => Script::RedissonLook,
            (Dialect::Redisson, Some(_)) => Script::RedissonBreak,
        }
    }

    pub(super) fn encode(&self, sha: &str) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(sha).arg(1).arg(self.spec.name());
        if let Some(holder) = self.remove {
            command.arg(holder.to_string());
        }
        match self.spec.dialect() {
            // The set has one more member, `shared`.
            Dialect::Plain => command.arg(MOST_HOLDERS + 1),
            Dialect::Redisson => command.arg(&*channel::of(&self.spec)),
        };
        command
    }
}

/// Decodes the reply to a look.
pub(super) fn found(reply: &ServerReply) -> Result<Found, NodeError> {
    let (code, rest) = code(reply)?;
    let unexpected = Err(NodeError::UnexpectedReply);
    match (code, rest) {
        (0, []) => Ok(Found::free()),
        (1, holder) => match read_holder(holder) {
            Some((_, -1)) => Ok(Found::foreign(ForeignKind::NoTimeToLive)),
            Some((holder, _)) if holder.remaining > Some(validity::MAX_EXPIRE) => {
                Ok(Found::foreign(ForeignKind::TimeToLiveTooLong))
            }
            // The lock has ended since the script read it.
            Some((_, -2)) => Ok(Found::free()),
            Some((holder, _)) => Ok(Found::exclusive(holder)),
            None => unexpected,
        },
        (2, [Value::Int(writers), Value::Array(holders)]) => {
            let holders = holders.chunks(4).map(|holder| Some(read_holder(holder)?.0));
            let Some(mut holders) = holders.collect::<Option<Vec<_>>>() else { return unexpected };
            // The holder that ends last comes first.
            holders.reverse();
            if holders.first().is_some_and(|holder| holder.remaining > Some(validity::MAX_EXPIRE)) {
                return Ok(Found::foreign(ForeignKind::TimeToLiveTooLong));
            }
            let writers = usize::try_from(*writers).unwrap_or_default();
            Ok(Found::shared(holders).with_waiting_writers(writers))
        }
        (code, []) => foreign(code).map(Found::foreign),
        _ => unexpected,
    }
}

/// Decodes the reply to a removal.
pub(super) fn removal(reply: &ServerReply) -> Result<Removal, NodeError> {
    match code(reply)? {
        (0, []) => Ok(Removal::NotHeld),
        (1, [Value::Int(left)]) => Ok(Removal::removed(Some(millis(*left)))),
        (code, []) => foreign(code).map(Removal::Foreign),
        _ => Err(NodeError::UnexpectedReply),
    }
}

/// Returns the first number of a reply, and the other items.
fn code(reply: &ServerReply) -> Result<(i64, &[Value]), NodeError> {
    match reply.as_ref().map_err(node_error)? {
        Value::Array(list) => match &list[..] {
            [Value::Int(code), rest @ ..] => Ok((*code, rest)),
            _ => Err(NodeError::UnexpectedReply),
        },
        _ => Err(NodeError::UnexpectedReply),
    }
}

fn foreign(code: i64) -> Result<ForeignKind, NodeError> {
    match code {
        -1 => Ok(ForeignKind::NoTimeToLive),
        -3 => Ok(ForeignKind::WrongType),
        -5 => Ok(ForeignKind::TooManyHolders),
        _ => Err(NodeError::UnexpectedReply),
    }
}

/// Reads an id, a label, the seconds since 1970 and the rest of a lease in milliseconds, which is also returned.
fn read_holder(items: &[Value]) -> Option<(FoundHolder, i64)> {
    let [
        Value::BulkString(id),
        Value::BulkString(label),
        Value::BulkString(since),
        Value::Int(left),
    ] = items
    else {
        return None;
    };
    let id = std::str::from_utf8(id).ok()?.parse().ok()?;
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let since = text(since).parse().ok().map(|since| UNIX_EPOCH + Duration::from_secs(since));
    let label = OwnerLabel::read(text(label));
    let since = since.filter(|_| label.is_some());
    Some((FoundHolder::new(id, Some(millis(*left))).of_owner(label, since), *left))
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FoundKind;

    fn shared(left: &[i64]) -> FoundKind {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let holder = |left| [text("a9993e364706816a"), text(""), text(""), Value::Int(left)];
        let holders = left.iter().flat_map(|left| holder(*left)).collect();
        let reply = Value::Array(vec![Value::Int(2), Value::Int(0), Value::Array(holders)]);
        found(&Ok(reply)).unwrap().kind
    }

    /// A refusal says the same. Otherwise an operator could delete the value of another program.
    #[test]
    fn an_entry_beyond_the_longest_lease_is_foreign() {
        let too_long = FoundKind::Foreign(ForeignKind::TimeToLiveTooLong);
        let eight_days = 8 * 24 * 60 * 60 * 1000;
        assert_eq!(shared(&[1, 2]), FoundKind::Shared);
        assert_eq!(shared(&[1, eight_days]), too_long);
        assert_eq!(shared(&[]), FoundKind::Free);
    }
}
