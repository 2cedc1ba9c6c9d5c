//! The subscriptions to the channels on which servers publish releases.
//!
//! A cluster delivers a published message to the subscribers of all of its servers. A subscription still goes to the
//! owner of the slot of its lock: the scripts of that server count the subscribers, and only those of its own
//! clients. When the owner or its connection changes, the subscriptions follow.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bb8_redis::redis::{PushKind, RedisError, Value};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::{node_error, server_message};
use super::link::Event;
use super::server::connection::Connection;
use crate::error::NodeError;
use crate::log_limit::LogLimit;
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
#[derive(Default)]
pub(super) struct Subscriptions {
    registry: Mutex<Registry>,
    /// Notified when a subscription was confirmed or has failed.
    settled: Notify,
}

#[derive(Default)]
struct Registry {
    channels: BTreeMap<Arc<str>, Channel>,
    next_id: u64,
}

struct Channel {
    /// The slot of the lock.
    slot: usize,
    subscribers: Vec<Subscriber>,
    /// The subscription on a server. `None` while the owner of the slot is not connected.
    sent: Option<ServerSubscription>,
}

struct ServerSubscription {
    /// Tells the replies to several subscriptions of one channel apart.
    id: u64,
    connection: Weak<Connection>,
    state: SubscriptionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    /// The server has not replied yet.
    Pending,
    Subscribed,
    /// The server does not permit the subscription: waiters poll instead.
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

impl Registry {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl Channel {
    /// Subscribes over a connection, unless that was done. Ends the subscription on the connection before.
    fn follow(&mut self, name: &Arc<str>, connection: &Arc<Connection>, id: u64) {
        let former = self.sent.as_ref().and_then(|sent| sent.connection.upgrade());
        if former.as_ref().is_some_and(|former| Arc::ptr_eq(former, connection)) {
            return;
        }
        // The new subscription comes first, so that fewer messages are missed.
        connection.link.subscribe(name, id);
        self.unsubscribe(name);
        let connection = Arc::downgrade(connection);
        self.sent = Some(ServerSubscription { id, connection, state: SubscriptionState::Pending });
    }

    /// Ends the subscription on the server, if it has one.
    fn unsubscribe(&mut self, name: &Arc<str>) {
        if let Some(ServerSubscription {
            connection,
            state: SubscriptionState::Pending | SubscriptionState::Subscribed,
            ..
        }) = self.sent.take()
            && let Some(connection) = connection.upgrade()
        {
            connection.link.unsubscribe(name);
        }
    }
}

impl Subscriptions {
    /// Subscribes to a channel, for a shared or an exclusive lock, until the returned subscription is dropped. `connection`
    /// returns the connection to the owner of a slot.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        name: &Arc<str>,
        slot: usize,
        is_shared: bool,
        notify: Notification,
        connection: impl FnOnce(usize) -> Option<Arc<Connection>>,
    ) -> Subscription {
        let mut registry = self.registry.lock();
        let (id, sent_id) = (registry.new_id(), registry.new_id());
        let channel = registry.channels.entry(Arc::clone(name));
        let channel =
            channel.or_insert_with(|| Channel { slot, subscribers: Vec::new(), sent: None });
        channel.subscribers.push(Subscriber { id, is_shared, notify });
        // Looked up while the mutex is held, so that no change of the connection is missed.
        if let Some(connection) = connection(slot) {
            channel.follow(name, &connection, sent_id);
        }
        drop(registry);
        let ready = {
            let (subscriptions, name) = (Arc::clone(self), Arc::clone(name));
            async move { subscriptions.ready(&name).await }
        };
        let unsubscribe = {
            let (subscriptions, name) = (Arc::clone(self), Arc::clone(name));
            move || subscriptions.unsubscribe(&name, id)
        };
        Subscription::new(unsubscribe).ready_after(ready)
    }

    async fn ready(&self, name: &str) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            let is_settled = match self.registry.lock().channels.get(name) {
                Some(Channel { sent: Some(sent), .. }) => sent.state != SubscriptionState::Pending,
                Some(Channel { sent: None, .. }) => false,
                None => true,
            };
            if is_settled {
                return;
            }
            settled.await;
        }
    }

    fn unsubscribe(&self, name: &Arc<str>, id: u64) {
        let mut registry = self.registry.lock();
        let Entry::Occupied(mut channel) = registry.channels.entry(Arc::clone(name)) else {
            return;
        };
        channel.get_mut().subscribers.retain(|subscriber| subscriber.id != id);
        if channel.get().subscribers.is_empty() {
            channel.remove().unsubscribe(name);
        }
    }

    /// Moves the subscriptions to the present connections of the owners of their slots.
    pub(super) fn follow(&self, connection: impl Fn(usize) -> Option<Arc<Connection>>) {
        let Registry { channels, next_id } = &mut *self.registry.lock();
        for (name, channel) in channels {
            if let Some(connection) = connection(channel.slot) {
                *next_id += 1;
                channel.follow(name, &connection, *next_id);
            } else if channel.sent.as_ref().is_some_and(ServerSubscription::has_ended) {
                channel.sent = None;
            }
        }
    }

    /// Tries the postponed subscriptions again.
    pub(super) fn retry(&self, connection: impl Fn(usize) -> Option<Arc<Connection>>) {
        for channel in self.registry.lock().channels.values_mut() {
            if channel.sent.as_ref().is_some_and(|sent| sent.state == SubscriptionState::Postponed)
            {
                channel.sent = None;
            }
        }
        self.follow(connection);
    }

    /// Handles an event of a connection. Returns whether a subscription should be [tried again](Self::retry) after a pause.
    pub(super) fn handle(&self, event: Event, node: &str, log_limit: &LogLimit) -> bool {
        match event {
            Event::Push(PushKind::Message, data) => {
                if let [Value::BulkString(channel), Value::BulkString(message), ..] = &data[..] {
                    self.notify_subscribers(&String::from_utf8_lossy(channel), message);
                }
                false
            }
            // A server of a cluster sends `sunsubscribe` unasked when a slot moves.
            Event::Push(..) => false,
            Event::Subscribed { id, channel, result } => {
                if let Err(error) = &result
                    && let Some(suppressed) = log_limit.admit("subscriptions", node)
                {
                    tracing::warn!(
                        node, error = %server_message(error), suppressed,
                        "cannot subscribe to releases; falling back to polling"
                    );
                }
                self.settle(id, &channel, SubscriptionState::after(&result))
            }
        }
    }

    fn settle(&self, id: u64, channel: &str, state: SubscriptionState) -> bool {
        let mut registry = self.registry.lock();
        let sent = registry.channels.get_mut(channel).and_then(|channel| channel.sent.as_mut());
        let Some(sent) = sent.filter(|sent| sent.id == id) else { return false };
        sent.state = state;
        drop(registry);
        self.settled.notify_waiters();
        state == SubscriptionState::Postponed
    }

    /// Notifies the subscribers of a channel about a message.
    fn notify_subscribers(&self, name: &str, message: &[u8]) {
        let subscribers: Vec<Notification> = match self.registry.lock().channels.get(name) {
            Some(channel) => {
                let wanting =
                    channel.subscribers.iter().filter(|subscriber| subscriber.wants(message));
                wanting.map(|subscriber| Arc::clone(&subscriber.notify)).collect()
            }
            None => return,
        };
        for notify in subscribers {
            notify();
        }
    }
}

impl SubscriptionState {
    /// Returns the state after this reply to a subscription.
    fn after(reply: &Result<(), RedisError>) -> Self {
        match reply.as_ref().map_err(node_error) {
            Ok(()) => Self::Subscribed,
            Err(NodeError::NotPermitted(_)) => Self::Refused,
            Err(_) => Self::Postponed,
        }
    }
}

impl ServerSubscription {
    fn has_ended(&self) -> bool {
        !self.connection.upgrade().is_some_and(|connection| connection.is_alive())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An abandoned attempt leaves nothing behind. While a node is down, no task cleans up after
    /// its waiters.
    #[test]
    fn waiters_that_give_up_while_the_node_is_down_leave_nothing_behind() {
        let channels = Arc::new(Subscriptions::default());
        let listen =
            |name: &str| channels.subscribe(&name.into(), 0, false, Arc::new(|| {}), |_| None);
        let stays = listen("lock:0");
        for number in 0..1000 {
            drop(listen(&format!("lock:{number}")));
        }
        let names = || {
            channels.registry.lock().channels.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["lock:0"]);
        drop(stays);
        assert!(names().is_empty());
    }
}
