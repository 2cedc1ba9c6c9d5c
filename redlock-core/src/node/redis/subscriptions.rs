//! The channels that a server's releases are announced on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::RedisError;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::error::{node_error, words};
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::node::{Notify as Notification, Subscription};

/// How long a server that could not subscribe is left alone.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Which locks' releases are listened for on one server, over the connection that there is.
///
/// One task brings what is subscribed in line with what is wanted, so that a subscription and its
/// end cannot cross each other. After a reconnect everything is subscribed again.
#[derive(Default)]
pub(super) struct Subscriptions {
    registry: Mutex<Registry>,
    /// Something was subscribed, or could not be.
    settled: Notify,
}

#[derive(Default)]
struct Registry {
    by_name: BTreeMap<Arc<str>, Channel>,
    /// The names for which what is wanted and what is may differ.
    unsettled: BTreeSet<Arc<str>>,
    /// Wakes the task that settles them. Each connection has its own, because the task of an earlier
    /// one, which nobody polls any more, may still wait for its own.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Channel {
    subscribers: Vec<(u64, Notification)>,
    next_id: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unsubscribed,
    /// The server was asked, and has not confirmed it yet.
    Asked,
    Subscribed,
    /// The server does not permit it: waiters fall back to asking now and then.
    Refused,
    /// The server could not do it (`BUSY`, `LOADING`): the same, until it is asked again.
    Postponed,
}

impl State {
    /// What comes of an answer.
    fn after(answer: &Result<(), RedisError>) -> Self {
        match answer.as_ref().map_err(node_error) {
            Ok(()) => Self::Subscribed,
            Err(NodeError::NotPermitted(_)) => Self::Refused,
            Err(_) => Self::Postponed,
        }
    }
}

impl Subscriptions {
    /// Subscribes until the result is dropped.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        name: &Arc<str>,
        notify: Notification,
    ) -> Subscription {
        let mut registry = self.registry.lock();
        let channel = registry.by_name.entry(Arc::clone(name)).or_default();
        let id = channel.next_id;
        channel.next_id += 1;
        channel.subscribers.push((id, notify));
        registry.unsettled.insert(Arc::clone(name));
        registry.changed.notify_one();
        drop(registry);

        let ready = {
            let (subscriptions, name) = (Arc::clone(self), Arc::clone(name));
            async move { subscriptions.ready(&name).await }
        };
        let unsubscribe = {
            let (subscriptions, name) = (Arc::clone(self), Arc::clone(name));
            move || subscriptions.stop(&name, id)
        };
        Subscription::new(unsubscribe).ready_after(ready)
    }

    async fn ready(&self, name: &str) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            let state = self.registry.lock().by_name.get(name).map(|channel| channel.state);
            if !matches!(state, Some(State::Unsubscribed | State::Asked)) {
                return;
            }
            settled.await;
        }
    }

    fn stop(&self, name: &Arc<str>, id: u64) {
        let mut registry = self.registry.lock();
        let Some(channel) = registry.by_name.get_mut(name) else { return };
        channel.subscribers.retain(|(other, _)| *other != id);
        if !channel.subscribers.is_empty() {
            return;
        }
        if matches!(channel.state, State::Asked | State::Subscribed) {
            registry.unsettled.insert(Arc::clone(name));
            registry.changed.notify_one();
        } else {
            // Where the server does not know of it, there is nothing to be undone, and while there is
            // no connection nobody would.
            registry.by_name.remove(name);
            registry.unsettled.remove(name);
        }
    }

    /// A message came in.
    pub(super) fn announce(&self, name: &str) {
        let subscribers: Vec<Notification> = match self.registry.lock().by_name.get(name) {
            Some(channel) => {
                channel.subscribers.iter().map(|(_, notify)| Arc::clone(notify)).collect()
            }
            None => return,
        };
        for notify in subscribers {
            notify();
        }
    }

    /// Keeps the subscriptions of one connection as they are wanted, for as long as it is polled.
    pub(super) async fn serve(&self, link: &Connection, node: &str, log_limit: &LogLimit) {
        let changed = self.start_anew();
        let mut ask_again: Option<Instant> = None;
        loop {
            if ask_again.is_some_and(|at| at <= Instant::now()) {
                ask_again = None;
                self.ask_again();
            }
            let changed = changed.notified();
            let (wanted, unwanted) = self.changes();
            if wanted.is_empty() && unwanted.is_empty() {
                match ask_again {
                    // Either way there is something to be done.
                    Some(at) => drop(timeout_at(at, changed).await),
                    None => changed.await,
                }
                continue;
            }
            if !wanted.is_empty()
                && let Err(error) = self.subscribe_to(link, wanted).await
            {
                if let Some(suppressed) = log_limit.pass("subscriptions", node) {
                    tracing::warn!(
                        node, error = %words(&error), suppressed,
                        "releases cannot be listened for; waiters ask now and then instead"
                    );
                }
                ask_again.get_or_insert_with(|| Instant::now() + PAUSE);
            }
            if !unwanted.is_empty() {
                // If it fails, messages come in that nobody listens to.
                let _ = link.unsubscribe(&unwanted).await;
                self.settle(unwanted, State::Unsubscribed);
            }
        }
    }

    /// Asks for all of them at once, and where that is not permitted for each by itself: the server
    /// refuses all for the sake of one. Returns an error if there was any.
    async fn subscribe_to(
        &self,
        link: &Connection,
        names: Vec<Arc<str>>,
    ) -> Result<(), RedisError> {
        let answer = link.subscribe(&names).await;
        let state = State::after(&answer);
        if state != State::Refused || names.len() == 1 {
            self.settle(names, state);
            return answer;
        }
        let each = names.into_iter().map(|name| async move {
            let names = vec![name];
            let answer = link.subscribe(&names).await;
            self.settle(names, State::after(&answer));
            answer
        });
        join_all(each).await.into_iter().collect()
    }

    /// Lets what was postponed be asked for.
    fn ask_again(&self) {
        let Registry { by_name, unsettled, .. } = &mut *self.registry.lock();
        for (name, channel) in by_name {
            if channel.state == State::Postponed {
                channel.state = State::Unsubscribed;
                unsettled.insert(Arc::clone(name));
            }
        }
    }

    /// Nothing is subscribed on a new connection. Returns what its task is woken by.
    fn start_anew(&self) -> Arc<Notify> {
        let Registry { by_name, unsettled, changed } = &mut *self.registry.lock();
        *changed = Arc::default();
        by_name.retain(|_, channel| !channel.subscribers.is_empty());
        for channel in by_name.values_mut() {
            channel.state = State::Unsubscribed;
        }
        *unsettled = by_name.keys().map(Arc::clone).collect();
        Arc::clone(changed)
    }

    /// What is to be subscribed, and what no longer.
    fn changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        let Registry { by_name, unsettled, .. } = &mut *self.registry.lock();
        for name in std::mem::take(unsettled) {
            let Some(channel) = by_name.get_mut(&name) else { continue };
            match (channel.subscribers.is_empty(), channel.state) {
                (false, State::Unsubscribed) => {
                    channel.state = State::Asked;
                    wanted.push(name);
                }
                (true, State::Subscribed) => {
                    channel.state = State::Asked;
                    unwanted.push(name);
                }
                (true, State::Unsubscribed | State::Refused | State::Postponed) => {
                    by_name.remove(&name);
                }
                // Settled, or looked at again when the server has answered.
                (false, State::Subscribed | State::Refused | State::Postponed)
                | (_, State::Asked) => {}
            }
        }
        (wanted, unwanted)
    }

    fn settle(&self, names: Vec<Arc<str>>, state: State) {
        let mut registry = self.registry.lock();
        for name in names {
            if let Some(channel) = registry.by_name.get_mut(&name) {
                channel.state = state;
            }
            // What is wanted may have changed in the meantime.
            registry.unsettled.insert(name);
        }
        drop(registry);
        self.settled.notify_waiters();
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
        let listen = |name: &str| channels.subscribe(&name.into(), Arc::new(|| {}));
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
