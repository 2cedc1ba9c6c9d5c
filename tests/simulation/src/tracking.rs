//! The keys that a simulated server tracks for its clients, in the mode `OPTIN NOLOOP`.

use std::collections::{BTreeMap, BTreeSet};

use super::resp::Reply;
use super::store::{ConnectionId, Entry, Outgoing, error};

#[derive(Debug, Clone, Default)]
pub(super) struct Tracking {
    /// The connections with tracking. True if the server tracks the keys of the next command.
    connections: BTreeMap<ConnectionId, bool>,
    keys: BTreeMap<Vec<u8>, BTreeSet<ConnectionId>>,
    /// The keys that the present request has read since it has changed them.
    read: BTreeSet<Vec<u8>>,
}

impl Tracking {
    pub(super) fn begin(&mut self, connection: ConnectionId) {
        self.connections.entry(connection).or_default();
    }

    pub(super) fn cache_next(&mut self, connection: ConnectionId) -> Result<Reply, Reply> {
        let cached = self.connections.get_mut(&connection);
        *cached.ok_or_else(|| error("ERR CLIENT CACHING without tracking"))? = true;
        Ok(Reply::Simple("OK"))
    }

    /// Notes a command of a request or of its script.
    pub(super) fn note(&mut self, words: &[&[u8]], has_changed: bool) {
        match words {
            [b"GET" | b"HEXISTS" | b"PTTL", key, ..] => {
                self.read.insert(key.to_vec());
            }
            [_, key, ..] if has_changed => {
                self.read.remove(*key);
            }
            _ => {}
        }
    }

    /// Tracks what a request behind `CLIENT CACHING YES` has read.
    pub(super) fn executed(&mut self, connection: ConnectionId, words: &[&[u8]]) {
        let read = std::mem::take(&mut self.read);
        let Some(is_cached) = self.connections.get_mut(&connection) else { return };
        if words[0] != b"CLIENT" && std::mem::take(is_cached) {
            for key in read {
                self.keys.entry(key).or_default().insert(connection);
            }
        }
    }

    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        self.keys.retain(|_, connections| {
            connections.remove(&connection);
            !connections.is_empty()
        });
    }

    /// Returns the tracked keys with their entries.
    pub(super) fn entries(&self, all: &BTreeMap<Vec<u8>, Entry>) -> Vec<(Vec<u8>, Option<Entry>)> {
        self.keys.keys().map(|key| (key.clone(), all.get(key).cloned())).collect()
    }

    /// Returns the messages about the keys that have changed since then, and tracks them no more. A client gets none about
    /// its own change.
    pub(super) fn changed(
        &mut self,
        before: &[(Vec<u8>, Option<Entry>)],
        now: &BTreeMap<Vec<u8>, Entry>,
        by: Option<ConnectionId>,
    ) -> Outgoing {
        let mut messages = Outgoing::new();
        for (key, entry) in before {
            if now.get(key) == entry.as_ref() {
                continue;
            }
            for connection in self.keys.remove(key).unwrap_or_default() {
                if by != Some(connection) {
                    let names = Reply::Array(vec![Reply::bulk(key)]);
                    let message = vec![Reply::bulk("invalidate"), names];
                    messages.push((connection, Reply::Push(message)));
                }
            }
        }
        messages
    }
}
