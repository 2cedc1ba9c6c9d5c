//! The state that a node, its operations and its tasks share.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use super::awaited_keys::AwaitedKeys;
use super::link::Event;
use super::map::Map;
use super::pending::PendingSends;
use super::server::{Observer, ServerSettings};
use super::subscriptions::Subscriptions;
use super::url::RedisUrl;
use super::watches::Watches;
use crate::node::StatusSender;

/// The state that a node, its operations and its tasks share.
pub(super) struct RedisState {
    pub(super) map: Arc<Map>,
    pub(super) pending: PendingSends,
    pub(super) subscriptions: Arc<Subscriptions>,
    pub(super) watches: Arc<Watches>,
    pub(super) awaited: AwaitedKeys,
}

impl RedisState {
    pub(super) fn new(
        url: RedisUrl,
        settings: ServerSettings,
        status: StatusSender,
        runtime: &Handle,
    ) -> Arc<Self> {
        Arc::new_cyclic(|weak_self: &Weak<Self>| {
            let observer: Weak<dyn Observer> = Weak::<Self>::clone(weak_self);
            let map = Arc::new(Map::new(url, settings, status, observer, runtime));
            let subscriptions = Arc::new(Subscriptions::new(&map));
            let watches = Arc::new(Watches::new(&map, &subscriptions));
            let (pending, awaited) = (PendingSends::new(map.is_cluster()), AwaitedKeys::default());
            Self { map, pending, subscriptions, watches, awaited }
        })
    }
}

impl Observer for RedisState {
    fn status_changed(&self, is_lost: bool) {
        if is_lost {
            // Another server may own the slots by now.
            self.map.request_refresh();
        }
        self.map.publish_status();
        self.pending.forget_ended();
        self.subscriptions.follow();
        self.watches.follow();
    }

    fn received(&self, event: Event) {
        self.watches.handle(&event);
        self.subscriptions.handle(event);
    }
}
