//! The watches of holders: they are notified when a server does not have their lock any more.
//!
//! A server tracks the keys of a watched lock, see [`tracking`](super::link::tracking). When it says that one has changed, the
//! watch reads the key, by which the server tracks it again, and compares it with the token. Each own change ends the
//! tracking. So the script of an extension reads the key again at its end, and the same read follows an acquisition, which
//! restores the lock on a server.
//!
//! A server that does not track keys, or that does not permit it, notifies a holder only of a break, on a channel of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bb8_redis::redis::{PushKind, RedisError, Value, cmd};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use smol_str::SmolStr;

use super::error::{is_wrong_type, server_message};
use super::link::Event;
use super::link::tracking::ReadId;
use super::map::Map;
use super::reply::ServerReply;
use super::server::connection::Connection;
use super::subscriptions::Subscriptions;
use crate::lock::{Dialect, HolderId, LockSpec, Token};
use crate::node::{Action, Notify, Op, Subscription};

/// How many changes of its keys, between two own extensions, make a watch read them. Without a limit, a server that says without
/// end that keys have changed would keep the process busy.
const READS_PER_EXTENSION: u8 = 16;

/// The watches of a node.
pub(super) struct Watches {
    map: Arc<Map>,
    subscriptions: Arc<Subscriptions>,
    state: Mutex<WatchedLocks>,
    /// The number of watches. Without one, an operation takes no mutex.
    count: AtomicUsize,
    last_id: AtomicU64,
    is_refusal_logged: AtomicBool,
}

#[derive(Default)]
struct WatchedLocks {
    watches: HashMap<u64, KeyWatch, ahash::RandomState>,
    /// The watches of each key.
    by_name: HashMap<SmolStr, SmallVec<[u64; 1]>, ahash::RandomState>,
    /// The subscription to the breaks, while a server does not track keys.
    breaks: Option<Subscription>,
}

struct KeyWatch {
    spec: LockSpec,
    slot: usize,
    token: Token,
    notify: Notify,
    /// The connection for which the server tracks the keys. None while the owner of the slot is not connected.
    connection: Weak<Connection>,
    /// Whether the server had each key at its last read. Only its loss is news.
    held: SmallVec<[bool; 1]>,
    reads_left: u8,
}

impl KeyWatch {
    /// Reads the keys, which the server tracks from now on.
    fn read(&mut self, id: u64, connection: &Connection) {
        for (index, key) in self.spec.keys().iter().enumerate() {
            let mut read = match self.spec.dialect() {
                Dialect::Plain => cmd("GET"),
                Dialect::Redisson => cmd("HEXISTS"),
            };
            read.arg(key.name());
            if self.spec.dialect() == Dialect::Redisson {
                read.arg(self.token.text().as_bytes());
            }
            let id = ReadId::Holder { watch: id, key: index };
            connection.link.read_tracked(read.get_packed_command().into(), id);
        }
    }

    /// Returns whether the key has the token; `None` if the reply does not say it.
    fn is_own(&self, reply: &ServerReply) -> Option<bool> {
        match reply {
            Ok(Value::BulkString(text)) => Some(text == self.token.text().as_bytes()),
            Ok(Value::Int(found)) => Some(*found == 1),
            Ok(Value::Nil) => Some(false),
            Err(error) if is_wrong_type(error) => Some(false),
            _ => None,
        }
    }

    /// Lets the server of a connection track the keys, unless it does.
    fn follow(&mut self, id: u64, connection: &Arc<Connection>) {
        if self.connection.as_ptr() != Arc::as_ptr(connection) {
            self.connection = Arc::downgrade(connection);
            if connection.tracks() {
                self.read(id, connection);
            }
        }
    }
}

impl Watches {
    pub(super) fn new(map: &Arc<Map>, subscriptions: &Arc<Subscriptions>) -> Self {
        let (state, count, last_id, is_refusal_logged) = Default::default();
        let (map, subscriptions) = (Arc::clone(map), Arc::clone(subscriptions));
        Self { map, subscriptions, state, count, last_id, is_refusal_logged }
    }

    /// Watches a lock until the returned subscription is dropped.
    pub(super) fn watch(
        self: &Arc<Self>,
        spec: &LockSpec,
        token: Token,
        notify: Notify,
    ) -> Subscription {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let mut watch = KeyWatch {
            spec: spec.clone(),
            slot: self.map.slot(spec.name()),
            token,
            notify,
            connection: Weak::new(),
            held: smallvec![true; spec.keys().len()],
            reads_left: READS_PER_EXTENSION,
        };
        let mut state = self.state.lock();
        for key in spec.keys() {
            state.by_name.entry(key.stored_name().clone()).or_default().push(id);
        }
        // Looked up while the mutex is held, so that no change of the connection is missed.
        if let Some(connection) = self.map.connection(watch.slot) {
            watch.follow(id, &connection);
            if !connection.tracks() {
                self.listen_to_breaks(&mut state);
            }
        }
        state.watches.insert(id, watch);
        self.count.fetch_add(1, Ordering::Release);
        drop(state);
        let watches = Arc::clone(self);
        Subscription::new(move || watches.end(id))
    }

    fn end(&self, id: u64) {
        let mut state = self.state.lock();
        let Some(watch) = state.watches.remove(&id) else { return };
        for key in watch.spec.keys() {
            if let Some(ids) = state.by_name.get_mut(key.stored_name()) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    state.by_name.remove(key.stored_name());
                }
            }
        }
        let breaks = if state.watches.is_empty() { state.breaks.take() } else { None };
        self.count.fetch_sub(1, Ordering::Release);
        drop((state, breaks));
    }

    /// Returns whether this operation is the extension of a watched lock, whose script reads the keys. It is sent over this
    /// connection.
    pub(super) fn follow_extension(&self, op: &Op, connection: &Arc<Connection>) -> bool {
        matches!(op.action, Action::Extend { .. }) && self.is_watched(op, connection, |_, _| ())
    }

    /// Reads the keys of a watched lock behind an acquisition that was sent over this connection.
    pub(super) fn read_behind(&self, op: &Op, connection: &Arc<Connection>) {
        if matches!(op.action, Action::Acquire { .. }) {
            self.is_watched(op, connection, |id, watch| watch.read(id, connection));
        }
    }

    /// Calls `then` with each watch of the lock of this operation. Returns whether there is one.
    fn is_watched(
        &self,
        op: &Op,
        connection: &Arc<Connection>,
        then: impl Fn(u64, &mut KeyWatch),
    ) -> bool {
        if self.count.load(Ordering::Acquire) == 0 || !connection.tracks() {
            return false;
        }
        let mut state = self.state.lock();
        let WatchedLocks { watches, by_name, .. } = &mut *state;
        let mut is_watched = false;
        for id in by_name.get(op.spec.name()).into_iter().flatten() {
            if let Some(watch) = watches.get_mut(id).filter(|watch| watch.token == op.token) {
                watch.reads_left = READS_PER_EXTENSION;
                watch.connection = Arc::downgrade(connection);
                then(*id, watch);
                is_watched = true;
            }
        }
        is_watched
    }

    /// Lets the present owners of the slots track the keys.
    pub(super) fn follow(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        for (id, watch) in &mut self.state.lock().watches {
            match self.map.connection(watch.slot) {
                Some(connection) => watch.follow(*id, &connection),
                None => watch.connection = Weak::new(),
            }
        }
    }

    /// Handles an event of a connection.
    pub(super) fn handle(self: &Arc<Self>, event: &Event) {
        match event {
            Event::Push(PushKind::Invalidate, data) => match data.first() {
                Some(Value::Array(names)) => self.changed(names),
                _ => self.read_again(|_| true),
            },
            Event::Push(PushKind::Message, data) => {
                if let [Value::BulkString(channel), Value::BulkString(holder), ..] = &data[..]
                    && channel == self.subscriptions.broken().as_bytes()
                {
                    let id = std::str::from_utf8(holder).ok().and_then(|id| id.parse().ok());
                    self.read_again(|watch| id == Some(watch.token.holder_id()));
                }
            }
            Event::Read { id: ReadId::Holder { watch, key }, reply } => {
                self.compare(*watch, *key, reply);
            }
            Event::TrackingRefused(error) => self.refused(error),
            _ => {}
        }
    }

    /// Publishes a break, without waiting for the reply.
    pub(super) fn announce_removal(&self, name: &str, holder: HolderId) {
        if let Some(connection) = self.map.connection(self.map.slot(name)) {
            let publish =
                cmd("PUBLISH").arg(&**self.subscriptions.broken()).arg(holder.to_string()).take();
            connection.link.send_and_forget(&publish);
        }
    }

    /// Reads the keys that have changed, if they are watched.
    fn changed(&self, names: &[Value]) {
        let mut state = self.state.lock();
        let WatchedLocks { watches, by_name, .. } = &mut *state;
        for name in names {
            let Value::BulkString(name) = name else { continue };
            let ids = std::str::from_utf8(name).ok().and_then(|name| by_name.get(name));
            for id in ids.into_iter().flatten() {
                if let Some(watch) = watches.get_mut(id) {
                    watch.read_once_more(*id);
                }
            }
        }
    }

    fn read_again(&self, is_meant: impl Fn(&KeyWatch) -> bool) {
        for (id, watch) in &mut self.state.lock().watches {
            if is_meant(watch) {
                watch.read_once_more(*id);
            }
        }
    }

    /// Compares the value at a key with the token. Notifies the holder of a loss.
    fn compare(&self, watch: u64, key: usize, reply: &ServerReply) {
        let mut state = self.state.lock();
        let Some(watch) = state.watches.get_mut(&watch) else { return };
        let Some(is_held) = watch.is_own(reply) else { return };
        let Some(held) = watch.held.get_mut(key) else { return };
        if std::mem::replace(held, is_held) && !is_held {
            let notify = Arc::clone(&watch.notify);
            drop(state);
            notify();
        }
    }

    /// Listens to breaks instead.
    fn refused(self: &Arc<Self>, error: &RedisError) {
        if !self.is_refusal_logged.swap(true, Ordering::Relaxed) {
            let (node, error) = (&self.map.settings.voter, server_message(error));
            tracing::debug!(
                %node, %error,
                "the server does not track keys, so a holder learns of a loss at its next renewal"
            );
        }
        let mut state = self.state.lock();
        if !state.watches.is_empty() {
            self.listen_to_breaks(&mut state);
        }
    }

    fn listen_to_breaks(&self, state: &mut WatchedLocks) {
        state.breaks.get_or_insert_with(|| {
            let broken = self.subscriptions.broken();
            self.subscriptions.subscribe(broken, self.map.slot(broken), false, Arc::new(|| {}))
        });
    }
}

impl KeyWatch {
    /// Reads the keys again after a change, within the limit.
    fn read_once_more(&mut self, id: u64) {
        if let Some(connection) = self.connection.upgrade()
            && let Some(left) = self.reads_left.checked_sub(1)
        {
            self.reads_left = left;
            self.read(id, &connection);
        }
    }
}
