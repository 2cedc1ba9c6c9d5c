//! Waiters behind holders that publish no release.
//!
//! A holder with a label is one of this library, which publishes its release. Behind any other holder of a plain lock, the
//! server tracks the key for the waiters: its change counts as a published release. Each renewal of such a holder wakes them,
//! too.

use std::sync::Arc;

use bb8_redis::redis::{Value, cmd};

use super::Subscriptions;
use crate::store::redis::link::tracking::ReadId;
use crate::store::redis::reply::ServerReply;
use crate::store::redis::server::connection::Connection;

/// Any subscriber wants this message.
const FREE: &[u8] = b"0";

/// Lets the server track the key of the lock, which has the name of its channel.
pub(super) fn track(name: &Arc<str>, connection: &Connection) {
    if connection.tracks() {
        let read = cmd("PTTL").arg(&**name).get_packed_command().into();
        connection.link.read_tracked(read, ReadId::Waiter(Arc::clone(name)));
    }
}

impl Subscriptions {
    /// Records a refusal of a plain lock. `publishes` says whether its holder publishes the release.
    pub(in crate::store::redis) fn refused(
        &self,
        name: &str,
        publishes: bool,
        connection: &Connection,
    ) {
        let mut channels = self.channels.lock();
        let Some((name, _)) = channels.get_key_value(name) else { return };
        let name = Arc::clone(name);
        if let Some(channel) = channels.get_mut(&name) {
            channel.is_foreign = !publishes;
            if channel.is_foreign {
                track(&name, connection);
            }
        }
    }

    /// Returns whether the last known holder of a plain lock publishes no release.
    pub(in crate::store::redis) fn is_foreign(&self, name: &str) -> bool {
        self.channels.lock().get(name).is_some_and(|channel| channel.is_foreign)
    }

    /// Records that keys have changed, or any keys without `names`. The subscribers are notified when all arrived bytes are
    /// read, so that a release that is published as well notifies them once.
    pub(super) fn invalidated(&self, names: Option<&[Value]>) {
        let channels = self.channels.lock();
        let mut invalidated = self.invalidated.lock();
        let mut add = |name: &Arc<str>| {
            if !invalidated.contains(name) {
                invalidated.push(Arc::clone(name));
            }
        };
        let Some(names) = names else {
            let foreign = channels.iter().filter(|(_, channel)| channel.is_foreign);
            return foreign.for_each(|(name, _)| add(name));
        };
        for name in names {
            if let Value::BulkString(name) = name
                && let Ok(name) = std::str::from_utf8(name)
                && let Some((name, channel)) = channels.get_key_value(name)
                && channel.is_foreign
            {
                add(name);
            }
        }
    }

    /// Notifies the subscribers of keys that have changed.
    pub(super) fn notify_invalidated(&self) {
        let invalidated = std::mem::take(&mut *self.invalidated.lock());
        for name in invalidated {
            self.notify_subscribers(&name, FREE);
        }
    }

    /// Handles the reply to the read of a key: the lock may have been released before the server tracked it.
    pub(super) fn read(&self, name: &str, reply: &ServerReply) {
        if matches!(reply, Ok(Value::Int(-2))) {
            self.notify_subscribers(name, FREE);
        }
    }
}
