//! The subscriptions to the channels on which servers publish releases.
//!
//! A cluster delivers a published message to the subscribers of all of its servers. A subscription still goes to the
//! owner of the slot of its lock: the scripts of that server count the subscribers, and only those of its own
//! clients. When the owner or its connection changes, the subscriptions follow.

mod foreign;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bb8_redis::redis::{PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use super::error::{node_error, server_message};
use super::link::Event;
use super::link::tracking::ReadId;
use super::map::Map;
use super::server::connection::Connection;
use crate::error::NodeError;
use crate::log_limited;
use crate::node::{Notify as Notification, Subscription};

/// The pause before a failed subscription is tried again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The message of a release after which only a shared lock can be acquired.
const FOR_READERS: &[u8] = b"r";
/// The message of a release after which only an exclusive lock can be acquired.
const FOR_WRITERS: &[u8] = b"w";

/// The subscriptions of a node.
///
/// Each command is sent at once, over the present connection to the owner of the slot, and a connection keeps the order of its
/// commands.
pub(super) struct Subscriptions {
    map: Arc<Map>,
    /// The channel on which breaks are published.
    broken: Arc<str>,
    channels: Mutex<BTreeMap<Arc<str>, Channel>>,
    /// The channels of tracked keys that have changed, until all arrived bytes are read.
    invalidated: Mutex<Vec<Arc<str>>>,
    last_id: AtomicU64,
    /// Whether the postponed subscriptions will be tried again.
    is_retry_planned: AtomicBool,
}

struct Channel {
    /// The slot of the lock.
    slot: usize,
    subscribers: Vec<Subscriber>,
    /// The connection over which the subscription was sent. None while the owner of the slot is not connected.
    connection: Weak<Connection>,
    /// Tells the replies to several subscriptions of this channel apart. 0 without a connection.
    id: u64,
    state: watch::Sender<SubscriptionState>,
    /// Whether the holder of the plain lock publishes no release, as far as a refusal has shown.
    is_foreign: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    /// The server has not replied yet, or there is no connection to it.
    Pending,
    Subscribed,
    /// The server does not permit the subscription, or no other commands beside it: waiters poll instead.
    Refused,
    /// The server could not subscribe (`BUSY`, `LOADING`): waiters poll until the next attempt.
    Postponed,
}

struct Subscriber {
    id: u64,
    /// Whether the subscriber waits for a shared lock.
    is_shared: bool,
    notify: Notification,
}

impl Subscriber {
    /// Returns whether a message concerns the subscriber.
    fn wants(&self, message: &[u8]) -> bool {
        match message {
            FOR_READERS => self.is_shared,
            FOR_WRITERS => !self.is_shared,
            _ => true,
        }
    }
}

impl Channel {
    /// Subscribes over a connection, unless that was done. Ends the subscription on the connection before.
    fn follow(&mut self, name: &Arc<str>, connection: &Arc<Connection>, id: u64) {
        if self.connection.as_ptr() == Arc::as_ptr(connection) {
            return;
        }
        // The new subscription comes first, so that fewer messages are missed.
        if connection.takes_subscriptions {
            connection.link.subscribe(name, id);
        }
        if self.is_foreign {
            foreign::track(name, connection);
        }
        self.unsubscribe(name);
        self.set(id, Arc::downgrade(connection));
        if !connection.takes_subscriptions {
            self.state.send_replace(SubscriptionState::Refused);
        }
    }

    /// Sets the connection over which the subscription with this ID was sent.
    fn set(&mut self, id: u64, connection: Weak<Connection>) {
        (self.id, self.connection) = (id, connection);
        self.state.send_replace(SubscriptionState::Pending);
    }

    /// Ends the subscription on the server, if it has one.
    fn unsubscribe(&self, name: &Arc<str>) {
        use SubscriptionState::{Pending, Subscribed};
        if matches!(*self.state.borrow(), Pending | Subscribed)
            && let Some(connection) = self.connection.upgrade()
        {
            connection.link.unsubscribe(name);
        }
    }
}

impl Subscriptions {
    pub(super) fn new(map: &Arc<Map>) -> Self {
        let (channels, invalidated, last_id, is_retry_planned) = Default::default();
        let broken = format!("{}redlock:broken", map.settings.locks.prefix).into();
        Self { map: Arc::clone(map), broken, channels, invalidated, last_id, is_retry_planned }
    }

    /// Returns the channel on which breaks are published.
    pub(super) fn broken(&self) -> &Arc<str> {
        &self.broken
    }

    /// Subscribes to a channel, for a shared or an exclusive lock, until the returned subscription is dropped.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        name: &Arc<str>,
        slot: usize,
        is_shared: bool,
        notify: Notification,
    ) -> Subscription {
        let id = self.new_id();
        let mut channels = self.channels.lock();
        let channel = channels.entry(Arc::clone(name)).or_insert_with(|| Channel {
            slot,
            subscribers: Vec::new(),
            connection: Weak::new(),
            id: 0,
            state: watch::Sender::new(SubscriptionState::Pending),
            is_foreign: false,
        });
        channel.subscribers.push(Subscriber { id, is_shared, notify });
        // Looked up while the mutex is held, so that no change of the connection is missed.
        if let Some(connection) = self.map.connection(slot) {
            channel.follow(name, &connection, self.new_id());
        }
        let mut state = channel.state.subscribe();
        drop(channels);
        let ready = async move {
            // An error if the channel has no subscribers any more.
            let _ = state.wait_for(|state| *state != SubscriptionState::Pending).await;
        };
        let (subscriptions, name) = (Arc::clone(self), Arc::clone(name));
        Subscription::new(move || subscriptions.unsubscribe(&name, id)).ready_after(ready)
    }

    fn new_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn unsubscribe(&self, name: &Arc<str>, id: u64) {
        let mut channels = self.channels.lock();
        let Entry::Occupied(mut channel) = channels.entry(Arc::clone(name)) else {
            return;
        };
        channel.get_mut().subscribers.retain(|subscriber| subscriber.id != id);
        if channel.get().subscribers.is_empty() {
            channel.remove().unsubscribe(name);
        }
    }

    /// Moves the subscriptions to the present connections of the owners of their slots.
    pub(super) fn follow(&self) {
        for (name, channel) in self.channels.lock().iter_mut() {
            if let Some(connection) = self.map.connection(channel.slot) {
                channel.follow(name, &connection, self.new_id());
            } else if !channel.connection.upgrade().is_some_and(|former| former.link.is_alive()) {
                channel.set(0, Weak::new());
            }
        }
    }

    /// Tries the postponed subscriptions again.
    fn retry(&self) {
        self.is_retry_planned.store(false, Ordering::Relaxed);
        for channel in self.channels.lock().values_mut() {
            if *channel.state.borrow() == SubscriptionState::Postponed {
                channel.set(0, Weak::new());
            }
        }
        self.follow();
    }

    /// Handles an event of a connection. Tries postponed subscriptions again after a pause.
    pub(super) fn handle(self: &Arc<Self>, event: Event) {
        match event {
            Event::Push(PushKind::Message, data) => {
                if let [Value::BulkString(channel), Value::BulkString(message), ..] = &data[..] {
                    let channel = String::from_utf8_lossy(channel);
                    // The release is published, so the change of the key is no event of its own.
                    self.invalidated.lock().retain(|changed| **changed != *channel);
                    self.notify_subscribers(&channel, message);
                }
            }
            Event::Push(PushKind::Invalidate, data) => {
                self.invalidated(match data.first() {
                    Some(Value::Array(names)) => Some(names),
                    _ => None,
                });
            }
            Event::AllRead => self.notify_invalidated(),
            Event::Read { id: ReadId::Waiter(name), reply } => self.read(&name, &reply),
            // The holders handle two of these events. A server of a cluster sends `sunsubscribe` unasked when a slot moves.
            Event::Read { id: ReadId::Holder { .. }, .. }
            | Event::TrackingRefused(_)
            | Event::Push(..) => {}
            Event::Subscribed { id, channel, result } => {
                if let Err(error) = result.as_ref()
                    && channel != self.broken
                {
                    let (node, error) = (&self.map.settings.voter, server_message(error));
                    log_limited!(
                        self.map.settings.log_limit, "subscriptions", node, warn, %node, %channel, %error,
                        "cannot subscribe to releases; falling back to polling"
                    );
                }
                let state = match result.as_ref().map_err(node_error) {
                    Ok(()) => SubscriptionState::Subscribed,
                    Err(NodeError::NotPermitted(_)) => SubscriptionState::Refused,
                    Err(_) => SubscriptionState::Postponed,
                };
                let channels = self.channels.lock();
                let Some(channel) = channels.get(&channel).filter(|channel| channel.id == id)
                else {
                    return;
                };
                channel.state.send_replace(state);
                if state == SubscriptionState::Postponed
                    && !self.is_retry_planned.swap(true, Ordering::Relaxed)
                {
                    let weak_self = Arc::downgrade(self);
                    tokio::spawn(async move {
                        sleep(RETRY_PAUSE).await;
                        weak_self.upgrade().inspect(|subscriptions| subscriptions.retry());
                    });
                }
            }
        }
    }

    /// Notifies the subscribers of a channel about a message.
    fn notify_subscribers(&self, name: &str, message: &[u8]) {
        let channels = self.channels.lock();
        let Some(channel) = channels.get(name) else { return };
        let wanting = channel.subscribers.iter().filter(|subscriber| subscriber.wants(message));
        let notifications: Vec<_> =
            wanting.map(|subscriber| Arc::clone(&subscriber.notify)).collect();
        drop(channels);
        for notify in notifications {
            notify();
        }
    }
}

#[cfg(test)]
mod tests;
