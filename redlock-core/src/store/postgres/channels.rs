//! The channels on which releases are notified.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, OptionFuture, Shared, join_all};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::link::{RequestContext, ServerLink};
use super::session::{Answer, SqlValue, Work};
use super::sql::Statement;
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::{Notify, Subscription};

/// How long a notification of this process to itself may take.
const OWN_NOTIFICATION: Duration = Duration::from_secs(1);

/// Returns the channel of a lock. The name of a channel has at most 63 bytes, and a name of a lock may be longer.
pub(super) fn channel(name: &str) -> Box<str> {
    let digest = Sha256::digest(name);
    let number = digest[..16].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    format!("redlock_{number:032x}").into()
}

/// Notifies channels.
pub(super) async fn notify(
    link: &ServerLink,
    channels: Vec<Box<str>>,
) -> Result<Answer, NodeError> {
    let work = Work::Statement(Statement::Notify, vec![SqlValue::Texts(channels)]);
    link.send(work, RequestContext::default()).await
}

/// The subscriptions of a node, over a connection of their own.
#[derive(Default)]
pub(super) struct Channels {
    state: Mutex<ChannelsState>,
    last_id: AtomicU64,
}

#[derive(Default)]
struct ChannelsState {
    channels: HashMap<Box<str>, ListenedChannel>,
    /// The connection. Without one, waiters poll.
    link: Option<Arc<ServerLink>>,
}

struct ListenedChannel {
    subscribers: Vec<(u64, Notify)>,
    /// Completes when the subscription is in effect, or cannot be now.
    listening: Listening,
}

type Listening = Shared<BoxFuture<'static, ()>>;

/// Sends a command for a channel, if there is a connection.
fn send(link: Option<&Arc<ServerLink>>, command: &str, channel: &str) -> Listening {
    let work = || Work::Command(format!("{command} {channel}"));
    let sent = link.map(|link| link.send(work(), RequestContext::default()));
    async { drop(OptionFuture::from(sent).await) }.boxed().shared()
}

impl Channels {
    /// Subscribes to the releases of a lock, until the subscription is dropped.
    pub(super) fn subscribe(self: &Arc<Self>, channel: Box<str>, notify: Notify) -> Subscription {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let ChannelsState { channels, link } = &mut *state;
        let listened = channels.entry(channel.clone()).or_insert_with(|| ListenedChannel {
            subscribers: Vec::new(),
            listening: send(link.as_ref(), "listen", &channel),
        });
        listened.subscribers.push((id, notify));
        let listening = listened.listening.clone();
        drop(state);
        let channels = Arc::clone(self);
        Subscription::new(move || channels.unsubscribe(&channel, id)).ready_after(listening)
    }

    fn unsubscribe(&self, name: &str, id: u64) {
        let mut state = self.state.lock();
        let Some(channel) = state.channels.get_mut(name) else { return };
        channel.subscribers.retain(|(other, _)| *other != id);
        if channel.subscribers.is_empty() {
            state.channels.remove(name);
            drop(send(state.link.as_ref(), "unlisten", name));
        }
    }

    /// Uses a new connection: listens to all channels over it, and then notifies all subscribers. They may have missed
    /// a release.
    pub(super) async fn use_link(&self, link: &Arc<ServerLink>) {
        let listening: Vec<_> = {
            let mut state = self.state.lock();
            state.link = Some(Arc::clone(link));
            let channels = state.channels.iter_mut();
            let listen_again = channels.map(|(name, channel)| {
                channel.listening = send(Some(link), "listen", name);
                channel.listening.clone()
            });
            listen_again.collect()
        };
        join_all(listening).await;
        let names: Vec<_> = self.state.lock().channels.keys().cloned().collect();
        for name in names {
            self.notify(&name);
        }
    }

    /// Returns whether no channel has a subscriber.
    pub(super) fn are_unused(&self) -> bool {
        self.state.lock().channels.is_empty()
    }

    /// Notifies the subscribers of a channel.
    pub(super) fn notify(&self, channel: &str) {
        let state = self.state.lock();
        let subscribers =
            state.channels.get(channel).map_or(&[][..], |channel| &channel.subscribers);
        let notifications: Vec<_> =
            subscribers.iter().map(|(_, notify)| Arc::clone(notify)).collect();
        drop(state);
        for notify in notifications {
            notify();
        }
    }

    /// Returns whether a notification of this process to itself arrives. A pooler in transaction mode loses it.
    ///
    /// # Errors
    ///
    /// The reason of a server that refuses to notify.
    pub(super) async fn are_notified(
        self: &Arc<Self>,
        link: &ServerLink,
    ) -> Result<bool, NodeError> {
        let own = channel(&format!("{}", jitter(0..u64::MAX)));
        let notified = Arc::new(tokio::sync::Notify::new());
        let on_notified = Arc::clone(&notified);
        let mut subscription =
            self.subscribe(own.clone(), Arc::new(move || on_notified.notify_one()));
        if let Some(ready) = subscription.take_ready() {
            ready.await;
        }
        match notify(link, vec![own]).await {
            // A connection that has broken meanwhile shows nothing.
            Err(NodeError::ConnectionBroke(_) | NodeError::NotConnected(_)) => Ok(true),
            Err(reason) => Err(reason),
            Ok(_) => Ok(timeout(OWN_NOTIFICATION, notified.notified()).await.is_ok()),
        }
    }
}
