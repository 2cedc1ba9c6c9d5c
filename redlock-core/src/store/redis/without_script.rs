//! Releases and acquires locks by commands of [newer servers](super::server::native), in place of a script.
//!
//! * A release is a command that compares and deletes, with `PUBLISH` behind it in the same write. Only the reply that the key
//!   was deleted ends the release. Everything else is followed by the script, which finds the reason. If subscribers were
//!   notified, another script gives readers their turn.
//! * An acquisition of several keys is a command that sets all or none. The script follows a refusal, and names the holder.
//! * If the connection ends, the reply is lost, as that of a script. The repetition of a release publishes again, even
//!   if the key is deleted already: `PUBLISH` may have been lost alone.

use bb8_redis::redis::{RedisError, Value};

use super::encode::NativeCommand;
use super::error::node_error;
use super::operation::encode_native;
use super::repeat::Target;
use super::server::native::is_refusal;
use super::state::RedisState;
use crate::error::Vote;
use crate::lock::Dialect;
use crate::node::{Action, Ask, Op, Reply};

/// Returns whether the operation is the release of a lock that a server can compare and delete by one command.
fn is_simple_release(op: &Op) -> bool {
    matches!(op.action, Action::Release { min_hold: None })
        && op.spec.dialect() == Dialect::Plain
        && !op.spec.mode().is_shared()
        && !op.spec.has_several_keys()
}

/// Returns whether the operation is the first acquisition of several keys that a server can set by one command.
fn is_simple_set(op: &Op) -> bool {
    let Action::Acquire { fenced: false, ask: Ask { met_marks: false, .. }, .. } = op.action else {
        return false;
    };
    op.spec.has_several_keys() && op.spec.dialect() == Dialect::Plain && !op.spec.mode().is_shared()
}

impl RedisState {
    /// Releases a lock by the server's own compare, if the server has one and nobody is known to wait for the key. The first
    /// poll sends the commands. Returns `None` if the script has to release the lock.
    pub(super) async fn release_without_script(&self, op: &Op, target: &Target) -> Option<Reply> {
        let Target { server, connection, .. } = target;
        let native = &connection.native;
        let delete = native.delete().filter(|_| is_simple_release(op))?;
        if self.awaited.contains(op.spec.name()) {
            return None;
        }
        let replies = connection.link.send_pair(encode_native(op, delete)).await;
        server.record_native(connection, replies.is_ok());
        let [deleted, notified] = match replies {
            Ok(replies) => replies,
            Err(error) => {
                let _ = self.map.redirect(&error);
                return Some(Vote::Failed(server.explain(node_error(&error))).into());
            }
        };
        match deleted.extract_error() {
            Ok(Value::Int(1)) => {}
            Ok(Value::Int(0)) => return None,
            Err(error) if !is_refusal(&error) => return None,
            _ => {
                native.refused(delete);
                return None;
            }
        }
        // A denied PUBLISH does not fail the release.
        let subscribers = match notified {
            Value::Int(count) => usize::try_from(count).unwrap_or_default(),
            _ => 0,
        };
        if subscribers > 0 {
            self.awaited.record(op.spec.name(), true);
            // The lock is free already, so an error does not fail the release.
            let _ = Box::pin(self.give_turn(op, target.clone())).await;
        }
        Some(Reply::new(Vote::Agreed).with_subscribers(subscribers))
    }

    /// Returns the command that acquires several keys, if the server has one and no other holder of them is known.
    pub(super) fn set_command(&self, op: &Op, target: &Target) -> Option<NativeCommand> {
        let set = target.connection.native.set_several().filter(|_| is_simple_set(op))?;
        let is_awaited = op.spec.names().any(|name| self.awaited.contains(name));
        (!is_awaited).then_some(set)
    }

    /// Tries to acquire several keys by one command, which the first poll sends. Returns its reply in the form of that of the
    /// script; `None` if the script has to acquire the keys.
    pub(super) async fn set_several(
        &self,
        op: &Op,
        target: &Target,
        set: NativeCommand,
    ) -> Option<Result<Value, RedisError>> {
        let Target { server, connection, .. } = target;
        let native = &connection.native;
        let reply = connection.link.send_raw(encode_native(op, set));
        self.watches.read_behind(op, connection);
        let reply = reply.await;
        server.record_native(connection, reply.is_ok());
        match reply.map(Value::extract_error) {
            Err(error) => Some(Err(error)),
            Ok(Ok(Value::Int(1))) => Some(Ok(Value::Okay)),
            Ok(Ok(Value::Int(0))) => None,
            Ok(Err(error)) if !is_refusal(&error) => None,
            Ok(_) => {
                native.refused(set);
                None
            }
        }
    }
}
