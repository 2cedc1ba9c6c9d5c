//! The subscriptions to the channels on which a server publishes releases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{RedisError, Value};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::error::{node_error, server_message};
use super::link::Change;
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::node::{Notify as Notification, Subscription};

/// The pause before a failed subscription is tried again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The subscriptions to releases on one server, over its current connection.
///
/// One task per connection sends all `SUBSCRIBE` and `UNSUBSCRIBE` commands, so that they cannot overtake
/// each other. After a reconnect, the task of the new connection subscribes to all channels again.
#[derive(Default)]
pub(super) struct Subscriptions {
    registry: Mutex<Registry>,
    /// Notified when a subscription was confirmed or has failed.
    settled: Notify,
}

#[derive(Default)]
struct Registry {
    by_name: BTreeMap<Arc<str>, Channel>,
    /// The channels whose state on the server may not match their subscribers.
    unsettled: BTreeSet<Arc<str>>,
    /// Wakes the task that settles these channels. Each connection has its own `Notify`, because the task
    /// of an earlier connection may still be registered although it is not polled any more, and would
    /// receive the wake-up instead.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Channel {
    subscribers: Vec<ChannelSubscriber>,
    next_id: u64,
    state: ChannelState,
}

struct ChannelSubscriber {
    id: u64,
    /// Whether the subscriber waits for a shared lock.
    is_shared: bool,
    notify: Notification,
}

impl ChannelSubscriber {
    /// Returns whether a message concerns the subscriber.
    fn wants(&self, message: &[u8]) -> bool {
        match message {
            FOR_READERS => self.is_shared,
            FOR_WRITERS => !self.is_shared,
            _ => true,
        }
    }
}

/// The message of a release after which only a shared lock can be acquired.
const FOR_READERS: &[u8] = b"r";
/// The message of a release after which only an exclusive lock can be acquired.
const FOR_WRITERS: &[u8] = b"w";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ChannelState {
    #[default]
    Unsubscribed,
    /// A command was sent, and the server has not confirmed it yet.
    Pending,
    Subscribed,
    /// The server does not permit the subscription: waiters poll instead.
    Refused,
    /// The server could not subscribe (`BUSY`, `LOADING`): waiters poll until the next attempt.
    Postponed,
}

impl ChannelState {
    /// Returns the state of a channel after this reply to its subscription.
    fn after(reply: &Result<Value, RedisError>) -> Self {
        match reply.as_ref().map_err(node_error) {
            Ok(_) => Self::Subscribed,
            Err(NodeError::NotPermitted(_)) => Self::Refused,
            Err(_) => Self::Postponed,
        }
    }
}

impl Subscriptions {
    /// Subscribes to a channel, for a shared or an exclusive lock, until the returned subscription is dropped.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        name: &Arc<str>,
        is_shared: bool,
        notify: Notification,
    ) -> Subscription {
        let mut registry = self.registry.lock();
        let channel = registry.by_name.entry(Arc::clone(name)).or_default();
        let id = channel.next_id;
        channel.next_id += 1;
        channel.subscribers.push(ChannelSubscriber { id, is_shared, notify });
        registry.unsettled.insert(Arc::clone(name));
        registry.changed.notify_one();
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
            let state = self.registry.lock().by_name.get(name).map(|channel| channel.state);
            if !matches!(state, Some(ChannelState::Unsubscribed | ChannelState::Pending)) {
                return;
            }
            settled.await;
        }
    }

    fn unsubscribe(&self, name: &Arc<str>, id: u64) {
        let mut registry = self.registry.lock();
        let Some(channel) = registry.by_name.get_mut(name) else { return };
        channel.subscribers.retain(|subscriber| subscriber.id != id);
        if !channel.subscribers.is_empty() {
            return;
        }
        if matches!(channel.state, ChannelState::Pending | ChannelState::Subscribed) {
            registry.unsettled.insert(Arc::clone(name));
            registry.changed.notify_one();
        } else {
            // The server has no such subscription, so no command is needed. While there is no connection,
            // no task would remove the entry.
            registry.by_name.remove(name);
            registry.unsettled.remove(name);
        }
    }

    /// Notifies the subscribers of a channel about a message.
    pub(super) fn notify_subscribers(&self, name: &str, message: &[u8]) {
        let subscribers: Vec<Notification> = match self.registry.lock().by_name.get(name) {
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

    /// Keeps the subscriptions on one connection up to date while the future is polled. Never completes.
    pub(super) async fn serve(&self, connection: &Connection, node: &str, log_limit: &LogLimit) {
        let changed = self.reset();
        let mut retry_at: Option<Instant> = None;
        loop {
            if retry_at.is_some_and(|at| at <= Instant::now()) {
                retry_at = None;
                self.retry_postponed();
            }
            let changed = changed.notified();
            let (wanted, unwanted) = self.changes();
            if wanted.is_empty() && unwanted.is_empty() {
                match retry_at {
                    // The next iteration handles both outcomes.
                    Some(at) => drop(timeout_at(at, changed).await),
                    None => changed.await,
                }
                continue;
            }
            let wanted = wanted.into_iter().map(|name| (Change::Subscribe, name));
            let unwanted = unwanted.into_iter().map(|name| (Change::Unsubscribe, name));
            let replies = wanted.chain(unwanted).map(|(change, name)| async move {
                let reply = connection.link.change_subscription(change, &name).await;
                (change, name, reply)
            });
            if let Err(error) = self.settle(join_all(replies).await) {
                if let Some(suppressed) = log_limit.admit("subscriptions", node) {
                    tracing::warn!(
                        node, error = %server_message(&error), suppressed,
                        "cannot subscribe to releases; falling back to polling"
                    );
                }
                retry_at.get_or_insert_with(|| Instant::now() + RETRY_PAUSE);
            }
        }
    }

    /// Marks the postponed channels, so that the task subscribes to them again.
    fn retry_postponed(&self) {
        let Registry { by_name, unsettled, .. } = &mut *self.registry.lock();
        for (name, channel) in by_name {
            if channel.state == ChannelState::Postponed {
                channel.state = ChannelState::Unsubscribed;
                unsettled.insert(Arc::clone(name));
            }
        }
    }

    /// Resets all channels to `Unsubscribed` for a new connection. Returns the `Notify` that wakes its task.
    fn reset(&self) -> Arc<Notify> {
        let Registry { by_name, unsettled, changed } = &mut *self.registry.lock();
        *changed = Arc::default();
        by_name.retain(|_, channel| !channel.subscribers.is_empty());
        for channel in by_name.values_mut() {
            channel.state = ChannelState::Unsubscribed;
        }
        *unsettled = by_name.keys().map(Arc::clone).collect();
        Arc::clone(changed)
    }

    /// Returns the channels to subscribe to, and the channels to unsubscribe from.
    fn changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        let Registry { by_name, unsettled, .. } = &mut *self.registry.lock();
        for name in std::mem::take(unsettled) {
            let Some(channel) = by_name.get_mut(&name) else { continue };
            match (channel.subscribers.is_empty(), channel.state) {
                (false, ChannelState::Unsubscribed) => {
                    channel.state = ChannelState::Pending;
                    wanted.push(name);
                }
                (true, ChannelState::Subscribed) => {
                    channel.state = ChannelState::Pending;
                    unwanted.push(name);
                }
                (
                    true,
                    ChannelState::Unsubscribed | ChannelState::Refused | ChannelState::Postponed,
                ) => {
                    by_name.remove(&name);
                }
                // The channel is settled, or becomes unsettled again when the server replies.
                (
                    false,
                    ChannelState::Subscribed | ChannelState::Refused | ChannelState::Postponed,
                )
                | (_, ChannelState::Pending) => {}
            }
        }
        (wanted, unwanted)
    }

    /// Records the replies to changes. Returns the first error of a subscription.
    fn settle(
        &self,
        replies: Vec<(Change, Arc<str>, Result<Value, RedisError>)>,
    ) -> Result<(), RedisError> {
        let mut first_error = Ok(());
        let mut registry = self.registry.lock();
        for (change, name, reply) in replies {
            let state = match change {
                Change::Subscribe => ChannelState::after(&reply),
                // After a failure, the server sends messages without subscribers, which are ignored.
                Change::Unsubscribe => ChannelState::Unsubscribed,
            };
            if change == Change::Subscribe {
                first_error = first_error.and(reply.map(drop));
            }
            if let Some(channel) = registry.by_name.get_mut(&name) {
                channel.state = state;
            }
            // Subscribers may have come or gone in the meantime.
            registry.unsettled.insert(name);
        }
        drop(registry);
        self.settled.notify_waiters();
        first_error
    }
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriptions")
            .field("len", &self.registry.lock().by_name.len())
            .finish_non_exhaustive()
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
        let listen = |name: &str| channels.subscribe(&name.into(), false, Arc::new(|| {}));
        let stays = listen("lock:0");
        for number in 0..1000 {
            drop(listen(&format!("lock:{number}")));
        }
        let names = || {
            let Registry { by_name, unsettled, .. } = &*channels.registry.lock();
            let names = [by_name.keys().collect::<Vec<_>>(), unsettled.iter().collect()];
            names.map(|names| names.into_iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(names(), [["lock:0"]; 2]);
        drop(stays);
        assert_eq!(names(), [[""; 0]; 2]);
    }
}
