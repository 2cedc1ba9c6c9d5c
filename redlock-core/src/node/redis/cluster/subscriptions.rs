//! Subscriptions on the owners of the slots.
//!
//! A cluster delivers a published message to the subscribers of all of its servers. A subscription still goes to the
//! owner of the slot of its lock: the scripts of that server count the subscribers, and only those of its own
//! clients. When the owner changes, the subscriptions of the slot move to the new owner.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::shards::Shards;
use super::{Cluster, slot};
use crate::lock::LockSpec;
use crate::node::redis::RedisNode;
use crate::node::{Node, Notify, ProcessId, Subscription};

/// The subscriptions of a cluster node.
#[derive(Default)]
pub(super) struct ShardSubscriptions(Mutex<ShardChannels>);

#[derive(Default)]
struct ShardChannels {
    by_id: HashMap<u64, ShardSubscription>,
    next_id: u64,
}

struct ShardSubscription {
    spec: LockSpec,
    channel: ChannelKind,
    /// The subscription on a shard; `None` while no shard owns the slot.
    current: Option<(Arc<RedisNode>, Subscription)>,
}

/// One of the channels of a lock.
#[derive(Clone)]
pub(super) enum ChannelKind {
    /// The releases of the lock.
    Releases(Notify),
    /// Requests a turn of the callers that share the lock.
    Turn,
    /// The changes of the first ticket in the fair queue of the lock.
    Queue(ProcessId, Notify),
}

impl Cluster {
    /// Subscribes to a channel of a lock, until the returned subscription is dropped.
    pub(super) fn subscribe(&self, spec: &LockSpec, channel: ChannelKind) -> Subscription {
        let mut subscription = ShardSubscription { spec: spec.clone(), channel, current: None };
        // The mutex is held for both steps, so that no change of the owner is missed.
        let mut registry = self.subscriptions.0.lock();
        subscription.follow(&self.shards);
        let ready = subscription.current.as_mut().and_then(|(_, current)| current.take_ready());
        let id = registry.next_id;
        registry.next_id += 1;
        registry.by_id.insert(id, subscription);
        drop(registry);
        let subscriptions = Arc::clone(&self.subscriptions);
        let unsubscribe = move || {
            let removed = subscriptions.0.lock().by_id.remove(&id);
            drop(removed);
        };
        let subscription = Subscription::new(unsubscribe);
        match ready {
            Some(ready) => subscription.ready_after(ready),
            None => subscription,
        }
    }
}

impl ShardSubscriptions {
    /// Moves the subscriptions of the slots whose owner has changed.
    pub(super) fn follow(&self, shards: &Shards) {
        for subscription in self.0.lock().by_id.values_mut() {
            subscription.follow(shards);
        }
    }
}

impl ShardSubscription {
    fn follow(&mut self, shards: &Shards) {
        let Some(owner) = shards.owner(slot(self.spec.name())) else { return };
        if self.current.as_ref().is_some_and(|(shard, _)| Arc::ptr_eq(shard, &owner)) {
            return;
        }
        let subscription = match &self.channel {
            ChannelKind::Releases(notify) => owner.subscribe(&self.spec, Arc::clone(notify)),
            ChannelKind::Turn => owner.request_turn(&self.spec),
            ChannelKind::Queue(process, notify) => {
                owner.subscribe_queue(&self.spec, *process, Arc::clone(notify))
            }
        };
        // The new subscription comes first, so that fewer messages are missed.
        self.current = Some((owner, subscription));
    }
}

impl fmt::Debug for ShardSubscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardSubscriptions").field(&self.0.lock().by_id.len()).finish()
    }
}
